"""Bellman mathematics against NumPy, and moments against explicit enumeration."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import random_ensemble, random_policy

from ubex import MDP
from ubex.tabular import bellman

N, S, A, DISCOUNT = 3, 5, 3, 0.9


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.fixture
def ensemble() -> MDP:
    return jax.tree.map(jnp.asarray, random_ensemble(seed=2, num_models=N, num_states=S, num_actions=A))


STOCHASTIC = random_policy(seed=3, num_states=S, num_actions=A)
ACTIONS = np.array([2, 0, 1, 1, 0])


def reference_values(p: np.ndarray, r: np.ndarray, policy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Q by one big solve over state-action pairs: another route than the one under test."""
    chain = (p[..., None] * policy).reshape(S * A, S * A)
    q = np.linalg.solve(np.eye(S * A) - DISCOUNT * chain, r.reshape(-1)).reshape(S, A)
    return (policy * q).sum(axis=1), q


@pytest.mark.parametrize("policy", [STOCHASTIC, ACTIONS], ids=["stochastic", "deterministic"])
def test_solve_one_and_many(ensemble: MDP, policy: np.ndarray) -> None:
    table = policy if policy.ndim == 2 else np.eye(A)[policy]
    many = bellman.solve(ensemble, jnp.asarray(policy), DISCOUNT)
    for i in range(N):
        v, q = reference_values(np.asarray(ensemble.p[i]), np.asarray(ensemble.r[i]), table)
        np.testing.assert_allclose(many.v[i], v, rtol=1e-12)
        np.testing.assert_allclose(many.q[i], q, rtol=1e-12)
    one = bellman.solve(MDP(ensemble.p[0], ensemble.r[0]), jnp.asarray(policy), DISCOUNT)
    np.testing.assert_allclose(one.q, many.q[0], rtol=1e-13)


def test_deterministic_policies_gather_rows() -> None:
    """No product with a one-hot matrix: the program has a gather and no multiplication of the size of p."""
    p = jnp.asarray(np.random.default_rng(0).dirichlet(np.ones(S), size=(S, A)))
    program = str(jax.make_jaxpr(bellman.policy_rows)(p, jnp.asarray(ACTIONS)))
    assert "gather" in program
    assert " mul " not in program.replace(f"i64[{S}", "").split("gather")[-1]
    np.testing.assert_array_equal(bellman.policy_rows(p, jnp.asarray(ACTIONS)), np.asarray(p)[np.arange(S), ACTIONS])


def test_terminal_states_make_discount_one_solvable() -> None:
    p = jnp.array([[[0.5, 0.5]], [[0.0, 1.0]]])
    r = jnp.array([[1.0], [0.0]])
    values = bellman.solve(MDP(p, r), jnp.array([0, 0]), 1.0, jnp.array([False, True]))
    np.testing.assert_allclose(values.v, [2.0, 0.0], atol=1e-14)  # expected length of a fair coin's run


def test_mean_mdp_over_chunks(ensemble: MDP) -> None:
    chunks = [MDP(ensemble.p[:2], ensemble.r[:2]), MDP(ensemble.p[2:], ensemble.r[2:])]
    mean = bellman.mean_mdp(chunks)
    np.testing.assert_allclose(mean.p, np.asarray(ensemble.p).mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(mean.r, np.asarray(ensemble.r).mean(axis=0), rtol=1e-13)


@pytest.mark.parametrize("policy", [STOCHASTIC, ACTIONS], ids=["stochastic", "deterministic"])
def test_moments_against_enumeration(ensemble: MDP, policy: np.ndarray) -> None:
    table = policy if policy.ndim == 2 else np.eye(A)[policy]
    members = bellman.solve(ensemble, jnp.asarray(policy), DISCOUNT)
    mean = bellman.mean_mdp([ensemble])
    mean_values = bellman.solve(mean, jnp.asarray(policy), DISCOUNT)
    moments = bellman.next_values(ensemble, members, jnp.asarray(mean.p), mean_values, jnp.asarray(policy))
    found = jax.tree.map(np.asarray, moments)

    def enumerated(weights: np.ndarray, x: np.ndarray) -> tuple[float, float]:
        average = float((weights * x).sum())
        return average, float((weights * (x - average) ** 2).sum())

    for i in range(N):
        own_q, mean_q = np.asarray(members.q[i]), np.asarray(mean_values.q)
        own_v, mean_v = np.asarray(members.v[i]), np.asarray(mean_values.v)
        for s in range(S):
            for a in range(A):
                joint = np.asarray(ensemble.p[i, s, a])[:, None] * table
                assert enumerated(joint, mean_q) == pytest.approx((found.q.mean_bar[i, s, a], found.q.var_bar[i, s, a]))
                assert enumerated(joint, own_q)[1] == pytest.approx(found.q.var_member[i, s, a])
                assert enumerated(joint, own_q - mean_q)[1] == pytest.approx(found.q.var_gap[i, s, a])
            row = table[s] @ np.asarray(ensemble.p[i, s])
            assert enumerated(row, mean_v) == pytest.approx((found.v.mean_bar[i, s], found.v.var_bar[i, s]))
            assert enumerated(row, own_v)[1] == pytest.approx(found.v.var_member[i, s])
            assert enumerated(row, own_v - mean_v)[1] == pytest.approx(found.v.var_gap[i, s])
    bar = np.asarray(mean.p)
    for s in range(S):
        row = table[s] @ bar[s]
        assert enumerated(row, np.asarray(mean_values.v))[1] == pytest.approx(found.v.total[s])
        for a in range(A):
            joint = bar[s, a][:, None] * table
            assert enumerated(joint, np.asarray(mean_values.q))[1] == pytest.approx(found.q.total[s, a])
    chi = ((np.asarray(ensemble.p) - bar) ** 2 / bar).sum(axis=-1)
    np.testing.assert_allclose(found.q.chi_square, chi, rtol=1e-12)
    rows, rows_bar = (np.einsum("sa,...sat->...st", table, x) for x in (np.asarray(ensemble.p), bar))
    np.testing.assert_allclose(found.v.chi_square, ((rows - rows_bar) ** 2 / rows_bar).sum(axis=-1), rtol=1e-12)


def test_large_offset_costs_no_digits() -> None:
    """Values near a million that differ by about one: the variance keeps nine digits."""
    p = jnp.asarray(np.random.default_rng(5).dirichlet(np.ones(S), size=(S, A)))
    q = jnp.asarray(np.random.default_rng(6).normal(size=(S, A)))
    policy = jnp.asarray(STOCHASTIC)
    small = bellman.Values(bellman.policy_average(q, policy), q)
    large = bellman.Values(small.v + 1e6, q + 1e6)
    near, far = bellman.row_moments(p, small, policy), bellman.row_moments(p, large, policy)
    np.testing.assert_allclose(far.var_q, near.var_q, rtol=1e-8)
    np.testing.assert_allclose(far.var_v, near.var_v, rtol=1e-8)


def test_impossible_next_states_add_nothing_to_chi_square() -> None:
    p, bar = jnp.array([[[0.0, 0.5, 0.5]]]), jnp.array([[[0.0, 0.4, 0.6]]])
    np.testing.assert_allclose(bellman.chi_square(p, bar), [[0.01 / 0.4 + 0.01 / 0.6]], rtol=1e-12)
