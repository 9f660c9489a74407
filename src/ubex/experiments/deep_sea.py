"""DeepSea: total regret and learning time against size (figure deep_sea_results)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from ubex import checks
from ubex.envs.base import TabularEnv
from ubex.envs.deep_sea import deep_sea
from ubex.experiments.exploration import Exploration, Score, agent_config, regret_curve, value_and_error
from ubex.experiments.spec import Cell, FigureSpec, Outcome, Table
from ubex.runs import metrics
from ubex.tabular.agents import AgentConfig

SOLVED = 0.5
"""An episode with at least this return found the reward."""
CURVE = FigureSpec("regret-curve", "Regret along the run", "curves", "regret", "episode", "regret", x="episode", facet="size")


@dataclass(frozen=True)
class DeepSea(Exploration):
    """Total regret and learning time on DeepSea against its size, for every method."""

    name: ClassVar[str] = "deep-sea"
    summary: ClassVar[str] = "DeepSea: total regret and learning time against size, for every method"
    environment: ClassVar[str] = "deep-sea"
    figures: ClassVar[Sequence[FigureSpec]] = (
        FigureSpec("learning-time", "Learning time", "lines", "learning_time", "size L", "episodes", x="size"),
        FigureSpec("regret", "Total regret", "lines", "total_regret", "size L", "unsolved episodes", x="size"),
        CURVE,
    )

    sizes: tuple[int, ...] = (10, 20)
    """L; the paper has 10, 20, 30 and 40."""
    u_min: float = -0.05
    """Clip of the uncertainty rewards, the paper's for DeepSea."""

    def __post_init__(self) -> None:
        """Refuses fields that make no sense."""
        super().__post_init__()
        for size in self.sizes:
            checks.whole("size", size, 2)

    def axes(self) -> dict[str, Sequence[Any]]:
        """Sizes x ensemble sizes x gains."""
        return {"size": self.sizes, **super().axes()}

    def agent(self, cell: Cell) -> AgentConfig:
        """Every transition counts as many times as the grid is wide."""
        settings: Mapping[str, Any] = cell.settings
        return agent_config(cell, repeats=settings["size"])

    def environment_of(self, cell: Cell) -> TabularEnv:
        """DeepSea of the cell's size."""
        settings: Mapping[str, Any] = cell.settings
        return deep_sea(settings["size"])

    def score(self, env: TabularEnv) -> Score:
        """DeepSea is judged by its returns."""
        del env
        return lambda returns, policies: returns

    def outcome(self, env: TabularEnv, score: Float[np.ndarray, " E"], steps: Int[np.ndarray, " E"]) -> Outcome:
        """Regret counts the episodes without the reward."""
        del env
        solved = score >= SOLVED
        scalars = {
            "total_regret": metrics.total_regret(solved),
            "learning_time": metrics.learning_time(solved),
            "mean_return_last_10": float(score[-10:].mean()),
            "improvements_per_update": float(steps.mean()),
        }
        return Outcome(scalars, {"regret": regret_curve(np.cumsum(~solved).astype(np.float64))})

    def smoke(self) -> DeepSea:
        """Two methods on a grid of four cells, few episodes."""
        return dataclasses.replace(self, seeds=1, methods=self.methods[:2], sizes=(4,), episodes=60)

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
