"""The policy of discrete actions against sums that are written out."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from deep.tiny import config
from ubex.deep import categorical
from ubex.deep.networks import MLP

KEY = jax.random.key(0)
LOGITS = np.array([1.0, -0.5, 0.2], np.float32)
VALUES = np.array([2.0, 5.0, -1.0], np.float32)
NOTHING = jnp.zeros((4, 0))


def constant(logits: jax.Array | np.ndarray) -> MLP:
    """A policy that is the same everywhere."""
    return MLP((jnp.zeros((2, len(logits))),), (jnp.asarray(logits),), jnp.tanh)


def by_action(observation: jax.Array, action: jax.Array) -> jax.Array:
    return jnp.sum(action * jnp.asarray(VALUES)[None], axis=-1) + observation[:, 0]


def test_expectations_are_sums_over_all_actions() -> None:
    observation = jnp.arange(8.0).reshape(4, 2)
    average, log_prob = categorical.expected(constant(LOGITS), observation, NOTHING, by_action)
    probability = special.softmax(LOGITS)
    np.testing.assert_allclose(average, probability @ VALUES + np.arange(0.0, 8.0, 2.0), rtol=1e-6)
    np.testing.assert_allclose(log_prob, np.full(4, probability @ np.log(probability)), rtol=1e-6)


@pytest.mark.parametrize("alpha", [0.0, 0.7])
def test_the_slope_of_the_actors_loss_is_that_of_the_sum(alpha: float) -> None:
    """d/dlogit_k of sum pi (alpha log pi - Q) is pi_k times what action k has above the average."""

    def loss(logits: jax.Array) -> jax.Array:
        average, log_prob = categorical.expected(constant(logits), jnp.zeros((4, 2)), NOTHING, by_action)
        return jnp.mean(alpha * log_prob - average)

    probability = special.softmax(LOGITS.astype(np.float64))
    cost = alpha * np.log(probability) - VALUES
    np.testing.assert_allclose(jax.grad(loss)(jnp.asarray(LOGITS)), probability * (cost - probability @ cost), atol=1e-5)
    if alpha:  # the best policy is softmax(Q / alpha): more random where alpha is larger
        np.testing.assert_allclose(jax.grad(loss)(jnp.asarray(VALUES / alpha)), 0.0, atol=1e-5)


def test_actions_come_with_probabilities_and_exact_moments() -> None:
    at = categorical.actions(constant(LOGITS), jnp.zeros((4, 2)), NOTHING)
    probability, values = special.softmax(LOGITS), jnp.broadcast_to(jnp.asarray(VALUES), (4, 3))
    np.testing.assert_array_equal(at.action, np.broadcast_to(np.eye(3), (4, 3, 3)))
    mean = probability @ VALUES
    np.testing.assert_allclose(at.mean(values), np.full(4, mean), rtol=1e-6)
    np.testing.assert_allclose(at.variance(values), np.full(4, probability @ (VALUES - mean) ** 2), rtol=1e-6)


def test_over_drawn_states_the_variance_has_no_bias() -> None:
    """Values are 3 s + Q(a) with s of variance 1: on average over many draws of two states each it is 9 + Var[Q]."""
    states = jax.random.normal(KEY, (20_000, 2))
    at = categorical.actions(constant(LOGITS), jnp.zeros((20_000, 2, 2)), NOTHING)
    probability = special.softmax(LOGITS)
    values = 3.0 * states[..., None] + jnp.asarray(VALUES)[None, None]
    truth = 9.0 + probability @ (VALUES - probability @ VALUES) ** 2
    assert float(jnp.mean(at.variance_over_states(values))) == pytest.approx(truth, rel=0.03)


def test_actions_are_drawn_as_often_as_they_are_likely() -> None:
    drawn = categorical.draw(constant(LOGITS), jnp.zeros((20_000, 2)), KEY)
    np.testing.assert_allclose(jnp.mean(drawn, axis=0), special.softmax(LOGITS), atol=0.01)
    np.testing.assert_array_equal(jnp.sum(drawn, axis=-1), 1.0)
    np.testing.assert_array_equal(categorical.mode(constant(LOGITS), jnp.zeros((1, 2))), [[1.0, 0.0, 0.0]])


def test_an_untrained_policy_takes_all_actions_about_equally_often() -> None:
    network = categorical.init(KEY, 3, 4, (8,))
    seen = 100.0 * jax.random.normal(KEY, (50, 3))
    np.testing.assert_allclose(jax.nn.softmax(network(seen)), 0.25, atol=0.02)


def test_the_entropy_that_is_aimed_at_is_a_share_of_the_largest() -> None:
    assert categorical.usual_entropy(config(entropy_share=0.5), 4) == pytest.approx(np.log(2.0))
    least, most = categorical.entropy_bounds(jnp.asarray(0.1), 4)
    np.testing.assert_allclose((least, most), (0.0, 0.1 * np.log(4.0)), rtol=1e-6)
