"""Critics: one for each model, or the twins of soft actor-critic."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ubex.deep.config import DeepConfig
from ubex.deep.networks import MLP, orthogonal_ensemble
from ubex.envs.task import Task
from ubex.types import Key


def init(config: DeepConfig, key: Key, task: Task) -> MLP:
    """Critics that start far apart."""
    inputs = task.observation_size + task.action_size
    return orthogonal_ensemble(key, config.num_critics, inputs, config.critic_hidden, 1, jnp.tanh, config.critic_gain)


def values(critics: MLP, observation: Float[Array, "B O"], action: Float[Array, "B A"]) -> Float[Array, "N B"]:
    """What every critic says of the same state-action pairs."""
    inputs = jnp.concatenate((observation, action), axis=-1)
    said: Float[Array, "N B"] = jax.vmap(lambda one: one(inputs)[..., 0])(critics)
    return said


def own_values(critics: MLP, observation: Float[Array, "N B O"], action: Float[Array, "N B A"]) -> Float[Array, "N B"]:
    """What every critic says of its own state-action pairs."""
    inputs = jnp.concatenate((observation, action), axis=-1)
    said: Float[Array, "N B"] = jax.vmap(lambda one, x: one(x)[..., 0])(critics, inputs)
    return said
