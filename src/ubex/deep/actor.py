"""The policy of bounded actions: a Gaussian squashed by tanh, so that they lie in (-1, 1). What is on average is sampled."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ubex.deep.config import DeepConfig
from ubex.deep.networks import MLP, Product, mlp, product
from ubex.keys import named
from ubex.types import Key

T = TypeVar("T")

LOG_STD = (-20.0, 2.0)
"""Bounds of the log standard deviation, before squashing."""


class Sampled(NamedTuple):
    """Actions and their log-densities."""

    action: Float[Array, "*b A"]
    log_prob: Float[Array, "*b"]


class Actions(NamedTuple):
    """Actions of a policy at each observation, to average over."""

    action: Float[Array, "*b K A"]
    probability: Float[Array, "*b K"] | None = None
    """Where these are all actions that there are; None where they are samples."""

    def mean(self, x: Float[Array, "*b K"]) -> Float[Array, "*b"]:
        """Of something at each action."""
        return jnp.mean(x, axis=-1) if self.probability is None else jnp.sum(self.probability * x, axis=-1)

    def variance(self, x: Float[Array, "*b K"]) -> Float[Array, "*b"]:
        """Of something at each action, without bias."""
        if self.probability is None:
            return jnp.var(x, axis=-1, ddof=1)
        return self.mean((x - self.mean(x)[..., None]) ** 2)

    def variance_over_states(self, x: Float[Array, "*b J K"]) -> Float[Array, "*b"]:
        """The same where J observations are samples too; of a policy that is sampled, each has one action."""
        between = jnp.var(self.mean(x), axis=-1, ddof=1)
        return between if self.probability is None else between + jnp.mean(self.variance(x), axis=-1)


class Gaussian(NamedTuple):
    """The policy at some observations, before squashing."""

    mean: Float[Array, "*b A"]
    log_std: Float[Array, "*b A"]


def init(key: Key, observation_size: int, action_size: int, hidden: tuple[int, ...]) -> MLP:
    """A policy with orthogonal weights; mean and log standard deviation are two last layers, orthogonal each by itself."""
    mean = mlp(named(key, "mean"), observation_size, hidden, action_size, jnp.tanh)
    log_std = mlp(named(key, "log_std"), observation_size, hidden, action_size, jnp.tanh)
    last = jnp.concatenate((mean.weights[-1], log_std.weights[-1]), axis=-1)
    return MLP((*mean.weights[:-1], last), (*mean.biases[:-1], jnp.zeros(2 * action_size, jnp.float32)), mean.activation)


def gaussian(actor: MLP, observation: Float[Array, "*b O"], multiply: Product = product) -> Gaussian:
    """The policy at some observations."""
    mean, log_std = jnp.split(actor(observation, multiply), 2, axis=-1)
    return Gaussian(mean, jnp.clip(log_std, *LOG_STD))


def squash(at: Gaussian, noise: Float[Array, "*b A"], floor: float = 0.0) -> Sampled:
    """The action that standard normal noise becomes, and its log-density.

    `floor` is added to the slope of tanh: the density's logarithm then has no slope where an action is saturated.
    """
    raw = at.mean + jnp.exp(at.log_std) * noise
    action = jnp.tanh(raw)
    normal = -0.5 * (noise**2 + math.log(2.0 * math.pi)) - at.log_std
    exact = 2.0 * (math.log(2.0) - raw - jax.nn.softplus(-2.0 * raw))  # log(1 - action^2) without cancellation
    slope = jnp.log(1.0 - action**2 + floor) if floor > 0.0 else exact
    return Sampled(action, jnp.sum(normal - slope, axis=-1))


def sample(actor: MLP, observation: Float[Array, "*b O"], noise: Float[Array, "*b A"], floor: float = 0.0) -> Sampled:
    """One action for each observation."""
    return squash(gaussian(actor, observation), noise, floor)


def several(at: Gaussian, noise: Float[Array, "*b K A"]) -> Float[Array, "*b K A"]:
    """Several actions for each observation."""
    return jnp.tanh(at.mean[..., None, :] + jnp.exp(at.log_std)[..., None, :] * noise)


def noise_size(action_size: int) -> int:
    """Normal numbers that an action is made of."""
    return action_size


def actions(actor: MLP, observation: Float[Array, "*b O"], noise: Float[Array, "*b K A"]) -> Actions:
    """What values are averaged over: as many samples as there is noise for."""
    return Actions(several(gaussian(actor, observation), noise))


def expected(
    actor: MLP,
    observation: Float[Array, "*b O"],
    noise: Float[Array, "*b A"],
    value: Callable[[Float[Array, "*b O"], Float[Array, "*b A"]], T],
    floor: float = 0.0,
) -> tuple[T, Float[Array, "*b"]]:
    """A function of observations and actions, and the log-density, on average over actions: both at one sample."""
    sampled = sample(actor, observation, noise, floor)
    return value(observation, sampled.action), sampled.log_prob


def draw(actor: MLP, observation: Float[Array, "*b O"], key: Key, multiply: Product = product) -> Float[Array, "*b A"]:
    """One random action for each observation."""
    at = gaussian(actor, observation, multiply)
    return squash(at, jax.random.normal(key, at.mean.shape, jnp.float32)).action


def mode(actor: MLP, observation: Float[Array, "*b O"]) -> Float[Array, "*b A"]:
    """The squashed mean: what evaluation does."""
    return jnp.tanh(gaussian(actor, observation).mean)


def to_environment(action: Float[Array, "*b A"], low: tuple[float, ...], high: tuple[float, ...]) -> Float[Array, "*b A"]:
    """An action in [-1, 1] in the environment's bounds."""
    bottom, top = (jnp.asarray(bound, jnp.float32).reshape((1,) * (action.ndim - 1) + (-1,)) for bound in (low, high))
    return bottom + 0.5 * (action + 1.0) * (top - bottom)


def usual_entropy(config: DeepConfig, action_size: int) -> float:
    """What the temperature aims at, unless something else is asked for: minus the number of action dimensions."""
    return -float(action_size)


def entropy_bounds(alpha: Float[Array, ""], action_size: int) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """What the entropy term of a step adds: at most alpha log 2 for each dimension, since actions lie in [-1, 1], and not below
    about -alpha for each, where the temperature holds the policy's entropy."""
    soft = alpha * action_size
    return -soft, math.log(2.0) * soft


def temperature_loss(log_alpha: Float[Array, ""], log_prob: Float[Array, " B"], target: float) -> Float[Array, ""]:
    """Falls where the policy is more random than `target` and the temperature falls."""
    return -jnp.sum(log_alpha * jax.lax.stop_gradient(log_prob + target))
