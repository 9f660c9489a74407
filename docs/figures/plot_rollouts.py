"""Draws docs/figures/rollouts.svg: three rules for model rollouts, and what becomes of returns and critics under each."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from drawing import as_svg
from matplotlib.figure import Figure

from ubex.report import charts, figures

HERE = Path(__file__).resolve().parent
TABLES, PICTURE = HERE.parents[1] / "studies" / "trusted-rollouts", HERE / "rollouts.svg"
RULES = {"together": "together (published)", "box": "box", "trusted-0": "trusted (box, longer training, prior)"}
PANELS = {"outside_share": "predictions outside the data", "critic_std": "spread of the critics, median", "return": "return"}
SMALLEST = 1e-5
"""Share that is drawn where there is none, on a logarithmic axis."""


def draw() -> Figure:
    """One panel per quantity, over episodes: the mean or median over ten seeds, and for returns the standard error."""
    figure = Figure(figsize=(10.0, 3.4), layout="constrained")
    panels = dict(zip(PANELS, figure.subplots(1, len(PANELS)), strict=True))
    for rule, look in zip(RULES, charts.method_looks(list(RULES)).values(), strict=True):
        rows = pd.read_csv(TABLES / f"{rule}.csv")
        style = figures.line_style(look) | {"marker": ""}
        for name, axes in panels.items():
            table = rows.pivot(index="episode", columns="seed", values=name)
            if name == "return":
                table = table.rolling(5, min_periods=1).mean()
                error = table.std(axis=1) / table.shape[1] ** 0.5
                axes.fill_between(
                    table.index, table.mean(axis=1) - error, table.mean(axis=1) + error, color=look.color, alpha=0.15
                )
            middle = table.median(axis=1) if name == "critic_std" else table.mean(axis=1)
            axes.plot(
                table.index, middle.clip(lower=SMALLEST) if name == "outside_share" else middle, label=RULES[rule], **style
            )
    for name, axes in panels.items():
        axes.set(title=PANELS[name], xlabel="episode")
    panels["outside_share"].set_yscale("log")
    panels["critic_std"].set_yscale("log")
    panels["return"].legend(frameon=False, loc="lower right", fontsize="small")
    return figure


if __name__ == "__main__":
    PICTURE.write_text(as_svg(draw))
