"""Draws docs/figures/mountain-car.svg: evaluations on MountainCarContinuous with the laptop preset, of two agents."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from drawing import as_svg
from matplotlib.figure import Figure

from ubex.report import charts, figures

HERE = Path(__file__).resolve().parent
TABLE, PICTURE = HERE.parents[1] / "studies" / "mountain-car" / "runs.csv", HERE / "mountain-car.svg"
METHODS = {"exact-ube": "laptop", "sac": "laptop-sac"}
"""And what their runs are called in the table."""
SOLVED = 85


def draw() -> Figure:
    """One panel per agent: the mean return of every evaluation, a line per key."""
    rows = pd.read_csv(TABLE)
    figure = Figure(figsize=(10.0, 3.4), layout="constrained")
    panels = figure.subplots(1, len(METHODS), sharey=True)
    for axes, (method, look) in zip(panels, charts.method_looks(list(METHODS)).items(), strict=True):
        table = rows[rows["setting"] == METHODS[method]].pivot(index="step", columns="key", values="return")
        style = figures.line_style(look) | {"marker": "", "linestyle": "-", "linewidth": 1.0}
        for key in table:
            axes.plot(table.index / 1000, table[key], **style)
        axes.axhline(SOLVED, color="0.5", linestyle=":", linewidth=1.0)
        axes.set(title=f"{method}, {table.shape[1]} seeds", xlabel="thousands of steps", xlim=(0, 20))
    panels[0].set_ylabel("return of an evaluation")
    panels[0].annotate("solved", (0.2, SOLVED + 2), fontsize="small", color="0.4")
    return figure


if __name__ == "__main__":
    PICTURE.write_text(as_svg(draw))
