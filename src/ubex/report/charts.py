"""What a figure shows, as plain data: one aggregation, drawn twice, by matplotlib (figures.py) and by the page (page.js).

A method's look is a function of its name and of the other methods on the page, never of the figure it stands in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ubex.estimators import ESTIMATORS
from ubex.report.names import people
from ubex.runs.records import DRAWABLE, FigureSpec
from ubex.types import InputError

KINDS = ("bars", "lines", "curves", "scatter")
DOTS = "dots"
"""What lines and curves become that have one place only."""
GROUPED = ("bars", DOTS)
"""Kinds whose horizontal axis has names, with the series next to each other at each."""
UNITS = ("episode", "step")
OTHERS = {"psrl": 4, "brute-force": 6, "sac": 10, "first-order": 11, "beb": 12, "ucbvi": 13, "mbpo": 14}
KNOWN = {name: entry.look for name, entry in ESTIMATORS.items() if entry.look is not None} | OTHERS
"""Methods whose look never changes, in any report, and its number."""
COLORS = (
    ("#0072b2", "#4aa8e0"),
    ("#d55e00", "#f28c45"),
    ("#009e73", "#2fc79b"),
    ("#b65c91", "#dd92bd"),
    ("#c98a00", "#f0b73a"),
    ("#d3123f", "#ff5c72"),
    ("#4d4d4d", "#c4c4c4"),
    ("#332288", "#9d8df0"),
    ("#0b5d1e", "#6fcf3f"),
    ("#7d1014", "#b8694f"),
    ("#7a7a1f", "#cfcf6b"),
    ("#8a5cf0", "#e055f0"),
    ("#6b4a1e", "#a08a62"),
    ("#8790a0", "#74828c"),
    ("#00a3b4", "#6fe9f7"),
    ("#d81bb0", "#ff4fc0"),
)
"""For light and for dark ground. The first are Okabe and Ito's; any two are at least 25 apart in CIE Lab."""
HATCHES = ("", "//", ".", "xx", "--", "\\\\", "++", "////", "||", "x-", "|/", "+.", "-.", "|.", "/.", "\\.")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*", "h", "p", "H", "d", "8", ".")
DASHES: tuple[tuple[float, ...], ...] = ((), (6, 2), (6, 2, 1, 2), (1, 1.5), (9, 3), (3, 2), (9, 2, 2, 2, 2, 2))
MAX_POINTS = 1_000
"""Points of a curve that are drawn; longer ones are thinned evenly, first and last kept."""


class Look(NamedTuple):
    """How a method is drawn, told apart without colour too."""

    place: int
    """Its number, which names it in the page."""
    color: str
    dark: str
    hatch: str
    marker: str
    dashes: tuple[float, ...]


def look(index: int) -> Look:
    """The look with this number; hatches and markers shift with every round through the colours, so pairs stay distinct."""
    shifted = (index + index // len(COLORS)) % len(HATCHES)
    color, dark = COLORS[index % len(COLORS)]
    return Look(index, color, dark, HATCHES[shifted], MARKERS[shifted], DASHES[shifted % len(DASHES)])


def method_looks(names: Iterable[str]) -> dict[str, Look]:
    """A look for each method: fixed for known ones, for others the next that none of these has, whatever their order."""
    present = set(names)
    known = {name: number for name, number in sorted(KNOWN.items(), key=lambda item: item[1]) if name in present}
    free = [number for number in reversed(range(len(COLORS))) if number not in known.values()]
    free += range(len(COLORS), len(COLORS) + len(present))
    others = dict(zip(sorted(present - set(KNOWN)), free, strict=False))
    return {name: look(number) for name, number in (known | others).items()}


class Point(NamedTuple):
    """Mean over seeds at one place."""

    x: float | str
    mean: float
    standard_error: float
    """Not a number where there is one seed."""
    seeds: int
    """Seeds with a finite value; the mean is over them."""
    missing: int
    """Seeds whose value is not finite."""


@dataclass(frozen=True)
class Series:
    """A line, or the bars of one colour."""

    name: str
    look: Look
    points: Sequence[Point]
    method: str = ""
    """The method that it is of, where it is of one."""


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    name: str
    """Value of the facet; empty without one."""
    series: Sequence[Series]


@dataclass(frozen=True)
class Chart:
    """A figure with its numbers."""

    spec: FigureSpec
    panels: Sequence[Panel]
    """Empty where there is nothing to draw yet."""
    notes: Sequence[str]
    """What a reader has to know about the picture."""

    @property
    def shared(self) -> bool:
        """Whether panels have one vertical axis; environments do not, because their returns are on different scales."""
        return self.spec.facet != "environment"

    @property
    def grouped(self) -> bool:
        """Whether the horizontal axis has names instead of numbers."""
        return self.spec.kind in GROUPED

    @property
    def names(self) -> list[str]:
        """Names of all series, in order."""
        return list(dict.fromkeys(series.name for panel in self.panels for series in panel.series))

    @property
    def groups(self) -> list[str]:
        """Labels on the horizontal axis of bars and dots, in order."""
        return by_size(str(p.x) for panel in self.panels for series in panel.series for p in series.points)

    @property
    def description(self) -> str:
        """The figure in one sentence, for those who do not see it."""
        along = f" against {self.spec.xlabel}" if self.spec.xlabel else ""
        panels = f", one panel for each {people(self.spec.facet)}" if self.spec.facet else ""
        return f"{self.spec.title}: {self.spec.ylabel}{along} for {', '.join(self.names) or 'no method yet'}{panels}."


def chart(spec: FigureSpec, results: pd.DataFrame, curves: pd.DataFrame | None = None, methods: Iterable[str] = ()) -> Chart:
    """The numbers of a figure; `methods` are all those of the page, so that looks agree between its figures."""
    return dotted(gathered(spec, results, curves, methods))


def gathered(spec: FigureSpec, results: pd.DataFrame, curves: pd.DataFrame | None, methods: Iterable[str]) -> Chart:
    """The numbers of a figure, in the kind that its spec asks for."""
    if spec.kind not in KINDS:
        raise InputError(f"figure {spec.name}: unknown kind {spec.kind!r}; choose from: {', '.join(KINDS)}")
    table = curves if spec.kind == "curves" else results
    rows = pd.DataFrame() if table is None or table.empty else table[table["metric"] == spec.metric]
    if table is None or rows.empty:
        return Chart(spec, (), ())
    x = horizontal(spec, rows)
    if spec.kind == "scatter" and x not in rows.columns:
        rows = beside(rows, table[table["metric"] == x], x)
        if rows.empty:
            return Chart(spec, (), ())
    axes = list(dict.fromkeys(column for column in (spec.facet, x, spec.series) if column))
    absent = [column for column in axes if column not in rows.columns]
    if absent:
        raise InputError(f"figure {spec.name}: the results have no column {absent[0]!r}")
    if {"seed", "value"} & set(axes):
        raise InputError(f"figure {spec.name}: it is over seeds and of values, so neither can tell its parts apart")
    if spec.kind == "scatter":  # no two cells are one point, even where they stand at the same place
        axes += [column for column in rows.columns if column not in (*axes, "seed", "metric", "value")]
    rows = rows.dropna(subset=[x])
    if spec.kind != "bars" and not (pd.api.types.is_numeric_dtype(rows[x]) and (rows[x].astype(float).abs() <= DRAWABLE).all()):
        raise InputError(
            f"figure {spec.name}: the column {x!r} on its horizontal axis does not hold numbers up to {DRAWABLE:g}"
        )
    means = over_seeds(on_one_grid(rows, axes, x) if spec.kind == "curves" else rows, axes)
    names = list(table["method"].astype(str).unique())
    looks = method_looks([*names, *methods])
    if spec.series != "method":
        looks = {label(value): look(index) for index, value in enumerate(ordered(means[spec.series]))} if spec.series else {}
    panels = []
    for facet in ordered(means[spec.facet]) if spec.facet else [""]:
        inside = same(means, spec.facet, facet) if spec.facet else means
        series = []
        for value in ordered(inside[spec.series]) if spec.series else [""]:
            line = same(inside, spec.series, value) if spec.series else inside
            points = thin(points_of(line, x, spec.kind))
            name = label(value) if spec.series else people(spec.metric)
            series.append(Series(name, looks.get(name, look(0)), points, name if spec.series == "method" else ""))
        panels.append(Panel(label(facet) if spec.facet else "", series))
    return Chart(spec, panels, notes(spec, rows, means, axes, x))


def dotted(content: Chart) -> Chart:
    """The chart, as dots next to each other if it has lines that are one place long: they would lie upon each other."""
    places = {point.x for panel in content.panels for series in panel.series for point in series.points}
    if content.spec.kind not in ("lines", "curves") or len(places) != 1:
        return content
    name = number(float(*places))
    panels = [
        replace(panel, series=[replace(s, points=[p._replace(x=name) for p in s.points]) for s in panel.series])
        for panel in content.panels
    ]
    said = [note.replace("Bands", "Whiskers") for note in content.notes]
    return Chart(replace(content.spec, kind=DOTS), panels, said)


def horizontal(spec: FigureSpec, rows: pd.DataFrame) -> str:
    """The column on the horizontal axis."""
    if spec.kind == "curves" and not spec.x:
        return next((unit for unit in UNITS if unit in rows.columns), UNITS[0])
    if not spec.x:
        raise InputError(f"figure {spec.name}: it does not say which column is on its horizontal axis")
    return spec.x


def beside(rows: pd.DataFrame, others: pd.DataFrame, x: str) -> pd.DataFrame:
    """The rows with a second metric of the same cell and seed as the column `x`."""
    keys = [column for column in rows.columns if column not in ("metric", "value")]
    return rows.merge(others.drop(columns="metric").rename(columns={"value": x}), on=keys)


def on_one_grid(rows: pd.DataFrame, axes: Sequence[str], x: str) -> pd.DataFrame:
    """Curves of seeds that have their values at different places, at the places of all of them: the last value counts on.

    It counts to the next place of its seed, and behind the last one as far as the longest way between two: a seed that was
    stopped early has no values where others go on.
    """
    single = rows.groupby([*axes, "seed"], sort=False, dropna=False)["value"].mean().reset_index()
    lines = [column for column in axes if column != x]
    found = []
    for _, line in single.groupby(lines, sort=False, dropna=False) if lines else [((), single)]:
        seeds = [one.sort_values(x) for _, one in line.groupby("seed", sort=False)]
        grid = np.unique(line[x].to_numpy(dtype=float))
        if all(len(one) == len(grid) for one in seeds):
            found.append(line)
            continue
        for one in seeds:
            places = one[x].to_numpy(dtype=float)
            last = places[-1] + np.diff(places).max(initial=0.0)
            reached = grid[(grid >= places[0]) & (grid <= last)]
            found.append(one.iloc[np.searchsorted(places, reached, side="right") - 1].assign(**{x: reached}))
    return pd.concat(found, ignore_index=True) if found else single


def over_seeds(rows: pd.DataFrame, axes: Sequence[str]) -> pd.DataFrame:
    """Mean, standard error and number of seeds at every place; what varies besides is averaged within each seed first."""
    # an infinite value makes the mean of its seed infinite, where NaN would be left out without a word
    rows = rows.assign(value=rows["value"].astype(float).where(rows["value"].abs() <= DRAWABLE, np.inf))
    grouped = rows.groupby([*axes, "seed"], sort=False, dropna=False)["value"].mean().reset_index()
    grouped["value"] = grouped["value"].where(np.isfinite(grouped["value"]))
    table = grouped.groupby(list(axes), sort=False, dropna=False)["value"].agg(["mean", "std", "count", "size"])
    table.columns = pd.Index(["_mean", "_std", "_seeds", "_all"])  # `size` can be a setting
    table = table.reset_index()
    table["_error"] = table["_std"] / np.sqrt(table["_seeds"].clip(lower=1))
    return table


def points_of(line: pd.DataFrame, x: str, kind: str) -> list[Point]:
    """The points of one series, in the order of the horizontal axis; places without a finite value are left out of lines."""
    if kind == "bars":
        order = {label(value): place for place, value in enumerate(ordered(line[x]))}
        line = line.assign(**{x: [label(value) for value in line[x]]})
        line = line.iloc[np.argsort([order[value] for value in line[x]], kind="stable")]
    else:
        line = line[line["_seeds"] > 0].sort_values(x)
    columns = (line[x], line["_mean"], line["_error"], line["_seeds"], line["_all"])
    return [
        Point(str(at) if kind == "bars" else float(at), float(mean), float(error), int(count), int(size - count))
        for at, mean, error, count, size in zip(*(column.to_numpy() for column in columns), strict=True)
    ]


def thin(points: Sequence[Point], most: int = MAX_POINTS) -> Sequence[Point]:
    """At most so many points, evenly chosen, with the first and the last."""
    if len(points) <= most:
        return points
    return [points[index] for index in np.unique(np.linspace(0, len(points) - 1, most).round().astype(int))]


def notes(spec: FigureSpec, rows: pd.DataFrame, means: pd.DataFrame, axes: Sequence[str], x: str) -> list[str]:
    """What a reader has to know: what the whiskers are, where bars end, what was averaged, what is missing."""
    said = []
    if spec.kind == "scatter":
        said.append("A point is one case and seed.")
    elif (means["_seeds"] > 1).any():
        what = "Bands" if spec.kind == "curves" else "Whiskers"
        said.append(f"{what} are one standard error of the mean over seeds.")
    else:
        said.append("One seed, so there are no intervals.")
    if spec.cap is not None and (means["_mean"] > spec.cap).any():
        if spec.kind == "bars":
            said.append(f"Bars end at {spec.cap:g}; the numbers on them do not.")
        else:
            said.append(f"{'Points' if spec.kind == 'scatter' else 'Lines'} end at {spec.cap:g}.")
    own = {*axes, *UNITS, "seed", "value", "metric", "experiment"}
    varied = [column for column in rows.columns if column not in own and rows[column].nunique(dropna=False) > 1]
    repeated = rows.duplicated([*axes, "seed"]).any()
    if varied and repeated:
        said.append(f"Averaged over {', '.join(map(people, varied))}.")
    missing = int((means["_all"] - means["_seeds"]).sum())
    if missing:
        said.append(f"{missing} value{'s are' if missing > 1 else ' is'} not finite and left out.")
    return said


def ordered(values: pd.Series[Any]) -> list[Any]:
    """The distinct values: numbers sorted, names as they come."""
    distinct = list(values.unique())
    numeric = pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)
    return sorted(distinct, key=lambda value: (pd.isna(value), value)) if numeric else distinct


def by_size(labels: Iterable[str]) -> list[str]:
    """The distinct labels: those that are numbers sorted and first, the others as they come."""
    distinct = list(dict.fromkeys(labels))
    sizes = pd.to_numeric(pd.Series(distinct, dtype=object), errors="coerce").fillna(np.inf).to_numpy(dtype=float)
    return [distinct[place] for place in np.argsort(sizes, kind="stable")]


def same(table: pd.DataFrame, column: str, value: Any) -> pd.DataFrame:
    """The rows with this value, which may be a missing one."""
    return table[table[column].isna() if pd.isna(value) else table[column] == value]


def label(value: Any) -> str:
    """A value of a column for people."""
    if isinstance(value, (float, np.floating)):
        return "-" if np.isnan(value) else f"{value:g}"
    return "-" if value is None or value is pd.NA else str(value)


def number(value: float) -> str:
    """A number for people: three digits that count, exponents only where they help."""
    if not np.isfinite(value):
        return "-" if np.isnan(value) else str(float(value))
    if value != 0 and not 1e-3 <= abs(value) < 1e5:
        return f"{value:.2e}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
