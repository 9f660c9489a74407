"""What `calibration` says of one estimate: the truth it is held against, and every number that comes of it."""

from __future__ import annotations

import functools
import math
import time
import warnings
from collections.abc import Mapping
from typing import NamedTuple

import jax
import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from ubex.calls import ValueVariance, value_covariance, value_variance
from ubex.experiments import calibration_cases as cases
from ubex.experiments.calibration_cases import Case
from ubex.keys import named
from ubex.tabular import truth
from ubex.tabular.posterior import DirichletNormal
from ubex.types import MDP, Key, KeyLike, Posterior, UbexWarning

NO_SAMPLES = 0
"""`num_models` of estimators that need none."""
LARGE, FEWER = 30, 5
"""Above this number of states the truth has fewer samples, by this factor."""
NEGLIGIBLE = 1e-6
"""States whose true variance is below this share of the largest one are left out: their value is known."""
FORGOTTEN = 1e-3
"""The horizon of the unrolled solution is where the discount has come down to this."""
SEEDS_KEPT = 3
"""Seeds whose problems stay in memory, because the next cell asks for them again; a truth's samples take about 100 MB."""
WIDTH = 2.0
"""Coverage is of the mean plus and minus this many standard deviations."""

ERROR, VIOLATION, UNROLLED = "median_relative_error", "violation", "unrolled_difference"


class Problem(NamedTuple):
    """One posterior by what it is made from; what is slow to make is kept for the next cells, which ask for it again."""

    kind: str
    data: float
    size: int
    rooms: int
    truth_samples: int
    seed: int

    def key(self, stream: str) -> Key:
        """A random key; samples of estimators and of the truth are independent."""
        name = f"calibration-{self.kind}-{self.data:g}-{self.size}-{self.rooms}"
        return named(named(jax.random.fold_in(jax.random.key(0), self.seed), name), stream)


class Drawn(NamedTuple):
    """A posterior whose samples have been drawn already, with its own mean."""

    samples: MDP
    average: MDP

    def sample(self, key: KeyLike, num_models: int) -> MDP:
        """The samples, whatever the key."""
        del key, num_models
        return self.samples

    def mean(self) -> MDP:
        """The posterior-mean MDP."""
        return self.average


class Reference(NamedTuple):
    """The truth of a case, on the states that have any uncertainty."""

    states: Int[np.ndarray, " K"]
    """Indices of the states that count."""
    values: Float[np.ndarray, "N K"]
    variance: Float[np.ndarray, " K"]
    scalars: Mapping[str, float]
    """What is said of the case itself."""


@functools.lru_cache(maxsize=SEEDS_KEPT)
def case_of(problem: Problem) -> Case:
    """The posterior and the policy."""
    entropy = np.asarray(jax.random.key_data(problem.key("world"))).tolist()
    return cases.make(problem.kind, problem.data, problem.size, problem.rooms, np.random.default_rng(entropy))


@functools.lru_cache(maxsize=SEEDS_KEPT)
def chains_of(problem: Problem) -> truth.Chains:
    """The samples behind the truth; all discounts share them."""
    posterior, policy = case_of(problem)
    number = problem.truth_samples // (FEWER if posterior.num_states > LARGE else 1)
    return truth.sample_chains(posterior, policy, problem.key("truth"), number)


@functools.lru_cache(maxsize=4 * SEEDS_KEPT)
def samples_of(problem: Problem, num_models: int) -> tuple[Drawn, float]:
    """The samples of the estimators, and the seconds that drawing them took; all methods and discounts share them."""
    posterior = case_of(problem).posterior
    key = jax.random.fold_in(problem.key("samples"), num_models)
    posterior.sample(key, num_models)  # compiles
    start = time.perf_counter()
    samples = posterior.sample(key, num_models)
    return Drawn(samples, posterior.mean()), time.perf_counter() - start


@functools.lru_cache(maxsize=SEEDS_KEPT)
def reference(problem: Problem, discount: float) -> Reference:
    """The truth, its error, and how far the assumptions fail."""
    posterior, policy = case_of(problem)
    chains = chains_of(problem)
    found = truth.brute_force(chains, discount)
    states = np.flatnonzero(found.variance > NEGLIGIBLE * found.variance.max())
    error = (found.standard_error / np.where(found.variance > 0, found.variance, 1.0))[states]
    coupling = truth.coupling(chains, found, discount)[states]
    horizon = math.ceil(math.log(FORGOTTEN) / math.log(discount))
    stationary = value_covariance(posterior, policy, discount)
    unrolled = value_variance(posterior, policy, discount, estimator="closed-form", horizon=horizon).v[states]
    change = np.abs(unrolled / np.diag(stationary.covariance)[states] - 1.0)
    scalars = {
        "truth_error": float(np.median(error)),
        "truth_worst_error": float(error.max()),
        VIOLATION: float(np.median(coupling)),
        UNROLLED: float(np.median(change)),
        "converged": float(stationary.converged),
    }
    return Reference(states, found.values[:, states], found.variance[states], scalars)


def estimate(case: Case, source: Posterior, method: str, discount: float) -> ValueVariance:
    """One estimate, unclipped: a clip would hide where the equation goes wrong, and how far it does is what is asked here."""
    with warnings.catch_warnings(action="ignore", category=UbexWarning):
        return value_variance(source, case.policy, discount, estimator=method, key=0, u_min=-np.inf)


@functools.lru_cache(maxsize=512)
def compiled(method: str, num_models: int, num_states: int, num_actions: int, deterministic: bool) -> None:
    """Calls a method once on something of that shape, so that no measured time has compilation in it."""
    shape = (num_states, num_actions)
    policy = np.zeros(num_states, np.int32) if deterministic else np.full(shape, 1.0 / num_actions)
    flat = DirichletNormal(num_states, num_actions)
    p = np.full((max(num_models, 1), *shape, num_states), 1.0 / num_states)
    source = flat if num_models == NO_SAMPLES else Drawn(MDP(p, np.zeros(p.shape[:-1])), flat.mean())
    estimate(Case(flat, policy), source, method, 0.5)


def score(problem: Problem, method: str, num_models: int, discount: float) -> dict[str, float]:
    """Everything that is said of one estimate."""
    case, known = case_of(problem), reference(problem, discount)
    source, seconds = (case.posterior, 0.0) if num_models == NO_SAMPLES else samples_of(problem, num_models)
    compiled(method, num_models, case.posterior.num_states, case.posterior.num_actions, case.policy.ndim == 1)
    start = time.perf_counter()
    found = estimate(case, source, method, discount)
    seconds += time.perf_counter() - start
    return {
        **agreement(found.v[known.states], known.variance),
        "coverage": coverage(found.v_mean[known.states], found.v[known.states], known.values),
        "seconds": seconds,
        **known.scalars,
    }


def agreement(guess: Float[np.ndarray, " K"], variance: Float[np.ndarray, " K"]) -> dict[str, float]:
    """Bias, median and worst relative error over states, and the rank correlation: 0 where an estimate ranks nothing."""
    relative = guess / variance - 1.0
    ranks = [pd.Series(x).rank().to_numpy() for x in (guess, variance)]
    ranked = all(np.ptp(rank) > 0 for rank in ranks)
    return {
        ERROR: float(np.median(np.abs(relative))),
        "worst_relative_error": float(np.abs(relative).max()),
        "mean_relative_bias": float(relative.mean()),
        "rank_correlation": float(np.corrcoef(ranks[0], ranks[1])[0, 1]) if ranked else 0.0,
    }


def coverage(mean: Float[np.ndarray, " K"], variance: Float[np.ndarray, " K"], values: Float[np.ndarray, "N K"]) -> float:
    """Share of true values within two standard deviations of the mean; a negative variance covers nothing."""
    width = WIDTH * np.sqrt(np.maximum(variance, 0.0))
    return float(np.mean(np.abs(values - mean) <= np.where(variance >= 0.0, width, -1.0)))
