"""What the assumptions forbid is seen."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from worlds import random_ensemble

import ubex
from ubex.envs import toy
from ubex.tabular import assumptions


def values(samples: object, discount: float = 1.0) -> np.ndarray:
    p, r = np.asarray(samples.p), np.asarray(samples.r)
    v = np.zeros(r.shape[:2])
    for _ in range(p.shape[1]):
        v = (r + discount * np.einsum("nsat,nt->nsa", p, v))[:, :, 0]
    return v


def test_cycles_are_seen() -> None:
    assert assumptions.visits_no_state_twice(np.asarray(toy.posterior_samples().p))
    assert not assumptions.visits_no_state_twice(np.asarray(random_ensemble(0, 2, 3, 1).p))
    stays = np.zeros((1, 2, 1, 2))
    stays[0, 0, 0] = [0.5, 0.5]  # a state that may stay where it is
    stays[0, 1, 0] = [0.0, 1.0]
    assert not assumptions.visits_no_state_twice(stays)


def test_an_absorbing_state_counts_where_its_reward_is_unknown() -> None:
    """The same unknown reward is met again in every step: the variance is 1 / (1 - discount)^2, not 1 / (1 - discount^2)."""
    p = np.zeros((2, 2, 1, 2))
    p[:, :, 0, 1] = 1.0
    r = np.array([[[0.0], [-1.0]], [[0.0], [1.0]]])
    assert assumptions.visits_no_state_twice(p, r[:1].repeat(2, axis=0))
    assert not assumptions.visits_no_state_twice(p, r)
    with pytest.warns(ubex.UbexWarning, match="exact-ube assumes that no state is visited twice, but one can be"):
        ubex.value_variance(ubex.MDP(p, r), [0, 0], 0.9, estimator="exact-ube")
    np.testing.assert_allclose(ubex.value_variance(ubex.MDP(p, r), [0, 0], 0.9).v, [81.0, 100.0])


def test_ways_end_where_every_state_is_a_strong_component_of_its_own() -> None:
    rng = np.random.default_rng(0)
    ended = 0
    for _ in range(300):
        size = int(rng.integers(2, 8))
        edges = (rng.random((size, size)) < 0.25) & ~np.eye(size, dtype=bool)
        number, _ = connected_components(csr_array(edges), directed=True, connection="strong")
        assert assumptions.every_way_ends(edges) == (number == size)
        ended += int(number == size)
    assert 50 < ended < 250


def test_dependent_rows_give_a_covariance() -> None:
    policy = np.zeros(5, dtype=np.int32)
    for correlated, expected in ((False, 0.0), (True, 0.05 * 5.0)):
        samples = toy.posterior_samples(correlated)
        v = values(samples)
        with jax.enable_x64(True):
            arguments = jnp.asarray(samples.p), jnp.asarray(v)
            covariance = assumptions.transition_value_covariance(*arguments)
            residual = assumptions.uncorrelated_residual(*arguments, jnp.asarray(policy))
        np.testing.assert_allclose(covariance[0, 0, 2], expected, atol=1e-12)  # Cov[delta, 100 beta]
        np.testing.assert_allclose(residual[0], expected, atol=1e-12)


def test_variance_decomposition_needs_no_assumption() -> None:
    samples = toy.posterior_samples(correlated=True)
    v = values(samples)
    with jax.enable_x64(True):
        found = assumptions.variance_decomposition(
            jnp.asarray(samples.p), jnp.asarray(v), jnp.zeros(5, jnp.int32), toy.DISCOUNT
        )
    np.testing.assert_allclose(found, v.var(axis=0), atol=1e-10)
