"""Figures in one style, readable in black and white: every method has a colour, a hatch, a marker and a line of its own."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.path import Path as MarkerPath

from ubex.report.charts import DOTS, Chart, Look, Panel, Point, Series, chart, number
from ubex.report.names import people
from ubex.runs.records import FigureSpec

STYLE: dict[str, Any] = {
    "figure.dpi": 130,
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.alpha": 0.3,
    "axes.axisbelow": True,
    "hatch.linewidth": 0.6,
    "pdf.fonttype": 42,  # letters that can be searched and edited
    "svg.fonttype": "none",
    "svg.hashsalt": "ubex",  # the same numbers give the same bytes
}
PANEL_HEIGHT = 2.6
PANELS_IN_A_ROW = 3
MAX_WIDTH = 13.0
"""Inches."""
BAR_ROOM = 0.8
"""Share of a group's width that its bars take."""
MARKS_ON_A_CURVE = 8
BREAK = "break"
"""The name of the mark on bars that end at the cap."""
UNDATED: dict[str, Any] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
"""Metadata by the ending of a file, with which the same numbers give the same bytes."""


def draw(spec: FigureSpec, results: pd.DataFrame, curves: pd.DataFrame | None = None, methods: Iterable[str] = ()) -> Figure:
    """The figure that a spec asks for, from tidy tables.

    Args:
        spec: What to draw.
        results: The tidy table of scalars.
        curves: The tidy table of curves; only the kind `curves` reads it.
        methods: All methods of the page that the figure is for, so that one method looks the same in all its figures.
    """
    return draw_chart(chart(spec, results, curves, methods))


def draw_chart(content: Chart) -> Figure:
    """A chart as a matplotlib figure that no window or global state knows of."""
    with matplotlib.rc_context(STYLE):  # type: ignore[arg-type]
        count, width = max(len(content.panels), 1), panel_width(content)
        columns = max(1, min(count, PANELS_IN_A_ROW if count != 4 else 2, int(MAX_WIDTH / width)))
        rows = math.ceil(count / columns)
        size = (columns * width + 0.4, rows * PANEL_HEIGHT + 0.9)
        figure = Figure(figsize=size, layout="constrained")
        figure.suptitle(plain(content.spec.title), x=0.01, ha="left", fontsize=11)
        if not content.panels:
            figure.text(0.5, 0.5, "nothing to draw yet", ha="center", color="#666666")
            return figure
        grid = figure.subplots(rows, columns, squeeze=False, sharey=content.shared)
        for index, axes in enumerate(grid.flat):
            if index >= len(content.panels):
                axes.set_visible(False)
                continue
            panel = content.panels[index]
            fill = {"lines": lines, "curves": band_lines, "scatter": scatter}.get(content.spec.kind, bars)
            fill(axes, panel, content)
            finish(axes, panel, content, first=index % columns == 0)
        legend(figure, content)
    return figure


def save(figure: Figure, path: Path, endings: Sequence[str] = (".png", ".svg")) -> list[Path]:
    """Writes the figure as PNG and SVG next to each other, or with other endings."""
    paths = [path.with_suffix(ending) for ending in endings]
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():  # type: ignore[arg-type]
        # a name in a script that the font lacks shows as a box in the PNG; the SVG has it as text
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        for target in paths:
            figure.savefig(target, bbox_inches="tight", metadata=UNDATED.get(target.suffix))
    return paths


def panel_width(content: Chart) -> float:
    """Inches for one panel: bars need room for their numbers."""
    if not content.grouped or not content.panels:
        return 3.8
    widest = max(len(content.groups) * slots(panel) for panel in content.panels)
    return min(max(2.6, 1.0 + 0.34 * widest), 9.0)


def slots(panel: Panel) -> int:
    """Bars in the fullest group of a panel."""
    places = [str(point.x) for series in panel.series for point in series.points]
    return max((places.count(place) for place in set(places)), default=1)


def bars(axes: Axes, panel: Panel, content: Chart) -> None:
    """Groups of bars, or of dots, each with whiskers and its number; bars end at the cap, numbers do not."""
    width = BAR_ROOM / slots(panel)
    groups = content.groups
    for place, group in enumerate(groups):
        present = [(s, p) for s in panel.series for p in s.points if str(p.x) == group]
        for index, (series, point) in enumerate(present):
            at = place + (index - (len(present) - 1) / 2) * width
            one_bar(axes, at, width, series.look, point, content)
    axes.set_xticks(np.arange(len(groups)), [plain(group) for group in groups])
    axes.set_xlim(-0.52, len(groups) - 0.48)
    axes.tick_params(axis="x", length=0)
    axes.margins(y=0.12)
    if not content.spec.log:
        axes.axhline(0.0, color="black", linewidth=0.6).sticky_edges.y.append(0.0)


def one_bar(axes: Axes, at: float, width: float, look: Look, point: Point, content: Chart) -> None:
    """One bar or dot, its whiskers and its number; on a logarithmic axis a value that is not positive has only its number."""
    log, cap = content.spec.log, math.inf if content.spec.cap is None else content.spec.cap
    drawn = math.isfinite(point.mean) and not (log and point.mean <= 0)
    top = 0.0
    if drawn:
        height = top = min(point.mean, cap)
        if content.spec.kind == "bars":
            axes.bar(at, height, width * 0.92, color=look.color, hatch=look.hatch, edgecolor="white", linewidth=0.5)
        else:
            axes.plot([at], [height], **line_style(look))
        if point.mean > cap:
            broken(axes, at, cap)
        if point.standard_error > 0:
            low, high = (min(point.mean + sign * point.standard_error, cap) for sign in (-1, 1))
            axes.plot([at, at], [low, high], color="black", linewidth=0.9)
            top = max(height, high)
    text = number(point.mean) if point.seeds else "none"
    axes.annotate(
        text,
        (at, max(top, 0.0)) if not log else (at, top if drawn else 0.0),
        xycoords="data" if drawn or not log else ("data", "axes fraction"),
        xytext=(0, 2 if content.spec.kind == "bars" else 5),
        textcoords="offset points",
        ha="center",
        va="bottom",
        fontsize=6.5,
        rotation=90 if len(text) > 4 and width < 0.3 else 0,
    )


def broken(axes: Axes, at: float, cap: float) -> None:
    """The mark of a bar that would go on above the axis: a gap across it between two slanted strokes."""
    low, high, far = ((-11.0, -11.0), (11.0, -6.0)), ((-11.0, -7.5), (11.0, -2.5)), 11.0
    gap = MarkerPath([*low, *reversed(high)])
    strokes = MarkerPath([*low, *high], [MarkerPath.MOVETO, MarkerPath.LINETO] * 2)
    for path, face, edge in ((gap, "white", "none"), (strokes, "none", "black")):  # a marker's points are half its size away
        style: dict[str, Any] = {
            "markersize": 2 * far,
            "markerfacecolor": face,
            "markeredgecolor": edge,
            "markeredgewidth": 0.8,
        }
        axes.plot([at], [cap], marker=path, linestyle="none", gid=BREAK, **style)


def lines(axes: Axes, panel: Panel, content: Chart) -> None:
    """One line per series, with a marker and a standard-error bar at each place."""
    for series in panel.series:
        x, mean, error = arrays(series, content.spec.cap)
        axes.errorbar(x, mean, yerr=error, capsize=2, elinewidth=0.9, **line_style(series.look))
    places = sorted({float(point.x) for series in panel.series for point in series.points})
    if 1 < len(places) <= 8 and min(np.diff(places)) > 0.09 * (places[-1] - places[0]):
        axes.set_xticks(places)  # few places: name them rather than round numbers between them


def band_lines(axes: Axes, panel: Panel, content: Chart) -> None:
    """One mean line per series, with a standard-error band and a few markers to tell lines apart without colour."""
    for offset, series in enumerate(panel.series):
        x, mean, error = arrays(series, content.spec.cap)
        every = max(len(x) // MARKS_ON_A_CURVE, 1)
        axes.plot(x, mean, markevery=(offset * every // max(len(panel.series), 1), every), **line_style(series.look))
        axes.fill_between(x, mean - error, mean + error, color=series.look.color, alpha=0.18, linewidth=0)


def scatter(axes: Axes, panel: Panel, content: Chart) -> None:
    """A marker for each point, without lines between them."""
    for series in panel.series:
        x, mean, _ = arrays(series, content.spec.cap)
        axes.plot(x, mean, **(line_style(series.look) | {"linestyle": "none", "alpha": 0.8}))


def arrays(series: Series, cap: float | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places, means that end at the cap, and standard errors with 0 for an unknown one."""
    x, mean, error = (np.array([point[i] for point in series.points], dtype=float) for i in range(3))
    return x, np.minimum(mean, math.inf if cap is None else cap), np.nan_to_num(error)


def line_style(look: Look) -> dict[str, Any]:
    """Colour, dashes and marker of a line."""
    return {
        "color": look.color,
        "linestyle": (0, look.dashes) if look.dashes else "-",
        "linewidth": 1.4,
        "marker": look.marker,
        "markersize": 5.5,
        "markeredgecolor": "white",
        "markeredgewidth": 0.3,
    }


def finish(axes: Axes, panel: Panel, content: Chart, *, first: bool) -> None:
    """Titles, labels and scale of one panel; without a positive number there is no logarithmic scale."""
    if content.spec.log and any(point.mean > 0 for series in panel.series for point in series.points):
        axes.set_yscale("log")
    if panel.name:
        axes.set_title(plain(f"{people(content.spec.facet)} = {panel.name}"), loc="left")
    axes.set_xlabel(plain(content.spec.xlabel))
    if first or not content.shared:
        axes.set_ylabel(plain(content.spec.ylabel))


def legend(figure: Figure, content: Chart) -> None:
    """One legend for all panels, below them, and the notes."""
    looks = {series.name: series.look for panel in content.panels for series in panel.series}
    handles: list[Patch | Line2D] = []
    for name, look in looks.items():
        if content.spec.kind == "bars":
            handles.append(Patch(facecolor=look.color, hatch=look.hatch, edgecolor="white", label=plain(name)))
        else:
            unconnected = {"linestyle": "none"} if content.spec.kind in ("scatter", DOTS) else {}
            handles.append(Line2D([], [], label=plain(name), **(line_style(look) | unconnected)))
    inches = float(figure.get_size_inches()[0])
    longest = max(len(name) for name in looks)
    across = max(1, min(len(handles), int(inches / (0.075 * longest + 0.55))))
    box = figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=across,
        frameon=False,
        handlelength=2.6,
        title=wrapped(content.notes, int(inches * 17)),
        title_fontsize=7,
    )
    box.get_title().set_color("#555555")


def wrapped(sentences: Sequence[str], most: int) -> str:
    """Sentences in lines of at most so many characters, broken between sentences."""
    rows: list[str] = []
    for sentence in map(plain, sentences):
        if rows and len(rows[-1]) + len(sentence) < most:
            rows[-1] += f" {sentence}"
        else:
            rows.append(sentence)
    return "\n".join(rows)


def plain(text: str) -> str:
    """Text that matplotlib takes as it is: no mathematics between dollars, no name hidden by a leading underscore."""
    text = text.replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text
