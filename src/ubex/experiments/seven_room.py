"""7-room: regret of the executed policies along the run (figure nroom), against the published and the true optimum."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from ubex import checks
from ubex.envs.n_room import HORIZON, finite_horizon_value, seven_room
from ubex.experiments.deep_sea import PAPER_METHODS, value_and_error
from ubex.experiments.exploration import agent_config, explore
from ubex.experiments.spec import Cell, Context, Curve, Experiment, FigureSpec, Outcome, Table, grid
from ubex.runs import metrics
from ubex.tabular.agents import METHODS, AgentConfig

PUBLISHED_OPTIMUM = 19.0
"""What the published regret is measured against; the true optimum is the environment's `best_return`, 20.2947."""
CURVE_EVERY = 50


@dataclass(frozen=True)
class SevenRoom(Experiment):
    """Regret on the 7-room environment along 5,000 episodes, for every method."""

    name: ClassVar[str] = "seven-room"
    summary: ClassVar[str] = "7-room: regret of the executed policies along the run, for every method"
    figures: ClassVar[Sequence[FigureSpec]] = (
        FigureSpec("regret-curve", "Regret along the run", "curves", "regret", "episode", "regret against 19.0", x="episode"),
        FigureSpec("regret", "Total regret", "bars", "total_regret", "", "regret against 19.0", x="num_models"),
    )

    seeds: int = 10
    """Number of seeds of every cell."""
    methods: tuple[str, ...] = PAPER_METHODS
    """Estimators, and psrl."""
    episodes: int = 5000
    """Episodes of every run."""
    num_models: tuple[int, ...] = (5,)
    """N, posterior samples."""
    gains: tuple[float, ...] = (1.0,)
    """lambda, exploration gains."""
    u_min: float = 0.0
    """Clip of the uncertainty rewards, the paper's for 7-room."""
    ties: str = "first"
    """first or random maximiser."""

    def __post_init__(self) -> None:
        """Refuses fields that make no sense."""
        super().__post_init__()
        for method in self.methods:
            checks.one_of("method", method, METHODS)
        checks.whole("episodes", self.episodes, 1)
        for setting in grid(method=self.methods, num_models=self.num_models, gain=self.gains):
            AgentConfig(**{**setting, "u_min": self.u_min, "ties": self.ties})  # type: ignore[arg-type]

    def cells(self) -> Sequence[Cell]:
        """Ensemble sizes x gains x methods."""
        shared: dict[str, Any] = {"episodes": self.episodes, "u_min": self.u_min, "ties": self.ties}
        axes = grid(num_models=self.num_models, gain=self.gains)
        return [Cell(self.name, "seven-room", method, {**setting, **shared}) for setting in axes for method in self.methods]

    def run(self, cell: Cell, seeds: Sequence[int], context: Context) -> Mapping[int, Outcome]:
        """One agent for all episodes; every executed policy is evaluated exactly, by 40 backups in the true MDP."""
        (seed,) = seeds
        settings: Mapping[str, Any] = cell.settings
        env = seven_room()
        p, r = (np.asarray(array) for array in env.as_mdp())

        def value(returns: Float[np.ndarray, " B"], policies: Int[np.ndarray, "B S"]) -> Float[np.ndarray, " B"]:
            del returns
            return np.array([finite_horizon_value(p, r, policy, HORIZON)[env.start] for policy in policies])

        done = explore(cell, seed, env, agent_config(cell), settings["episodes"], context, value)
        regret = np.cumsum(np.maximum(PUBLISHED_OPTIMUM - done.score, 0.0))
        index = list(range(CURVE_EVERY, len(regret) + 1, CURVE_EVERY))
        scalars = {
            "total_regret": metrics.value_regret(done.score, PUBLISHED_OPTIMUM),
            "total_regret_true_optimum": metrics.value_regret(done.score, env.best_return),
            "final_return": float(done.score[-1]),
            "improvements_per_update": float(done.steps.mean()),
        }
        return {seed: Outcome(scalars, {"regret": Curve("episode", index, [float(regret[i - 1]) for i in index])})}

    def smoke(self) -> SevenRoom:
        """One method, very few episodes."""
        return dataclasses.replace(self, seeds=1, methods=("exact-ube",), episodes=4)

    def tables(self, results: pd.DataFrame) -> Sequence[Table]:
        """Mean and standard error of the regret against both optima."""
        summary = metrics.summarize(results)
        published = summary[summary["metric"] == "total_regret"]
        true = summary[summary["metric"] == "total_regret_true_optimum"]
        rows = [
            [row["method"], f"{row['num_models']}", f"{row['gain']:g}", value_and_error(row), value_and_error(other)]
            for (_, row), (_, other) in zip(published.iterrows(), true.iterrows(), strict=True)
        ]
        columns = ["method", "N", "gain", "against 19.0 (published)", "against 20.2947 (true optimum)"]
        return [Table(f"Regret after {self.episodes} episodes: mean, standard error", columns, rows)]
