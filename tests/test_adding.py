"""The contributor's path: docs/adding.md is followed to the letter, its tables exist, and the picture of the layers is true."""

from __future__ import annotations

import importlib
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import types
from pathlib import Path

import plot_layers
import pytest

from ubex import cli, experiments, load_results

ROOT = Path(__file__).resolve().parent.parent
ADDING = (ROOT / "docs" / "adding.md").read_text()
SKELETONS = ADDING[: ADDING.index("\n## How the house is built\n")]
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", SKELETONS, re.DOTALL | re.MULTILINE))
BLOCKS = {
    heading: re.findall(r"^```(python|diff)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE) for heading, text in SECTIONS.items()
}
KINDS = {heading: [kind for kind, _ in found] for heading, found in BLOCKS.items()}
INTO_THE_PACKAGE = {"An estimator": "half-pombu", "A tabular environment": "river"}
"""Skeletons that are copied into the package, and the names that they then have."""
SCRIPTS = ("A deep method", "A figure")
"""Skeletons that are scripts; the experiment is a file of the package."""


@pytest.mark.parametrize(
    "heading", [heading for heading in BLOCKS if heading not in (*INTO_THE_PACKAGE, *SCRIPTS, "An experiment")]
)
def test_every_skeleton_that_stays_outside_runs(heading: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert KINDS[heading] == ["python"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    module = types.ModuleType("skeleton")
    monkeypatch.setitem(sys.modules, "skeleton", module)  # dataclasses look for the module of a class
    exec(compile(BLOCKS[heading][0][1], f"adding.md, {heading}", "exec"), vars(module))


def edited(text: str, change: str) -> str:
    """The text with the lines of a diff: those with a minus become those with a plus, others follow the line above them."""
    lines, place = text.splitlines(), -1
    for mark, line in ((line[0], line[1:]) for line in change.splitlines()):
        if mark == "+":
            place += 1
            lines.insert(place, line)
        else:
            assert lines.count(line) == 1, f"the page shows {line!r}, which the file has {lines.count(line)} times"
            place = lines.index(line)
            if mark == "-":
                del lines[place]
                place -= 1
    return "\n".join(lines) + "\n"


def follow(heading: str, root: Path) -> None:
    """Does what the page says in a copy of the repository."""
    (_, skeleton), (_, change), _ = BLOCKS[heading]
    named, _, change = change.partition("\n")
    (root / re.findall(r"src/ubex/\S+\.py", skeleton)[0]).write_text(skeleton)
    table = root / named.removeprefix(" # ")
    table.write_text(edited(table.read_text(), change))


def run(root: Path, *words: str) -> str:
    """What Python prints there; it has to succeed."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith("COV")}  # the copy is not measured
    environment = {**mine, "PYTHONPATH": str(root / "src")}
    done = subprocess.run([sys.executable, *words], cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("heading", INTO_THE_PACKAGE)
def test_every_skeleton_works_in_the_place_that_the_page_says(heading: str, tmp_path: Path) -> None:
    assert KINDS[heading] == ["python", "diff", "python"]
    name = INTO_THE_PACKAGE[heading]
    for part in ("src", "tests", "docs"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    follow(heading, tmp_path)
    run(tmp_path, "-c", BLOCKS[heading][2][1])
    assert name in run(tmp_path, "-m", "ubex", "list")
    (tests,) = re.findall(rf"\[{heading.split(' ', 1)[1]}\].*\| `(tests/[\w/.]+)`[^|]*\|$", ADDING, re.MULTILINE)
    said = run(tmp_path, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", tests, "-k", name)
    assert int(re.findall(r"(\d+) passed", said)[0]) >= 3, said


def test_a_page_that_shows_another_table_is_noticed() -> None:
    assert edited("a\nb\nd\n", " b\n+c\n-d\n+e") == "a\nb\nc\ne\n"
    with pytest.raises(AssertionError, match="which the file has 0 times"):
        edited("a\nb\n", " x\n+c")


def written(heading: str, folder: Path) -> Path:
    """The skeleton in a file of the name that its first line says."""
    ((_, text),) = BLOCKS[heading]
    named = re.match(r'"""(?:[\w/]*/)?(\w+\.py)[.,] ', text)
    assert named, f"the first line of {heading} names no file"
    file = folder / named[1]
    file.write_text(text)
    return file


@pytest.mark.parametrize("heading", SCRIPTS)
def test_scripts_run_as_they_stand(heading: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    runpy.run_path(str(written(heading, tmp_path)), run_name="__main__")


def test_the_experiment_works_as_a_file_of_the_package_and_a_line_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written("An experiment", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(experiments, "__path__", [*experiments.__path__, str(tmp_path)])
    module = importlib.import_module(f"ubex.experiments.{file.stem}")
    assert [path.name for path in tmp_path.iterdir() if path.suffix] == [file.name]  # importing it runs nothing
    (line,) = re.findall(r'add the line `"(.*)": "(.*)",` to `EXPERIMENTS`', ADDING)
    monkeypatch.setitem(experiments.EXPERIMENTS.places, *line)
    assert experiments.EXPERIMENTS["doubt"] is module.Doubt
    for line in re.findall(r"^ubex (run doubt .*)$", ADDING, re.MULTILINE):
        assert cli.run([*line.split(), "--out", line.replace(" ", "")]) == 0
    before, after = (float(row[-1]) for row in json.loads(Path("rundoubt--smoke/tables.json").read_text())[0]["rows"])
    assert after < before
    assert len(load_results("rundoubt--presetlong--seeds10")) == 3 * 2 * 10


def test_there_is_a_skeleton_for_each_kind() -> None:
    assert list(BLOCKS) == [
        "An estimator",
        "A tabular environment",
        "A Gymnasium environment",
        "An experiment",
        "A deep method",
        "A figure",
    ]


def test_the_tables_that_the_page_names_exist() -> None:
    named = re.findall(r"`([A-Z_]+)` in `([\w/]+)\.py`", ADDING)
    assert len(named) == 5
    for table, file in named:
        assert hasattr(importlib.import_module(f"ubex.{file.replace('/', '.').removesuffix('.__init__')}"), table)
    for path in re.findall(r"`(tests/[\w/.]*)`", ADDING):
        assert (ROOT / path).exists(), path


def test_the_picture_of_the_layers_is_drawn_from_the_table() -> None:
    drawn = plot_layers.draw(plot_layers.layers())
    assert plot_layers.TARGET.read_text() == drawn, "run: python docs/figures/plot_layers.py"
    assert all(f">{name}</text>" in drawn for layer in plot_layers.layers() for name in layer)
