from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from deep.tiny import config
from ubex.deep import critics
from ubex.deep.buffer import Batch
from ubex.envs.task import Task


def test_the_target_ends_with_the_episode() -> None:
    batch = Batch(jnp.zeros((2, 1)), jnp.zeros((2, 1)), jnp.asarray([1.0, 2.0]), jnp.zeros((2, 1)), jnp.asarray([0.0, 1.0]))
    np.testing.assert_allclose(critics.targets(batch, jnp.asarray([10.0, 10.0]), 0.5), [6.0, 2.0])


def test_every_critic_is_fitted_to_its_own_targets_alone() -> None:
    networks = critics.init(config(num_models=3), jax.random.key(0), Task(2, 1))
    observation, action = jax.random.normal(jax.random.key(1), (3, 5, 2)), jax.random.normal(jax.random.key(2), (3, 5, 1))
    target = critics.own_values(networks, observation, action)
    moved = target + jnp.asarray([[0.0], [2.0], [0.0]]) * jnp.ones((1, 5))
    loss, slope = jax.value_and_grad(lambda nets: critics.loss(critics.own_values(nets, observation, action), moved))(networks)
    np.testing.assert_allclose(loss, 5 * 2.0**2, rtol=1e-5)
    size = [float(jnp.abs(slope.weights[0][i]).max()) for i in range(3)]
    assert size[0] == size[2] == 0.0
    assert size[1] > 0.0


def test_own_values_are_the_diagonal_of_all_values() -> None:
    networks = critics.init(config(num_models=3), jax.random.key(0), Task(2, 1))
    observation, action = jax.random.normal(jax.random.key(1), (3, 5, 2)), jax.random.normal(jax.random.key(2), (3, 5, 1))
    own = critics.own_values(networks, observation, action)
    for i in range(3):
        np.testing.assert_allclose(own[i], critics.values(networks, observation[i], action[i])[i], rtol=1e-6)
