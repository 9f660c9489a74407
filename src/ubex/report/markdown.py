"""Every result as Markdown, next to the published values, with its runs, for a page of the docs that is generated."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ubex.report import grids, several
from ubex.report.grids import command_line
from ubex.runs import disk
from ubex.runs.folder import RunFolder
from ubex.types import InputError

ORDER = ("noise", "size", "num_models", "gain", "episodes")
"""Settings by which rows are sorted."""
BEGIN, END = "<!-- ubex report: begin -->", "<!-- ubex report: end -->"


def write(folder: Path, target: Path, *others: Path) -> Path:
    """Puts the tables of run folders, or of folders of run folders, between the two marks of a Markdown file.

    Raises:
        InputError: There is no run, or the file lacks the marks.
    """
    try:
        text = target.read_text(encoding="utf-8") if target.exists() else f"{BEGIN}\n{END}\n"
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{target} cannot be read: {error}") from None
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise InputError(f"{target} must have the lines {BEGIN} and {END}; the tables go between them")
    body = tables(*several.read([folder, *others]))
    disk.write_atomically(target, f"{before}{BEGIN}\n\n{body}\n\n{END}{after}")
    return target


def tables(runs: list[RunFolder], broken: Sequence[str] = ()) -> str:
    """One environment after the other: ours against published, misses, what has no published counterpart, and the runs.

    What could not be read is said first.
    """
    parts = [f"**Left out:** {plain(line)}" for line in (*broken, *(line for run in runs for line in run.problems))]
    for environment in dict.fromkeys(name for run in runs for name in environments(run)):
        here = [run for run in runs if environment in environments(run)]
        rows = pd.concat([run.results for run in here], ignore_index=True)
        # what two folders keep of one run counts once; runs of two experiments have other keys, even where they say the same
        rows = rows[rows["environment"] == environment].drop_duplicates().drop(columns="experiment")
        order = [column for column in ORDER if column in rows.columns]
        if order:
            rows = rows.sort_values(order, kind="stable", key=lambda column: pd.to_numeric(column, errors="coerce"))
        rows = rows.dropna(axis=1, how="all")
        grid = grids.comparison(rows)
        others = grids.unpublished(rows)
        parts.append(f"### {plain(environment)}")
        if grid is not None:
            parts += [plain(grid.note), table(grid), misses(grid)]
        if others is not None:
            parts += [plain(f"{others.title}. {others.note}".strip()), table(others)]
        parts += ["The runs:", table(origins(here))]
    if not any(environments(run) for run in runs):
        parts.append("No run has a result yet.")
    return "\n\n".join(parts)


def environments(run: RunFolder) -> list[str]:
    """Environments that a run has results of."""
    return list(dict.fromkeys(run.results["environment"]))


def misses(grid: grids.Grid) -> str:
    """How many of the comparisons agree, and each that does not by name."""
    verdicts = [row[-1].partition(" ")[2] for row in grid.rows]
    matching, fitting = verdicts.count("match"), verdicts.count("compatible")
    judged = [row for row, mark in zip(grid.rows, grid.marks, strict=True) if mark]
    missed = [row for row in judged if not row[-1].endswith(("match", "compatible"))]
    names = "; ".join(plain(" ".join(row[: grid.texts]) + f" ({row[-1]})") for row in missed)
    return f"Of {len(judged)} comparisons {matching} match and {fitting} are compatible. Misses: {names or 'none'}."


def origins(runs: list[RunFolder]) -> grids.Grid:
    """Where numbers come from: folder, methods, seeds, machine, day and command of every run."""
    rows = [
        [
            run.place,
            ", ".join(dict.fromkeys(run.results["method"])),
            ", ".join(dict.fromkeys(str(n) for n in run.results.groupby("method", sort=False)["seed"].nunique())),
            machine(run.spec.get("machine") or {}),
            run.spec.get("created", "-")[:10],
            "`" + command_line(run.spec.get("command")).replace("`", "'") + "`",
        ]
        for run in runs
    ]
    return grids.Grid("Runs", ["run", "methods", "seeds", "machine", "date", "command"], rows, texts=6)


def machine(found: Mapping[str, Any]) -> str:
    """A machine in a few words: an accelerator by its name, or the number of cores."""
    devices = [str(device) for device in found.get("devices") or [] if str(device).lower() != "cpu"]
    return ", ".join(devices) or f"{found.get('cores', '?')} cores, {found.get('system', '?')}"


def plain(text: str) -> str:
    """Text on one line, in which nothing is a tag, a link, code or the end of a cell. What is all code stays code."""
    line = " ".join(text.split())
    if len(line) > 2 and line.startswith("`") and line.endswith("`") and line.count("`") == 2:
        return line.replace("|", "\\|")
    return html.escape(line, quote=False).replace("`", "&#96;").replace("](", "]&#40;").replace("|", "\\|")


def table(grid: grids.Grid) -> str:
    """A grid as a Markdown table."""
    lines = [grid.columns, ["---" if i < grid.texts else "---:" for i in range(len(grid.columns))], *grid.rows]
    return "\n".join("| " + " | ".join(plain(cell) for cell in line) + " |" for line in lines)
