"""Draws docs/figures/locomotion.svg: PyBullet's tasks at the paper's size, and the published means where they are given."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from drawing import as_svg
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import ubex
from ubex.experiments.pendulum import PAPER_METHODS
from ubex.report import charts, figures
from ubex.runs import metrics

HERE = Path(__file__).resolve().parent
RUNS, PICTURE = HERE.parents[1] / "results" / "locomotion", HERE / "locomotion.svg"
TASKS, METRIC = {"halfcheetah": "HalfCheetah", "walker2d": "Walker2D", "ant": "Ant"}, "mean_return_last_10"
APART = 700
"""Steps between the published points of two methods, which would hide each other."""


def draw() -> Figure:
    """One panel per task. Every method has a curve with its standard error, and its published means up to the same step."""
    figure = Figure(figsize=(12.0, 5.0), layout="constrained")
    for axes, (task, title) in zip(figure.subplots(1, len(TASKS)), TASKS.items(), strict=True):
        draw_task(axes, task)
        axes.set(title=title, xlabel="steps in the environment")
        axes.xaxis.set_major_formatter("{x:,.0f}")
    figure.axes[0].set_ylabel("return, mean of ten evaluations")
    lines, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(lines, labels, frameon=False, handlelength=3.0, loc="outside lower center", ncols=2)
    return figure


def draw_task(axes: Axes, task: str) -> None:
    """The curves and points of one task."""
    published = metrics.published()
    for number, (method, look) in enumerate(charts.method_looks(PAPER_METHODS).items()):
        curves = ubex.load_curves(RUNS / f"{task}-{method}")
        by_step = curves[curves["metric"] == "smoothed_return"].groupby("step")["value"]
        ours = pd.DataFrame({"mean": by_step.mean(), "error": by_step.sem()})
        of_task = (published["environment"] == f"pybullet-{task}") & (published["metric"] == METRIC)
        rows = published[of_task & (published["method"] == method)]
        theirs = rows[rows["steps"] <= ours.index.max()]
        style = figures.line_style(look)
        axes.plot(ours.index, ours["mean"], label=f"{method}, five seeds", **(style | {"marker": ""}))
        low, high = ours["mean"] - ours["error"], ours["mean"] + ours["error"]
        axes.fill_between(ours.index, low, high, color=style["color"], alpha=0.15, linewidth=0)
        label, points = f"{method}, published, ten seeds", style | {"linestyle": "none"}
        at = theirs["steps"] + APART * number
        axes.errorbar(at, theirs["mean"], theirs["standard_error"], label=label, capsize=2, **points)


if __name__ == "__main__":
    PICTURE.write_text(as_svg(draw))
