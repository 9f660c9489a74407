"""Reads a run folder for the report: whatever is there, however the run ended. Nothing but the spec has to exist."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from ubex.runs import keep, store
from ubex.runs.records import Cell, FigureSpec, Table
from ubex.types import InputError


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
        return str(self.spec.get("experiment", self.path.name))

    @property
    def place(self) -> str:
        """The name of its folder, after the experiment's where it is in a folder of that name."""
        inside = self.path.resolve()
        return f"{inside.parent.name}/{inside.name}" if inside.parent.name == self.name else inside.name

    @property
    def seeds(self) -> int:
        """Seeds of every cell."""
        return int(self.spec.get("seeds", 0))

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
        asked = [str(cell["method"]) for cell in self.spec.get("cells", [])]
        return list(dict.fromkeys([*asked, *self.results["method"].astype(str)]))


def run_folders(folder: Path) -> list[Path]:
    """The run folder itself, or the runs inside, as RUN or EXPERIMENT/RUN, oldest first."""
    if (folder / store.SPEC).is_file():
        return [folder]
    inside = [path.parent for path in folder.glob(f"*/{store.SPEC}")] if folder.is_dir() else []
    deeper = (path.parent for path in folder.glob(f"*/*/{store.SPEC}")) if folder.is_dir() else ()
    inside += [path for path in deeper if path.parent not in inside]
    if not inside:
        what = f"it has no {store.SPEC}, and no folder in it has one" if folder.is_dir() else "there is no such folder"
        raise InputError(f"no run at {folder}: {what}")
    return sorted(inside, key=lambda path: (created(path), path.parts))


def created(path: Path) -> str:
    """When a run was asked for, as its spec has it; empty where that cannot be read."""
    try:
        return str(store.read_spec(path).get("created", ""))
    except InputError:
        return ""


def read(path: Path) -> RunFolder:
    """A run as it is on disk; only a missing or broken spec is an error."""
    spec = store.read_spec(path)
    problems: list[str] = []
    cells, failures = [], []
    try:
        for entry in spec.get("cells", []):
            cell = Cell(spec["experiment"], entry["environment"], entry["method"], entry["settings"])
            state, errors = read_cell(path / "cells" / entry["id"], cell.label, int(spec["seeds"]))
            cells.append(state)
            failures += errors
        figures = [FigureSpec(**entry) for entry in spec.get("figures", [])]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path / store.SPEC} is not a run's spec: {type(error).__name__} {error}") from None
    finished = any(cell.done for cell in cells)
    if (path / keep.WIDE).is_file():
        results = wide(path, spec, problems)
    else:
        results = load(path, store.RESULTS, problems, expected=finished)
    if results is not None and not (path / "cells").exists():  # only the tables were kept
        cells = [from_results(results, entry, state) for entry, state in zip(spec["cells"], cells, strict=True)]
    return RunFolder(
        path=path,
        spec=spec,
        history=history(path),
        cells=cells,
        failures=failures,
        results=pd.DataFrame(columns=list(store.COLUMNS)) if results is None else results,
        curves=load(path, store.CURVES, problems, expected=False),
        tables=tables(path, problems),
        figures=figures,
        problems=problems,
    )


def read_cell(place: Path, label: str, seeds: int) -> tuple[CellState, list[Failure]]:
    """The state of one cell, and its failures with seeds that failed alike together."""
    done: list[int] = []
    seconds = 0.0
    errors: dict[tuple[str, str], list[int]] = {}
    for seed in range(seeds):
        folder = place / f"seed-{seed}"
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
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def load(path: Path, name: str, problems: list[str], *, expected: bool) -> pd.DataFrame | None:
    """One of the tidy tables, or nothing, with a word in `problems` where it should be there."""
    if not (path / name).is_file():
        if expected:
            problems.append(f"Seeds have finished but there is no {name} yet: the same `ubex run` command writes it.")
        return None
    try:
        return store.load_results(path / name)
    except InputError as error:
        problems.append(str(error))
        return None


def wide(path: Path, spec: Mapping[str, Any], problems: list[str]) -> pd.DataFrame | None:
    """The results of a run of which the wide table was kept."""
    try:
        return keep.narrowed(pd.read_csv(path / keep.WIDE), spec)
    except (OSError, ValueError, KeyError) as error:
        problems.append(f"{path / keep.WIDE} cannot be read: {error}")
        return None


def history(path: Path) -> list[dict[str, Any]]:
    """The invocations that ended; a line cut short by a kill is left out."""
    try:
        text = (path / store.HISTORY).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    entries = []
    for line in text.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            entries.append(entry)
    return entries


def tables(path: Path, problems: list[str]) -> list[Table]:
    """The experiment's own tables."""
    if not (path / store.TABLES).is_file():
        return []
    try:
        entries = json.loads((path / store.TABLES).read_text(encoding="utf-8"))
        return [Table(t["title"], t["columns"], t["rows"], t.get("note", "")) for t in entries]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        problems.append(f"{path / store.TABLES} cannot be read: {error}")
        return []


def as_seconds(value: Any) -> float:
    """A number of seconds, 0 where there is none."""
    return float(value) if isinstance(value, (int, float)) else 0.0


def command_line(command: Any) -> str:
    """A command as one would type it, without the folder that the program is in."""
    if not isinstance(command, (list, tuple)) or not command:
        return str(command or "")
    return shlex.join([Path(str(command[0])).name, *map(str, command[1:])])


def pairs(values: Any) -> str:
    """A setting or a small mapping in one line."""
    if isinstance(values, Mapping):
        known = {str(name).replace("_", " "): pairs(value) for name, value in values.items()}
        return ", ".join(f"{name} {value}" for name, value in known.items() if value)
    if isinstance(values, (list, tuple)):
        return ", ".join(map(pairs, values))
    return "" if values is None else str(values)
