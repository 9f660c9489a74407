"""Draws docs/figures/cost.svg from cost.csv next to it: what an update costs against the size of DeepSea.

A line of the table is `python -m ubex.bench.exploration '{"size": 20, "episodes": 50}'` and its like: first episodes with N = 5
and one thread. Those of the closed form have `"method": "closed-form"` in it, and are from another CPU. `solve_seconds` is one
`numpy.linalg.solve` on the CPU of that machine. The lines of the H200 up to size 60 are from an earlier version of the solver,
which asked the host after every round; size 100 is from the present one.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from drawing import as_svg
from matplotlib.figure import Figure

from ubex.report import charts, figures

HERE = Path(__file__).resolve().parent
TABLE, PICTURE = HERE / "cost.csv", HERE / "cost.svg"
PUBLISHED_SOLVES = 7
"""Solves of one policy-iteration step with five samples: members, mean and uncertainty."""


def draw() -> Figure:
    """One line per device, and the cost of solves alone on the CPU."""
    table = pd.read_csv(TABLE)
    closed, table = table[table["method"] == "closed-form"], table[table["method"] == "exact-ube"]
    cpu, gpu = table[table["device"] == "cpu"], table[table["device"] != "cpu"]
    lines = {
        "one update of exact-ube, one core": (cpu["size"], cpu["seconds_per_update"]),
        "its solves alone, seven per step, one core": (
            cpu["size"],
            PUBLISHED_SOLVES * cpu["steps_per_update"] * cpu["solve_seconds"],
        ),
        "one update of exact-ube, one H200": (gpu["size"], gpu["seconds_per_update"]),
        "one solve, one core": (cpu["size"], cpu["solve_seconds"]),
        "one update of closed-form, one core": (closed["size"], closed["seconds_per_update"]),
    }
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    for index, (label, (x, y)) in enumerate(lines.items()):
        axes.plot(x, y, label=label, **figures.line_style(charts.look(index)))
    axes.set(xscale="log", yscale="log", xlabel="size L of DeepSea (L² + 1 states)", ylabel="seconds")
    axes.set_xticks([10, 20, 30, 40, 60, 100], labels=["10", "20", "30", "40", "60", "100"])
    axes.minorticks_off()
    axes.legend(frameon=False, handlelength=3.5)
    return figure


if __name__ == "__main__":
    PICTURE.write_text(as_svg(draw))
