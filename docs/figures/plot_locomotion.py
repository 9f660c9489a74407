"""Draws docs/figures/locomotion.svg: PyBullet's tasks at the paper's size, and the published means where they are given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
LONG, LAST_PUBLISHED = "-long", 100_000
"""How the folder of five other seeds ends, which went on for longer, and the last published points next to them."""


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
    longer = any((RUNS / f"{task}-{method}{LONG}").is_dir() for method in PAPER_METHODS)
    for number, (method, look) in enumerate(charts.method_looks(PAPER_METHODS).items()):
        style = figures.line_style(look) | {"marker": ""}
        last = band(axes, RUNS / f"{task}-{method}", f"{method}, five seeds", style)
        other = RUNS / f"{task}-{method}{LONG}"
        if other.is_dir():
            band(axes, other, f"{method}, five other seeds", style | {"linestyle": "-", "linewidth": 3.0})
        of_task = (published["environment"] == f"pybullet-{task}") & (published["metric"] == METRIC)
        rows = published[of_task & (published["method"] == method)]
        theirs = rows[rows["steps"] <= (LAST_PUBLISHED if longer else last)]
        label, points = f"{method}, published, ten seeds", figures.line_style(look) | {"linestyle": "none"}
        at = theirs["steps"] + APART * number
        axes.errorbar(at, theirs["mean"], theirs["standard_error"], label=label, capsize=2, **points)


def band(axes: Axes, run: Path, label: str, style: dict[str, Any]) -> int:
    """The mean of a run with its standard error; returns the last step."""
    curves = ubex.load_curves(run)
    by_step = curves[curves["metric"] == "smoothed_return"].groupby("step")["value"]
    ours = pd.DataFrame({"mean": by_step.mean(), "error": by_step.sem()})
    axes.plot(ours.index, ours["mean"], label=label, **style)
    low, high = ours["mean"] - ours["error"], ours["mean"] + ours["error"]
    axes.fill_between(ours.index, low, high, color=style["color"], alpha=0.15, linewidth=0)
    return int(ours.index.max())


if __name__ == "__main__":
    PICTURE.write_text(as_svg(draw))
