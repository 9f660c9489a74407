"""Files of a run that were damaged on the way: a report is still written, or one line says what is wrong with which file."""

from __future__ import annotations

import csv
import io
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ubex.report import figures, html, markdown
from ubex.runs import keep
from ubex.runs.records import Cell, Curve, FigureSpec, Outcome
from ubex.runs.schema import FORMAT
from ubex.runs.store import Store
from ubex.types import InputError

MUTATIONS = 150
"""Of the campaign."""
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


@pytest.mark.parametrize("number", range(MUTATIONS))
def test_a_report_or_one_line(number: int, sound: Path, tmp_path: Path) -> None:
    run, what = mutate(random.Random(number), sound, tmp_path / "run")
    try:
        reported(run)
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__} {error}") from error
