"""Draws docs/figures/deep-sea.svg: how many episodes of DeepSea stay unsolved, against its size, on logarithmic axes."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from drawing import as_svg
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import ubex
from ubex.report import charts, figures
from ubex.runs import metrics

HERE = Path(__file__).resolve().parent
RUNS, STUDY = HERE.parents[1] / "results" / "deep-sea", HERE.parents[1] / "studies" / "prior-mass"
PICTURE = HERE / "deep-sea.svg"
PAPER = ("exact-ube", "pombu", "ensemble-var", "psrl")
METHODS = (*PAPER, "closed-form", "beb", "ucbvi")
LIGHT: dict[str, dict[str, float]] = {
    "exact-ube": {"prior_mass": 4.0, "gain": 0.3},
    "pombu": {"prior_mass": 4.0, "gain": 0.3},
    "ensemble-var": {"prior_mass": 4.0, "gain": 0.3},
    "closed-form": {"prior_mass": 8.0},
    "beb": {"prior_mass": 2.0, "gain": 0.1},
    "ucbvi": {"gain": 0.0003},
}
"""The settings of the study that are drawn: one for the sampled methods, and the best ones of the others."""
SIZES = (10, 100)


def kept() -> pd.DataFrame:
    """Unsolved episodes of our runs with the published prior: one line per seed."""
    results = pd.concat([ubex.load_results(path) for path in sorted(RUNS.glob("*/results.csv"))])
    return results[(results["metric"] == "total_regret") & results["size"].isin((10, 20, 30, 40))]


def studied(method: str) -> pd.Series:
    """Means of the study at the setting that is drawn, by size."""
    sizes = {"deep-sea-10": 10, "deep-sea-20": 20}
    tables = [
        pd.read_csv(path).assign(**({"size": sizes[path.stem]} if path.stem in sizes else {}))
        for path in sorted(STUDY.glob("*.csv"))
    ]
    rows = pd.concat(tables)
    rows = rows[rows["plan_from"] != "last"]  # said of the sampled methods alone, which have both
    rows = rows[(rows["method"] == method) & rows["gain"].fillna(1.0).eq(LIGHT[method].get("gain", 1.0))]
    if "prior_mass" in LIGHT[method]:
        rows = rows[rows["prior_mass"] == LIGHT[method]["prior_mass"]]
    return rows.groupby("size")["total_regret"].mean()


def draw_budgets(axes: Axes) -> None:
    """The lines L, the floor of a learner that must see every pair, 2 L, and 50 L."""
    for factor, name in ((1, "L"), (2, "2 L"), (50, "50 L")):
        ends = [factor * size for size in SIZES]
        axes.plot(SIZES, ends, color="gray", linewidth=0.8, linestyle=":", zorder=0)
        axes.annotate(name, (SIZES[1], ends[1]), xytext=(4, 0), textcoords="offset points", va="center", color="gray")


def draw() -> Figure:
    """One line per method and prior; published means are open circles."""
    figure = Figure(figsize=(9.0, 4.6), layout="constrained")
    axes = figure.subplots()
    draw_budgets(axes)
    ours, published = kept(), metrics.published().query("environment == 'deep-sea' and metric == 'total_regret'")
    published = published[(published["num_models"] == 5) & (published["gain"] == 1.0)]
    for method, look in charts.method_looks(METHODS).items():
        style = figures.line_style(look)
        means = ours[ours["method"] == method].groupby("size")["value"].mean()
        if not means.empty:
            axes.plot(means.index, means, label=f"{method}, published prior", **style)
        theirs = published[published["method"] == method]
        axes.plot(theirs["size"], theirs["mean"], "o", markersize=9, markerfacecolor="none", color=look.color)
        if method in LIGHT:
            label = f"{method}, prior of {LIGHT[method]['prior_mass']:g} visits" if "prior_mass" in LIGHT[method] else method
            axes.plot(studied(method).index, studied(method), label=label, **(style | {"linewidth": 2.6, "linestyle": "-"}))
    axes.set(xscale="log", yscale="log", xlabel="size L", ylabel="unsolved episodes")
    axes.set_xticks([10, 20, 30, 40, 60, 100], labels=["10", "20", "30", "40", "60", "100"])
    axes.set_yticks([10, 30, 100, 300, 1000, 3000], labels=["10", "30", "100", "300", "1,000", "3,000"])
    axes.minorticks_off()
    figure.legend(frameon=False, fontsize="small", handlelength=3.0, loc="outside right upper")
    return figure


if __name__ == "__main__":
    PICTURE.write_text(as_svg(draw))
