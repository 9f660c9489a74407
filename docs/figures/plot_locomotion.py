"""Draws docs/figures/locomotion.svg: PyBullet's tasks at the paper's size, and the published means where they are given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from drawing import as_svg
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

import ubex
from ubex.experiments.pendulum import PAPER_METHODS
from ubex.report import charts, figures
from ubex.runs import metrics

HERE = Path(__file__).resolve().parent
RUNS, PICTURE = HERE.parents[1] / "results" / "locomotion", HERE / "locomotion.svg"
TASKS, METRIC = {"halfcheetah": "HalfCheetah", "walker2d": "Walker2D", "ant": "Ant"}, "mean_return_last_10"
APART = 1_200
"""Steps between the published points of two methods, which would hide each other."""
OTHERS, LAST_PUBLISHED = ("-long", "-third"), 150_000
"""How the folders of five other seeds each end, which went on for longer, and the last published points next to them."""


def draw() -> Figure:
    """One panel per task. Every method has a curve with its standard error, and its published means up to the same step."""
    figure = Figure(figsize=(12.0, 5.0), layout="constrained")
    for axes, (task, title) in zip(figure.subplots(1, len(TASKS)), TASKS.items(), strict=True):
        draw_task(axes, task)
        axes.set(title=title, xlabel="steps in the environment")
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.xaxis.set_major_formatter("{x:,.0f}")
    figure.axes[0].set_ylabel("return, mean of ten evaluations")
    lines, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(lines, labels, frameon=False, handlelength=3.0, loc="outside lower center", ncols=2)
    return figure


def draw_task(axes: Axes, task: str) -> None:
    """The curves and points of one task."""
    published = metrics.published()
    longer = any((RUNS / f"{task}-{method}{end}").is_dir() for method in PAPER_METHODS for end in OTHERS)
    for number, (method, look) in enumerate(charts.method_looks(PAPER_METHODS).items()):
        style = figures.line_style(look) | {"marker": ""}
        last = band(axes, RUNS / f"{task}-{method}", f"{method}, five seeds", style)
        others = [run for end in OTHERS if (run := RUNS / f"{task}-{method}{end}").is_dir()]
        for number_of_run, run in enumerate(others):
            label = f"{method}, five other seeds" + " each" * (len(others) > 1) if number_of_run == 0 else "_"
            band(axes, run, label, style | {"linestyle": "-", "linewidth": 3.0})
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
