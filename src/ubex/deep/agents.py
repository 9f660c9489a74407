"""The deep agents: what they carry, and one gradient round.

A round is: U-net, critics, targets, actor, temperature, on one batch of every buffer (appendix, Algorithm 2).
"""

from __future__ import annotations

import contextlib
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from ubex import ube
from ubex.deep import actor as policy
from ubex.deep import critics as critic
from ubex.deep import uncertainty
from ubex.deep.buffer import Batch
from ubex.deep.config import DeepConfig
from ubex.deep.dynamics import Dynamics
from ubex.deep.networks import MLP, descend, polyak
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
    """The precision of what is differentiated, and of its targets: with `halves`, TF32, whose error is far below the noise of
    a batch. The uncertainties, which are small differences, are not computed with it."""
    context: contextlib.AbstractContextManager[None] = jax.default_matmul_precision(
        "highest" if config.precision == "float32" else "tensorfloat32"
    )
    return context


def init(config: DeepConfig, key: Key, task: Task) -> AgentState:
    """An untrained agent."""
    actor = policy.init(named(key, "actor"), task.observation_size, task.action_size, config.actor_hidden)
    critics = critic.init(config, named(key, "critics"), task)
    unet = uncertainty.init(config, named(key, "unet"), task) if config.has_unet else None
    log_alpha = jnp.zeros((), jnp.float32)
    rates = _optimisers(config)
    state = Networks(
        rates.actor.init(actor),
        rates.critics.init(critics),
        None if unet is None else rates.unet.init(unet),
        rates.log_alpha.init(log_alpha),
    )
    return AgentState(actor, critics, critics, unet, unet, log_alpha, state)


def _optimisers(config: DeepConfig) -> Networks:
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
    values = critic.values(critics, observation, action)
    mean = jnp.mean(values, axis=0)
    between = ube.member_variance(values, 1) if config.num_critics > 1 else jnp.zeros_like(mean)
    nothing = jnp.full_like(mean, jnp.nan)
    if config.twin:
        return Opinion(jnp.min(values, axis=0), mean, nothing, between)
    if unet is not None:
        variance = uncertainty.variance(config, unet, observation, action)
        return Opinion(mean + config.gain * jnp.sqrt(variance), mean, variance, between)
    if config.known.optimism == "critics":
        return Opinion(mean + config.gain * safe_root(between), mean, between, between)
    return Opinion(mean, mean, nothing, between)


def safe_root(x: Float[Array, " B"]) -> Float[Array, " B"]:
    """The square root, with slope 0 at 0 instead of none."""
    return jnp.where(x > 0.0, jnp.sqrt(jnp.where(x > 0.0, x, 1.0)), 0.0)


class Noise(NamedTuple):
    """Standard normal numbers for one round."""

    local: uncertainty.Noise
    """For the uncertainty rewards."""
    unet: Float[Array, "B A"]
    """For the actions at the U-net's next states."""
    critics: Float[Array, "M B A"]
    """For the actions at the critics' next states; M is N, or 1 for twins."""
    actor: Float[Array, "B A"]
    """For the actions whose values the actor climbs."""


def draw_noise(config: DeepConfig, task: Task, key: Key) -> Noise:
    """All the noise of a round in one draw: generators are slow to start and to compile, not to run."""
    one = (config.batch_size, task.action_size)
    local = uncertainty.noise_shapes(config, task) if config.has_unet else ((0,) * 4, (0,) * 4)
    shapes = (*local, one if config.has_unet else (0, 0), (1 if config.twin else config.num_models, *one), one)
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    flat = jnp.split(jax.random.normal(key, (int(ends[-1]),), jnp.float32), ends[:-1])
    drawn = [part.reshape(shape) for part, shape in zip(flat, shapes, strict=True)]
    return Noise(uncertainty.Noise(drawn[0], drawn[1]), drawn[2], drawn[3], drawn[4])


def gradient_round(
    config: DeepConfig,
    task: Task,
    noise: Noise,
    agent: AgentState,
    dynamics: Dynamics | None,
    shared: Batch,
    own: Batch,
) -> tuple[AgentState, Info]:
    """One update of everything.

    `shared` is a batch of the model-randomised buffer (of the environment's transitions for `sac`); `own` has one of each
    model's buffer on a leading axis, and is not looked at by twins.
    """
    optimisers, state = _optimisers(config), agent.optimisers
    unet, unet_state, unet_target = agent.unet, state.unet, agent.unet_target
    alpha = jnp.exp(agent.log_alpha)
    bounds = value_bounds(config, dynamics, alpha, task.action_size)
    nan = jnp.asarray(jnp.nan, jnp.float32)
    u_loss, local = nan, uncertainty.Local(nan, nan, nan, nan)
    if unet is not None and unet_target is not None:
        assert dynamics is not None
        local = uncertainty.local(config, task, noise.local, dynamics, agent.critics, agent.actor, shared)
        with training_precision(config):
            after = policy.sample(agent.actor, shared.next_observation, noise.unet).action
            later = uncertainty.variance(config, unet_target, shared.next_observation, after)
            later = jnp.minimum(later, largest_variance(*bounds))
            goal = uncertainty.targets(config, local, shared, later)
            u_loss, gradient = jax.value_and_grad(lambda net: uncertainty.loss(config, net, shared, goal))(unet)
        unet, unet_state = descend(optimisers.unet, gradient, unet_state, unet)
    with training_precision(config):
        observation, action, goal = critic_targets(config, noise.critics, agent, shared, own, alpha, bounds)
        critic_loss, gradient = jax.value_and_grad(critic.loss)(agent.critics, observation, action, goal)
    critics, critics_state = descend(optimisers.critics, gradient, state.critics, agent.critics)

    def actor_loss(actor: MLP) -> tuple[Float[Array, ""], tuple[policy.Sampled, Opinion]]:
        sampled = policy.sample(actor, shared.observation, noise.actor, config.density_floor)
        held = opinion(config, critics, unet, shared.observation, sampled.action)
        return jnp.sum(alpha * sampled.log_prob - held.optimistic), (sampled, held)

    with training_precision(config):
        (loss, (sampled, held)), gradient = jax.value_and_grad(actor_loss, has_aux=True)(agent.actor)
    actor, actor_state = descend(optimisers.actor, gradient, state.actor, agent.actor)
    entropy = -float(task.action_size) if config.target_entropy is None else config.target_entropy
    gradient = jax.grad(policy.temperature_loss)(agent.log_alpha, sampled.log_prob, entropy)
    log_alpha, alpha_state = descend(optimisers.log_alpha, gradient, state.log_alpha, agent.log_alpha)
    moved = AgentState(
        actor,
        critics,
        polyak(agent.critics_target, critics, config.polyak),
        unet,
        None if unet is None or unet_target is None else polyak(unet_target, unet, config.polyak),
        log_alpha,
        Networks(actor_state, critics_state, unet_state, alpha_state),
    )
    size = float(shared.reward.shape[0])
    info = Info(
        critic_loss / size,
        loss / size,
        u_loss / size,
        jnp.mean(held.mean),
        jnp.mean(jnp.sqrt(held.critic_variance)),
        jnp.mean(held.variance),
        jnp.mean(local.w),
        jnp.mean(local.gap),
        jnp.mean(local.u),
        alpha,
        -jnp.mean(sampled.log_prob),
    )
    return moved, info


Bounds = tuple[Float[Array, ""], Float[Array, ""]]
"""The lowest and the highest value that there can be."""


def value_bounds(config: DeepConfig, dynamics: Dynamics | None, alpha: Float[Array, ""], action_size: int) -> Bounds:
    """What soft values can be, by the rewards that there can be; infinite unless rollouts are `trusted`.

    An episode may end, so 0 lies within. The entropy term adds at most alpha log 2 per step and action dimension, since actions
    lie in [-1, 1], and takes away about alpha per dimension, where the temperature holds the policy's entropy.
    """
    if dynamics is None or config.rollout_ends != "trusted" or config.discount == 1.0:
        return jnp.asarray(-jnp.inf, jnp.float32), jnp.asarray(jnp.inf, jnp.float32)
    low, high = dynamics.support.rewards
    steps, soft = 1.0 / (1.0 - config.discount), alpha * action_size
    return steps * (jnp.minimum(low, 0.0) - soft), steps * (jnp.maximum(high, 0.0) + math.log(2.0) * soft)


def largest_variance(low: Float[Array, ""], high: Float[Array, ""]) -> Float[Array, ""]:
    """The largest variance of a random number on an interval: a quarter of its squared width."""
    return 0.25 * (high - low) ** 2


def critic_targets(
    config: DeepConfig,
    noise: Float[Array, "M B A"],
    agent: AgentState,
    shared: Batch,
    own: Batch,
    alpha: Float[Array, ""],
    bounds: Bounds,
) -> tuple[Float[Array, "C B O"], Float[Array, "C B A"], Float[Array, "C B"]]:
    """Where each critic is fitted, and to what: soft values of the next step by its own target, or by the smaller twin."""
    if config.twin:
        after = policy.sample(agent.actor, shared.next_observation, noise[0], config.density_floor)
        later = jnp.min(critic.values(agent.critics_target, shared.next_observation, after.action), axis=0)
        later = jnp.clip(later, *bounds)
        goal = critic.targets(shared, later - alpha * after.log_prob, config.discount)
        twice = tuple(jnp.stack((x, x)) for x in (shared.observation, shared.action, goal))
        return twice[0], twice[1], twice[2]
    after = policy.sample(agent.actor, own.next_observation, noise, config.density_floor)
    later = jnp.clip(critic.own_values(agent.critics_target, own.next_observation, after.action), *bounds)
    return own.observation, own.action, critic.targets(own, later - alpha * after.log_prob, config.discount)
