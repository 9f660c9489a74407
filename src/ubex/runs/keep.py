"""Keeps the small part of a run folder for good: what `ubex keep` does.

    TARGET/spec.json       what was asked for, with the command as one would type it and without paths of the machine
    TARGET/results.csv     the tidy table of scalars
    TARGET/curves.csv      the tidy table of curves, or some of its metrics
    TARGET/tables.json     the experiment's own tables

The wide form has `wide.csv` instead of the last three: one line per cell and seed, one column per metric, four digits.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import tyro

from ubex import checks
from ubex.runs import disk, folder, schema, store
from ubex.types import InputError

HOME = Path("results")
FILES = {folder.RESULTS, folder.CURVES, folder.TABLES, folder.WIDE, folder.SPEC}
"""All that a kept run may consist of."""
MACHINES_OWN = ("--out", "--address")
"""Options whose values are places of one machine or network."""
GROWS = ("seeds", "command", "git")
"""What may change in the spec of one run when seeds are added."""


@dataclass(frozen=True)
class Keep:
    """Keep the tables of a run and what was asked for. Cells, checkpoints and pictures stay behind."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """The run folder."""
    target: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[TARGET]")] = None
    """The folder to keep it in. By default it is results/EXPERIMENT/NAME, with the name of the run folder."""
    columns: tuple[str, ...] = ()
    """Keep only these metrics of curves.csv."""
    wide: bool = False
    """Keep one small table instead. It has one line per cell and seed, one column per metric, and numbers of four digits."""
    unfinished: bool = False
    """Keep also what seeds that have not finished had shown at their newest checkpoint."""

    def __call__(self) -> Path:
        """The folder that the run was kept in."""
        return keep(self.run, self.target, self.columns, wide=self.wide, unfinished=self.unfinished)


def keep(
    run: Path, target: Path | None = None, columns: Sequence[str] = (), *, wide: bool = False, unfinished: bool = False
) -> Path:
    """Copies the small part of a run folder and returns where it is; a run that was kept there before is replaced.

    Raises:
        InputError: There is no run with results, no such column, or the target is not free for this run.
    """
    if wide and columns:
        raise InputError("--columns chooses curves and --wide keeps none: give one of the two")
    spec = folder.read_spec(run)
    target = HOME / spec["experiment"] / run.resolve().name if target is None else target
    check_free(target, run, spec)
    if unfinished and wide:
        raise InputError("--wide has one line per seed, and --unfinished several: give one of the two")
    files = dict(contents(run, spec, columns, wide, unfinished))
    with disk.storage(f"make {target}"):
        target.mkdir(parents=True, exist_ok=True)
        for name in FILES - set(files):  # of an earlier call with other options
            (target / name).unlink(missing_ok=True)
    for name, text in files.items():
        disk.write_atomically(target / name, text)
    return target


def check_free(target: Path, run: Path, spec: Mapping[str, Any]) -> None:
    """Refuses a target that is no folder, the run itself, or a folder with anything but this run's results."""
    if target.exists() and not target.is_dir():
        raise InputError(f"{target} is a file, not a folder: give another TARGET")
    if target.resolve() == run.resolve():
        raise InputError(f"{target} is the run folder itself: give another TARGET")
    if (target / folder.SPEC).exists():
        before, now = same_run(folder.read_spec(target)), same_run(spec)
        differs = next((name for name in [*now, *before] if before.get(name) != now.get(name)), None)
        if differs is not None:
            values = f"{differs} {before.get(differs, 'absent')} there, {now.get(differs, 'absent')} here"
            raise InputError(f"{target} holds the results of another run ({values}): give another TARGET, or remove it first")
    elif target.exists() and any(target.iterdir()):
        raise InputError(f"{target} has files in it but no {folder.SPEC}: give another TARGET")


def same_run(spec: Mapping[str, Any]) -> dict[str, Any]:
    """What stays the same however often a run is continued: one value per setting, its cells and when it began."""
    settings = {name: value for name, value in spec["settings"].items() if name not in GROWS}
    cells = disk.checksum(" ".join(cell["id"] for cell in spec["cells"]).encode())[:8]
    return {"experiment": spec["experiment"], **settings, "cells": cells, "created": spec.get("created")}


def contents(
    run: Path, spec: Mapping[str, Any], columns: Sequence[str], wide: bool, unfinished: bool
) -> Iterator[tuple[str, str]]:
    """Names and texts of the files to keep."""
    early, done = store.so_far(run, spec) if unfinished else {}, store.finished(run, spec)[0]
    written = any((run / name).is_file() for name in (folder.RESULTS, folder.WIDE))
    stopped = bool(early or done) and (unfinished or not written)  # before it wrote tables of all that there is
    rows, points = store.tables(store.cells_of(spec), {**early, **done}) if stopped else (pd.DataFrame(), pd.DataFrame())
    results = folder.load_results(run) if written and not stopped else rows
    if results.empty:
        instead = "--unfinished keeps what they had shown" if not unfinished and has_shown(run, spec) else ""
        none = f"no seed of {run} has finished{', or says how far it has come' * unfinished}"
        raise InputError(f"{none}: {instead or 'there is nothing to keep'}")
    if wide:
        yield folder.WIDE, widened(results, spec).to_csv(index=False, float_format="%.4g")
    elif stopped:
        yield folder.RESULTS, rows.to_csv(index=False)
        if len(points):
            yield folder.CURVES, (chosen(points, columns) if columns else points).to_csv(index=False)
        if (run / folder.TABLES).is_file() and not early:
            yield folder.TABLES, (run / folder.TABLES).read_text(encoding="utf-8")
    else:
        for name in (folder.RESULTS, folder.CURVES, folder.TABLES, folder.WIDE):
            if (run / name).is_file() and not (columns and name == folder.CURVES):
                yield name, (run / name).read_text(encoding="utf-8")
        if columns:
            folder.load_curves(run)  # which refuses what is no such table
            curves = pd.read_csv(run / folder.CURVES, dtype=str, keep_default_na=False)
            yield folder.CURVES, chosen(curves, columns).to_csv(index=False)
    kept = {**spec, "command": typed(spec.get("command", []))}
    if (spec.get("git") or {}).get("dirty") is not False:
        kept.pop("git", None)  # a commit that the code was not at says nothing
    yield folder.SPEC, json.dumps(kept, indent=1) + "\n"


def has_shown(run: Path, spec: Mapping[str, Any]) -> bool:
    """Whether seeds that have not finished say how far they have come."""
    with contextlib.suppress(InputError):
        return bool(store.so_far(run, spec))
    return False


def chosen(curves: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """The lines of some metrics in the table of curves, as they stand."""
    for column in columns:
        checks.one_of("column", column, dict.fromkeys(curves["metric"]))
    return curves[curves["metric"].isin(columns)]


def typed(command: Sequence[str]) -> list[str]:
    """The command as one would type it anywhere: without the folder of the program, and without places of this machine."""
    words, kept = list(command[1:]), ["ubex"]
    while words:
        word = words.pop(0)
        if word in MACHINES_OWN:
            words = words[1:]
        elif word.partition("=")[0] not in MACHINES_OWN:
            kept.append(word)
    return kept


def widened(results: pd.DataFrame, spec: Mapping[str, Any]) -> pd.DataFrame:
    """The tidy table with one line per cell and seed and one column per metric; what all cells share is left out."""
    common = [name for name in schema.shared(spec) if results[name].nunique(dropna=False) == 1]
    heads = [name for name in results.columns if name not in ("experiment", "metric", "value", *common)]
    line = results.groupby(heads, sort=False, dropna=False).ngroup()
    lines = results[heads].groupby(line).head(1).reset_index(drop=True)
    metrics = list(dict.fromkeys(results["metric"]))
    return lines.join(results.assign(line=line).pivot(index="line", columns="metric", values="value")[metrics])
