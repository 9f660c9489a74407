"""7-room: regret of the executed policies along the run, against the published and the true optimum, and ablations.

Figure nroom; ensemble_ablation (preset ensemble). Nothing was published for the preset gain.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from ubex.envs.base import TabularEnv
from ubex.envs.n_room import seven_room
from ubex.experiments.exploration import (
    GAIN_METHODS,
    OPTIMISTIC_METHODS,
    Exploration,
    Score,
    ablation,
    agent_config,
    also_varied,
    best_gains,
    expected_returns,
    in_words,
    regret_curve,
    value_and_error,
)
from ubex.experiments.spec import Cell, FigureSpec, Outcome, Preset, Table
from ubex.runs import metrics
from ubex.tabular.agents import AgentConfig

PUBLISHED_OPTIMUM = 19.0
"""What the published regret is measured against; the true optimum is the environment's `best_return`, 20.2947."""
EARLIER = (1001,)
"""Episodes after which the published regret is also given."""
UNIT = "regret against 19.0"


@dataclass(frozen=True)
class SevenRoom(Exploration):
    """Regret on the 7-room environment along 5,000 episodes, for every method."""

    name: ClassVar[str] = "seven-room"
    summary: ClassVar[str] = "7-room: regret of the executed policies along the run, for every method"
    environment: ClassVar[str] = "seven-room"
    figures: ClassVar[Sequence[FigureSpec]] = (
        FigureSpec("regret-curve", "Regret along the run", "curves", "regret", "episode", UNIT, x="episode"),
        FigureSpec(
            "regret",
            "Total regret",
            "bars",
            "total_regret",
            "episodes",
            UNIT,
            x="episodes",
            facet="num_models",
        ),
    )
    presets: ClassVar[Mapping[str, Preset]] = {
        "ensemble": Preset(
            "7-room: total regret against the number of posterior samples N (ablation)",
            {"methods": OPTIMISTIC_METHODS, "num_models": (2, 5, 10, 20)},
            "seven-room-ensemble",
            (ablation("num_models", UNIT, "episodes"),),
        ),
        "gain": Preset(
            "7-room: total regret against the exploration gain, for every estimator",
            {"methods": GAIN_METHODS, "seeds": 5, "episodes": 1001, "gains": (0.03, 0.1, 0.3, 1.0, 3.0)},
            "seven-room-gain",
            (
                ablation("gain", UNIT, "episodes"),
                FigureSpec(
                    "regret-curve", "Regret along the run", "curves", "regret", "episode", UNIT, "episode", facet="gain"
                ),
            ),
        ),
    }

    seeds: int = 10
    """The number of seeds per cell."""
    episodes: int = 5000
    """The number of episodes per run."""

    def agent(self, cell: Cell) -> AgentConfig:
        """Every transition counts once."""
        return agent_config(cell)

    def environment_of(self, cell: Cell) -> TabularEnv:
        """The same for all cells."""
        del cell
        return seven_room()

    def score(self, env: TabularEnv) -> Score:
        """Every executed policy is evaluated exactly, by 40 backups in the true MDP."""
        return expected_returns(env)

    def outcome(self, env: TabularEnv, score: Float[np.ndarray, " E"], steps: Int[np.ndarray, " E"]) -> Outcome:
        """Regret against both optima, also after fewer episodes."""

        def scalars(score: Float[np.ndarray, " E"]) -> dict[str, float]:
            return {
                "total_regret": metrics.value_regret(score, PUBLISHED_OPTIMUM),
                "total_regret_true_optimum": metrics.value_regret(score, env.best_return),
                "final_return": float(score[-1]),
            }

        curve = regret_curve(np.cumsum(np.maximum(PUBLISHED_OPTIMUM - score, 0.0)))
        whole = scalars(score) | {"improvements_per_update": float(steps.mean())}
        return Outcome(whole, {"regret": curve}, {n: scalars(score[:n]) for n in EARLIER if n < len(score)})

    def smoke(self) -> SevenRoom:
        """One method and two values of every axis, very few episodes."""
        models, gains = self.num_models[:2], self.gains[:2]
        return dataclasses.replace(self, seeds=1, methods=self.methods[:1], num_models=models, gains=gains, episodes=4)

    def tables(self, results: pd.DataFrame) -> Sequence[Table]:
        """Mean and standard error of the regret against both optima; before it the best gains, where there are several."""
        summary, more = metrics.summarize(results), also_varied(results)
        published = summary[summary["metric"] == "total_regret"]
        true = summary[summary["metric"] == "total_regret_true_optimum"]
        rows = [
            [
                *in_words(row, ["method", "num_models", "gain", *more, "episodes"]),
                value_and_error(row),
                value_and_error(other),
            ]
            for (_, row), (_, other) in zip(published.iterrows(), true.iterrows(), strict=True)
        ]
        columns = ["method", "N", "gain", *more, "episodes", "against 19.0 (published)", "against 20.2947 (true optimum)"]
        best = [best_gains(results, ("episodes",))] if len(self.gains) > 1 else []
        return [*best, Table("Regret: mean, standard error", columns, rows)]
