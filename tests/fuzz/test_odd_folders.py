"""Files of a run that were damaged on the way: a report is still written, or one line says what is wrong with which file."""

from __future__ import annotations

import csv
import functools
import io
import json
import random
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import hypothesis
import pytest
from hypothesis import strategies as st
from markupsafe import escape
from odd import campaign

from ubex import load_curves, load_results
from ubex.report import figures, html, markdown
from ubex.runs import folder, keep
from ubex.runs.records import Cell, Curve, FigureSpec, Outcome
from ubex.runs.schema import FORMAT
from ubex.runs.store import Store
from ubex.types import InputError

pytestmark = pytest.mark.filterwarnings("ignore")  # of numbers that are not finite
Edit: TypeAlias = Callable[[Any], Any]
FIGURES = [
    FigureSpec("bars", "Bars", "bars", "regret", "size", "regret", x="size", facet="noise", cap=5.0),
    FigureSpec("lines", "Lines", "lines", "regret", "size", "regret", x="size", log=True),
    FigureSpec("curves", "Curves", "curves", "return", "episode", "return", x="episode"),
    FigureSpec("scatter", "Scatter", "scatter", "regret", "time", "regret", x="time"),
]
FILES = ("spec.json", "results.csv", "curves.csv", "tables.json", "history.jsonl", "done.json", "error.json", "wide.csv")
NESTED: Any = 0
for _ in range(300):
    NESTED = [NESTED]
VALUES: tuple[Any, ...] = (
    *("text", "", "<script>alert(1)</script>", "../..", "a\nb", "\0", "\ud800", "$x", "x" * 300),
    *("seed", "value", "metric", "method", "experiment", "regret"),
    *(None, True, [], [1], {}, {"a": {"b": [1]}}, NESTED),
    *(0, -1, 1.5, 10**30, 1e308, -1e308, 1e200, float("nan"), float("inf"), -float("inf")),
)
"""What takes the place of a value."""


def write_run(folder: Path) -> Path:
    """A run of two methods, with curves, a table and a seed that failed."""
    settings = [{"size": size, "noise": 0.1, "ties": "first"} for size in (10, 20)]
    cells = [Cell("toy", "deep-sea", method, one) for method in ("pombu", "mine") for one in settings]
    spec = {
        "format": FORMAT,
        "experiment": "toy",
        "summary": "A toy",
        "settings": {"seeds": 2, "sizes": [10, 20], "share": 0.5},
        "figures": [vars(figure) for figure in FIGURES],
        "cells": [{"id": c.id, "environment": c.environment, "method": c.method, "settings": c.settings} for c in cells],
        "seeds": 2,
        "versions": {"python": "3.12", "ubex": "0.1.0"},
        "machine": {"system": "Linux", "cores": 2, "memory_gib": None, "devices": ["cpu"]},
        "git": {"commit": "abc", "dirty": False},
        "created": "2026-01-01T00:00:00",
        "command": ["ubex", "run", "toy"],
    }
    store = Store.open(folder, spec)
    for number, cell in enumerate(cells):
        curves = {"return": Curve("episode", [0, 5, 9], [0.5, 1.0 + number, float("nan")])}
        scalars = {"regret": 1.5 + number, "time": 3.0 * number, "other": float("nan")}
        store.finish(cell, {seed: Outcome(scalars | {"spread": seed}, curves) for seed in range(2)}, 1.0)
    store.write_tables()
    store.note({"started": "2026", "command": ["ubex"], "machine": spec["machine"], "seconds": 2.0, "finished": 4, "failed": 0})
    store.close()
    store.place(cells[0], 1).joinpath("done.json").unlink()
    store.fail(cells[0], [1], "ValueError: no luck", "Traceback")
    (folder / "tables.json").write_text(json.dumps([{"title": "Own", "columns": ["a", "b"], "rows": [["x", "1"]], "note": ""}]))
    return folder


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, and the same run as it is kept in the wide form."""
    place = tmp_path_factory.mktemp("sound")
    keep.keep(write_run(place / "run"), place / "kept", wide=True)
    return place


def draw_each_once(patch: pytest.MonkeyPatch, drawn: set[str]) -> None:
    """Draws a figure only if none with the same content was drawn before, and in few pixels: it takes most of the time."""
    draw, save = figures.draw_chart, figures.save

    def draw_new(content: Any) -> Any:
        known, _ = repr(content) in drawn, drawn.add(repr(content))
        return None if known else draw(content)

    def save_new(figure: Any, path: Path) -> list[Path]:
        for suffix in (".png", ".svg"):
            path.with_suffix(suffix).touch()
        return save(figure, path) if figure else [path.with_suffix(".png"), path.with_suffix(".svg")]

    patch.setitem(figures.STYLE, "figure.dpi", 20)
    patch.setattr(figures, "draw_chart", draw_new)
    patch.setattr(figures, "save", save_new)


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """Figures cost little here."""
    with pytest.MonkeyPatch.context() as patch:
        draw_each_once(patch, set())
        yield


def find(place: Path, name: str) -> Path:
    """A file of this name in the run."""
    return min(place.rglob(name))


def of_bytes(generator: random.Random, data: bytes) -> tuple[str, bytes | None]:
    """A file cut short, with other bytes or none, or a folder in its place."""
    at = generator.randrange(len(data))
    flipped = bytes(byte ^ (1 << generator.randrange(8)) if i - at in range(3) else byte for i, byte in enumerate(data))
    choices: dict[str, bytes | None] = {
        "cut": data[:at],
        "flipped": flipped,
        "empty": b"",
        "folder": None,
        "no UTF-8": data[:at] + b"\xff\xfe" + data[at:],
        "a zero byte": data[:at] + b"\0" + data[at:],
        "twice": data + data,
        "a line less": b"\n".join(line for i, line in enumerate(data.split(b"\n")) if i != at % (data.count(b"\n") + 1)),
    }
    return generator.choice(list(choices.items()))


def of_json(generator: random.Random, data: bytes) -> tuple[str, bytes | None]:
    """Something in the tree is replaced by another value, removed or added."""
    tree, where = json.loads(data.splitlines()[0] if data.startswith(b'{"started') else data), []
    above: Any = {"all": tree}
    key: Any = "all"
    while isinstance(above[key], dict | list) and above[key] and generator.random() < 0.85:
        above = above[key]
        key = generator.choice(list(above)) if isinstance(above, dict) else generator.randrange(len(above))
        where.append(str(key))
    value = generator.choice(VALUES)
    if where and generator.random() < 0.2:
        del above[key]
        return f"{'.'.join(where)} removed", json.dumps(tree).encode()
    above[key] = value
    tree = tree if where else value
    return f"{'.'.join(where)} = {str(value)[:40]!r}", json.dumps(tree).encode()


def of_csv(generator: random.Random, data: bytes) -> tuple[str, bytes | None]:
    """Columns removed, renamed, doubled or of something else, a field replaced, a row too short or too long."""
    rows = list(csv.reader(io.StringIO(data.decode())))
    at, line = generator.randrange(len(rows[0])), generator.randrange(1, len(rows))
    value = str(generator.choice(VALUES[6:])).replace("\ud800", "?")
    name, kind = rows[0][at], generator.randrange(9)
    if kind == 0:
        rows = [row[:at] + row[at + 1 :] for row in rows]
    elif kind == 1:
        rows[0][at] = generator.choice(["renamed", "", "_mean", *rows[0]])
    elif kind == 2:
        rows = [[*row, row[at]] for row in rows]
    elif kind == 3:
        rows[1:] = [[*row[:at], value, *row[at + 1 :]] for row in rows[1:]]
    elif kind == 4:
        rows[line] = rows[line][:at]
    elif kind == 5:
        rows[line] = [*rows[line], value]
    elif kind == 6:
        rows = rows[1:]
    elif kind == 7:
        rows[1:] = [[*row, value] for row in rows[1:]]
    else:
        rows[line][at] = value
    columns = ("column removed", "column renamed", "column doubled", "column of")
    words = (*columns, "row short", "row long", "no header", "rows long", "field")
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return f"{words[kind]} {name} line {line} {value[:40]!r}", out.getvalue().encode()


def mutate(generator: random.Random, sound: Path, place: Path) -> tuple[Path, str]:
    """A run in which one file is damaged, and what was done to it."""
    name = generator.choice([*FILES, "spec.json", "spec.json", "results.csv", "results.csv", "curves.csv"])
    run = shutil.copytree(sound / ("kept" if name == "wide.csv" else "run"), place)
    file = find(run, name)
    own: Callable[[random.Random, bytes], tuple[str, bytes | None]] = of_csv if name.endswith("csv") else of_json
    what, data = (own if generator.random() < 0.75 else of_bytes)(generator, file.read_bytes())
    file.unlink()
    if data is None:
        file.mkdir()
    else:
        file.write_bytes(data)
    return run, f"{name}: {what}"


def reported(run: Path) -> list[str]:
    """The lines in place of the reports that cannot be written: none where both are."""
    said = []
    for build in (html.build, lambda run: markdown.write(run, run / "page.md")):
        try:
            build(run)
        except InputError as error:
            said.append(str(error))
    assert all(len(line.splitlines()) == 1 for line in said), said
    return said


def damaged(sound: Path, place: Path, name: str, edit: Edit) -> Path:
    """The run with one file put through a function: text to text, or a value of JSON to another."""
    run = shutil.copytree(sound / ("kept" if name == "wide.csv" else "run"), place)
    file = find(run, name)
    text = file.read_text()
    file.write_text(edit(text) if name.endswith("csv") else json.dumps(edit(json.loads(text))))
    return run


def at(*keys: Any, value: Any) -> Edit:
    """Puts a value into a tree."""

    def edit(tree: Any) -> Any:
        inside = functools.reduce(lambda one, key: one[key], keys[:-1], tree)
        inside[keys[-1]] = value
        return tree

    return edit


def swap(old: str, new: str) -> Edit:
    """Puts a text in the place of another, once."""
    return lambda text: text.replace(old, new, 1)


SPECS: dict[str, tuple[Edit, str]] = {
    "settings are no object": (at("settings", value=1.5), "settings must be an object, but it is 1.5"),
    "no settings": (lambda spec: {"experiment": "toy", "cells": [], "seeds": 1}, "it has no settings"),
    "a list": (lambda spec: [], r"it must be an object, but it is \[\]"),
    "cells are null": (at("cells", value=None), "cells must be a list, but it is None"),
    "a cell is a number": (at("cells", 1, value=3), "cells.1 must be an object, but it is 3"),
    "a method is a number": (at("cells", 0, "method", value=1), "cells.0.method must be a text"),
    "a setting is a list": (at("cells", 0, "settings", "size", value=[1]), r"cells.0.settings.'size' cannot be a setting"),
    "a setting is a column": (at("cells", 0, "settings", "method", value="x"), "cells.0.settings.'method' cannot be"),
    "a folder elsewhere": (at("cells", 0, "id", value="../.."), "cells.0.id must be the name of a folder"),
    "seeds are a text": (at("seeds", value="2"), "seeds must be a whole number, but it is '2'"),
    "seeds without end": (at("seeds", value=10**30), "seeds must be at most"),
    "seeds that disagree": (at("seeds", value=3), "seeds is 3, but settings.seeds is 2"),
    "a command is a text": (at("command", value="ubex"), "command must be a list"),
    "a command of numbers": (at("command", value=[1]), "command must hold texts, but one is 1"),
    "devices are a number": (at("machine", "devices", value=1), "machine.devices must be a list"),
    "git is a text": (at("git", value="abc"), "git must be an object"),
    "a title is a number": (at("figures", 0, "title", value=1), "figures.0.title must be a text, but it is 1"),
    "a figure is a text": (at("figures", 0, value="x"), "figures.0 must be an object"),
    "a figure lacks its metric": (lambda spec: spec["figures"][0].pop("metric") and spec, "figures.0 has no metric"),
    "a cap of no size": (at("figures", 0, "cap", value=-1e308), "figures.0.cap must be in"),
    "half a character": (at("summary", value="\ud800"), "summary has half a character in it"),
    "nested": (at("settings", "share", value=NESTED), "nested more than 20 deep"),
    "newer": (
        lambda spec: spec | {"format": 2, "versions": {"ubex": "9.1"}},
        r"written by ubex '9.1' in format 2, and this ubex",
    ),
}
TABLES: dict[str, tuple[str, Edit, str]] = {
    "a row cut short": ("results.csv", lambda text: text[:-40], r"line 33: it has \d fields, and there are 9 columns"),
    "a row too long": ("curves.csv", swap(",0.5,", ",0.5,0.5,"), "line 2: it has 11 fields, and there are 10 columns"),
    "all rows too long": ("results.csv", lambda text: text.replace("first", "first,1"), "line 2: it has 10 fields"),
    "no method": ("curves.csv", swap("pombu", ""), "line 2: method must be a text, but it is nan"),
    "a value is a text": ("results.csv", swap("1.5", "high"), "line 2: value must be a number, but it is 'high'"),
    "values are true": ("results.csv", lambda text: re.sub(r",([-.0-9]*),(?=[12]0,)", ",True,", text), "line 2: value must be"),
    "a seed is negative": ("results.csv", swap(",1,", ",-1,"), "line 6: seed must be a whole number that is not negative"),
    "a seed is a half": ("curves.csv", swap("pombu,0,", "pombu,0.5,"), "line 2: seed must be a whole number"),
    "a seed is nothing": ("curves.csv", swap("pombu,0,", "pombu,,"), "line 2: seed must be a whole number"),
    "an episode without end": ("curves.csv", swap(",0.5,0,", ",0.5,inf,"), "line 2: episode must be finite"),
    "a column twice": ("results.csv", swap("noise", "size"), "line 1: the column 'size' is there twice"),
    "a column without a name": ("results.csv", swap("noise", ""), "line 1: a column has no name"),
    "no column of values": ("results.csv", swap("value", "worth"), "it lacks the column value"),
    "a zero byte": ("curves.csv", swap("mine", "mi\0ne"), "line 14: it has a control character in it"),
    "empty": ("curves.csv", lambda text: "", "it does not begin with the names of its columns"),
    "a metric is a text": ("wide.csv", swap("1.5", "high"), "line 2: regret must be a number, but it is 'high'"),
    "a metric is called value": ("wide.csv", swap("regret", "value"), "it has the column value"),
    "a table is a number": ("tables.json", lambda tables: [1], "table 0 must be an object, but it is 1"),
    "tables are an object": ("tables.json", lambda tables: {}, r"tables must be a list, but it is \{\}"),
    "a row of numbers": ("tables.json", at(0, "rows", 0, value=[1, 2]), "table 0.rows.0 must hold texts, but one is 1"),
    "a row of a table is short": ("tables.json", at(0, "rows", 0, value=["x"]), "table 0.rows.0 has 1 fields, and there are 2"),
}
DRAWN: dict[str, tuple[str, Edit]] = {
    "a figure over seeds": ("spec.json", at("figures", 0, "series", value="seed")),
    "a figure of values": ("spec.json", at("figures", 1, "x", value="value")),
    "a huge value": ("results.csv", swap("1.5", "1e308")),
    "a huge size": ("results.csv", swap(",10,", ",1e308,")),
    "a size without end": ("results.csv", swap(",10,", ",inf,")),
    "no number on a logarithmic axis": ("results.csv", lambda text: re.sub(r"regret,[.0-9]+", "regret,inf", text)),
    "sizes are texts": ("results.csv", swap(",10,", ",ten,")),
    "seconds are no number": ("done.json", at("seconds", value=float("nan"))),
    "a history of no number": ("history.jsonl", at("seconds", value=float("inf"))),
    "a history of half a character": ("history.jsonl", at("command", value=["\ud800"])),
    "an error of half a character": ("error.json", at("error", value="\ud800")),
}


@pytest.mark.parametrize("name", SPECS)
def test_a_damaged_spec_is_one_line_for_whoever_reads_it(name: str, sound: Path, tmp_path: Path) -> None:
    edit, said = SPECS[name]
    run = damaged(sound, tmp_path / "runs" / "broken", "spec.json", edit)
    for call in (html.build, folder.read, lambda run: keep.keep(run, tmp_path / "kept"), lambda run: Store.open(run, {})):
        with pytest.raises(InputError, match=said) as caught:
            call(run)
        assert "spec.json" in str(caught.value)
        assert len(str(caught.value).splitlines()) == 1


def test_one_damaged_run_does_not_take_the_others_down(sound: Path, tmp_path: Path) -> None:
    damaged(sound, tmp_path / "runs" / "broken", "spec.json", at("seeds", value=None))
    shutil.copytree(sound / "run", tmp_path / "runs" / "sound")
    page = html.build(tmp_path / "runs").read_text()
    text = markdown.write(tmp_path / "runs", tmp_path / "page.md").read_text()
    assert "broken/spec.json" in page
    assert "toy" in page
    assert "**Left out:**" in text
    assert "| sound |" in text


@pytest.mark.parametrize("name", TABLES)
def test_a_damaged_table_is_named_with_its_line_and_the_rest_is_reported(name: str, sound: Path, tmp_path: Path) -> None:
    file, edit, said = TABLES[name]
    run = damaged(sound, tmp_path / "run", file, edit)
    (problem,) = folder.read(run).problems
    assert re.search(said, problem), problem
    assert f"{file} " in problem
    assert reported(run) == []
    assert str(escape(problem)) in (run / "report" / "index.html").read_text()
    assert f"**Left out:** {markdown.plain(problem)}" in (run / "page.md").read_text()
    if file.endswith("csv"):
        with pytest.raises(InputError, match=said):
            (load_curves if file == "curves.csv" else load_results)(run)


@pytest.mark.parametrize("name", DRAWN)
def test_odd_numbers_and_names_are_no_obstacle(name: str, sound: Path, tmp_path: Path) -> None:
    run = damaged(sound, tmp_path / "run", *DRAWN[name])
    assert reported(run) == []
    assert folder.read(run).problems == []


def test_a_folder_in_the_place_of_a_file_is_said(sound: Path, tmp_path: Path) -> None:
    run = shutil.copytree(sound / "run", tmp_path / "run")
    for name in ("results.csv", "curves.csv", "tables.json"):
        (run / name).unlink()
        (run / name).mkdir()
    assert [line.endswith("cannot be read: Is a directory") for line in folder.read(run).problems] == [True] * 3


@campaign(0.1)
@hypothesis.given(st.integers(0, 2**32))
def test_a_report_or_one_line(sound: Path, number: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        run, what = mutate(random.Random(number), sound, Path(place) / "run")
        hypothesis.note(what)
        reported(run)
