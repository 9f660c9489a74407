"""The contributor's path: every skeleton of docs/adding.md runs, its tables exist, and the picture of the layers is true."""

from __future__ import annotations

import importlib
import json
import re
import runpy
import sys
import types
from pathlib import Path

import plot_layers
import pytest

from ubex import cli, experiments, load_results
from ubex.experiments import command

ROOT = Path(__file__).resolve().parent.parent
ADDING = (ROOT / "docs" / "adding.md").read_text()
SKELETONS = {
    heading: re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    for heading, text in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", ADDING, re.DOTALL | re.MULTILINE)
}
SCRIPTS = ("A deep method", "A figure")
"""Skeletons that are scripts; the experiment is a file of the package."""


@pytest.mark.parametrize("heading", [heading for heading in SKELETONS if heading not in (*SCRIPTS, "An experiment")])
def test_every_skeleton_runs(heading: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(SKELETONS[heading]) == 1
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    module = types.ModuleType("skeleton")
    monkeypatch.setitem(sys.modules, "skeleton", module)  # dataclasses look for the module of a class
    exec(compile(SKELETONS[heading][0], f"adding.md, {heading}", "exec"), vars(module))


def written(heading: str, folder: Path) -> Path:
    """The skeleton in a file of the name that its first line says."""
    (text,) = SKELETONS[heading]
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
    monkeypatch.setattr(command, "EXPERIMENTS", {**command.EXPERIMENTS, "doubt": module.Doubt})
    for line in re.findall(r"^ubex (run doubt .*)$", ADDING, re.MULTILINE):
        assert cli.run([*line.split(), "--out", line.replace(" ", "")]) == 0
    before, after = (float(row[-1]) for row in json.loads(Path("rundoubt--smoke/tables.json").read_text())[0]["rows"])
    assert after < before
    assert len(load_results("rundoubt--presetlong--seeds10")) == 3 * 2 * 10


def test_there_is_a_skeleton_for_each_kind() -> None:
    assert list(SKELETONS) == [
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
