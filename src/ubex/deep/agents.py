"""The deep agents: what they carry, and what they hold of state-action pairs. `round.py` has what changes them."""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from ubex import ube
from ubex.deep import critics as critic
from ubex.deep import policy, uncertainty
from ubex.deep.config import DeepConfig
from ubex.deep.networks import MLP, sixteen_bits
from ubex.envs.task import Task
from ubex.keys import named
from ubex.types import Key


class Networks(NamedTuple):
    """An agent's networks, or anything that there is one of for each."""

    actor: Any
    critics: Any
    unet: Any
    log_alpha: Any


class AgentState(NamedTuple):
    """Everything that gradient rounds change."""

    actor: MLP
    critics: MLP
    critics_target: MLP
    unet: MLP | None
    """None for agents without a U-net."""
    unet_target: MLP | None
    log_alpha: Float[Array, ""]
    """Logarithm of the temperature."""
    optimisers: Networks
    actor_average: MLP | None = None
    """Of the actor's weights over rounds; None for agents without."""

    @property
    def deployed(self) -> MLP:
        """The actor of the targets, of evaluations and for use."""
        return self.actor if self.actor_average is None else self.actor_average


class Info(NamedTuple):
    """What a round looked like, averaged over its batch; NaN where an agent has no such thing."""

    critic_loss: Float[Array, ""]
    actor_loss: Float[Array, ""]
    u_loss: Float[Array, ""]
    value: Float[Array, ""]
    """Mean critic at the policy's actions."""
    critic_std: Float[Array, ""]
    """Standard deviation over critics."""
    variance: Float[Array, ""]
    """Output of the U-net."""
    w: Float[Array, ""]
    gap: Float[Array, ""]
    u: Float[Array, ""]
    alpha: Float[Array, ""]
    entropy: Float[Array, ""]


def precision(config: DeepConfig) -> contextlib.AbstractContextManager[None]:
    """The precision of matrix products while a function is traced; only GPUs have a cheaper one."""
    context: contextlib.AbstractContextManager[None] = jax.default_matmul_precision(
        "tensorfloat32" if config.precision == "tf32" else "highest"
    )
    return context


def training_precision(config: DeepConfig) -> contextlib.AbstractContextManager[None]:
    """The precision of what is differentiated, and of its targets: with `split16`, factors of eleven bits, whose error is far
    below the noise of a batch. The uncertainties, which are small differences, are not computed with it."""
    return sixteen_bits() if config.precision == "split16" else precision(config)


def init(config: DeepConfig, key: Key, task: Task) -> AgentState:
    """An untrained agent."""
    actor = policy.of(task).init(named(key, "actor"), task.observation_size, task.action_size, config.actor_hidden)
    critics = critic.init(config, named(key, "critics"), task)
    unet = uncertainty.init(config, named(key, "unet"), task) if config.has_unet else None
    log_alpha = jnp.zeros((), jnp.float32)
    rates = optimisers(config)
    state = Networks(
        rates.actor.init(actor),
        rates.critics.init(critics),
        None if unet is None else rates.unet.init(unet),
        rates.log_alpha.init(log_alpha),
    )
    return AgentState(actor, critics, critics, unet, unet, log_alpha, state, actor if config.actor_average else None)


def optimisers(config: DeepConfig) -> Networks:
    """What descends each network's gradient."""
    actor, value = optax.adam(config.actor_rate), optax.adam(config.critic_rate)
    return Networks(actor, value, value, actor)


class Opinion(NamedTuple):
    """What an agent holds of state-action pairs."""

    optimistic: Float[Array, " B"]
    """What the actor climbs: mean + gain * standard deviation (eq. policy_opt), or the smaller twin."""
    mean: Float[Array, " B"]
    """Mean over critics."""
    variance: Float[Array, " B"]
    """Variance of the value by the agent's method; NaN where it has none."""
    critic_variance: Float[Array, " B"]
    """Variance over critics."""


def opinion(
    config: DeepConfig, critics: MLP, unet: MLP | None, observation: Float[Array, "B O"], action: Float[Array, "B A"]
) -> Opinion:
    """What the agent holds of state-action pairs."""
    every = critic.values(critics, observation, action)
    values = critic.smallest(config, every)
    distinct = every if config.twin else values
    mean = jnp.mean(distinct, axis=0)
    between = ube.member_variance(distinct, 1) if len(distinct) > 1 else jnp.zeros_like(mean)
    nothing = jnp.full_like(mean, jnp.nan)
    if config.twin:
        return Opinion(values[0], mean, nothing, between)
    if unet is not None:
        variance = uncertainty.variance(config, unet, observation, action)
        return Opinion(mean + config.gain * jnp.sqrt(variance), mean, variance, between)
    if config.known.optimism == "critics":
        return Opinion(mean + config.gain * safe_root(between), mean, between, between)
    return Opinion(mean, mean, nothing, between)


def safe_root(x: Float[Array, " B"]) -> Float[Array, " B"]:
    """The square root, with slope 0 at 0 instead of none."""
    return jnp.where(x > 0.0, jnp.sqrt(jnp.where(x > 0.0, x, 1.0)), 0.0)
