"""The policy of discrete actions, which are one-hot vectors. What is on average is an exact sum over all of them: no noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ubex.deep.actor import Actions
from ubex.deep.config import DeepConfig
from ubex.deep.networks import MLP, Product, mlp, product
from ubex.types import Key

T = TypeVar("T")
LAST_SCALE = 0.01
"""Factor on the last layer's orthogonal weights: an untrained policy takes all actions about equally often, wherever it is."""


def init(key: Key, observation_size: int, action_size: int, hidden: tuple[int, ...]) -> MLP:
    """A policy with orthogonal weights, whose outputs are logits."""
    network = mlp(key, observation_size, hidden, action_size, jnp.tanh)
    return MLP((*network.weights[:-1], LAST_SCALE * network.weights[-1]), network.biases, network.activation)


def noise_size(action_size: int) -> int:
    """None is needed."""
    return 0


def actions(actor: MLP, observation: Float[Array, "*b O"], noise: Float[Array, "..."]) -> Actions:
    """What values are averaged over: every action with its probability."""
    probability = jax.nn.softmax(actor(observation))
    size = probability.shape[-1]
    return Actions(jnp.broadcast_to(jnp.eye(size, dtype=jnp.float32), (*probability.shape, size)), probability)


def expected(
    actor: MLP,
    observation: Float[Array, "*b O"],
    noise: Float[Array, "..."],
    value: Callable[[Float[Array, "*b O"], Float[Array, "*b A"]], T],
    floor: float = 0.0,
) -> tuple[T, Float[Array, "*b"]]:
    """A function of observations and actions, and the log-probability, on average over actions."""
    log_prob = jax.nn.log_softmax(actor(observation))
    size = log_prob.shape[-1]
    said = jax.vmap(lambda one: value(observation, jnp.broadcast_to(one, log_prob.shape)))(jnp.eye(size, dtype=jnp.float32))
    weight = jnp.moveaxis(jnp.exp(log_prob), -1, 0)
    average: T = jax.tree.map(lambda x: jnp.sum(weight * x, axis=0), said)
    return average, jnp.sum(jnp.exp(log_prob) * log_prob, axis=-1)


def draw(actor: MLP, observation: Float[Array, "*b O"], key: Key, multiply: Product = product) -> Float[Array, "*b A"]:
    """One random action for each observation."""
    logits = actor(observation, multiply)
    return jax.nn.one_hot(jax.random.categorical(key, logits), logits.shape[-1], dtype=jnp.float32)


def mode(actor: MLP, observation: Float[Array, "*b O"]) -> Float[Array, "*b A"]:
    """The likeliest action: what evaluation does."""
    logits = actor(observation)
    return jax.nn.one_hot(jnp.argmax(logits, axis=-1), logits.shape[-1], dtype=jnp.float32)


def usual_entropy(config: DeepConfig, action_size: int) -> float:
    """What the temperature aims at, unless something else is asked for: a share of the largest entropy that there is."""
    return config.entropy_share * math.log(action_size)


def entropy_bounds(alpha: Float[Array, ""], action_size: int) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """What the entropy term of a step adds: from nothing to that of equally likely actions."""
    return jnp.zeros_like(alpha), math.log(action_size) * alpha
