from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deep.tiny import config, constant_critics
from ubex.deep import agents
from ubex.deep.networks import MLP


@pytest.mark.parametrize(
    ("method", "levels", "optimistic"),
    [("mbpo", [3.0, 1.0], 1.0), ("ensemble-mean", [3.0, 1.0], 2.0), ("ensemble-var", [3.0, 1.0], 2.0 + 2.0 * np.sqrt(2.0))],
)
def test_what_the_actor_climbs(method: str, levels: list[float], optimistic: float) -> None:
    settings = config(method=method, gain=2.0, critic_hidden=())
    held = agents.opinion(settings, constant_critics(levels), jnp.zeros((4, 2)), jnp.zeros((4, 1)))
    np.testing.assert_allclose(held.optimistic, optimistic, rtol=1e-6)


def test_of_several_critics_of_a_model_the_smallest_is_its_value() -> None:
    """The first critics of both models say 3 and 9, the second ones 5 and 1: values of 3 and 1."""
    settings = config(method="ensemble-var", num_models=2, critics_per_model=2, gain=2.0, critic_hidden=())
    held = agents.opinion(settings, constant_critics([3.0, 9.0, 5.0, 1.0]), jnp.zeros((4, 2)), jnp.zeros((4, 1)))
    np.testing.assert_allclose(held.mean, 2.0, rtol=1e-6)
    np.testing.assert_allclose(held.critic_variance, 2.0, rtol=1e-6)
    np.testing.assert_allclose(held.optimistic, 2.0 + 2.0 * np.sqrt(2.0), rtol=1e-6)


def test_the_unet_adds_its_root() -> None:
    settings = config(method="exact-ube", gain=3.0, critic_hidden=())
    unet = MLP((jnp.zeros((3, 1)),), (jnp.asarray([jnp.log(jnp.expm1(3.9))]),), jnp.tanh)
    values = agents.beside(constant_critics([5.0, 5.0]), unet)
    held = agents.opinion(settings, values, jnp.zeros((4, 2)), jnp.zeros((4, 1)))
    np.testing.assert_allclose(held.variance, 4.0, rtol=1e-5)
    np.testing.assert_allclose(held.optimistic, 11.0, rtol=1e-5)


def test_identical_critics_have_a_slope() -> None:
    """The square root of a variance of exactly 0 must not make the actor's gradient infinite."""
    slope = jax.grad(lambda x: jnp.sum(agents.safe_root(x)))(jnp.asarray([0.0, 4.0]))
    np.testing.assert_allclose(slope, [0.0, 0.25])
