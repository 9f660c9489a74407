"""Figures in one style, readable in black and white: every method has a colour, a hatch and a marker of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#555555")
"""Okabe and Ito's colours, told apart by colour-blind readers."""
HATCHES = ("", "//", "..", "xx", "--", "\\\\", "++")
ERROR_CAP = 1.5
STYLE: dict[str, Any] = {
    "figure.dpi": 130,
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.alpha": 0.3,
    "axes.axisbelow": True,
    "svg.fonttype": "none",
}


def save(figure: Figure, path: Path) -> list[Path]:
    """Writes the figure as PNG and SVG next to each other."""
    paths = [path.with_suffix(".png"), path.with_suffix(".svg")]
    for target in paths:
        figure.savefig(target, bbox_inches="tight")
    return paths


def grouped_bars(
    values: pd.DataFrame, *, title: str, ylabel: str, unit: str = "{:.2f}", cap: float = np.inf, note: str = ""
) -> Figure:
    """Bars in groups (rows of the table), one bar a column, each with its number on top; bars end at `cap`, numbers do not."""
    with matplotlib.rc_context(STYLE):  # type: ignore[arg-type]
        figure = Figure(figsize=(1.6 + 1.5 * len(values) + 0.32 * values.size, 3.2), layout="constrained")
        axes = figure.subplots()
        width = 0.8 / len(values.columns)
        for index, column in enumerate(values.columns):
            places = np.arange(len(values)) + (index - (len(values.columns) - 1) / 2) * width
            heights = values[column].to_numpy(dtype=float)
            axes.bar(
                places,
                np.minimum(heights, cap),
                width * 0.92,
                label=str(column),
                color=PALETTE[index % len(PALETTE)],
                hatch=HATCHES[index % len(HATCHES)],
                edgecolor="white",
                linewidth=0.5,
            )
            for place, height in zip(places, heights, strict=True):
                axes.annotate(
                    unit.format(height),
                    (place, min(max(height, 0.0), cap)),
                    ha="center",
                    va="bottom",
                    fontsize=6.5,
                    rotation=0 if width > 0.15 else 60,
                    xytext=(0, 1),
                    textcoords="offset points",
                )
        axes.set_xticks(np.arange(len(values)), [str(row) for row in values.index])
        axes.tick_params(axis="x", length=0)
        axes.axhline(0.0, color="black", linewidth=0.6)
        axes.set_title(title, loc="left")
        axes.set_ylabel(ylabel)
        axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
        if note:
            figure.supxlabel(note, fontsize=7, color="#555555")
    return figure


def toy_figure(results: pd.DataFrame) -> Figure:
    """u, w, W, U and the truth at the two uncertain states of the toy example (Table 1 as a picture)."""
    value = results.set_index(["method", "metric"])["value"]
    sources = {
        "u (exact-ube)": ("exact-ube", "local"),
        "w (pombu)": ("pombu", "local"),
        "U (exact-ube)": ("exact-ube", "variance"),
        "W (pombu)": ("pombu", "variance"),
        "true variance": ("brute-force", "variance"),
    }
    states: Sequence[str] = ("s0", "s2")
    table = pd.DataFrame(
        {label: [value[method, f"{kind}_{state}"] for state in states] for label, (method, kind) in sources.items()},
        index=list(states),
    )
    return grouped_bars(table, title="Toy example: local uncertainties and variances", ylabel="variance of the value")


def error_figure(results: pd.DataFrame) -> Figure:
    """Relative error of every estimator on small random MDPs."""
    errors = results[results["metric"] == "median_relative_error"].copy()
    errors["case"] = errors["structure"] + ", N = " + errors["num_models"].astype(str)
    table = errors.pivot_table(index="case", columns="method", values="value", sort=False)
    return grouped_bars(
        table,
        title="Relative error of the variance (median over states)",
        ylabel="|estimate / truth - 1|",
        cap=ERROR_CAP,
        note=f"Bars end at {ERROR_CAP:g}; the numbers on them do not.",
    )
