"""The comparison with the published values as Markdown, for a page of the docs that nobody types."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from ubex.report import grids
from ubex.report.folder import RunFolder, read, run_folders
from ubex.runs import store
from ubex.types import InputError

ORDER = ("noise", "size", "num_models", "gain", "episodes")
"""Settings by which rows are sorted."""
BEGIN, END = "<!-- ubex report: begin -->", "<!-- ubex report: end -->"


def write(folder: Path, target: Path) -> Path:
    """Puts the tables of a run folder, or of a folder of run folders, between the two marks of a Markdown file.

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
    body = tables([read(path) for path in run_folders(folder)])
    store.write_atomically(target, f"{before}{BEGIN}\n\n{body}\n\n{END}{after}")
    return target


def tables(runs: list[RunFolder]) -> str:
    """One table an environment, with every result that has a published counterpart."""
    results = [run.results for run in runs if not run.results.empty]
    everything = pd.concat(results, ignore_index=True) if results else pd.DataFrame()
    parts = []
    for environment in dict.fromkeys([] if everything.empty else everything["environment"].astype(str)):
        rows = everything[everything["environment"].astype(str) == environment].drop(columns="experiment")
        order = [column for column in ORDER if column in rows.columns]
        rows = rows.sort_values(order, kind="stable") if order else rows
        grid = grids.comparison(rows.dropna(axis=1, how="all").drop_duplicates())
        if grid is not None:
            parts.append(f"### {environment}\n\n{grid.note}\n\n{table(grid)}")
    return "\n\n".join(parts) or "No result here has a published counterpart."


def table(grid: grids.Grid) -> str:
    """A grid as a Markdown table."""
    lines = [grid.columns, ["---" if i < grid.texts else "---:" for i in range(len(grid.columns))], *grid.rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
