"""DeepSea: total regret and learning time against size, and ablations.

Figures deep_sea_results and full_results_deep_sea; exact_ube_ablation (preset forms), ensemble_ablation and ensemble_size
(ensemble), exploration_gain (gain).
"""

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
from ubex.experiments.exploration import (
    OPTIMISTIC_METHODS,
    Exploration,
    Score,
    ablation,
    agent_config,
    also_varied,
    best_gains,
    in_words,
    regret_curve,
    value_and_error,
)
from ubex.experiments.spec import Cell, FigureSpec, Outcome, Preset, Table
from ubex.runs import metrics
from ubex.tabular.agents import AgentConfig

SOLVED = 0.5
"""An episode with at least this return found the reward."""
UNIT = "unsolved episodes"
FORMS = ("exact-ube-1", "exact-ube-2", "exact-ube")


@dataclass(frozen=True)
class DeepSea(Exploration):
    """Total regret and learning time on DeepSea against its size, for every method."""

    name: ClassVar[str] = "deep-sea"
    summary: ClassVar[str] = "DeepSea: total regret and learning time against size, for every method"
    environment: ClassVar[str] = "deep-sea"
    figures: ClassVar[Sequence[FigureSpec]] = (
        FigureSpec("learning-time", "Learning time", "lines", "learning_time", "size L", "episodes", x="size"),
        FigureSpec("regret", "Total regret", "lines", "total_regret", "size L", UNIT, x="size"),
        FigureSpec("regret-curve", "Regret along the run", "curves", "regret", "episode", "regret", x="episode", facet="size"),
    )
    presets: ClassVar[Mapping[str, Preset]] = {
        "forms": Preset(
            "DeepSea: the three forms of the uncertainty reward (ablation)",
            {"methods": FORMS},
            "deep-sea-forms",
            (FigureSpec("regret", "Total regret by form of u", "bars", "total_regret", "size L", UNIT, x="size"),),
        ),
        "ensemble": Preset(
            "DeepSea: total regret against the number of posterior samples N (ablation)",
            {"methods": OPTIMISTIC_METHODS, "sizes": (20, 30), "num_models": (2, 5, 10, 20)},
            "deep-sea-ensemble",
            (ablation("num_models", UNIT, "size"),),
        ),
        "gain": Preset(
            "DeepSea: total regret against the exploration gain (ablation)",
            {"methods": OPTIMISTIC_METHODS, "sizes": (20, 30), "gains": (1.0, 2.0, 3.0)},
            "deep-sea-gain",
            (ablation("gain", UNIT, "size"),),
        ),
    }

    sizes: tuple[int, ...] = (10, 20)
    """The sizes L of the grid. The paper has 10, 20, 30 and 40."""
    u_min: float = -0.05
    """The least uncertainty reward. Smaller ones are clipped. The default is the paper's for DeepSea."""

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
        """Two methods, or one with two values of an axis, on a grid of four cells, few episodes."""
        models, gains = self.num_models[:2], self.gains[:2]
        methods = self.methods[: 2 if len(models) == len(gains) == 1 else 1]
        return dataclasses.replace(self, seeds=1, methods=methods, sizes=(4,), num_models=models, gains=gains, episodes=60)

    def tables(self, results: pd.DataFrame) -> Sequence[Table]:
        """Mean and standard error of regret and learning time; before them the best gains, where there are several."""
        summary = metrics.summarize(results)
        tables = [best_gains(results, ("size", "num_models"))] if len(self.gains) > 1 else []
        more = also_varied(results)
        for metric, title in (("total_regret", "Total regret"), ("learning_time", "Learning time")):
            rows = [
                [*in_words(row, ["method", "size", "num_models", "gain", *more]), value_and_error(row)]
                for _, row in summary[summary["metric"] == metric].iterrows()
            ]
            tables.append(Table(title, ["method", "L", "N", "gain", *more, "mean, standard error"], rows))
        return tables
