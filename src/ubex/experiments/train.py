"""`ubex train`: one agent on one environment of the user's choice, with everything that a run has: resume, report, results."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Float

from ubex import checks
from ubex.experiments.exploration import value_and_error
from ubex.experiments.spec import Cell, Context, Curve, Experiment, FigureSpec, Outcome, Table
from ubex.keys import as_key
from ubex.learn import driver, tabular
from ubex.learn.agent import AGENT_FILE, Agent, Origin
from ubex.learn.tabular import TabularState
from ubex.learn.tabular_agent import TabularBackend
from ubex.runs import metrics
from ubex.runs.records import IF_GIVEN
from ubex.tabular.agents import AGENTS
from ubex.tabular.loop import Episodes
from ubex.types import KeyLike

BLOCK = 25
"""Episodes between two checkpoints."""


@dataclass(frozen=True)
class Train(Experiment):
    """One agent on one environment."""

    name: ClassVar[str] = "train"
    summary: ClassVar[str] = "one agent on one environment"
    figures: ClassVar[Sequence[FigureSpec]] = (
        FigureSpec("returns", "Return of every episode", "curves", "return", "episode", "return", x="episode"),
    )

    seeds: int = 1
    """The number of seeds."""
    env: str = "deep-sea"
    """The environment: a name from `ubex list`, a Gymnasium id, or module:Class.
    Tabular agents need Discrete spaces, and deep agents Discrete or bounded Box actions."""
    agent: str = "exact-ube"
    """The agent. A tabular one is an estimator, by its name or as module:name, or psrl, beb or ucbvi.
    `ubex list` names the deep ones."""
    episodes: int = 200
    """The number of episodes per seed."""
    horizon: int | None = None
    """The number of steps after which an episode is cut off, besides what the environment does."""
    env_args: str = "{}"
    """Settings of the environment, as a JSON object such as '{"size": 20}'."""
    num_models: int = 5
    """The number N of posterior samples."""
    gain: float = 1.0
    """The exploration gain lambda: how much a standard deviation is worth."""
    discount: float = 0.99
    """The discount factor of planning."""
    u_min: float = 0.0
    """The least uncertainty reward. Smaller ones are clipped."""
    ties: str = "first"
    """Which of several best actions is taken: first or random."""
    repeats: int = 1
    """How often each observed transition counts."""
    planner: str | None = field(default=None, metadata=IF_GIVEN)
    """policy-iteration, which is the paper's and the default, or start: optimistic at the state in which episodes begin."""
    prior_mass: float | None = field(default=None, metadata=IF_GIVEN)
    """The mass of the prior: the sum of a row's Dirichlet parameters, in visits. By default it is the published rule."""
    plan_when: str | None = field(default=None, metadata=IF_GIVEN)
    """When it plans: before every episode, which is the paper's and the default (episode), or also within one, when the
    visits of a state and action, its prior among them, have doubled since the last plan (doubled). Long episodes need it."""
    plan_from: str | None = field(default=None, metadata=IF_GIVEN)
    """What planning begins with: random, a random policy, which is the paper's and the default, or last, the last plan."""
    max_improvements: int | None = field(default=None, metadata=IF_GIVEN)
    """The most improvements of the policy per plan. By default they are the published 40. Long ways to a goal need more.
    ucbvi has no such limit."""
    reward_precision: float | None = field(default=None, metadata=IF_GIVEN)
    """The prior precision of a reward. By default it is the published 1."""
    noise_precision: float | None = field(default=None, metadata=IF_GIVEN)
    """The precision of an observed reward, for rewards with noise. By default it is the published 1e6, nearly without noise."""

    def __post_init__(self) -> None:
        """Refuses fields that make no sense, the environment's included."""
        super().__post_init__()
        checks.whole("episodes", self.episodes, 1)
        tabular.agent_config(self.agent, self.settings())

    def settings(self) -> dict[str, Any]:
        """The agent's settings."""
        names = ("num_models", "gain", "discount", "u_min", "ties", "repeats")
        of_rewards = ("reward_precision", "noise_precision")
        new = ("planner", "prior_mass", "plan_when", "plan_from", "max_improvements", *of_rewards)  # no new keys without them
        given = {name: getattr(self, name) for name in new if getattr(self, name) is not None}
        return {name: getattr(self, name) for name in names} | given

    def make(self, key: KeyLike = 0) -> tabular.TabularLearner:
        """The agent in its environment."""
        env = tabular.environment(self.env, self.horizon, checks.json_object("env_args", self.env_args))
        return tabular.TabularLearner(env, tabular.agent_config(self.agent, self.settings()), as_key(key), BLOCK)

    def cells(self) -> Sequence[Cell]:
        """The one cell."""
        settings: dict[str, Any] = {**self.settings(), "episodes": self.episodes, "env_args": self.env_args}
        if self.horizon is not None:
            settings["horizon"] = self.horizon
        return [Cell(self.name, self.env, self.agent, settings)]

    def run(self, cell: Cell, seeds: Sequence[int], context: Context) -> Mapping[int, Outcome]:
        """Block by block, resumable between blocks."""
        (seed,) = seeds

        def record(state: TabularState, block: Episodes) -> tuple[driver.Rows, bool]:
            for number, value in enumerate(block.returns, start=state.episodes - len(block.returns) + 1):
                context.measure(seed, number, "episode", {"return": float(value)})
            return {"return": block.returns}, True

        def so_far(history: driver.Rows) -> Mapping[int, Outcome]:
            return {seed: outcome(history["return"]).until(len(history["return"]), "episodes")}

        learner = self.make(cell.key(seed))
        run = driver.run(learner, self.episodes, context, record, so_far=so_far)
        if self.agent in AGENTS:  # of code of the user's own no file is left, because no file names what is imported
            origin = Origin(self.env, checks.json_object("env_args", self.env_args), self.horizon)
            context.keep(seed, AGENT_FILE, Agent.of(TabularBackend.of(learner), origin, run.state).dump())
        return {seed: outcome(run.history["return"])}

    def smoke(self) -> Train:
        """Few episodes."""
        return dataclasses.replace(self, episodes=5)

    def tables(self, results: pd.DataFrame) -> Sequence[Table]:
        """Mean and standard error of the returns."""
        rows = [[row["metric"], value_and_error(row)] for _, row in metrics.summarize(results).iterrows()]
        return [Table(f"{self.agent} on {self.env}", ["metric", "mean, standard error"], rows)]


def outcome(returns: Float[np.ndarray, " E"]) -> Outcome:
    """The returns of one seed, and their summary."""
    scalars = {
        "final_return": float(returns[-1]),
        "mean_return": float(returns.mean()),
        "mean_return_last_10": float(returns[-10:].mean()),
        "best_return": float(returns.max()),
    }
    index = list(range(1, len(returns) + 1))
    return Outcome(scalars, {"return": Curve("episode", index, [float(x) for x in returns])})
