"""Critics: one or several for each model, or the twins of soft actor-critic.

Rivals learn the same values from the same transitions, and the smallest counts. They are far apart on the axis of critics: the
first critics of all models, then the second ones.
"""

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


def values(critics: MLP, observation: Float[Array, "B O"], action: Float[Array, "B A"]) -> Float[Array, "C B"]:
    """What every critic says of the same state-action pairs."""
    inputs = jnp.concatenate((observation, action), axis=-1)
    said: Float[Array, "C B"] = jax.vmap(lambda one: one(inputs)[..., 0])(critics)
    return said


def own_values(critics: MLP, observation: Float[Array, "C B O"], action: Float[Array, "C B A"]) -> Float[Array, "C B"]:
    """What every critic says of its own state-action pairs."""
    inputs = jnp.concatenate((observation, action), axis=-1)
    said: Float[Array, "C B"] = jax.vmap(lambda one, x: one(x)[..., 0])(critics, inputs)
    return said


def smallest(config: DeepConfig, values: Float[Array, "C *b"]) -> Float[Array, "N *b"]:
    """What counts of the values of all critics: one for each model, or of the twins."""
    return jnp.min(values.reshape(config.rivals, -1, *values.shape[1:]), axis=0)


def for_rivals(config: DeepConfig, x: Float[Array, "N *b"], *after: Float[Array, "*b"]) -> Float[Array, "C *b"]:
    """The same for each of several rivals, and what comes after them on the same axis."""
    return jnp.concatenate([x] * config.rivals + [one[None] for one in after])


def first(config: DeepConfig, critics: MLP) -> MLP:
    """One critic for each model."""
    one_each: MLP = jax.tree.map(lambda x: x[: config.num_models], critics)
    return one_each
