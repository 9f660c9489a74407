"""Solvers without a factorisation, against one."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ubex.tabular import solvers

DISCOUNT = 0.99


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def flat_chain(seed: int, size: int, acyclic: bool, data: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Successors, weights and shares of a mean MDP under a policy; the last state is absorbing."""
    generator = np.random.default_rng(seed)
    low = np.arange(size) + 1 if acyclic else np.zeros(size, int)
    successor = np.append(
        np.array([generator.integers(low[s], size) if low[s] < size else size - 1 for s in range(size - 1)]), size - 1
    )
    counts = np.where(generator.random(size) < 0.5, generator.gamma(1.0, data, size=size), 0.0)
    prior = size / np.sqrt(size - 1)
    weight, share = counts / (counts + prior), 1 / np.sqrt(size - 1) / (counts + prior)
    weight[-1], share[-1] = 1.0, 0.0
    return successor.astype(np.int32), weight, share


def matrix(successor: np.ndarray, weight: np.ndarray, share: np.ndarray) -> np.ndarray:
    p = np.repeat(share[:, None], len(share), axis=1)
    p[np.arange(len(share)), successor] += weight
    return p


@pytest.mark.parametrize("acyclic", [True, False])
@pytest.mark.parametrize("data", [0.0, 3.0, 1e6])
def test_mean_solver(acyclic: bool, data: float) -> None:
    for seed in range(5):
        chain = flat_chain(seed, 60, acyclic, data)
        p = matrix(*chain)
        np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
        b = np.random.default_rng(seed).normal(size=(3, 60))
        solver = solvers.mean_solver(*map(jnp.asarray, chain), DISCOUNT)
        expected = np.linalg.solve(np.eye(60) - DISCOUNT * p, b.T).T
        found = np.asarray(solver.solve(jnp.asarray(b)))
        np.testing.assert_allclose(found, expected, atol=1e-9 * np.abs(expected).max())


def members(seed: int, size: int, data: float) -> tuple[solvers.MeanSolver, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    chain = flat_chain(seed, size, False, data)
    p = np.stack([[generator.dirichlet(1e-3 + 30 * row) for row in matrix(*chain)] for _ in range(4)])
    p[:, -1] = np.eye(size)[-1]
    r = generator.normal(size=(4, size))
    r[:, -1] = 0.0
    return solvers.mean_solver(*map(jnp.asarray, chain), DISCOUNT), p, r


@pytest.mark.parametrize("data", [0.0, 30.0])
def test_member_solver(data: float) -> None:
    for seed in range(5):
        solver, p, r = members(seed, 50, data)
        found = solvers.member_solve(solver, jnp.asarray(p), jnp.asarray(r), DISCOUNT)
        expected = np.linalg.solve(np.eye(50) - DISCOUNT * p, r[:, :, None])[:, :, 0]
        np.testing.assert_allclose(found.v, expected, atol=1e-9 * np.abs(expected).max())
        assert 0 < int(found.corrections) < solvers.MAX_CORRECTIONS


def test_a_member_far_from_the_mean_is_factorised() -> None:
    """Every state stays where it is, in a mean MDP that knows nothing: the corrections do not converge."""
    solver, _, r = members(0, 50, 0.0)
    p = np.eye(50)[None].repeat(4, axis=0)
    found = solvers.member_solve(solver, jnp.asarray(p), jnp.asarray(r), DISCOUNT)
    assert int(found.corrections) == solvers.MAX_CORRECTIONS
    np.testing.assert_allclose(found.v, r / (1 - DISCOUNT), rtol=1e-9)
