"""DeepSea: total regret and learning time against size (figure deep_sea_results), and regret along the run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from ubex import checks
from ubex.envs.deep_sea import deep_sea
from ubex.experiments.exploration import agent_config, explore
from ubex.experiments.spec import Cell, Context, Curve, Experiment, FigureSpec, Outcome, Table, grid
from ubex.runs import metrics
from ubex.tabular.agents import METHODS, AgentConfig

PAPER_METHODS = ("exact-ube", "pombu", "ensemble-var", "psrl")
SOLVED = 0.5
"""An episode with at least this return found the reward."""
CURVE_EVERY = 50


@dataclass(frozen=True)
class DeepSea(Experiment):
    """Total regret and learning time on DeepSea against its size, for every method."""

    name: ClassVar[str] = "deep-sea"
    summary: ClassVar[str] = "DeepSea: total regret and learning time against size, for every method"
    figures: ClassVar[Sequence[FigureSpec]] = (
        FigureSpec("regret", "Total regret", "lines", "total_regret", "size L", "unsolved episodes", x="size"),
        FigureSpec("learning-time", "Learning time", "lines", "learning_time", "size L", "episodes", x="size"),
        FigureSpec("regret-curve", "Regret along the run", "curves", "regret", "episode", "regret", x="episode", facet="size"),
    )

    methods: tuple[str, ...] = PAPER_METHODS
    """Estimators, and psrl."""
    sizes: tuple[int, ...] = (10, 20)
    """L; the paper has 10, 20, 30 and 40."""
    episodes: int = 1000
    """Episodes of every run."""
    num_models: tuple[int, ...] = (5,)
    """N, posterior samples."""
    gains: tuple[float, ...] = (1.0,)
    """lambda, exploration gains."""
    u_min: float = -0.05
    """Clip of the uncertainty rewards, the paper's for DeepSea."""
    ties: str = "first"
    """first or random maximiser."""

    def __post_init__(self) -> None:
        """Refuses fields that make no sense."""
        super().__post_init__()
        for method in self.methods:
            checks.one_of("method", method, METHODS)
        for size in self.sizes:
            checks.whole("size", size, 2)
        checks.whole("episodes", self.episodes, 1)
        for setting in grid(method=self.methods, num_models=self.num_models, gain=self.gains):
            AgentConfig(**{**setting, "u_min": self.u_min, "ties": self.ties})  # type: ignore[arg-type]

    def cells(self) -> Sequence[Cell]:
        """Sizes x ensemble sizes x gains x methods."""
        shared: dict[str, Any] = {"episodes": self.episodes, "u_min": self.u_min, "ties": self.ties}
        axes = grid(size=self.sizes, num_models=self.num_models, gain=self.gains)
        return [Cell(self.name, "deep-sea", method, {**setting, **shared}) for setting in axes for method in self.methods]

    def run(self, cell: Cell, seeds: Sequence[int], context: Context) -> Mapping[int, Outcome]:
        """One agent for all episodes; every transition counts as many times as the grid is wide."""
        (seed,) = seeds
        settings: Mapping[str, Any] = cell.settings
        env, config = deep_sea(settings["size"]), agent_config(cell, repeats=settings["size"])
        done = explore(cell, seed, env, config, settings["episodes"], context, returns_alone)
        solved = done.score >= SOLVED
        regret = np.cumsum(~solved)
        index = list(range(CURVE_EVERY, len(solved) + 1, CURVE_EVERY))
        scalars = {
            "total_regret": metrics.total_regret(solved),
            "learning_time": metrics.learning_time(solved),
            "mean_return_last_10": float(done.score[-10:].mean()),
            "improvements_per_update": float(done.steps.mean()),
        }
        return {seed: Outcome(scalars, {"regret": Curve("episode", index, [float(regret[i - 1]) for i in index])})}

    def smoke(self) -> DeepSea:
        """Two methods on a grid of four cells, few episodes."""
        return dataclasses.replace(self, seeds=2, methods=("exact-ube", "psrl"), sizes=(4,), episodes=60)

    def tables(self, results: pd.DataFrame) -> Sequence[Table]:
        """Mean and standard error of regret and learning time."""
        summary = metrics.summarize(results)
        tables = []
        for metric, title in (("total_regret", "Total regret"), ("learning_time", "Learning time")):
            rows = [
                [row["method"], f"{row['size']}", f"{row['num_models']}", f"{row['gain']:g}", value_and_error(row)]
                for _, row in summary[summary["metric"] == metric].iterrows()
            ]
            tables.append(Table(title, ["method", "L", "N", "gain", "mean, standard error"], rows))
        return tables


def returns_alone(returns: Float[np.ndarray, " B"], policies: Int[np.ndarray, "B S"]) -> Float[np.ndarray, " B"]:
    """DeepSea is judged by its returns."""
    del policies
    return returns


def value_and_error(row: pd.Series) -> str:
    """A mean and its standard error for people; a dash where there is none."""
    if np.isnan(row["mean"]):
        return "-"
    error = "" if np.isnan(row["standard_error"]) else f" ({row['standard_error']:.2f})"
    return f"{row['mean']:.2f}{error}"
