"""UCBVI: its values by hand, optimism that ends where everything is known, and an agent that explores with it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import ubex
from ubex.tabular import ucbvi
from ubex.tabular.belief import Belief, prior


def seen(times: float) -> Belief:
    """Two states and an end: 0 leads to 1 for nothing, 1 leads to the end for 1 or stays for 0.25; each was tried so often."""
    successors = jnp.array([[[1], [1]], [[2], [1]], [[2], [2]]], jnp.int32)
    counts = jnp.array([[[times], [times]], [[times], [times]], [[0.0], [0.0]]])
    return Belief(successors, counts, jnp.array([[0.0, 0.0], [1.0, 0.25], [0.0, 0.0]]) * times)


def test_values_of_ucbvi_by_hand() -> None:
    """At discount 1/2 nothing is worth more than 2. After four visits the bonus is 0.1 * 2 / 2."""
    with jax.enable_x64(True):
        q, _, settled = ucbvi.values(seen(4.0), 0.1, 0.5)
    leave, stay = 1.1, 0.35 + 0.5 * 1.1
    np.testing.assert_allclose(q, [[0.1 + 0.5 * leave] * 2, [leave, stay], [0.0, 0.0]], atol=1e-8)
    assert settled


def test_what_was_never_tried_is_worth_the_most() -> None:
    with jax.enable_x64(True):
        q, _, _ = ucbvi.values(prior(2, 2, 1), 0.1, 0.9)
        np.testing.assert_allclose(q, [[10.0, 10.0], [10.0, 10.0], [0.0, 0.0]])
        known, _, _ = ucbvi.values(seen(1e12), 1.0, 0.5)
    np.testing.assert_allclose(known[:2], [[0.5, 0.5], [1.0, 0.75]], atol=1e-5)


def test_it_solves_deep_sea() -> None:
    found = ubex.train("deep-sea", "ucbvi", episodes=60, gain=0.005, repeats=5, env_args={"size": 5})
    assert (found.returns[-20:] > 0.5).all()
