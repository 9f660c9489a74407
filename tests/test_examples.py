"""Every program and notebook in examples/ runs, is short, and says what it should."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "examples"
EXAMPLES = sorted(path.stem for path in FOLDER.glob("*.py"))
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))
MAX_LINES = 60
MAX_BYTES = 60_000
"""Of a notebook with its pictures."""

SAYS = {
    "posterior_variance": "exact-ube      0.860 ± 0.037",
    "optimistic_planning": "gain 0: leave leave leave leave\ngain 1: go go go go",
    "compare_policies": "P(first is better)",
    "custom_estimator": "w minus 1 of the gap    s0  15.6875  s2  25.0000",
}


def run(name: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, which has imported everything already."""
    monkeypatch.setattr(sys, "argv", [f"examples/{name}.py", *arguments])
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")


def start(name: str, *arguments: str) -> str:
    """In a process of its own: without shape checks and optimised programs, which take longer than the example itself."""
    command = [sys.executable, str(FOLDER / f"{name}.py"), *arguments]
    environment = {**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_is_short_and_has_a_test(name: str) -> None:
    text = (FOLDER / f"{name}.py").read_text()
    assert len(text.splitlines()) < MAX_LINES
    assert f"python examples/{name}.py" in text
    assert name in (*SAYS, "deep_agent", "ray_sweep")


@pytest.mark.parametrize("name", SAYS)
def test_example_says(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run(name, [], monkeypatch)
    assert SAYS[name] in capsys.readouterr().out


def test_deep_agent_leaves_a_picture(tmp_path: Path) -> None:
    picture = tmp_path / "map.png"
    said = start("deep_agent", "--tiny", "--steps", "25", "--out", str(picture))
    assert picture.read_bytes()[:4] == b"\x89PNG"
    assert f"picture: {picture}" in said


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is an extra")
def test_ray_sweep_runs_and_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["--out", str(tmp_path / "sweep"), "--sizes", "4", "--seeds", "1", "--episodes", "2"]
    assert "2 finished, 0 were there before, 0 failed" in start("ray_sweep", *small)
    run("ray_sweep", small, monkeypatch)  # nothing is left to do, so Ray is not started
    assert "0 finished, 2 were there before, 0 failed" in capsys.readouterr().out
    assert (tmp_path / "sweep" / "report" / "index.html").is_file()


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_has_the_form_that_jupyter_opens(name: str) -> None:
    text = (FOLDER / name).read_text()
    book = json.loads(text)
    assert len(text) < MAX_BYTES
    assert (book["nbformat"], book["nbformat_minor"], book["metadata"]["kernelspec"]["name"]) == (4, 5, "python3")
    names = [cell["id"] for cell in book["cells"]]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[\w-]{1,64}", one) for one in names)
    parts = {"markdown": set(), "code": {"execution_count", "outputs"}}
    for cell in book["cells"]:
        assert set(cell) == {"cell_type", "id", "metadata", "source"} | parts[cell["cell_type"]]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_runs_and_prints_what_it_shows(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Its cells are plain Python, so no Jupyter is needed."""
    known: dict[str, object] = {}
    for cell in json.loads((FOLDER / name).read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{name}, cell {cell['id']}", "exec"), known)
            printed = [output["text"] for output in cell["outputs"] if output["output_type"] == "stream"]
            assert capsys.readouterr().out == "".join(line for lines in printed for line in lines), cell["id"]
