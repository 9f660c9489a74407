"""Draws docs/figures/locomotion.svg: HalfCheetah in PyBullet at the paper's size, and the published means."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from drawing import as_svg
from matplotlib.figure import Figure

import ubex
from ubex.report import charts, figures
from ubex.runs import metrics

HERE = Path(__file__).resolve().parent
RUNS, PICTURE = HERE.parents[1] / "results" / "locomotion", HERE / "locomotion.svg"
TASK, METRIC = "pybullet-halfcheetah", "mean_return_last_10"
METHODS = {
    "sac": "halfcheetah-sac",
    "ensemble-mean": "halfcheetah-ensemble-mean-patience-1",
    "ensemble-var": "halfcheetah-ensemble-var-patience-1",
}


def draw() -> Figure:
    """One curve with its standard error per method, and its published means with theirs up to the same step."""
    published = metrics.published()
    figure = Figure(figsize=(6.4, 4.8), layout="constrained")
    axes = figure.subplots()
    for method, look in charts.method_looks(METHODS).items():
        curves = ubex.load_curves(RUNS / METHODS[method])
        by_step = curves[curves["metric"] == "smoothed_return"].groupby("step")["value"]
        ours = pd.DataFrame({"mean": by_step.mean(), "error": by_step.sem()})
        rows = published[(published["environment"] == TASK) & (published["method"] == method) & (published["metric"] == METRIC)]
        theirs = rows[rows["steps"] <= ours.index.max()]
        style = figures.line_style(look)
        axes.plot(ours.index, ours["mean"], label=f"{method}, five seeds", **(style | {"marker": ""}))
        low, high = ours["mean"] - ours["error"], ours["mean"] + ours["error"]
        axes.fill_between(ours.index, low, high, color=style["color"], alpha=0.2, linewidth=0)
        label, points = f"{method}, published, ten seeds", style | {"linestyle": "none"}
        axes.errorbar(theirs["steps"], theirs["mean"], theirs["standard_error"], label=label, capsize=2, **points)
    axes.set(xlabel="steps in the environment", ylabel="return, mean of ten evaluations")
    figure.legend(frameon=False, handlelength=3.0, loc="outside lower center", ncols=2)
    return figure


if __name__ == "__main__":
    PICTURE.write_text(as_svg(draw))
