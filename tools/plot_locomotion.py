"""Draws docs/locomotion.svg: HalfCheetah in PyBullet with small networks, and the published means."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import pandas as pd

mpl.use("Agg")
import matplotlib.pyplot as plt

mpl.rcParams["svg.hashsalt"] = "ubex"  # the same numbers, the same file
ROOT = Path(__file__).resolve().parent.parent
TASK, METRIC = "pybullet-halfcheetah", "mean_return_last_10"
COLOURS = {"exact-ube": "#0072b2", "ensemble-mean": "#d55e00"}


def draw() -> None:
    """A curve a method, and its published means with their standard errors up to the same step."""
    curves = pd.read_csv(ROOT / "results" / "locomotion" / "laptop" / "curves.csv")
    published = pd.read_csv(ROOT / "src" / "ubex" / "runs" / "published.csv")
    smooth = curves[curves["metric"] == "smoothed_return"]
    figure, axes = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    for method, colour in COLOURS.items():
        ours = smooth[smooth["method"] == method]
        rows = published[(published["environment"] == TASK) & (published["method"] == method) & (published["metric"] == METRIC)]
        theirs = rows[rows["steps"] <= ours["step"].max()]
        axes.plot(ours["step"], ours["value"], color=colour, label=f"{method}, small networks, one seed")
        label = f"{method}, published, ten seeds"
        axes.errorbar(theirs["steps"], theirs["mean"], theirs["standard_error"], fmt="o", color=colour, label=label)
    axes.set(xlabel="steps in the environment", ylabel="return, mean of ten evaluations")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(ROOT / "docs" / "locomotion.svg", metadata={"Date": None})


if __name__ == "__main__":
    draw()
