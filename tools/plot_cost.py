"""Draws docs/cost.svg from results/cost.csv: what an update costs against the size of DeepSea."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import pandas as pd

mpl.use("Agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parent.parent
PUBLISHED_SOLVES = 7
"""Solves of one policy-iteration step with five samples: members, mean and uncertainty."""


def draw() -> None:
    """One line a device, and the cost of solves alone on the CPU."""
    table = pd.read_csv(ROOT / "results" / "cost.csv")
    cpu, gpu = table[table["device"] == "cpu"], table[table["device"] != "cpu"]
    figure, axes = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    axes.plot(cpu["size"], cpu["seconds_per_update"], "o-", color="#0072b2", label="one update, one core")
    axes.plot(gpu["size"], gpu["seconds_per_update"], "s--", color="#009e73", label="one update, one H200")
    solves = PUBLISHED_SOLVES * cpu["steps_per_update"] * cpu["solve_seconds"]
    axes.plot(cpu["size"], solves, "^:", color="#d55e00", label="its solves alone, seven a step, one core")
    axes.plot(cpu["size"], cpu["solve_seconds"], "v-.", color="#4d4d4d", label="one solve, one core")
    axes.set(xscale="log", yscale="log", xlabel="size L of DeepSea (L² + 1 states)", ylabel="seconds")
    axes.set_xticks([10, 20, 30, 40, 60, 100], labels=["10", "20", "30", "40", "60", "100"])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(ROOT / "docs" / "cost.svg", metadata={"Date": None})


if __name__ == "__main__":
    draw()
