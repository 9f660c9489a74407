"""Value maps along a run as one figure: one row per episode, one column per quantity, like a figure in the paper's appendix."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from ubex.report import figures
from ubex.types import InputError

TITLE = "Values and their uncertainty"
MOST_ROWS = 6
PANEL, COLUMN_GAP = (2.3, 1.55), 0.14
"""Inches."""
LETTERS = 34
"""Longest line above a column."""
COLOURS, BLANK = "viridis", "#b4b4b4"
INK, PAPER = "#1d2126", "#ffffff"
NIGHT_INK, NIGHT_PAPER = "#e9e7e2", "#1b1f25"
"""The page's own ink and cards in its dark scheme."""


@dataclass(frozen=True, eq=False)
class Maps:
    """What one maps file holds; `runs/pictures.py` writes them."""

    x: np.ndarray
    y: np.ndarray
    xlabel: str
    ylabel: str
    names: tuple[str, ...]
    values: np.ndarray
    """Of shape (names, y, x)."""
    episode: int

    @property
    def kind(self) -> tuple[object, ...]:
        """What has to agree between maps that stand in one figure."""
        return self.xlabel, self.ylabel, self.names


def read(path: Path) -> Maps:
    """The maps of a file.

    Raises:
        InputError: It is damaged, or no maps file.
    """
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as archive:
            found = Maps(
                archive["x"].astype(float),
                archive["y"].astype(float),
                str(archive["xlabel"][()]),
                str(archive["ylabel"][()]),
                tuple(str(name) for name in archive["names"]),
                archive["maps"].astype(float),
                int(archive["episode"][()]),
            )
    except Exception as error:  # zipfile, zlib and NumPy raise a dozen kinds for a damaged archive
        raise InputError(f"it cannot be read as maps ({type(error).__name__})") from None
    for name, places in (("x", found.x), ("y", found.y)):
        if places.ndim != 1 or places.size < 2 or not (np.isfinite(places).all() and (np.diff(places) > 0).all()):
            raise InputError(f"its {name} is not a rising axis")
    expected = (len(found.names), found.y.size, found.x.size)
    if not found.names or found.values.shape != expected:
        raise InputError(f"its maps have shape {found.values.shape} instead of {expected}")
    return found


def in_rows(found: Sequence[Maps]) -> list[Maps]:
    """The maps by episode: at most six, evenly chosen, with the first and the last."""
    ordered = sorted(found, key=lambda maps: maps.episode)
    places = np.linspace(0, len(ordered) - 1, min(len(ordered), MOST_ROWS)).round().astype(int)
    return [ordered[place] for place in places]


def description(rows: Sequence[Maps]) -> str:
    """The figure in one sentence, for those who do not see it."""
    first, episodes = rows[0], [str(maps.episode) for maps in rows]
    after = f"episode {episodes[0]}" if len(rows) == 1 else f"episodes {', '.join(episodes[:-1])} and {episodes[-1]}"
    return f"{TITLE}: {', '.join(first.names)} over {first.xlabel} and {first.ylabel} after {after}."


def notes(rows: Sequence[Maps]) -> str:
    """What a reader has to know about the picture."""
    said = "Each column has one colour scale."
    if not all(np.isfinite(maps.values).all() for maps in rows):
        said += " Where there is no value, it is grey."
    return said


def draw(rows: Sequence[Maps]) -> Figure:
    """The figure: maps as pixels, so that it stays small, axis labels on the outer panels, a colour bar below each column."""
    first = rows[0]
    colours = matplotlib.colormaps[COLOURS].with_extremes(bad=BLANK)
    size = (PANEL[0] * len(first.names) + 0.8, PANEL[1] * len(rows) + 1.3)
    with matplotlib.rc_context(figures.STYLE | {"axes.grid": False}):  # type: ignore[arg-type]
        figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(w_pad=COLUMN_GAP / 2))
        figure.suptitle(TITLE, x=0.01, ha="left", fontsize=11, color=INK)
        grid = figure.subplots(len(rows), len(first.names), squeeze=False, sharex=True, sharey=True)
        for column, name in enumerate(first.names):
            low, high = scale([maps.values[column] for maps in rows])
            for row, maps in enumerate(rows):
                axes: Axes = grid[row, column]
                values = np.ma.masked_invalid(maps.values[column])
                mesh = axes.pcolormesh(
                    maps.x, maps.y, values, shading="nearest", cmap=colours, vmin=low, vmax=high, rasterized=True
                )
                axes.set_facecolor("none")
                axes.spines[:].set_visible(False)
                axes.tick_params(colors=INK)
                axes.label_outer(remove_inner_ticks=True)
            grid[0, column].set_title(figures.plain(textwrap.fill(name, LETTERS)), loc="left", color=INK)
            grid[-1, column].set_xlabel(figures.plain(first.xlabel), color=INK)
            bar = figure.colorbar(mesh, ax=list(grid[:, column]), location="bottom", aspect=30, pad=0.02)
            bar.outline.set_visible(False)
            bar.ax.tick_params(colors=INK, labelsize=8)
            bar.ax.locator_params(nbins=4)
        for row, maps in enumerate(rows):
            grid[row, 0].set_ylabel(f"episode {maps.episode}\n{figures.plain(maps.ylabel)}", color=INK)
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # laid out once and for all: every file that is written would do it again
    return figure


def scale(layers: Sequence[np.ndarray]) -> tuple[float, float]:
    """Smallest and largest finite value of a column, never the same."""
    finite = np.concatenate([layer[np.isfinite(layer)] for layer in layers])
    if not finite.size:
        return 0.0, 1.0
    low, high = float(finite.min()), float(finite.max())
    room = 0.5 * max(abs(low), 1.0)
    return (low, high) if high > low else (low - room, high + room)


def at_night(svg: str) -> str:
    """The same drawing for the page's dark scheme."""
    return svg.replace(INK, NIGHT_INK).replace(PAPER, NIGHT_PAPER)
