from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from ubex.deep import actor
from ubex.deep.actor import Gaussian


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (0.7, -1.0), (-2.0, 0.5)])
def test_the_density_of_the_squashed_gaussian_integrates_to_one(mean: float, log_std: float) -> None:
    at = Gaussian(jnp.asarray([mean], jnp.float32), jnp.asarray([log_std], jnp.float32))

    @jax.jit
    def density(noise: jax.Array) -> tuple[jax.Array, jax.Array]:
        sampled = actor.squash(at, noise)
        return sampled.action[0], jnp.exp(sampled.log_prob)

    noise = jnp.linspace(-6.0, 6.0, 4001)
    action, height = (np.asarray(x, np.float64) for x in jax.vmap(density)(noise[:, None]))
    assert integrate.trapezoid(height, action) == pytest.approx(1.0, abs=2e-3)
    inside = np.abs(action) < 0.999
    raw = np.arctanh(action[inside])
    expected = stats.norm(mean, np.exp(log_std)).logpdf(raw) - np.log1p(-(action[inside] ** 2))
    np.testing.assert_allclose(np.log(height[inside]), expected, atol=5e-3)


def test_saturated_actions_have_a_finite_density_and_slope() -> None:
    def log_prob(mean: jax.Array) -> jax.Array:
        return actor.squash(Gaussian(mean, jnp.zeros(1)), jnp.ones(1)).log_prob

    value, slope = jax.value_and_grad(log_prob)(jnp.asarray([60.0]))
    assert np.isfinite(value)
    assert float(slope[0]) == pytest.approx(2.0, abs=1e-3)  # - log(1 - tanh^2) grows by 2 for each unit


def test_a_floor_leaves_saturated_actions_where_they_are() -> None:
    """As published: the density's logarithm is log(1 - tanh^2 + 1e-6) away from the Gaussian's, at least -13.8."""

    def log_prob(mean: jax.Array, floor: float) -> jax.Array:
        return actor.squash(Gaussian(mean, jnp.zeros(1)), jnp.zeros(1), floor).log_prob

    normal = -0.5 * np.log(2.0 * np.pi)
    for mean in (0.3, 2.0, 60.0):
        expected = normal - np.log(1.0 - np.tanh(mean) ** 2 + 1e-6)
        value, slope = jax.value_and_grad(log_prob)(jnp.asarray([mean]), 1e-6)
        assert float(value) == pytest.approx(expected, rel=1e-4)
    assert float(slope[0]) == pytest.approx(0.0, abs=1e-3)
    assert float(log_prob(jnp.asarray([60.0]), 1e-6)) == pytest.approx(normal + 13.8155, abs=1e-3)


def test_mean_and_deviation_are_two_layers_orthogonal_each_by_itself() -> None:
    last = np.asarray(actor.init(jax.random.key(0), 3, 2, (8,)).weights[-1])
    for layer in (last[:, :2], last[:, 2:]):
        np.testing.assert_allclose(layer.T @ layer, np.eye(2), atol=1e-5)
    assert np.abs(last[:, :2].T @ last[:, 2:]).max() > 0.05, "not orthogonal to each other"


def test_several_actions_are_single_actions_with_that_noise() -> None:
    network = actor.init(jax.random.key(0), 3, 2, (8,))
    observation, noise = jax.random.normal(jax.random.key(1), (5, 3)), jax.random.normal(jax.random.key(2), (5, 4, 2))
    at = actor.gaussian(network, observation)
    several = actor.several(at, noise)
    for k in range(4):
        np.testing.assert_allclose(several[:, k], actor.squash(at, noise[:, k]).action, atol=1e-6)


def test_actions_reach_the_bounds_of_the_environment() -> None:
    scaled = actor.to_environment(jnp.asarray([[-1.0, -1.0], [1.0, 0.0]]), (-2.0, 0.0), (2.0, 3.0))
    np.testing.assert_allclose(scaled, [[-2.0, 0.0], [2.0, 1.5]])


@pytest.mark.parametrize(("log_prob", "sign"), [(3.0, -1.0), (-3.0, 1.0)])
def test_the_temperature_rises_where_the_policy_is_too_sure(log_prob: float, sign: float) -> None:
    slope = jax.grad(actor.temperature_loss)(jnp.asarray(0.0), jnp.full(4, log_prob), -1.0)
    assert np.sign(slope) == sign  # descent moves against the slope
