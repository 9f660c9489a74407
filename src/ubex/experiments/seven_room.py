"""7-room: regret of the executed policies along the run (figure nroom), against the published and the true optimum."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from ubex.envs.base import TabularEnv, finite_horizon_value
from ubex.envs.n_room import HORIZON, seven_room
from ubex.experiments.exploration import Exploration, Score, agent_config, regret_curve, value_and_error
from ubex.experiments.spec import Cell, FigureSpec, Outcome, Table
from ubex.runs import metrics
from ubex.tabular.agents import AgentConfig

PUBLISHED_OPTIMUM = 19.0
"""What the published regret is measured against; the true optimum is the environment's `best_return`, 20.2947."""
EARLIER = (1001,)
"""Episodes after which the published regret is also given."""


@dataclass(frozen=True)
class SevenRoom(Exploration):
    """Regret on the 7-room environment along 5,000 episodes, for every method."""

    name: ClassVar[str] = "seven-room"
    summary: ClassVar[str] = "7-room: regret of the executed policies along the run, for every method"
    environment: ClassVar[str] = "seven-room"
    figures: ClassVar[Sequence[FigureSpec]] = (
        FigureSpec("regret-curve", "Regret along the run", "curves", "regret", "episode", "regret against 19.0", x="episode"),
        FigureSpec(
            "regret",
            "Total regret",
            "bars",
            "total_regret",
            "episodes",
            "regret against 19.0",
            x="episodes",
            facet="num_models",
        ),
    )

    seeds: int = 10
    """Number of seeds of every cell."""
    episodes: int = 5000
    """Episodes of every run."""

    def agent(self, cell: Cell) -> AgentConfig:
        """Every transition counts once."""
        return agent_config(cell)

    def environment_of(self, cell: Cell) -> TabularEnv:
        """The same for all cells."""
        del cell
        return seven_room()

    def score(self, env: TabularEnv) -> Score:
        """Every executed policy is evaluated exactly, by 40 backups in the true MDP."""
        p, r = (np.asarray(array) for array in env.as_mdp())

        def value(returns: Float[np.ndarray, " B"], policies: Int[np.ndarray, "B S"]) -> Float[np.ndarray, " B"]:
            del returns
            return np.array([finite_horizon_value(p, r, policy, HORIZON)[env.start] for policy in policies])

        return value

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
        """One method, very few episodes."""
        return dataclasses.replace(self, seeds=1, methods=self.methods[:1], num_models=self.num_models[:2], episodes=4)

    def tables(self, results: pd.DataFrame) -> Sequence[Table]:
        """Mean and standard error of the regret against both optima."""
        summary = metrics.summarize(results)
        published = summary[summary["metric"] == "total_regret"]
        true = summary[summary["metric"] == "total_regret_true_optimum"]
        rows = [
            [
                row["method"],
                f"{row['num_models']}",
                f"{row['gain']:g}",
                f"{row['episodes']}",
                value_and_error(row),
                value_and_error(other),
            ]
            for (_, row), (_, other) in zip(published.iterrows(), true.iterrows(), strict=True)
        ]
        columns = ["method", "N", "gain", "episodes", "against 19.0 (published)", "against 20.2947 (true optimum)"]
        return [Table("Regret: mean, standard error", columns, rows)]
