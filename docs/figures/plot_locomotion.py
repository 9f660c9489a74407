"""Draws docs/figures/locomotion.svg: HalfCheetah in PyBullet at the paper's size, and the published means."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from drawing import as_svg
from matplotlib.figure import Figure

import ubex
from ubex.experiments.pendulum import PAPER_METHODS
from ubex.report import charts, figures
from ubex.runs import metrics

HERE = Path(__file__).resolve().parent
RUNS, PICTURE = HERE.parents[1] / "results" / "locomotion", HERE / "locomotion.svg"
TASK, METRIC = "halfcheetah", "mean_return_last_10"
APART = 700
"""Steps between the published points of two methods, which would hide each other."""


def draw() -> Figure:
    """One curve with its standard error per method, and its published means with theirs up to the same step."""
    published = metrics.published()
    figure = Figure(figsize=(6.4, 4.8), layout="constrained")
    axes = figure.subplots()
    for number, (method, look) in enumerate(charts.method_looks(PAPER_METHODS).items()):
        curves = ubex.load_curves(RUNS / f"{TASK}-{method}")
        by_step = curves[curves["metric"] == "smoothed_return"].groupby("step")["value"]
        ours = pd.DataFrame({"mean": by_step.mean(), "error": by_step.sem()})
        of_task = (published["environment"] == f"pybullet-{TASK}") & (published["metric"] == METRIC)
        rows = published[of_task & (published["method"] == method)]
        theirs = rows[rows["steps"] <= ours.index.max()]
        style = figures.line_style(look)
        axes.plot(ours.index, ours["mean"], label=f"{method}, five seeds", **(style | {"marker": ""}))
        low, high = ours["mean"] - ours["error"], ours["mean"] + ours["error"]
        axes.fill_between(ours.index, low, high, color=style["color"], alpha=0.15, linewidth=0)
        label, points = f"{method}, published, ten seeds", style | {"linestyle": "none"}
        at = theirs["steps"] + APART * number
        axes.errorbar(at, theirs["mean"], theirs["standard_error"], label=label, capsize=2, **points)
    axes.set(xlabel="steps in the environment", ylabel="return, mean of ten evaluations")
    figure.legend(frameon=False, handlelength=3.0, loc="outside lower center", ncols=2)
    return figure


if __name__ == "__main__":
    PICTURE.write_text(as_svg(draw))
