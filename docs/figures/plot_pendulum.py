"""Draws docs/figures/pendulum.svg: our learning curves on the sparse pendulum, and the published means."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from drawing import as_svg
from matplotlib.figure import Figure

import ubex
from ubex.report import charts, figures
from ubex.runs import metrics

HERE = Path(__file__).resolve().parent
RUNS, PICTURE = HERE.parents[1] / "results" / "pendulum", HERE / "pendulum.svg"
NOISES = (0.0, 0.02)
METHODS = ("exact-ube", "pombu", "ensemble-var", "ensemble-mean", "sac")
WINDOWS = {"mean_return_episodes_21_30": 25.5, "mean_return_last_10": 70.5}
"""Published means, and the middle of the episodes that they are over."""
SMOOTH = 5
"""Episodes of a running mean."""


def draw() -> Figure:
    """One panel per noise: the mean over seeds with its standard error, and the published means with theirs."""
    curves = pd.concat([ubex.load_curves(path) for path in sorted(RUNS.glob("*/curves.csv"))])
    returns = curves[(curves["metric"] == "return") & (curves["preset"] == "paper") & (curves["num_models"] == 5)]
    published = metrics.published().query("environment == 'sparse-pendulum'")
    figure = Figure(figsize=(10.0, 4.0), layout="constrained")
    panels = figure.subplots(1, len(NOISES), sharey=True)
    for axes, noise in zip(panels, NOISES, strict=True):
        for shift, (method, look) in enumerate(charts.method_looks(METHODS).items()):
            style = figures.line_style(look)
            ours = returns[(returns["noise"] == noise) & (returns["method"] == method)]
            if not ours.empty:
                table = ours.pivot(index="episode", columns="seed", values="value").rolling(SMOOTH, min_periods=1).mean()
                mean, error = table.mean(axis=1), table.std(axis=1) / table.shape[1] ** 0.5
                axes.plot(mean.index, mean, label=f"{method} ({table.shape[1]} seeds)", **(style | {"marker": ""}))
                axes.fill_between(mean.index, mean - error, mean + error, color=look.color, alpha=0.15, linewidth=0)
            theirs = published[(published["noise"] == noise) & (published["method"] == method)].set_index("metric")
            for metric, place in WINDOWS.items():
                row, points = theirs.loc[metric], style | {"linestyle": "none"}
                axes.errorbar(place + shift - 2, row["mean"], row["standard_error"], capsize=2, **points)
        axes.set(title=f"noise {noise:g}", xlabel="episode")
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, loc="upper left", fontsize="small", handlelength=3.0)
    panels[0].set_ylabel(f"evaluation return, mean of {SMOOTH} episodes")
    return figure


if __name__ == "__main__":
    PICTURE.write_text(as_svg(draw))
