"""What the tabular exploration experiments share: one agent on one environment, block by block, resumable between blocks."""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from ubex import checks, estimators
from ubex.envs.base import TabularEnv, finite_horizon_value
from ubex.experiments.spec import Cell, Context, Curve, Experiment, FigureSpec, Mode, Outcome, Table, grid, mode_of_device
from ubex.learn import driver
from ubex.learn.tabular import TabularLearner, TabularState
from ubex.runs import metrics
from ubex.runs.records import IF_GIVEN
from ubex.tabular.agents import METHODS, AgentConfig
from ubex.tabular.loop import Episodes, Memory

PAPER_METHODS = ("exact-ube", "pombu", "ensemble-var", "psrl")
OPTIMISTIC_METHODS = ("exact-ube", "pombu", "ensemble-var")
"""PSRL has neither an ensemble nor a gain."""
GAIN_METHODS = ("exact-ube", "pombu", "ensemble-var", "closed-form", "first-order")
"""Estimators whose gains are swept."""
BLOCK = 50
"""Episodes between two checkpoints, and between two points of a curve."""


@dataclass(frozen=True)
class Exploration(Experiment):
    """Agents on a tabular environment; subclasses name it, add axes and say what is kept of a run."""

    environment: ClassVar[str]

    methods: tuple[str, ...] = PAPER_METHODS
    """The agents: estimators, by their names or as module:name, and psrl, beb and ucbvi."""
    episodes: int = 1000
    """The number of episodes per run."""
    num_models: tuple[int, ...] = (5,)
    """The numbers N of posterior samples."""
    gains: tuple[float, ...] = (1.0,)
    """The exploration gains lambda: how much a standard deviation is worth."""
    u_min: float = 0.0
    """The least uncertainty reward. Smaller ones are clipped."""
    ties: str = "first"
    """Which of several best actions is taken: first or random."""
    planners: tuple[str, ...] | None = field(default=None, metadata=IF_GIVEN)
    """The planners: policy-iteration, which is the paper's and the default, and start."""
    prior_masses: tuple[float, ...] | None = field(default=None, metadata=IF_GIVEN)
    """The masses of the prior: the sum of a row's Dirichlet parameters, in visits. By default it is the published rule."""
    plan_from: str | None = field(default=None, metadata=IF_GIVEN)
    """What planning begins with: random, a random policy, which is the paper's and the default, or last, the last plan."""
    max_improvements: int | None = field(default=None, metadata=IF_GIVEN)
    """The most improvements of the policy per plan. By default they are the published 40. Long ways to a goal need more.
    ucbvi has no such limit."""
    noise_precision: float | None = field(default=None, metadata=IF_GIVEN)
    """The precision of an observed reward, for rewards with noise. By default it is the published 1e6, nearly without noise."""

    def __post_init__(self) -> None:
        """Refuses fields that make no sense."""
        super().__post_init__()
        for method in self.methods:
            estimators.method(method, METHODS)
        checks.whole("episodes", self.episodes, 1)
        for setting in grid(method=self.methods, **Exploration.axes(self)):
            AgentConfig(**{**setting, **self.shared()})

    def axes(self) -> dict[str, Sequence[Any]]:
        """What varies between cells, besides the method."""
        new = {"prior_mass": self.prior_masses, "planner": self.planners}  # cells without them keep their random keys
        given = {name: values for name, values in new.items() if values is not None}
        return {"num_models": self.num_models, "gain": self.gains, **given}

    def shared(self) -> dict[str, Any]:
        """Settings that all agents have."""
        new = {name: getattr(self, name) for name in ("plan_from", "max_improvements", "noise_precision")}
        return {"u_min": self.u_min, "ties": self.ties, **{name: value for name, value in new.items() if value is not None}}

    def cells(self) -> Sequence[Cell]:
        """All axes x methods."""
        shared = {"episodes": self.episodes, **self.shared()}
        axes = grid(**self.axes())
        return [Cell(self.name, self.environment, method, {**setting, **shared}) for setting in axes for method in self.methods]

    @property
    def mode(self) -> Mode:  # type: ignore[override]
        """All seeds of a cell at once where that is faster."""
        return mode_of_device()

    @abstractmethod
    def agent(self, cell: Cell) -> AgentConfig:
        """The agent of a cell."""

    @abstractmethod
    def environment_of(self, cell: Cell) -> TabularEnv:
        """The environment of a cell."""

    @abstractmethod
    def score(self, env: TabularEnv) -> Score:
        """What is kept of an episode."""

    @abstractmethod
    def outcome(self, env: TabularEnv, score: Float[np.ndarray, " E"], steps: Int[np.ndarray, " E"]) -> Outcome:
        """What one seed gives."""

    def watch(self, env: TabularEnv, cell: Cell, context: Context) -> tuple[Sequence[int], Watch | None]:
        """After which episodes seed 0 is looked at, and how."""
        del env, cell, context
        return (), None

    def run(self, cell: Cell, seeds: Sequence[int], context: Context) -> Mapping[int, Outcome]:
        """One agent for all episodes of every seed."""
        env = self.environment_of(cell)

        def outcomes(found: Explored) -> Mapping[int, Outcome]:
            return {seed: self.outcome(env, *one) for seed, *one in zip(seeds, *found, strict=True)}

        agent, watched = self.agent(cell), self.watch(env, cell, context)
        return outcomes(explore(cell, seeds, env, agent, self.episodes, context, self.score(env), outcomes, *watched))


Score = Callable[[Float[np.ndarray, " B"], Int[np.ndarray, "B S"]], Float[np.ndarray, " B"]]
"""(returns, executed policies) of a block of one seed -> the number that the experiment keeps of each episode."""
Watch = Callable[[TabularState], None]
"""Is shown the state of one seed."""
Explored = tuple[Float[np.ndarray, "K E"], Int[np.ndarray, "K E"]]
"""Of every seed and episode the score, and the improvements of the update before it."""


def one_of(state: TabularState, place: int) -> Memory:
    """What one of several seeds remembers."""
    found: Memory = jax.tree.map(lambda x: x[place], state.memory)
    return found


def explore(
    cell: Cell,
    seeds: Sequence[int],
    env: TabularEnv,
    config: AgentConfig,
    episodes: int,
    context: Context,
    score: Score,
    outcomes: Callable[[Explored], Mapping[int, Outcome]],
    pictures: Sequence[int] = (),
    watch: Watch | None = None,
) -> Explored:
    """Runs an agent for a number of episodes, all seeds together. `watch` is shown seed 0 after each of the episodes
    `pictures`; blocks are as short as that needs. `outcomes` says what seeds would have given so far."""
    keys = [cell.key(seed) for seed in seeds]

    def record(state: TabularState, block: Episodes) -> tuple[driver.Rows, bool]:
        if watch and 0 in seeds and state.episodes in pictures:
            first = list(seeds).index(0)
            watch(state if len(seeds) == 1 else state._replace(memory=one_of(state, first), key=state.key[first]))
        returns, policies, steps = block if len(seeds) > 1 else (x[None] for x in block)
        scores = [score(*one) for one in zip(returns, policies, strict=True)]
        return {"score": np.stack(scores, axis=1), "steps": np.transpose(steps)}, True

    def so_far(history: driver.Rows) -> Mapping[int, Outcome]:
        done = len(history["score"])
        return {seed: one.until(done, "episodes") for seed, one in outcomes(arrays(history)).items()}

    block = math.gcd(BLOCK, *pictures)
    learner = TabularLearner(env, config, jnp.stack(keys) if len(seeds) > 1 else keys[0], block)
    return arrays(driver.run(learner, episodes, context, record, so_far=so_far).history)


def arrays(history: driver.Rows) -> Explored:
    """What was recorded, seeds first."""
    return np.ascontiguousarray(history["score"].T), np.ascontiguousarray(history["steps"].T).astype(np.int32)


def agent_config(cell: Cell, **defaults: Any) -> AgentConfig:
    """The agent of a cell."""
    names = {one.name for one in dataclasses.fields(AgentConfig)}
    given = {name: value for name, value in cell.settings.items() if name in names}
    return AgentConfig(**{"method": cell.method, **defaults, **given})


def expected_returns(env: TabularEnv) -> Score:
    """Every executed policy is evaluated exactly, by backups in the true MDP."""
    p, r = (np.asarray(array) for array in env.as_mdp())

    def score(returns: Float[np.ndarray, " B"], policies: Int[np.ndarray, "B S"]) -> Float[np.ndarray, " B"]:
        del returns
        everywhere = np.pad(policies, ((0, 0), (0, len(p) - policies.shape[1])))  # what is done after the end does not matter
        return np.array([finite_horizon_value(p, r, policy, env.horizon)[env.start] for policy in everywhere])

    return score


def regret_curve(regret: Float[np.ndarray, " E"]) -> Curve:
    """The regret so far, at the end of every block."""
    index = list(range(BLOCK, len(regret) + 1, BLOCK))
    return Curve("episode", index, [float(regret[i - 1]) for i in index])


def value_and_error(row: pd.Series) -> str:
    """A mean and its standard error for people; a dash where there is none."""
    if np.isnan(row["mean"]):
        return "-"
    error = "" if np.isnan(row["standard_error"]) else f" ({row['standard_error']:.2f})"
    return f"{row['mean']:.2f}{error}"


ABLATIONS = {
    "num_models": ("Total regret by ensemble size", "ensemble size N"),
    "gain": ("Total regret by exploration gain", "exploration gain"),
}
"""Title and axis of the figure of an ablation, by the setting that it varies."""


def ablation(x: str, unit: str, facet: str) -> FigureSpec:
    """The figure of total regret against a setting."""
    title, label = ABLATIONS[x]
    return FigureSpec("regret", title, "lines", "total_regret", label, unit, x=x, facet=facet)


def also_varied(results: pd.DataFrame) -> list[str]:
    """The settings of agents, among those that tables do not always show, that vary within the run."""
    return [name for name in ("prior_mass", "planner", "repeats") if name in results and results[name].nunique() > 1]


def in_words(row: pd.Series, names: Sequence[str]) -> list[str]:
    """Settings of a row for people."""
    return [f"{row[name]:g}" if isinstance(row[name], float) else str(row[name]) for name in names]


def best_gains(results: pd.DataFrame, within: Sequence[str]) -> Table:
    """For every method, and every value of the columns `within`, the gain with the least mean regret over seeds."""
    summary, within = metrics.summarize(results), [*within, *also_varied(results)]
    regret = summary[(summary["metric"] == "total_regret") & summary["mean"].notna()]
    rows = []
    for _, group in regret.groupby(["method", *within], sort=False):
        best = group.iloc[int(group["mean"].argmin())]
        others = ", ".join(f"{row['gain']:g}" for _, row in group.sort_values("gain").iterrows())
        rows.append(
            [
                best["method"],
                *in_words(best, [*within, "gain"]),
                value_and_error(best),
                f"{best['seeds']}",
                others,
            ]
        )
    return Table("Best gain", ["method", *within, "gain", "mean regret, standard error", "seeds", "of the gains"], rows)
