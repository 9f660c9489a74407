"""What a run leaves on disk: `results.csv`, the tidy table, put in place in one step."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from ubex.types import InputError

RESULTS = "results.csv"
COLUMNS = ("experiment", "environment", "method", "seed", "metric", "value")


def write_atomically(path: Path, text: str) -> None:
    """Writes next to the target, forces it to disk and renames, so that a reader never sees half a file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def folder(path: Path) -> Path:
    """The folder of a run, made if need be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise InputError(f"--out {path} is a file, not a folder") from None
    except OSError as error:
        raise InputError(f"--out {path} cannot be made: {error.strerror}") from None
    return path


def write_results(out: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Writes the tidy table: the fixed columns first, then the cells' own fields."""
    table = pd.DataFrame(list(rows))
    table = table[[*COLUMNS, *(column for column in table.columns if column not in COLUMNS)]]
    path = folder(out) / RESULTS
    write_atomically(path, table.to_csv(index=False))
    return path


def load_results(path: str | os.PathLike[str]) -> pd.DataFrame:
    """The tidy table of a run folder (or of a `results.csv`)."""
    target = Path(path)
    target = target / RESULTS if target.is_dir() else target
    if not target.is_file():
        raise InputError(f"no {RESULTS} at {target}")
    table = pd.read_csv(target)
    missing = [column for column in COLUMNS if column not in table.columns]
    if missing:
        raise InputError(f"{target} is not a table of results: it lacks the column {missing[0]}")
    return table
