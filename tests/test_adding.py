"""The contributor's path: every skeleton of docs/adding.md runs, its tables exist, and the picture of the layers is true."""

from __future__ import annotations

import importlib
import re
import sys
import types
from pathlib import Path

import plot_layers
import pytest

ROOT = Path(__file__).resolve().parent.parent
ADDING = (ROOT / "docs" / "adding.md").read_text()
SKELETONS = {
    heading: re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    for heading, text in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", ADDING, re.DOTALL | re.MULTILINE)
}


@pytest.mark.parametrize("heading", SKELETONS)
def test_every_skeleton_runs(heading: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(SKELETONS[heading]) == 1
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    module = types.ModuleType("skeleton")
    monkeypatch.setitem(sys.modules, "skeleton", module)  # dataclasses look for the module of a class
    exec(compile(SKELETONS[heading][0], f"adding.md, {heading}", "exec"), vars(module))


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
