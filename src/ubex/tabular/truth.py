"""The true variance of values by brute force, with its own error, and how far the paper's assumptions fail on the same samples.

Many posterior samples, each evaluated exactly. With a deterministic policy only the rows of its actions are drawn: the others
have no part in the values.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ubex import checks
from ubex.keys import as_key
from ubex.precision import float64
from ubex.tabular.assumptions import uncorrelated_residual
from ubex.tabular.posterior import Dirichlet, TabularPosterior
from ubex.types import KeyLike

CHUNK_ENTRIES = 2_000_000
"""Transition probabilities that are drawn, or matrix entries that are factorised, at once: 16 MB."""

PolicyArray = Float[np.ndarray, "S A"] | Int[np.ndarray, " S"]


class Chains(NamedTuple):
    """The Markov chains that a policy makes of posterior samples."""

    p: Float[np.ndarray, "N S S"]
    r: Float[np.ndarray, "N S"]


class Truth(NamedTuple):
    """Values of every sample, and their variance with its Monte-Carlo error."""

    values: Float[np.ndarray, "N S"]
    variance: Float[np.ndarray, " S"]
    standard_error: Float[np.ndarray, " S"]
    """Of the variance: sqrt((fourth central moment - variance^2) / N)."""


def sample_chains(posterior: TabularPosterior, policy: PolicyArray, key: KeyLike, num_samples: int) -> Chains:
    """Draws chains, one chunk of MDPs at a time."""
    num_samples = checks.whole("num_samples", num_samples, 2)
    if policy.ndim == 1:
        posterior, policy = only(posterior, policy), np.ones((posterior.num_states, 1))
    sizes = posterior.transitions.alpha.size
    number = -(-num_samples // max(1, CHUNK_ENTRIES // sizes))
    size = -(-num_samples // number)  # chunks of one size, so that one program draws them all
    checks.fits("the true variance's samples", (num_samples, posterior.num_states, posterior.num_states))
    parts = []
    for index in range(number):
        samples = posterior.sample(jax.random.fold_in(as_key(key), index), size)
        p, r = np.asarray(samples.p), np.asarray(samples.r)
        parts.append((np.einsum("sa,nsat->nst", policy, p), np.einsum("sa,nsa->ns", policy, r)))
    return Chains(*(np.concatenate(part)[:num_samples] for part in zip(*parts, strict=True)))


def only(posterior: TabularPosterior, actions: Int[np.ndarray, " S"]) -> TabularPosterior:
    """The posterior of the chosen actions alone, as one with a single action."""
    states = np.arange(posterior.num_states)
    rewards = posterior.rewards
    tables = {name: x[states, actions][:, None] for name, x in rewards._asdict().items() if isinstance(x, np.ndarray)}
    transitions = Dirichlet(posterior.transitions.alpha[states, actions][:, None])
    return posterior.restored(transitions, rewards._replace(**tables))


def brute_force(chains: Chains, discount: float) -> Truth:
    """The values of every chain by one solve each, and their variance."""
    num_samples, num_states = chains.r.shape
    size = max(1, CHUNK_ENTRIES // num_states**2)
    identity = np.eye(num_states)[None]
    values = np.concatenate(
        [
            np.linalg.solve(identity - discount * chains.p[i : i + size], chains.r[i : i + size, :, None])[..., 0]
            for i in range(0, num_samples, size)
        ]
    )
    squares = (values - values.mean(axis=0)) ** 2
    return Truth(values, squares.mean(axis=0), squares.std(axis=0) / num_samples**0.5)


@float64
def coupling(chains: Chains, truth: Truth, discount: float) -> Float[np.ndarray, " S"]:
    """How far rows and values depend on each other: discount |sum_t Cov[p(t), V(t)]| over the standard deviation of V.

    0 where a row leads to values that do not depend on it (Lemma uncorrelated_property), up to Monte-Carlo error.
    """
    policy: Int[Array, " S"] = jnp.zeros(truth.variance.shape, jnp.int32)
    residual = uncorrelated_residual(jnp.asarray(chains.p)[:, :, None], jnp.asarray(truth.values), policy)
    spread = np.sqrt(truth.variance)
    known: Float[np.ndarray, " S"] = np.where(spread > 0.0, spread, 1.0)
    return np.where(spread > 0.0, discount * np.abs(np.asarray(residual)) / known, 0.0)
