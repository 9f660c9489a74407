"""The page's tables: every metric with intervals, the comparison with the published values, cells and invocations."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ubex.report import charts
from ubex.report.names import people
from ubex.runs import metrics
from ubex.runs.folder import RunFolder, as_seconds
from ubex.runs.progress import duration
from ubex.runs.records import Table

VERDICTS = {
    "match": "\u2713",
    "compatible": "~",
    "within 5%": "\u2248",
    "differs": "\u2260",
    "too few seeds": "?",
    "no published value": "\u2013",
}
"""A symbol for each verdict, so that it does not depend on colour."""


@dataclass(frozen=True)
class Grid:
    """A table as the page shows it."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    methods: Sequence[str] = ()
    """The method of each row, where rows follow the reader's pick."""
    marks: Sequence[str] = ()
    """A word for the style of each row's last cell."""
    texts: int = 1
    """Leading columns that hold names rather than numbers."""


def own(table: Table) -> Grid:
    """One of the experiment's own tables, with names for people."""
    places = [place for place, column in enumerate(table.columns) if column == "metric"]
    rows = [[people(cell) if place in places else cell for place, cell in enumerate(row)] for row in table.rows]
    return Grid(table.title, [people(column) for column in table.columns], rows, table.note)


def repeated(table: Table, summary: pd.DataFrame) -> bool:
    """Whether a table has nothing but settings and means, one row for each group of seeds: the tables with intervals have
    them too."""
    if table.note or not table.rows:
        return False
    parts = [summary, *(part for _, part in summary.groupby("metric", sort=False))]
    parts = [part for part in parts if len(part) == len(table.rows)]
    settings = [column for column in summary.columns if column not in metrics.STATISTICS]
    known = [[charts.label(value) for value in part[name]] for part in parts for name in settings]
    return all(
        [cell.replace(",", "") for cell in column] in known or any(means(column, part["mean"]) for part in parts)
        for column in zip(*table.rows, strict=True)
    )


def means(cells: Sequence[str], values: pd.Series[float]) -> bool:
    """Whether cells are these means with two digits, which standard errors may follow."""
    first = pd.Series([cell.split(" ")[0].replace(",", "") for cell in cells])
    numbers = pd.to_numeric(first.replace("-", "nan"), errors="coerce")
    return bool(np.allclose(numbers, values, rtol=0.0, atol=0.00501, equal_nan=True))


def intervals(table: pd.DataFrame) -> dict[str, Grid]:
    """One table per metric of a summary: mean and standard error, interquartile mean with its interval, and seeds."""
    found = {}
    for metric in dict.fromkeys(table["metric"].astype(str)):
        part = table[table["metric"].astype(str) == metric]
        names = [column for column in table.columns if column not in (*metrics.STATISTICS, "metric", "experiment")]
        varied, fixed = split(part, names)
        title = people(metric)
        found[metric] = estimates(title[:1].upper() + title[1:], part, varied, fixed)
    return found


def estimates(title: str, table: pd.DataFrame, varied: Sequence[str], note: str) -> Grid:
    """Rows of `metrics.summarize` as a table, with the settings that vary in front."""
    rows = [
        [
            *(setting(row, column) for column in varied),
            with_error(row["mean"], row["standard_error"]),
            interval(row["iqm"], row["low"], row["high"]),
            charts.label(row["seeds"]),
        ]
        for row in table.to_dict("records")
    ]
    columns = [*map(people, varied), "mean \u00b1 standard error", "IQM [95% interval]", "seeds"]
    return Grid(title, columns, rows, note, [charts.label(value) for value in table["method"]], texts=len(varied))


def split(table: pd.DataFrame, names: Sequence[str]) -> tuple[list[str], str]:
    """The columns that vary (and the method, always), and the others in words."""
    varied = [name for name in names if name == "method" or table[name].nunique(dropna=False) > 1]
    fixed = [f"{people(name)} {setting(table.iloc[0], name)}" for name in names if name not in varied]
    present = [text for text in fixed if not text.endswith(" -")]
    return varied, f"With {', '.join(present)}." if present else ""


def setting(row: Mapping[Any, Any] | pd.Series[Any], column: str) -> str:
    """What a row has in the column of a setting, or the name of its metric."""
    text = charts.label(row[column])
    return people(text) if column == "metric" else text


def comparison(results: pd.DataFrame) -> Grid | None:
    """Our means next to the published ones, or nothing where none was published for these settings."""
    table = pd.DataFrame() if results.empty else metrics.compare(results)
    if table.empty:
        return None
    names = [column for column in table.columns if column not in metrics.COMPARISON]
    varied, fixed = split(table, names)
    rows, marks = [], []
    for row in table.to_dict("records"):
        verdict = str(row["verdict"])
        cells = [setting(row, column) for column in varied]
        for side in ("ours", "published"):
            mean = with_error(row[f"{side}_mean"], row[f"{side}_standard_error"])
            cells.append(f"{mean} ({charts.label(row[f'{side}_seeds'])})" if mean != "-" else mean)
            if side == "ours":
                cells.append(limits(row["ours_low"], row["ours_high"]))
        apart = float(row["difference_in_standard_errors"])
        cells += [f"{apart:+.1f}" if math.isfinite(apart) else "-", charts.number(float(row["smallest_difference"]))]
        rows.append([*cells, f"{VERDICTS.get(verdict, '')} {verdict}".strip()])
        marks.append({"match": "good", "compatible": "part", "within 5%": "part", "differs": "bad"}.get(verdict, ""))
    columns = [*map(people, varied), "ours", "95% interval", "published", "difference", "visible from", "verdict"]
    methods = [charts.label(value) for value in table["method"]]
    note = (
        "Mean \u00b1 standard error (seeds), and the bootstrap interval of our mean, or the exact one of a share. "
        f"The difference is in combined standard errors, and from {metrics.MATCH:g} of them on it would be visible. "
        f"Within them ours is compatible: a match, if they are at most {metrics.NARROW:.0%} of the published mean. {fixed}"
    ).strip()
    return Grid("Ours next to the published values", columns, rows, note, methods, marks, len(varied))


def unpublished(results: pd.DataFrame) -> Grid | None:
    """Our results that have no published counterpart, in the metrics that were published for others, or all if none was."""
    rows = metrics.without_counterpart(results)
    asked = results[~results.index.isin(rows.index)]["metric"].unique()
    rows = rows[rows["metric"].isin(asked)] if len(asked) else rows
    if rows.empty:
        return None
    table = metrics.summarize(rows)
    varied, fixed = split(table, [column for column in table.columns if column not in metrics.STATISTICS])
    return estimates("Without a published counterpart", table, varied, fixed)


def with_error(mean: float, error: float) -> str:
    """A mean with its standard error, where it has one."""
    return charts.number(float(mean)) + (f" \u00b1 {charts.number(float(error))}" if math.isfinite(error) else "")


def limits(low: float, high: float) -> str:
    """An interval, where there is one."""
    return f"[{charts.number(float(low))}, {charts.number(float(high))}]" if math.isfinite(low) else "-"


def interval(middle: float, low: float, high: float) -> str:
    """An estimate with its interval, where it has one."""
    if not math.isfinite(low):
        return charts.number(float(middle))
    return f"{charts.number(float(middle))} {limits(low, high)}"


def cells(run: RunFolder) -> Grid:
    """How far each cell has come."""
    rows = [
        [c.label, f"{len(c.done)} of {run.seeds}", str(len(c.failed)), duration(c.seconds) if c.done else "-"]
        for c in run.cells
    ]
    note = "The time is that of the longest seed; seeds that ran together share theirs."
    return Grid("Cells", ["cell", "seeds done", "failed", "time"], rows, note)


def past(run: RunFolder) -> Grid:
    """The invocations that ended."""
    rows = [
        [
            str(entry.get("started", "")),
            str(entry.get("status", "")),
            duration(as_seconds(entry.get("seconds"))),
            *(charts.label(entry.get(name)) for name in ("finished", "failed")),
            command_line(entry.get("command")),
        ]
        for entry in run.history
    ]
    return Grid("Invocations", ["started", "ended", "time", "finished", "failed", "command"], rows)


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
