"""BEB: its bonus as its paper has it, and an agent that explores with it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import ubex
from ubex.tabular import beb
from ubex.tabular.belief import mean_model, prior, total_mass


def test_the_bonus_is_one_over_one_plus_the_mass_of_the_row() -> None:
    with jax.enable_x64(True):
        belief = prior(2, 2, 1)
        belief = belief._replace(counts=belief.counts.at[0, 1, 0].set(3.0))
        mean = mean_model(belief, jnp.ones((3, 2)), 2.0)
        paid = beb.with_bonus(mean, total_mass(belief, 2.0), 4.0)
    np.testing.assert_allclose(paid.r, [[1 + 4 / 3, 1 + 4 / 6], [1 + 4 / 3, 1 + 4 / 3], [1.0, 1.0]])
    np.testing.assert_array_equal(paid.weights, mean.weights)


def test_it_solves_deep_sea() -> None:
    found = ubex.train("deep-sea", "beb", episodes=60, repeats=5, env_args={"size": 5})
    assert (found.returns[-20:] > 0.5).all()
    greedy = ubex.train("deep-sea", "beb", episodes=60, gain=0.0, repeats=5, env_args={"size": 5})
    assert (greedy.returns < 0.5).all(), "without its bonus it never goes and looks"
