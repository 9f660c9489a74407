"""The deep agents: what they carry, and what they hold of state-action pairs. `round.py` has what changes them."""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple, TypeVar

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

T = TypeVar("T")


class Networks(NamedTuple):
    """An agent's networks, or anything that there is one of for each."""

    actor: Any
    values: Any
    log_alpha: Any


class AgentState(NamedTuple):
    """Everything that gradient rounds change."""

    actor: MLP
    values: MLP
    """Critics, and as the last one of them the U-net, if there is one. It has their shape, and on a GPU a product takes as long
    for all of them as for one, as does everything else of a round that is as small."""
    values_target: MLP
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
    values = critic.init(config, named(key, "critics"), task)
    if config.has_unet:
        values = beside(values, uncertainty.init(config, named(key, "unet"), task))
    log_alpha = jnp.zeros((), jnp.float32)
    how, networks = optimisers(config), Networks(actor, values, log_alpha)
    state = Networks(*(one.init(network) for one, network in zip(how, networks, strict=True)))
    return AgentState(actor, values, values, log_alpha, state, actor if config.actor_average else None)


def beside(critics: MLP, unet: MLP) -> MLP:
    """Critics with a U-net as the last of them."""
    both: MLP = jax.tree.map(lambda x, one: jnp.concatenate((x, one[None])), critics, unet)
    return both


def told_apart(config: DeepConfig, said: Float[Array, "V *b"]) -> tuple[Float[Array, "C *b"], Float[Array, "*b"] | None]:
    """What the critics say, and the U-net if there is one."""
    return said[: config.num_critics], said[-1] if config.has_unet else None


def optimisers(config: DeepConfig) -> Networks:
    """What descends each network's gradient."""
    actor, value = optax.adam(config.actor_rate), optax.adam(config.critic_rate)
    return Networks(actor, value, actor)


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


def opinion(config: DeepConfig, values: MLP, observation: Float[Array, "B O"], action: Float[Array, "B A"]) -> Opinion:
    """What the agent holds of state-action pairs."""
    every, raw = told_apart(config, critic.values(values, observation, action))
    smallest = critic.smallest(config, every)
    distinct = every if config.twin else smallest
    mean = jnp.mean(distinct, axis=0)
    between = ube.member_variance(distinct, 1) if len(distinct) > 1 else jnp.zeros_like(mean)
    nothing = jnp.full_like(mean, jnp.nan)
    if config.twin:
        return Opinion(smallest[0], mean, nothing, between)
    if raw is not None:
        variance = uncertainty.variance(config, raw)
        return Opinion(mean + config.gain * jnp.sqrt(variance), mean, variance, between)
    if config.known.optimism == "critics":
        return Opinion(mean + config.gain * safe_root(between), mean, between, between)
    return Opinion(mean, mean, nothing, between)


def safe_root(x: Float[Array, " B"]) -> Float[Array, " B"]:
    """The square root, with slope 0 at 0 instead of none."""
    return jnp.where(x > 0.0, jnp.sqrt(jnp.where(x > 0.0, x, 1.0)), 0.0)
