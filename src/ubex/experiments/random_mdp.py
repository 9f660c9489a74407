"""How far each estimator is from the truth on a small random MDP, without and with cycles.

A Dirichlet posterior after some data; the truth is the variance over many samples of it.
"""

from __future__ import annotations

import dataclasses
import functools
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
from ubex.experiments.spec import Cell, Context, Experiment, FigureSpec, Mode, Outcome, Table
from ubex.keys import named
from ubex.tabular.posterior import DirichletNormal
from ubex.types import Key, Transitions

STRUCTURES = ("acyclic", "cyclic")
VARIANCE_METHODS = tuple(name for name in ESTIMATORS if name != "ensemble-mean")


@dataclass(frozen=True)
class RandomMDP(Experiment):
    """Error of every estimator on small random MDPs, against the variance over many posterior samples."""

    name: ClassVar[str] = "random-mdp"
    summary: ClassVar[str] = "error of every estimator on small random MDPs, without and with cycles"
    mode: ClassVar[Mode] = "inline"
    figures: ClassVar[Sequence[FigureSpec]] = (
        FigureSpec(
            "error",
            "Relative error of the variance",
            "bars",
            "median_relative_error",
            "structure",
            "|estimate / truth - 1|, median over states",
            x="structure",
            facet="num_models",
            cap=1.5,
        ),
    )

    methods: tuple[str, ...] = VARIANCE_METHODS
    """Estimators."""
    structures: tuple[str, ...] = STRUCTURES
    """Whether states can be visited again: acyclic, cyclic."""
    num_models: tuple[int, ...] = (5, 100)
    """Posterior samples that an estimator gets."""
    size: int = 8
    """Number of states, without the terminal one."""
    observations: int = 20
    """Transitions seen before the variance is asked for."""
    truth_samples: int = 20_000
    """Posterior samples behind the true variance."""
    discount: float = 0.95
    """Discount factor."""

    def __post_init__(self) -> None:
        """Refuses fields that make no sense."""
        super().__post_init__()
        for method in self.methods:
            estimators.method(method)
        for structure in self.structures:
            checks.one_of("structure", structure, STRUCTURES)
        for number in self.num_models:
            checks.whole("num_models", number, 2)
        checks.whole("size", self.size, 2)
        checks.whole("observations", self.observations, 0)
        checks.whole("truth_samples", self.truth_samples, 2)
        checks.discount_factor(self.discount)

    def cells(self) -> Sequence[Cell]:
        """Structures x ensemble sizes x methods."""
        shared: dict[str, Any] = {
            field: getattr(self, field) for field in ("size", "observations", "truth_samples", "discount")
        }
        return [
            Cell(self.name, "random-mdp", method, {"structure": structure, "num_models": number, **shared})
            for structure in self.structures
            for number in self.num_models
            for method in self.methods
        ]

    def run(self, cell: Cell, seeds: Sequence[int], context: Context) -> Mapping[int, Outcome]:
        """Median relative error and mean bias of the variance over states. All methods see the same problems."""
        settings: Mapping[str, Any] = cell.settings
        outcomes = {}
        for done, seed in enumerate(seeds):
            context.progress(done, len(seeds), "problem")
            problem = Problem(settings["structure"], settings["size"], settings["observations"], settings["discount"], seed)
            truth = problem.variance("ensemble-var", "truth", settings["truth_samples"])
            guess = problem.variance(cell.method, "samples", settings["num_models"])
            relative = guess / truth - 1.0
            error, bias = float(np.median(np.abs(relative))), float(np.mean(relative))
            outcomes[seed] = Outcome({"median_relative_error": error, "mean_relative_bias": bias})
        return outcomes

    def smoke(self) -> RandomMDP:
        """Two methods, one ensemble size, one seed, few samples."""
        return dataclasses.replace(self, seeds=1, methods=("exact-ube", "pombu"), num_models=(5,), size=4, truth_samples=200)

    def tables(self, results: pd.DataFrame) -> Sequence[Table]:
        """Mean over seeds of the median relative error."""
        errors = results[results["metric"] == "median_relative_error"]
        mean = errors.groupby(["method", "structure", "num_models"])["value"].mean()
        settings = [(structure, number) for structure in self.structures for number in self.num_models]
        rows = [[method, *(f"{mean[method, s, n]:.1%}" for s, n in settings)] for method in self.methods]
        columns = ["method", *(f"{structure}, N = {number}" for structure, number in settings)]
        note = "Median over states of |estimate / truth - 1|, mean over seeds. The exact equation needs acyclic MDPs."
        return [Table("Relative error of the variance on small random MDPs", columns, rows, note)]


class Problem(NamedTuple):
    """One random posterior and the uniform policy in it."""

    structure: str
    size: int
    observations: int
    discount: float
    seed: int

    @functools.lru_cache(maxsize=64)  # noqa: B019  (a value, not an instance with a life of its own)
    def variance(self, estimator: str, stream: str, num_models: int) -> Float[np.ndarray, " S"]:
        """Variance of the state values but the terminal one; cached, because all methods are held against the same truth."""
        key = named(jax.random.fold_in(jax.random.key(0), self.seed), f"{self.structure}-{self.size}")
        posterior = random_posterior(key, self.structure, self.size, self.observations)
        policy = np.full((posterior.num_states, posterior.num_actions), 1.0 / posterior.num_actions)
        result = value_variance(
            posterior,
            policy,
            self.discount,
            estimator=estimator,
            key=named(key, stream),
            num_models=num_models,
            u_min=-np.inf,
        )
        return result.v[:-1]


def random_posterior(key: Key, structure: str, size: int, observations: int) -> DirichletNormal:
    """A Dirichlet/Normal posterior after random data; acyclic means that states only lead to later ones."""
    states = np.arange(size + 1)
    support = states[None, None, :] > states[:size, None, None] if structure == "acyclic" else None
    num_actions = 2
    posterior = DirichletNormal(size, num_actions, terminal=True, support=support, concentration=1.0, noise_precision=1.0)
    generator = np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist())
    possible = posterior.transitions.alpha[:size] > 0
    p = np.where(possible, generator.gamma(0.5, size=possible.shape), 0.0)
    p[..., -1] += 0.05  # every state can end the episode
    p /= p.sum(axis=-1, keepdims=True)
    state = generator.integers(size, size=observations)
    action = generator.integers(num_actions, size=observations)
    next_state = np.array([generator.choice(size + 1, p=p[s, a]) for s, a in zip(state, action, strict=True)], dtype=int)
    return posterior.observe(Transitions(state, action, generator.normal(size=observations), next_state))
