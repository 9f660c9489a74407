"""Reads a run folder: whatever is there, however the run ended. Nothing but the spec has to exist.

`store.py` says what lies in the folder of a run, `keep.py` what is kept of it, and `schema.py` what each file has to hold.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from ubex import checks
from ubex.runs import schema
from ubex.runs.records import Cell, FigureSpec, Table
from ubex.runs.schema import COLUMNS
from ubex.types import InputError

SEED = re.compile(r"seed-(0|[1-9][0-9]{0,8})", re.ASCII)
"""Names of the folders of seeds."""
RESULTS, CURVES, TABLES, SPEC, HISTORY = "results.csv", "curves.csv", "tables.json", "spec.json", "history.jsonl"
WIDE = "wide.csv"
"""What `ubex keep --wide` leaves in place of the tables."""


@dataclass(frozen=True)
class CellState:
    """How far one cell has come."""

    label: str
    done: Sequence[int]
    """Seeds that finished."""
    failed: Sequence[int]
    seconds: float
    """Of the longest seed; seeds that ran together share theirs."""


@dataclass(frozen=True)
class Failure:
    """Seeds of a cell that failed in the same way."""

    label: str
    seeds: Sequence[int]
    error: str
    traceback: str


@dataclass(frozen=True)
class RunFolder:
    """Everything that a report says about one run."""

    path: Path
    spec: Mapping[str, Any]
    history: Sequence[Mapping[str, Any]]
    cells: Sequence[CellState]
    failures: Sequence[Failure]
    results: pd.DataFrame
    """Empty where nothing has finished."""
    curves: pd.DataFrame | None
    tables: Sequence[Table]
    figures: Sequence[FigureSpec]
    problems: Sequence[str] = field(default_factory=list)
    """What could not be read, one line each."""

    @property
    def name(self) -> str:
        """The experiment's name."""
        return str(self.spec["experiment"])

    @property
    def place(self) -> str:
        """The name of its folder, after the experiment's where it is in a folder of that name."""
        inside = self.path.resolve()
        return f"{inside.parent.name}/{inside.name}" if inside.parent.name == self.name else inside.name

    @property
    def seeds(self) -> int:
        """Seeds of every cell."""
        return int(self.spec["seeds"])

    @property
    def total(self) -> int:
        """Jobs that were asked for: cells times seeds."""
        return len(self.cells) * self.seeds

    @property
    def done(self) -> int:
        """Jobs that finished."""
        return sum(len(cell.done) for cell in self.cells)

    @property
    def failed(self) -> int:
        """Jobs that failed and have not succeeded since."""
        return sum(len(cell.failed) for cell in self.cells)

    @property
    def methods(self) -> list[str]:
        """All methods, in the order of the spec."""
        return list(dict.fromkeys([*(cell["method"] for cell in self.spec["cells"]), *self.results["method"]]))


def run_folders(folder: Path) -> list[Path]:
    """The run folder itself, or the runs inside, as RUN or EXPERIMENT/RUN, oldest first."""
    if (folder / SPEC).is_file():
        return [folder]
    inside = [path.parent for path in folder.glob(f"*/{SPEC}")] if folder.is_dir() else []
    deeper = (path.parent for path in folder.glob(f"*/*/{SPEC}")) if folder.is_dir() else ()
    inside += [path for path in deeper if path.parent not in inside]
    if not inside:
        what = f"it has no {SPEC}, and no folder in it has one" if folder.is_dir() else "there is no such folder"
        what = "it is a file, not a folder" if folder.is_file() else what
        raise InputError(f"no run at {folder}: {what}")
    return sorted(inside, key=lambda path: (created(path), path.parts))


def created(path: Path) -> str:
    """When a run was asked for, as its spec has it; empty where that cannot be read."""
    try:
        return str(read_spec(path).get("created", ""))
    except InputError:
        return ""


def read_all(folder: Path) -> tuple[list[RunFolder], list[str]]:
    """The runs of a folder, oldest first, and a line for each that cannot be read; one of them at least has to be sound."""
    runs, broken = [], []
    for place in run_folders(folder):
        try:
            runs.append(read(place))
        except InputError as error:
            broken.append(str(error))
    if not runs:
        raise InputError(broken[0])
    return runs, broken


def read(path: Path) -> RunFolder:
    """A run as it is on disk; only a missing or broken spec is an error."""
    spec = read_spec(path)
    problems: list[str] = []
    cells, failures = [], []
    for entry in spec["cells"]:
        cell = Cell(spec["experiment"], entry["environment"], entry["method"], entry["settings"])
        state, errors = read_cell(path / "cells" / entry["id"], cell.label, spec["seeds"])
        cells.append(state)
        failures += errors
    finished = any(cell.done for cell in cells)
    results = load(path, RESULTS, problems, expected=finished)
    if results is not None and not (path / "cells").exists():  # only the tables were kept
        cells = [from_results(results, entry, state) for entry, state in zip(spec["cells"], cells, strict=True)]
    return RunFolder(
        path=path,
        spec=spec,
        history=history(path),
        cells=cells,
        failures=failures,
        results=pd.DataFrame(columns=list(COLUMNS)) if results is None else results,
        curves=load(path, CURVES, problems, expected=False),
        tables=tables(path, problems),
        figures=schema.figures(spec),
        problems=problems,
    )


def read_cell(place: Path, label: str, seeds: int) -> tuple[CellState, list[Failure]]:
    """The state of one cell, and its failures with seeds that failed alike together."""
    done: list[int] = []
    seconds = 0.0
    errors: dict[tuple[str, str], list[int]] = {}
    found = {int(path.name.removeprefix("seed-")): path for path in place.glob("seed-*") if SEED.fullmatch(path.name)}
    for seed, folder in sorted(found.items()):
        if seed >= seeds:
            continue
        if (folder / "done.json").is_file():
            done.append(seed)
            seconds = max(seconds, as_seconds(json_at(folder / "done.json").get("seconds")))
        elif (folder / "error.json").is_file():
            said = json_at(folder / "error.json")
            key = (str(said.get("error", "its error.json cannot be read")), str(said.get("traceback", "")))
            errors.setdefault(key, []).append(seed)
    failures = [Failure(label, failed, error, trace) for (error, trace), failed in errors.items()]
    return CellState(label, done, sorted(seed for seeds_of in errors.values() for seed in seeds_of), seconds), failures


def from_results(results: pd.DataFrame, entry: Mapping[str, Any], state: CellState) -> CellState:
    """How far a cell has come by the tidy table alone."""
    rows = results[(results["environment"] == entry["environment"]) & (results["method"] == entry["method"])]
    for name, value in entry["settings"].items():
        rows = rows[rows[name] == value] if name in rows else rows
    return dataclasses.replace(state, done=sorted(int(seed) for seed in rows["seed"].unique()))


def json_at(path: Path) -> dict[str, Any]:
    """A JSON object on disk, or an empty one where it is missing or broken."""
    try:
        found = schema.json_at(path)
    except InputError:
        return {}
    return found if isinstance(found, dict) else {}


def load(path: Path, name: str, problems: list[str], *, expected: bool) -> pd.DataFrame | None:
    """One of the tidy tables, or nothing, with a word in `problems` where it should be there."""
    if not table_file(path, name).exists():
        if expected:
            problems.append(f"Seeds have finished but there is no {name} yet: the same `ubex run` command writes it.")
        return None
    try:
        return _load(path, name)
    except InputError as error:
        problems.append(str(error))
        return None


def history(path: Path) -> list[dict[str, Any]]:
    """The invocations that ended; a line cut short by a kill is left out."""
    try:
        text = (path / HISTORY).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    entries = []
    for line in text.splitlines():
        try:
            entry = schema.parsed(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict):
            entries.append(entry)
    return entries


def tables(path: Path, problems: list[str]) -> list[Table]:
    """The experiment's own tables."""
    try:
        return schema.tables_at(path / TABLES) if (path / TABLES).exists() else []
    except InputError as error:
        problems.append(str(error))
        return []


def as_seconds(value: Any) -> float:
    """A number of seconds, 0 where there is none."""
    return float(value) if isinstance(value, (int, float)) and 0.0 <= value < math.inf else 0.0


def read_spec(root: Path) -> dict[str, Any]:
    """The spec of a run folder."""
    if not (root / SPEC).exists():
        raise InputError(f"{root} is not a run folder: it has no {SPEC}")
    return schema.spec_at(root / SPEC)


def load_results(path: str | os.PathLike[str]) -> pd.DataFrame:
    """The tidy table of scalars of a run folder, also of one that was kept in the wide form (or of a `results.csv`).

    Example:
        >>> lines = ("experiment,environment,method,seed,metric,value", "toy,toy,pombu,0,variance_s0,21.3")
        >>> size = Path("results.csv").write_text("\\n".join(lines))
        >>> ubex.load_results("results.csv").loc[0, "method"]
        'pombu'
    """
    return _load(checks.path("path", path), RESULTS)


def load_curves(path: str | os.PathLike[str]) -> pd.DataFrame:
    """The tidy table of curves of a run folder (or of a `curves.csv`).

    Example:
        >>> lines = ("experiment,environment,method,seed,metric,value,episode", "deep-sea,deep-sea,psrl,0,regret,0.5,7")
        >>> size = Path("curves.csv").write_text("\\n".join(lines))
        >>> int(ubex.load_curves("curves.csv").loc[0, "episode"])
        7
    """
    return _load(checks.path("path", path), CURVES)


def table_file(path: Path, name: str) -> Path:
    """The file of one of the tables of a run folder, where the wide one stands for the results; a file is itself."""
    if not path.is_dir():
        return path
    return path / (WIDE if name == RESULTS and (path / WIDE).exists() else name)


def _load(path: Path, name: str) -> pd.DataFrame:
    target = table_file(path, name)
    if not target.exists():
        raise InputError(f"no {name} at {target}")
    return schema.wide_at(target, read_spec(path)) if target.name == WIDE and target != path else schema.tidy_at(target)
