"""How the variance of a value shrinks as data comes in: every estimator along a stream of transitions, next to many samples.

A small acyclic MDP is explored at random, an episode at a time; after each, the variance of the value of the first state is
estimated from few posterior samples. The state is kept on disk, so that a killed run continues in the middle of a stream.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np
import pandas as pd
from jaxtyping import Float

from ubex import checks, estimators
from ubex.calls import value_variance
from ubex.estimators import ESTIMATORS
from ubex.experiments.spec import Cell, Context, Curve, Experiment, FigureSpec, Outcome, Table
from ubex.keys import named
from ubex.tabular.posterior import Dirichlet, DirichletNormal, Normal, NormalGamma
from ubex.types import Transitions, UbexWarning

MANY = "many-samples"
"""The variance over many posterior samples, which the estimators are held against."""
NUM_ACTIONS = 2
CHECKPOINT_EVERY = 5


@dataclass(frozen=True)
class Shrinkage(Experiment):
    """Variance of the first state's value as data comes in, by every estimator, next to many posterior samples."""

    name: ClassVar[str] = "shrinkage"
    summary: ClassVar[str] = "how the variance of a value shrinks as data comes in, by every estimator"
    figures: ClassVar[Sequence[FigureSpec]] = (
        FigureSpec(
            "variance",
            "Variance of the first state's value as data comes in",
            "curves",
            "variance",
            "episode",
            "variance",
            x="episode",
            log=True,
        ),
        FigureSpec(
            "final-variance",
            "Variance after the last episode",
            "lines",
            "final_variance",
            "number of states",
            "variance",
            x="size",
        ),
    )

    methods: tuple[str, ...] = ("exact-ube", "pombu", "ensemble-var", MANY)
    """The estimators by their names, and `many-samples` for the truth."""
    sizes: tuple[int, ...] = (4, 6)
    """The numbers of states, without the terminal one."""
    episodes: int = 30
    """The number of episodes of data."""
    num_models: int = 5
    """The number of posterior samples that an estimator gets."""
    many: int = 2000
    """The number of posterior samples behind `many-samples`."""
    discount: float = 0.95
    """The discount factor."""

    def __post_init__(self) -> None:
        """Refuses fields that make no sense."""
        super().__post_init__()
        for method in self.methods:
            estimators.method(method, (*ESTIMATORS, MANY))
        for size in self.sizes:
            checks.whole("size", size, 2)
        checks.whole("episodes", self.episodes, 1)
        checks.whole("num_models", self.num_models, 2)
        checks.whole("many", self.many, 2)
        checks.discount_factor(self.discount)

    def cells(self) -> Sequence[Cell]:
        """Sizes x methods."""
        shared: dict[str, Any] = {"episodes": self.episodes, "discount": self.discount}
        return [
            Cell(
                self.name,
                "random-mdp",
                method,
                {"size": size, "num_models": self.many if method == MANY else self.num_models, **shared},
            )
            for size in self.sizes
            for method in self.methods
        ]

    def run(self, cell: Cell, seeds: Sequence[int], context: Context) -> Mapping[int, Outcome]:
        """One stream per seed; all methods see the same streams."""
        (seed,) = seeds
        settings: Mapping[str, Any] = cell.settings
        size, episodes = settings["size"], settings["episodes"]
        stream = named(jax.random.fold_in(jax.random.key(0), seed), f"shrinkage-{size}")
        truth = _random_rows(np.random.default_rng(_entropy(named(stream, "world"))), size)
        prior = _prior(size)
        state = State(prior.transitions, prior.rewards, np.full(episodes, np.nan))
        first, saved = 0, context.checkpoints.load(state)
        if saved is not None:
            first, state, _ = saved
        for episode in range(first, episodes):
            context.progress(episode, episodes)
            seen = _explore(np.random.default_rng(_entropy(jax.random.fold_in(named(stream, "data"), episode))), truth)
            posterior = prior.restored(state.transitions, state.rewards).observe(seen)
            with warnings.catch_warnings(action="ignore", category=UbexWarning):  # that exact-ube is clipped, as in the paper
                result = value_variance(
                    posterior,
                    np.full((size + 1, NUM_ACTIONS), 1.0 / NUM_ACTIONS),
                    settings["discount"],
                    estimator="ensemble-var" if cell.method == MANY else cell.method,
                    key=jax.random.fold_in(cell.key(seed), episode),
                    num_models=settings["num_models"],
                )
            variance = np.where(np.arange(episodes) == episode, result.v[0], state.variance)
            state = State(posterior.transitions, posterior.rewards, variance)
            if (episode + 1) % CHECKPOINT_EVERY == 0:
                context.checkpoints.save(episode + 1, state, {"method": cell.method})
        curve = Curve("episode", list(range(1, episodes + 1)), state.variance.tolist())
        final = float(state.variance[-1])
        return {seed: Outcome({"final_variance": final, "mean_variance": float(state.variance.mean())}, {"variance": curve})}

    def smoke(self) -> Shrinkage:
        """Two methods, one size, few episodes."""
        return dataclasses.replace(self, seeds=2, methods=("exact-ube", "pombu"), sizes=(4,), episodes=6, many=50)

    def tables(self, results: pd.DataFrame) -> Sequence[Table]:
        """Mean over seeds of the variance after the last episode."""
        final = results[results["metric"] == "final_variance"]
        mean = final.groupby(["method", "size"])["value"].mean()
        rows = [[method, *(f"{mean[method, size]:.4f}" for size in self.sizes)] for method in self.methods]
        columns = ["method", *(f"{size} states" for size in self.sizes)]
        return [Table(f"Variance after {self.episodes} episodes", columns, rows, "Mean over seeds.")]


class State(NamedTuple):
    """What a stream needs to go on: the posterior and the curve so far."""

    transitions: Dirichlet
    rewards: Normal | NormalGamma
    variance: Float[np.ndarray, " episodes"]


def _entropy(key: jax.Array) -> list[int]:
    entropy: list[int] = np.asarray(jax.random.key_data(key)).tolist()
    return entropy


def _prior(size: int) -> DirichletNormal:
    states = np.arange(size + 1)
    later = states[None, None, :] > states[:size, None, None]
    return DirichletNormal(size, NUM_ACTIONS, terminal=True, support=later, concentration=1.0, noise_precision=1.0)


def _random_rows(generator: np.random.Generator, size: int) -> Float[np.ndarray, "S A T"]:
    p = np.where(_prior(size).transitions.alpha[:size] > 0, generator.gamma(0.5, size=(size, NUM_ACTIONS, size + 1)), 0.0)
    p[..., -1] += 1e-3
    rows: np.ndarray = p / p.sum(axis=-1, keepdims=True)
    return rows


def _explore(generator: np.random.Generator, rows: Float[np.ndarray, "S A T"]) -> Transitions:
    """One episode of a uniformly random policy from the first state until the terminal one."""
    terminal = rows.shape[0]
    steps: list[tuple[int, int, float, int]] = []
    state = 0
    while state != terminal:
        action = int(generator.integers(NUM_ACTIONS))
        after = int(generator.choice(terminal + 1, p=rows[state, action]))
        steps.append((state, action, float(generator.normal(1.0)), after))
        state = after
    return Transitions(*(np.array(column) for column in zip(*steps, strict=True)))
