"""Draws docs/figures/locomotion.svg: HalfCheetah in PyBullet with small networks, and the published means."""

from __future__ import annotations

from pathlib import Path

from drawing import as_svg
from matplotlib.figure import Figure

import ubex
from ubex.report import charts, figures
from ubex.runs import metrics

HERE = Path(__file__).resolve().parent
RUN, PICTURE = HERE.parents[1] / "results" / "locomotion" / "laptop", HERE / "locomotion.svg"
TASK, METRIC = "pybullet-halfcheetah", "mean_return_last_10"
METHODS = ("exact-ube", "ensemble-mean")


def draw() -> Figure:
    """One curve per method, and its published means with their standard errors up to the same step."""
    curves, published = ubex.load_curves(RUN), metrics.published()
    smooth = curves[curves["metric"] == "smoothed_return"]
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    for method, look in charts.method_looks(METHODS).items():
        ours = smooth[smooth["method"] == method]
        rows = published[(published["environment"] == TASK) & (published["method"] == method) & (published["metric"] == METRIC)]
        theirs = rows[rows["steps"] <= ours["step"].max()]
        style = figures.line_style(look)
        axes.plot(ours["step"], ours["value"], label=f"{method}, small networks, one seed", **(style | {"marker": ""}))
        label, points = f"{method}, published, ten seeds", style | {"linestyle": "none"}
        axes.errorbar(theirs["steps"], theirs["mean"], theirs["standard_error"], label=label, capsize=2, **points)
    axes.set(xlabel="steps in the environment", ylabel="return, mean of ten evaluations")
    axes.legend(frameon=False, handlelength=3.0)
    return figure


if __name__ == "__main__":
    PICTURE.write_text(as_svg(draw))
