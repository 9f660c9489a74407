"""Reads a run folder: whatever is there, however the run ended. Nothing but the spec has to exist.

`store.py` says what lies in the folder of a run, and `keep.py` what is kept of it.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from ubex.runs.records import Cell, FigureSpec, Table
from ubex.types import InputError

RESULTS, CURVES, TABLES, SPEC, HISTORY = "results.csv", "curves.csv", "tables.json", "spec.json", "history.jsonl"
WIDE = "wide.csv"
"""What `ubex keep --wide` leaves in place of the tables."""
COLUMNS = ("experiment", "environment", "method", "seed", "metric", "value")
"""Those that every tidy table has."""


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
    if (folder / SPEC).is_file():
        return [folder]
    inside = [path.parent for path in folder.glob(f"*/{SPEC}")] if folder.is_dir() else []
    deeper = (path.parent for path in folder.glob(f"*/*/{SPEC}")) if folder.is_dir() else ()
    inside += [path for path in deeper if path.parent not in inside]
    if not inside:
        what = f"it has no {SPEC}, and no folder in it has one" if folder.is_dir() else "there is no such folder"
        raise InputError(f"no run at {folder}: {what}")
    return sorted(inside, key=lambda path: (created(path), path.parts))


def created(path: Path) -> str:
    """When a run was asked for, as its spec has it; empty where that cannot be read."""
    try:
        return str(read_spec(path).get("created", ""))
    except InputError:
        return ""


def read(path: Path) -> RunFolder:
    """A run as it is on disk; only a missing or broken spec is an error."""
    spec = read_spec(path)
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
        raise InputError(f"{path / SPEC} is not a run's spec: {type(error).__name__} {error}") from None
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
    if not table_file(path, name).is_file():
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
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            entries.append(entry)
    return entries


def tables(path: Path, problems: list[str]) -> list[Table]:
    """The experiment's own tables."""
    if not (path / TABLES).is_file():
        return []
    try:
        entries = json.loads((path / TABLES).read_text(encoding="utf-8"))
        return [Table(t["title"], t["columns"], t["rows"], t.get("note", "")) for t in entries]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        problems.append(f"{path / TABLES} cannot be read: {error}")
        return []


def as_seconds(value: Any) -> float:
    """A number of seconds, 0 where there is none."""
    return float(value) if isinstance(value, (int, float)) else 0.0


def read_spec(root: Path) -> dict[str, Any]:
    """The spec of a run folder."""
    try:
        spec: dict[str, Any] = json.loads((root / SPEC).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{root} is not a run folder: it has no {SPEC}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{root / SPEC} cannot be read: {error}") from None
    return spec


def load_results(path: str | os.PathLike[str]) -> pd.DataFrame:
    """The tidy table of scalars of a run folder, also of one that was kept in the wide form (or of a `results.csv`).

    Example:
        >>> lines = ("experiment,environment,method,seed,metric,value", "toy,toy,pombu,0,variance_s0,21.3")
        >>> size = Path("results.csv").write_text("\\n".join(lines))
        >>> ubex.load_results("results.csv").loc[0, "method"]
        'pombu'
    """
    return _load(Path(path), RESULTS)


def load_curves(path: str | os.PathLike[str]) -> pd.DataFrame:
    """The tidy table of curves of a run folder (or of a `curves.csv`).

    Example:
        >>> lines = ("experiment,environment,method,seed,metric,value,episode", "deep-sea,deep-sea,psrl,0,regret,0.5,7")
        >>> size = Path("curves.csv").write_text("\\n".join(lines))
        >>> int(ubex.load_curves("curves.csv").loc[0, "episode"])
        7
    """
    return _load(Path(path), CURVES)


def table_file(path: Path, name: str) -> Path:
    """The file of one of the tables of a run folder, where the wide one stands for the results; a file is itself."""
    if not path.is_dir():
        return path
    return path / (WIDE if name == RESULTS and (path / WIDE).is_file() else name)


def _load(path: Path, name: str) -> pd.DataFrame:
    target = table_file(path, name)
    if not target.is_file():
        raise InputError(f"no {name} at {target}")
    try:
        table = pd.read_csv(target)
        table = narrowed(table, read_spec(path)) if target.name == WIDE and target != path else table
    except (ValueError, KeyError, OSError) as error:
        raise InputError(f"{target} cannot be read: {error}") from None
    missing = [column for column in COLUMNS if column not in table.columns]
    if missing:
        raise InputError(f"{target} is not a table of results: it lacks the column {missing[0]}")
    return table


def shared(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a line of results that all cells of a run have in common."""
    cells = [{"environment": cell["environment"], **cell["settings"]} for cell in spec["cells"]]
    return {name: value for name, value in cells[0].items() if all(name in cell and cell[name] == value for cell in cells)}


def narrowed(wide: pd.DataFrame, spec: Mapping[str, Any]) -> pd.DataFrame:
    """The tidy table of a wide one; values that a cell lacks, or that are not numbers, are left out."""
    settings = dict.fromkeys(name for cell in spec["cells"] for name in cell["settings"])
    absent = {name: value for name, value in shared(spec).items() if name not in wide.columns}
    whole = wide.assign(experiment=spec["experiment"], **absent)
    heads = [name for name in ("experiment", "environment", "method", "seed", *settings) if name in whole.columns]
    rows = whole.melt(heads, var_name="metric").dropna(subset="value")
    return rows[[*COLUMNS, *(name for name in heads if name not in COLUMNS)]].reset_index(drop=True)
