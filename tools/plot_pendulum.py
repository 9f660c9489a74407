"""Draws docs/pendulum.svg: our learning curves on the sparse pendulum, and the published means."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import pandas as pd

mpl.use("Agg")
import matplotlib.pyplot as plt

from ubex.runs import metrics

mpl.rcParams["svg.hashsalt"] = "ubex"  # the same numbers, the same file
ROOT = Path(__file__).resolve().parent.parent
NOISES = (0.0, 0.02)
COLOURS = {"exact-ube": "#0072b2", "pombu": "#009e73", "ensemble-var": "#cc79a7", "ensemble-mean": "#d55e00", "sac": "#666666"}
WINDOWS = {"mean_return_episodes_21_30": 25.5, "mean_return_last_10": 70.5}
"""Published means, and the middle of the episodes that they are over."""
SMOOTH = 5
"""Episodes of a running mean."""


def draw() -> None:
    """A panel a noise: the mean over seeds with its standard error, and the published means with theirs."""
    curves = pd.concat([pd.read_csv(path) for path in sorted((ROOT / "results").glob("pendulum/*/curves.csv"))])
    returns = curves[(curves["metric"] == "return") & (curves["preset"] == "paper")]
    published = metrics.published().query("environment == 'sparse-pendulum'")
    figure, panels = plt.subplots(1, len(NOISES), figsize=(10.0, 4.0), sharey=True, layout="constrained")
    for axes, noise in zip(panels, NOISES, strict=True):
        for shift, (method, colour) in enumerate(COLOURS.items()):
            ours = returns[(returns["noise"] == noise) & (returns["method"] == method)]
            if not ours.empty:
                table = ours.pivot(index="episode", columns="seed", values="value").rolling(SMOOTH, min_periods=1).mean()
                mean, error = table.mean(axis=1), table.std(axis=1) / table.shape[1] ** 0.5
                axes.plot(mean.index, mean, color=colour, label=f"{method} ({table.shape[1]} seeds)")
                axes.fill_between(mean.index, mean - error, mean + error, color=colour, alpha=0.15, linewidth=0)
            theirs = published[(published["noise"] == noise) & (published["method"] == method)].set_index("metric")
            for metric, place in WINDOWS.items():
                row = theirs.loc[metric]
                axes.errorbar(place + shift - 2, row["mean"], row["standard_error"], fmt="o", color=colour, capsize=2)
        axes.set(title=f"noise {noise:g}", xlabel="episode")
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, loc="upper left", fontsize="small")
    panels[0].set_ylabel(f"evaluation return, mean of {SMOOTH} episodes")
    figure.savefig(ROOT / "docs" / "pendulum.svg", metadata={"Date": None})


if __name__ == "__main__":
    draw()
