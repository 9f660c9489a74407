"""The page as text: what it says, that nothing of a run becomes markup, and that it stands alone in whatever state."""

from __future__ import annotations

import base64
import dataclasses
import itertools
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import synthetic

from ubex import cli
from ubex.experiments.deep_sea import DeepSea
from ubex.experiments.seven_room import SevenRoom
from ubex.report import gallery, grids, html
from ubex.runs import folder, metrics
from ubex.runs.records import FigureSpec, Table
from ubex.types import InputError


class Reader(HTMLParser):
    """Collects elements, and the text of each of them."""

    VOID = frozenset({"meta", "link", "img", "input", "br"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data.strip()))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def said(self, tag: str) -> list[str]:
        return [text for name, text in self.texts if name == tag and text]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with failures, and its page."""
    made = synthetic.write_run(tmp_path_factory.mktemp("runs") / "one run")
    assert html.build(made) == made / "report" / "index.html"
    return made


@pytest.fixture(scope="module")
def page(run: Path) -> Reader:
    """The page, parsed: every element that is opened is closed."""
    reader = Reader((run / "report" / "index.html").read_text(encoding="utf-8"))
    assert reader.open == []
    return reader


def data_of(page: Reader) -> dict[str, Any]:
    """The embedded numbers."""
    found: dict[str, Any] = json.loads(page.said("script")[0])
    return found


def bare(folder: Path, **changes: Any) -> Path:
    """A run folder in which nothing has happened yet."""
    whole = synthetic.write_run(folder.with_name(f"{folder.name}-whole"), name="plain", seeds=1)
    spec = json.loads((whole / "spec.json").read_text())
    shutil.rmtree(whole)
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text(json.dumps({**spec, **changes}))
    return folder


def text_of(page: Path) -> str:
    return " ".join(text for tag, text in Reader(page.read_text(encoding="utf-8")).texts if tag not in ("script", "style"))


def test_names_are_shown_as_text(run: Path, page: Reader) -> None:
    assert page.said("h1") == [synthetic.NAME]
    text = (run / "report" / "index.html").read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert "<img src=x" not in text
    assert len(page.all("script")) == 2
    assert not page.all("b")
    assert {"<b>bold</b>", "ValueError: <img src=x onerror=alert(2)>"} <= {*page.said("th"), *page.said("code")}
    assert "<script>alert(3)</script>" in page.said("pre")[0]


def test_embedded_numbers_cannot_break_out_and_are_the_means(run: Path, page: Reader) -> None:
    raw = page.said("script")[0]
    assert not set(raw) & {"<", ">", "&"}
    data = data_of(page)
    assert [method["name"] for method in data["methods"]] == list(synthetic.METHODS)
    bars = data["charts"][0]
    results = pd.read_csv(run / "results.csv")
    for panel in bars["panels"]:
        for series in panel["series"]:
            for x, mean, error, seeds, missing in series["points"]:
                chosen = results[
                    (results["metric"] == "total_regret")
                    & (results["method"] == series["name"])
                    & (results["size"] == int(x))
                    & (results["noise"] == float(panel["name"]))
                ]["value"]
                assert (mean, error, seeds, missing) == pytest.approx((chosen.mean(), chosen.sem(), len(chosen), 0))
    assert bars["cap"] == 400.0


def test_numbers_that_json_lacks_are_null() -> None:
    text = html.embedded({"a": [float("nan"), float("inf"), 1.5, "</script>"]})
    assert "<" not in text
    assert json.loads(text) == {"a": [None, None, 1.5, "</script>"]}


def test_the_page_stands_alone(run: Path, page: Reader) -> None:
    for tag, attributes in page.elements:
        for name in ("src", "href", "srcset", "action", "data"):
            value = attributes.get(name)
            assert value is None or value.startswith(("data:", "#")), (tag, value)
    policy = next(m["content"] or "" for m in page.all("meta") if m.get("http-equiv"))
    assert "default-src 'none'" in policy
    assert "script-src 'sha256-" in policy
    style = "".join(page.said("style"))
    assert "url(" not in style
    assert "@import" not in style
    assert sorted(path.name for path in (run / "report").iterdir()) == ["figures", "index.html"]


def test_every_figure_is_on_disk_and_in_the_links(run: Path, page: Reader) -> None:
    links = {link["download"]: link["href"] or "" for link in page.all("a") if "download" in link}
    drawn = [figure.name for figure in synthetic.FIGURES if figure.metric != "absent"]
    assert set(links) == {f"{name}.{kind}" for name in drawn for kind in ("png", "svg")}
    for name, address in links.items():
        assert base64.b64decode(address.split(",", 1)[1]) == (run / "report" / "figures" / str(name)).read_bytes()
    images = page.all("img")
    assert len(images) == len(drawn)
    assert all(image["alt"] for image in images)
    assert "Nothing to draw yet: no finished seed has the metric absent." in page.said("p")


def test_it_says_what_ran_on_what_and_how_long(page: Reader) -> None:
    facts = dict(zip(page.said("dt"), page.said("dd") + page.said("code"), strict=False))
    assert facts["Cells"] == "32 with 5 seeds each"
    assert facts["Done"] == "157 of 160, 3 failed"
    assert facts["Wall time"] == "1 h 02 min"
    assert facts["Machine"] == "system Linux, processor some processor, cores 8, devices one accelerator, another"
    assert "jax 0.10.1" in facts["Versions"]
    assert facts["Commit"] == "0123456789ab with uncommitted changes"
    assert f"ubex run '{synthetic.NAME}' --out 'runs/a folder' --seeds 5" in page.said("code")


def test_settings_that_are_false_or_zero_are_shown(page: Reader) -> None:
    shown = dict(zip(page.said("dt")[-5:], page.said("dd")[-5:], strict=True))
    assert shown == {"seeds": "5", "sizes": "10, 20, 30, 40", "note": "<u>x</u>", "correlated": "False", "u_min": "0.0"}


def test_headings_never_skip_a_level_and_tables_have_headers(page: Reader) -> None:
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    scopes = [attributes.get("scope") for attributes in page.all("th")]
    assert scopes.count("col") > 10
    assert None not in scopes


def test_tables_have_intervals(run: Path) -> None:
    results = folder.read(run).results
    part = results[results["metric"] == "total_regret"]
    grid = grids.intervals(metrics.summarize(part))["total_regret"]
    assert list(grid.columns) == ["method", "size", "noise", "mean \u00b1 standard error", "IQM [95% interval]", "seeds"]
    chosen = part[(part["method"] == "exact-ube") & (part["size"] == 10) & (part["noise"] == 0.1)]["value"]
    assert grid.rows[0][:4] == ["exact-ube", "10", "0.1", f"{chosen.mean():.3g} \u00b1 {chosen.sem():.3g}"]
    low, high = map(float, re.findall(r"[\d.]+", grid.rows[0][4])[1:])
    assert chosen.min() - 0.1 <= low < chosen.mean() < high <= chosen.max() + 0.1
    assert grid.rows[0][5] == "5"
    assert grid.rows[-1][5] == "2"  # the cell of which three seeds failed
    assert grid.note == "With environment deep-sea, models N 5, gain 1, episodes 1000."


def rows_of(experiment: DeepSea | SevenRoom, *names: str) -> pd.DataFrame:
    """Made-up results of every cell of an experiment."""
    head = {"experiment": experiment.name, "environment": experiment.environment}
    cells = [(number, cell) for number, cell in enumerate(experiment.cells())]
    return pd.DataFrame(
        [
            {
                **head,
                "method": cell.method,
                "seed": seed,
                "metric": name,
                "value": 7.0 * number + seed + len(name),
                **cell.settings,
            }
            for number, cell in cells
            for seed in range(2)
            for name in names
        ]
    )


def test_tables_that_repeat_those_with_intervals_are_left_out() -> None:
    deep_sea, rooms = DeepSea(prior_masses=(4.0, 8.0)), SevenRoom(methods=("psrl", "pombu"))
    of_rooms = rows_of(rooms, "total_regret", "total_regret_true_optimum")
    for experiment, results in ((deep_sea, rows_of(deep_sea, "total_regret", "learning_time")), (rooms, of_rooms)):
        tables, summary = experiment.tables(results), metrics.summarize(results)
        assert len(tables) == (2 if experiment is deep_sea else 1)
        assert all(grids.repeated(table, summary) for table in tables)
        table = tables[0]
        other = Table(table.title, [*table.columns, "more"], [[*row, f"x{i}"] for i, row in enumerate(table.rows)])
        wrong = dataclasses.replace(table, rows=[[*row[:-1], "1.23"] for row in table.rows])
        for kept in (other, wrong, dataclasses.replace(table, rows=table.rows[1:]), dataclasses.replace(table, note="Why.")):
            assert not grids.repeated(kept, summary)


def test_the_page_has_each_number_in_one_table(tmp_path: Path) -> None:
    run = synthetic.write_run(tmp_path / "run", "plain", seeds=2, figures=[], failed=False)
    summary = metrics.summarize(folder.read(run).results)
    regret = summary[summary["metric"] == "total_regret"]
    rows = [[row["method"], f"{row['mean']:.2f} ({row['standard_error']:.2f})"] for _, row in regret.iterrows()]
    own = {"columns": ["method", "mean, standard error"], "rows": rows, "note": ""}
    (run / "tables.json").write_text(json.dumps([{"title": "Again", **own}, {"title": "Mine", **own, "note": "Why."}]))
    captions = Reader(html.build(run).read_text(encoding="utf-8")).said("caption")
    assert captions[:4] == ["Mine", "Total regret", "Learning time", "Final return"]


def test_what_cannot_be_read_is_said_at_the_command_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sound, damaged, broken = (
        synthetic.write_run(tmp_path / "runs" / name, name, seeds=1, figures=[], failed=False) for name in ("a", "b", "c")
    )
    assert cli.run(["report", str(sound)]) == 0
    assert capsys.readouterr().err == ""
    (damaged / "results.csv").write_text("nonsense")
    (broken / "spec.json").write_text("{")
    assert cli.run(["report", str(tmp_path / "runs")]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[:2] for line in lines] == [
        ["ubex", f" {broken / 'spec.json'} cannot be read"],
        ["ubex", f" {damaged / 'results.csv'} is not a table of results"],
    ]


def test_figures_of_an_earlier_report_go_and_other_files_stay(tmp_path: Path) -> None:
    run = synthetic.write_run(tmp_path / "run", "plain", seeds=1, figures=synthetic.FIGURES[:2], failed=False)
    place = html.build(run).parent / "figures"
    assert {path.name for path in place.iterdir()} == {
        f"{name}.{kind}" for name in ("regret", "scaling") for kind in ("png", "svg")
    }
    (place / "mine.png").write_bytes(b"mine")
    (run / "precious.png").write_bytes(b"precious")
    spec = json.loads((run / "spec.json").read_text())
    (run / "spec.json").write_text(json.dumps({**spec, "figures": spec["figures"][:1]}))
    page = place.parent / "index.html"
    page.write_text(page.read_text().replace('"files":[', '"files":["../precious.png","figures/../../precious.png",'))
    html.build(run)
    assert {path.name for path in place.iterdir()} == {"regret.png", "regret.svg", "mine.png"}
    assert (run / "precious.png").read_bytes() == b"precious"


def test_comparison_has_words_and_symbols(run: Path) -> None:
    results = folder.read(run).results
    grid = grids.comparison(results)
    assert grid is not None
    verdicts = {row[-1] for row in grid.rows}
    assert {"\u2713 match", "\u2260 differs"} <= verdicts
    row = next(row for row in grid.rows if row[:4] == ["exact-ube", "10", "0.1", "total regret"])
    assert row[6] == "55 \u00b1 0.45 (5)"
    assert grids.comparison(results.assign(environment="nowhere")) is None
    assert grids.comparison(results.iloc[:0]) is None


def test_several_runs_make_one_page(tmp_path: Path) -> None:
    figure = dataclasses.replace(synthetic.FIGURES[0], name="../../a b")
    for name in ("first", "second"):
        synthetic.write_run(tmp_path / name, name=f"exp-{name}", seeds=1, figures=[figure], failed=False)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "spec.json").write_text("{")
    page = html.build(tmp_path)
    assert page == tmp_path / "report" / "index.html"
    reader = Reader(page.read_text(encoding="utf-8"))
    assert reader.said("h2") == ["exp-first", "exp-second"]
    assert any("broken" in text and "cannot be read" in text for text in reader.said("p"))
    assert sorted(path.name for path in (page.parent / "figures").glob("*.png")) == ["first-a-b.png", "second-a-b.png"]
    assert len(data_of(reader)["methods"]) == len(synthetic.METHODS)
    assert html.build(tmp_path) == page  # the report is not taken for a run


def test_what_came_out_opens_a_page_of_several_runs(tmp_path: Path) -> None:
    names, one = ("second", "first"), synthetic.FIGURES[:1]
    runs = [synthetic.write_run(tmp_path / name, name=f"exp-{name}", seeds=1, figures=one, failed=False) for name in names]
    page = html.build(*runs, out=tmp_path, title="A & B", findings={runs[0]: "More is <b>more</b>."})
    reader = Reader(page.read_text(encoding="utf-8"))
    assert reader.said("h1") == ["A & B"]
    assert reader.said("h2") == ["exp-second", "exp-first"], "in the order in which they were given"
    assert reader.said("li") == ["More is <b>more</b>.", html.status(folder.read(runs[1]))[2]]
    assert [link["href"] for link in reader.all("a")][:2] == ["#run-1", "#run-2"]
    assert reader.said("summary").count("Where and when") == 2
    alone = Reader(html.build(runs[0]).read_text(encoding="utf-8"))
    assert "Where and when" not in alone.said("summary"), "a page of one run says it at the top"


def test_few_pictures_come_before_the_charts(tmp_path: Path) -> None:
    run = synthetic.write_run(tmp_path / "run", seeds=1, figures=synthetic.FIGURES[-1:], failed=False)
    for cell in range(gallery.FEW_CELLS + 1):
        synthetic.keep(run, cell, 0, "film.gif", synthetic.gif())
        if cell >= gallery.FEW_CELLS - 1:
            said = Reader(html.build(run).read_text(encoding="utf-8")).said("h2")
            assert (said.index("Pictures") < said.index("Figures")) == (cell < gallery.FEW_CELLS)


def test_a_run_that_was_killed_before_anything_finished(tmp_path: Path) -> None:
    said = text_of(html.build(bare(tmp_path / "run")))
    assert "Nothing has finished yet" in said
    assert "not recorded: the run has not ended" in said
    assert "There are no results yet." in said
    assert said.count("Nothing to draw yet") == len(synthetic.FIGURES)


def test_results_that_are_not_written_yet_are_named(tmp_path: Path) -> None:
    run = bare(tmp_path / "run")
    place = run / "cells" / json.loads((run / "spec.json").read_text())["cells"][0]["id"] / "seed-0"
    place.mkdir(parents=True)
    (place / "done.json").write_text("{}")
    said = text_of(html.build(run))
    assert "Not complete: 1 of 32 done" in said
    assert "there is no results.csv yet" in said


def test_a_seed_that_succeeded_later_is_not_failed(tmp_path: Path) -> None:
    run = bare(tmp_path / "run")
    place = run / "cells" / json.loads((run / "spec.json").read_text())["cells"][0]["id"] / "seed-0"
    place.mkdir(parents=True)
    (place / "error.json").write_text("{ cut sh")
    assert folder.read(run).failures[0].error == "its error.json cannot be read"
    (place / "done.json").write_text("{}")
    assert not folder.read(run).failures


def test_broken_files_are_named_and_the_page_is_made(tmp_path: Path) -> None:
    run = bare(tmp_path / "run")
    (run / "results.csv").write_text("a,b\n1,2\n")
    (run / "tables.json").write_text("[1]")
    (run / "history.jsonl").write_text('"text"\n{"seconds": 90, "status": "ok"}\n{"sec')
    said = text_of(html.build(run))
    assert "lacks the column experiment" in said
    assert "tables.json cannot be read" in said
    assert "1 min 30 s" in said


def test_a_figure_that_cannot_be_drawn_says_why(tmp_path: Path) -> None:
    figure = FigureSpec("x", "Odd", "bars", "total_regret", "", "", x="no such column")
    run = synthetic.write_run(tmp_path / "run", seeds=1, figures=[figure])
    assert "This figure cannot be drawn: figure x: the results have no column 'no such column'" in text_of(html.build(run))


def test_no_run_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "spec.json").write_text('{"cells": [{}]}')
    for place, said in (
        (tmp_path / "none", "no such folder"),
        (tmp_path / "inside", "no spec"),
        (tmp_path / "odd", "not a run's"),
    ):
        with pytest.raises(InputError, match=said) as caught:
            html.build(place)
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "inside" / "report").exists()
