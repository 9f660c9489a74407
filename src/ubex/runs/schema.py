"""What the files of a run hold: one gate for each, so that whoever draws or continues a run can trust what was read.

What is damaged is one `InputError` line with the file, and with the line in it where there is one.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pandas as pd

from ubex import checks, fields
from ubex.checks import shown
from ubex.runs.records import FigureSpec, Table
from ubex.types import InputError

FORMAT = 1
"""Of `spec.json`."""
COLUMNS = ("experiment", "environment", "method", "seed", "metric", "value")
"""Those that every tidy table has."""
TEXTS = ("experiment", "environment", "method", "metric")
UNITS = ("episode", "step")
"""Columns of the table of curves that count along a run."""
NEEDED = ("experiment", "settings", "cells", "seeds")
"""Keys that every spec has; the kinds of the others count where they are there."""
KINDS: Mapping[str, type] = {
    "experiment": str,
    "summary": str,
    "settings": dict,
    "figures": list,
    "cells": list,
    "versions": dict,
    "machine": dict,
    "created": str,
    "command": list,
}
CELL_KINDS: Mapping[str, type] = {"id": str, "environment": str, "method": str, "settings": dict}
TABLE_KINDS: Mapping[str, type] = {"title": str, "columns": list, "rows": list, "note": str}
WORDS: Mapping[type, str] = {str: "a text", list: "a list", dict: "an object"}
FOLDER_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}", re.ASCII)
CONTROL = re.compile(r"[\0-\x08\x0b\x0c\x0e-\x1f]")
MOST_SEEDS = 1_000_000
DEEPEST = 20
"""Objects and lists inside one another."""


def text_at(path: Path) -> str:
    """The text of a file."""
    try:
        data = path.read_bytes()
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path} cannot be read: line {line} is not text in UTF-8") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None


def json_at(path: Path) -> Any:
    """What a JSON file holds."""
    text = text_at(path)
    try:
        return parsed(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{path} cannot be read: line {error.lineno}, column {error.colno}: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None


def parsed(text: str) -> Any:
    """What a JSON text says, if a page can hold it."""
    found = json.loads(text)
    check_tree("it", found)
    return found


def check_tree(name: str, value: Any, depth: int = 0) -> None:
    """Refuses text that no file can hold, and what is nested too deep to be of a run."""
    if depth > DEEPEST:
        raise InputError(f"{shown(name)} is nested more than {DEEPEST} deep")
    if isinstance(value, str) and not value.isprintable() and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise InputError(f"{name} has half a character in it: {shown(value)}")
    for key, one in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        check_tree("a key", key, depth)
        check_tree(f"{name}.{key}" if depth else str(key), one, depth + 1)


def check_kinds(where: str, entry: Any, kinds: Mapping[str, type], needed: Sequence[str]) -> None:
    """Refuses what is no object, lacks a key, or has a value of another kind."""
    if not isinstance(entry, dict):
        raise InputError(f"{where or 'it'} must be an object, but it is {shown(entry)}")
    for name in needed:
        if name not in entry:
            raise InputError(f"{where or 'it'} has no {name}")
    for name, kind in kinds.items():
        if name in entry and not isinstance(entry[name], kind):
            raise InputError(f"{where}{'.' if where else ''}{name} must be {WORDS[kind]}, but it is {shown(entry[name])}")


def check_texts(name: str, values: Sequence[Any]) -> None:
    """Refuses a list with anything but texts."""
    for value in values:
        if not isinstance(value, str):
            raise InputError(f"{name} must hold texts, but one is {shown(value)}")


def spec_at(path: Path) -> dict[str, Any]:
    """The spec of a run, with every key of its kind."""
    spec = json_at(path)
    versions = spec.get("versions") if isinstance(spec, dict) else None
    if isinstance(spec, dict) and spec.get("format", FORMAT) != FORMAT:
        writer = versions.get("ubex", "of another version") if isinstance(versions, dict) else "of another version"
        raise InputError(
            f"{path} was written by ubex {shown(writer)} in format {shown(spec['format'])}, and this ubex reads format {FORMAT}"
        )
    try:
        check_spec(spec)
    except InputError as error:
        raise InputError(f"{path} is not a run's spec: {error}") from None
    found: dict[str, Any] = spec
    return found


def check_spec(spec: Any) -> None:
    """Refuses what no run could have written."""
    check_kinds("", spec, KINDS, NEEDED)
    checks.whole("seeds", spec["seeds"], 0, MOST_SEEDS)
    if spec["settings"].get("seeds", spec["seeds"]) != spec["seeds"]:
        raise InputError(f"seeds is {spec['seeds']}, but settings.seeds is {shown(spec['settings']['seeds'])}")
    check_texts("command", spec.get("command", []))
    check_kinds("machine", spec.get("machine", {}), {"devices": list}, ())
    check_kinds("git", spec.get("git") or {}, {}, ())
    for number, cell in enumerate(spec["cells"]):
        where = f"cells.{number}"
        check_kinds(where, cell, CELL_KINDS, tuple(CELL_KINDS))
        if not FOLDER_NAME.fullmatch(cell["id"]):
            raise InputError(f"{where}.id must be the name of a folder, but it is {shown(cell['id'])}")
        for name, value in cell["settings"].items():
            if name in COLUMNS or not isinstance(value, str | int | float):
                raise InputError(f"{where}.settings.{shown(name)} cannot be a setting: {shown(value)}")
    figures(spec)


def figures(spec: Mapping[str, Any]) -> list[FigureSpec]:
    """The figures that a spec asks for."""
    hints = get_type_hints(FigureSpec, include_extras=True)
    needed = [field.name for field in dataclasses.fields(FigureSpec) if field.default is dataclasses.MISSING]
    found = []
    for number, entry in enumerate(spec.get("figures", [])):
        check_kinds(f"figures.{number}", entry, {}, needed)
        known = {name: hint for name, hint in hints.items() if name in entry}
        values = {name: fields.checked(f"figures.{number}.{name}", entry[name], hint) for name, hint in known.items()}
        found.append(FigureSpec(**values))
    return found


def tables_at(path: Path) -> list[Table]:
    """The experiment's own tables."""
    entries = json_at(path)
    try:
        check_kinds("", {"tables": entries}, {"tables": list}, ())
        return [own_table(f"table {number}", entry) for number, entry in enumerate(entries)]
    except InputError as error:
        raise InputError(f"{path} cannot be read: {error}") from None


def own_table(where: str, entry: Any) -> Table:
    """One of the tables, with rows as long as its columns."""
    check_kinds(where, entry, TABLE_KINDS, ("title", "columns", "rows"))
    check_texts(f"{where}.columns", entry["columns"])
    for number, row in enumerate(entry["rows"]):
        check_kinds(where, {"rows": row}, {"rows": list}, ())
        check_texts(f"{where}.rows.{number}", row)
        if len(row) != len(entry["columns"]):
            raise InputError(f"{where}.rows.{number} has {len(row)} fields, and there are {len(entry['columns'])} columns")
    return Table(entry["title"], entry["columns"], entry["rows"], entry.get("note", ""))


class Rows:
    """A CSV file as it was read, and the line of each of its rows, to name what is wrong."""

    def __init__(self, path: Path, needed: Sequence[str]) -> None:
        """Refuses files without these columns, with a column twice, and with rows of another length than the first."""
        self.path = path
        text = text_at(path)
        if found := CONTROL.search(text):
            raise self.wrong(text.count("\n", 0, found.start()) + 1, "it has a control character in it")
        reader = csv.reader(io.StringIO(text, newline=""))
        try:
            names, rows = next(reader, []), [(reader.line_num, len(row)) for row in reader if row]
        except csv.Error as error:
            raise self.wrong(reader.line_num, str(error)) from None
        if not names:
            raise InputError(f"{path} cannot be read: it does not begin with the names of its columns")
        for name in needed:
            if name not in names:
                raise InputError(f"{path} is not a table of results: it lacks the column {name}")
        for name in names:
            if not name or names.count(name) > 1:
                raise self.wrong(1, f"the column {shown(name)} is there twice" if name else "a column has no name")
        for line, length in rows:
            if length != len(names):
                raise self.wrong(line, f"it has {length} fields, and there are {len(names)} columns")
        self.lines = [line for line, _ in rows]
        self.table = pd.read_csv(io.StringIO(text), dtype=dict.fromkeys(TEXTS, str), low_memory=False)

    def wrong(self, line: int, what: str) -> InputError:
        """An error that names the line."""
        return InputError(f"{self.path} cannot be read: line {line}: {what}")

    def refuse(self, name: str, bad: np.ndarray, what: str) -> None:
        """Refuses the first of the rows that are marked."""
        if bad.any():
            at = int(np.argmax(bad))
            raise self.wrong(self.lines[at], f"{name} must be {what}, but it is {shown(self.table[name].tolist()[at])}")

    def check_texts(self) -> None:
        """Refuses empty fields where there should be a name."""
        for name in TEXTS:
            if name in self.table:
                self.refuse(name, self.table[name].isna().to_numpy(), "a text")

    def check_numbers(self, name: str) -> np.ndarray:
        """The numbers of a column, where an empty field is NaN."""
        column = self.table[name]
        if column.dtype.kind in "iuf":
            return column.to_numpy(dtype=float)
        numbers = pd.to_numeric(column.astype(object).where(column.isna(), column.astype(str)), errors="coerce")
        self.refuse(name, (numbers.isna() & column.notna()).to_numpy(), "a number")
        return numbers.to_numpy(dtype=float)

    def check_seeds(self) -> None:
        """Makes the column of seeds one of whole numbers."""
        seeds = self.check_numbers("seed")
        self.refuse("seed", ~((seeds >= 0) & (seeds <= MOST_SEEDS) & (seeds % 1 == 0)), "a whole number that is not negative")
        self.table["seed"] = seeds.astype(np.int64)


def tidy_at(path: Path) -> pd.DataFrame:
    """A tidy table: text where there are names, whole seeds, values that are numbers or NaN, and units that are finite."""
    rows = Rows(path, COLUMNS)
    rows.check_texts()
    rows.check_seeds()
    rows.table["value"] = rows.check_numbers("value")
    for unit in UNITS:
        if unit in rows.table:
            rows.refuse(unit, np.isinf(rows.check_numbers(unit)), "finite")
    return rows.table


def wide_at(path: Path, spec: Mapping[str, Any]) -> pd.DataFrame:
    """The wide table of a run that was kept, as a tidy one; values that a cell lacks, or that are not numbers, are left out."""
    common = shared(spec)
    rows = Rows(path, [name for name in ("environment", "method", "seed") if name not in common])
    rows.check_texts()
    rows.check_seeds()
    settings = dict.fromkeys(name for cell in spec["cells"] for name in cell["settings"])
    for name in rows.table.columns:
        if name in ("experiment", "metric", "value"):
            raise InputError(f"{path} is not a wide table: it has the column {name}")
        if name not in ("environment", "method", "seed", *settings):
            rows.table[name] = rows.check_numbers(name)
    absent = {name: value for name, value in common.items() if name not in rows.table.columns}
    whole = rows.table.assign(experiment=spec["experiment"], **absent)
    heads = [name for name in ("experiment", "environment", "method", "seed", *settings) if name in whole.columns]
    tidy = whole.melt(heads, var_name="metric").dropna(subset="value")
    return tidy[[*COLUMNS, *(name for name in heads if name not in COLUMNS)]].reset_index(drop=True)


def shared(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a line of results that all cells of a run have in common."""
    cells = [{"environment": cell["environment"], **cell["settings"]} for cell in spec["cells"]]
    first = cells[0] if cells else {}
    return {name: value for name, value in first.items() if all(name in cell and cell[name] == value for cell in cells)}
