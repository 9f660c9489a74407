"""Several runs on one page: told apart by name, by settings and in one chart."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import synthetic
from test_html import Reader, data_of, text_of

from ubex import InputError, cli
from ubex.report import html, several
from ubex.runs import folder

CURVES = dataclasses.replace(synthetic.FIGURES[2], facet="")


def run_at(place: Path, name: str = "deep-sea", **settings: Any) -> Path:
    """A run of few numbers with these settings."""
    synthetic.write_run(place, name, seeds=1, figures=[CURVES], failed=False)
    spec = json.loads((place / "spec.json").read_text())
    (place / "spec.json").write_text(json.dumps({**spec, "settings": {**spec["settings"], **settings}}))
    return place


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two runs of one experiment."""
    place = tmp_path_factory.mktemp("runs")
    return run_at(place / "first", gains=[1.0]), run_at(place / "second", gains=[2.0])


@pytest.fixture(scope="module")
def page(pair: tuple[Path, Path]) -> Path:
    """Their page, which is in the folder that both are in."""
    assert cli.run(["report", *map(str, pair)]) == 0
    return pair[0].parent / "report" / "index.html"


def test_two_runs_of_one_experiment_are_told_apart(page: Path) -> None:
    reader = Reader(page.read_text(encoding="utf-8"))
    assert reader.said("h2")[-2:] == ["deep-sea, first", "deep-sea, second"]
    assert reader.said("h1") == ["first, second"]
    said = text_of(page)
    assert "Unlike the others: gains 1.0." in said
    assert "Unlike the others: gains 2.0." in said


def test_curves_with_the_same_axes_are_one_chart(page: Path) -> None:
    reader = Reader(page.read_text(encoding="utf-8"))
    assert reader.said("h2")[0] == "Runs in one chart"
    data = data_of(reader)
    merged, alone, _ = data["charts"]
    series = {line["name"]: line for line in merged["panels"][0]["series"]}
    assert list(series) == [f"{method}, {run}" for run in ("first", "second") for method in synthetic.METHODS]
    own = {line["name"]: line for line in alone["panels"][0]["series"]}
    for name, line in series.items():
        assert line["points"] == own[line["method"]]["points"], name  # both runs have the same made-up numbers
    looks = [data["looks"][str(series[f"pombu, {run}"]["look"])] for run in ("first", "second")]
    assert looks[0]["dashes"] != looks[1]["dashes"]
    assert looks[0]["marker"] != looks[1]["marker"]
    assert (page.parent / "figures" / "together-learning.svg").is_file()


def test_a_method_has_one_colour_in_all_runs(pair: tuple[Path, Path]) -> None:
    runs = [folder.read(place) for place in pair]
    (content,) = several.together(runs, synthetic.METHODS)
    colors: dict[str, set[str]] = {}
    for line in content.panels[0].series:
        colors.setdefault(line.method, set()).add(line.look.color)
    assert all(len(found) == 1 for found in colors.values())
    assert len({line.look for line in content.panels[0].series}) == 2 * len(synthetic.METHODS)


def test_runs_of_other_experiments_keep_their_names_and_charts(pair: tuple[Path, Path], tmp_path: Path) -> None:
    other = run_at(tmp_path / "first", name="other")
    runs = [folder.read(place) for place in (pair[0], other)]
    assert several.titles(runs) == ["deep-sea", "other"]
    assert several.differences(runs) == ["", ""]
    assert several.together(runs, ()) == []


def test_folders_of_one_name_are_told_apart_by_those_above(pair: tuple[Path, Path], tmp_path: Path) -> None:
    copies = [folder.read(pair[0]), folder.read(run_at(tmp_path / "c" / "first"))]
    assert several.titles(copies) == [f"deep-sea, {pair[0].parent.name}/first", "deep-sea, c/first"]


def test_a_run_that_is_named_twice_is_shown_once(pair: tuple[Path, Path]) -> None:
    runs, broken = several.read([pair[0], pair[0], pair[0].parent])
    assert [run.path.name for run in runs] == ["first", "second"]
    assert broken == []


def test_no_folder_is_one_line(capsys: pytest.CaptureFixture[str], pair: tuple[Path, Path]) -> None:
    assert cli.run(["report"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    with pytest.raises(InputError, match="no such folder"):
        html.build(pair[0], pair[0].parent / "nowhere")
