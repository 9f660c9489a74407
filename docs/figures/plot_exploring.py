"""Draws docs/figures/exploring.svg: how sure two agents are of every cell of DeepSea, while they explore it.

python docs/figures/plot_exploring.py RUN takes the numbers from the folder of `ubex run deep-sea --preset maps --out RUN`.
Without one it takes those of the last time, exploring.csv.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from drawing import as_svg
from matplotlib.figure import Figure

from ubex.experiments.deep_sea import DeepSea
from ubex.report import maps

HERE = Path(__file__).resolve().parent
TABLE, PICTURE = HERE / "exploring.csv", HERE / "exploring.svg"
LAYER = "standard deviation of the value"


def table(run: Path) -> pd.DataFrame:
    """The deviations of a run's maps, one line per agent, episode and cell."""
    rows = []
    for cell in DeepSea.of("maps").cells():
        for one in maps.in_rows([maps.read(path) for path in (run / "artifacts" / cell.id / "seed-0").iterdir()]):
            layer = one.values[one.names.index(LAYER)]
            places = np.argwhere(np.isfinite(layer))
            rows += [(cell.method, one.episode, left, column, layer[left, column]) for left, column in places]
    return pd.DataFrame(rows, columns=["method", "episode", "steps left", "column", "deviation"])


def draw() -> Figure:
    """One row per agent, one column per episode; each row has one scale."""
    known = pd.read_csv(TABLE)
    colours = matplotlib.colormaps[maps.COLOURS].with_extremes(bad="none")
    figure = Figure(figsize=(10.0, 3.6), layout="constrained")
    grid = figure.subplots(known["method"].nunique(), known["episode"].nunique())
    for row, (method, series) in enumerate(known.groupby("method")):
        low, high = maps.scale([series["deviation"].to_numpy()])
        for axes, (episode, one) in zip(grid[row], series.groupby("episode"), strict=True):
            layer = one.pivot(index="steps left", columns="column", values="deviation")
            mesh = axes.pcolormesh(np.ma.masked_invalid(layer), cmap=colours, vmin=low, vmax=high, rasterized=True)
            axes.set(xticks=(), yticks=(), aspect="equal")
            axes.spines[:].set_visible(False)
            if row == 0:
                axes.set_title(f"episode {episode}", fontsize=10)
        grid[row, 0].set_ylabel(method)
        figure.colorbar(mesh, ax=list(grid[row]), label="deviation", aspect=12, pad=0.01)
    return figure


if __name__ == "__main__":
    if len(sys.argv) > 1:
        table(Path(sys.argv[1])).to_csv(TABLE, index=False, float_format="%.4g")
    PICTURE.write_text(as_svg(draw))
