"""Products of G with itself by following successors, against the matrix."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ubex.tabular import roots

DISCOUNT, STATES = 0.9, 12


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def rows(successor: list[int] | np.ndarray, weight: np.ndarray) -> tuple[roots.Rows, np.ndarray]:
    """Rows of a policy, the last of which is absorbing, and their matrix."""
    states = len(successor)
    weight = np.append(weight[:-1], 1.0)
    share = (1.0 - weight) / states
    p = np.repeat(share[:, None], states, axis=1)
    p[np.arange(states), successor] += weight
    return roots.Rows(jnp.asarray(successor, jnp.int32), jnp.asarray(weight), jnp.asarray(share)), p


def cases() -> list[tuple[roots.Rows, np.ndarray]]:
    """Chains, cycles with ways into them, states that lead to themselves, and states of which nothing is known."""
    random = np.random.default_rng(0)
    found = []
    for kind in range(12):
        successor = random.integers(STATES, size=STATES)
        if kind % 3 == 0:
            successor = np.minimum(np.arange(STATES) + 1, STATES - 1)
        if kind % 3 == 1:
            successor = np.roll(np.arange(STATES), -1)
        successor[-1] = STATES - 1
        weight = random.random(STATES) * (random.random(STATES) < (0.9 if kind % 2 else 1.0))
        found.append(rows(successor, weight))
    found.append(rows([1, 0, 2, 2, 4, 5, 3, 7, 10, 11, 4, 11], np.full(STATES, 0.999)))
    found.append(rows(np.arange(STATES), np.zeros(STATES)))
    return found


root_of = jax.jit(roots.root_of, static_argnames="discount")
times, row, again, sums_of, squared, rows_squared = (
    jax.jit(getattr(roots.Root, name)) for name in ("times", "row", "again", "sums", "squared", "rows_squared")
)


@pytest.mark.parametrize("discount", [0.0, DISCOUNT, 0.999])
def test_it_is_the_inverse(discount: float) -> None:
    for known, p in cases():
        inverse = np.linalg.inv(np.eye(len(p)) - discount * p)
        root, x = root_of(known, discount), np.random.default_rng(1).normal(size=len(p))
        np.testing.assert_allclose(times(root, jnp.asarray(x)), inverse @ x, rtol=1e-9, atol=1e-9)
        for state in range(len(p)):
            np.testing.assert_allclose(row(root, state), inverse[state], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(again(root)[:-1], np.diag(inverse)[:-1] - 1.0, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("discount", [0.0, DISCOUNT, 0.999])
def test_its_squares(discount: float) -> None:
    random = np.random.default_rng(2)
    for known, p in cases():
        inverse = np.linalg.inv(np.eye(STATES) - discount * p)
        root, x = root_of(known, discount), random.random(STATES)
        sums = sums_of(root, jnp.asarray(x))
        np.testing.assert_allclose(squared(root, sums), inverse**2 @ x, rtol=1e-9)
        weight = random.random((5, 3))
        successor = random.integers(STATES, size=weight.shape)
        table = np.repeat(((1.0 - weight) / STATES)[..., None], STATES, axis=-1)
        np.put_along_axis(table, successor[..., None], weight[..., None] + table[..., :1], axis=-1)
        these = roots.Rows(jnp.asarray(successor), jnp.asarray(weight), jnp.asarray((1.0 - weight) / STATES))
        np.testing.assert_allclose(rows_squared(root, sums, these), (table @ inverse) ** 2 @ x, rtol=1e-9)


def test_around_cycles() -> None:
    """Of three states and of one; three more lead into the first or to the end, which counts as none."""
    successor = jnp.asarray([1, 2, 0, 0, 3, 5, 7, 7], jnp.int32)
    factor = jnp.asarray([0.5, 0.4, 0.3, 0.9, 0.9, 0.7, 0.8, 0.9])
    np.testing.assert_allclose(roots.around_cycles(successor, factor), [0.06, 0.06, 0.06, 0.0, 0.0, 0.7, 0.0, 0.0])
    np.testing.assert_array_equal(roots.around_cycles(jnp.asarray([1, 0, 2], jnp.int32), jnp.asarray([0.5, 0.0, 1.0])), 0.0)
