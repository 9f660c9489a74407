"""One gradient round, from top to bottom: U-net, critics, actor, temperature, targets (appendix, Algorithm 2).

Numbers in brackets are those of the paper's equations. Everything happens on one batch of every model-generated buffer: rewards
r, next states s' and flags of termination are what a model said, actions a' are the policy's.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from ubex import ube
from ubex.deep import agents, policy, uncertainty
from ubex.deep import critics as critic
from ubex.deep.actor import temperature_loss
from ubex.deep.agents import AgentState, Info, Networks, Opinion, opinion, training_precision
from ubex.deep.buffer import Batch
from ubex.deep.config import DeepConfig
from ubex.deep.dynamics import Dynamics
from ubex.deep.networks import MLP, descend
from ubex.envs.task import Task
from ubex.types import Key


class Noise(NamedTuple):
    """Standard normal numbers for one round; none for discrete actions, of which Z is 0."""

    local: uncertainty.Noise
    """For the uncertainty rewards."""
    unet: Float[Array, "B Z"]
    """For the actions at the U-net's next states."""
    critics: Float[Array, "M B Z"]
    """For the actions at the critics' next states; M is N, or 1 for twins."""
    actor: Float[Array, "B Z"]
    """For the actions whose values the actor climbs."""


def draw_noise(config: DeepConfig, task: Task, key: Key) -> Noise:
    """All the noise of a round in one draw: generators are slow to start and to compile, not to run."""
    one = (config.batch_size, policy.of(task).noise_size(task.action_size))
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
    how, before, kind = agents.optimisers(config), agent.optimisers, policy.of(task)
    alpha = jnp.exp(agent.log_alpha)
    bounds = value_bounds(config, task, dynamics, alpha)
    nan = jnp.asarray(jnp.nan, jnp.float32)
    unet, unet_state, u_loss, local = agent.unet, before.unet, nan, uncertainty.Local(nan, nan, nan, nan)

    if unet is not None and agent.unet_target is not None and dynamics is not None:
        # u = w - gap, clipped, and Var[r], at (s, a): eq. (7), here of Q as in the appendix
        local = uncertainty.local(config, task, noise.local, dynamics, agent.critics, agent.actor, shared)
        with training_precision(config):
            # z = Var[r] + discount^2 (u + U(s', a')), the target of eq. (12)
            below = functools.partial(bounded_variance, config, agent.unet_target, bounds)
            later, _ = kind.expected(agent.deployed, shared.next_observation, noise.unet, below)
            z = u_target(config, local, shared, later)
        # one step down (z - U(s, a))^2, eq. (12), and the penalty of eq. (11)
        u_loss, gradient = fitted_to(
            config,
            unet,
            lambda net: uncertainty.raw(net, shared.observation, shared.action),
            lambda raw: unet_loss(config, raw, z),
        )
        unet, unet_state = descend(how.unet, gradient, unet_state, unet)

    with training_precision(config):
        # y_i = r + discount (Q_i(s', a') - alpha log pi(a'|s')), the target of eq. (10), on critic i's own model
        observation, action, y = critic_targets(config, task, noise.critics, agent, shared, own, alpha, bounds)
    # one step down (y_i - Q_i(s, a))^2, eq. (10)
    critic_loss, gradient = fitted_to(
        config,
        agent.critics,
        lambda nets: critic.own_values(nets, observation, action),
        lambda q: jnp.sum((q - y) ** 2),
    )
    critics, critics_state = descend(how.critics, gradient, before.critics, agent.critics)

    def actor_loss(actor: MLP) -> tuple[Float[Array, ""], tuple[Float[Array, " B"], Opinion]]:
        # up mean Q + gain * sqrt(U), eq. (9), plus the entropy
        climbed = functools.partial(opinion, config, critics, unet)
        held, log_prob = kind.expected(actor, shared.observation, noise.actor, climbed, config.density_floor)
        return jnp.sum(alpha * log_prob - held.optimistic), (log_prob, held)

    with training_precision(config):
        (loss, (log_prob, held)), gradient = jax.value_and_grad(actor_loss, has_aux=True)(agent.actor)
    actor, actor_state = descend(how.actor, gradient, before.actor, agent.actor)

    # the temperature, towards the entropy that is asked for
    entropy = kind.usual_entropy(config, task.action_size) if config.target_entropy is None else config.target_entropy
    gradient = jax.grad(temperature_loss)(agent.log_alpha, log_prob, entropy)
    log_alpha, alpha_state = descend(how.log_alpha, gradient, before.log_alpha, agent.log_alpha)

    moved = AgentState(
        actor,
        critics,
        optax.incremental_update(critics, agent.critics_target, config.polyak),
        unet,
        optax.incremental_update(unet, agent.unet_target, config.polyak),
        log_alpha,
        Networks(actor_state, critics_state, unet_state, alpha_state),
        optax.incremental_update(actor, agent.actor_average, config.actor_average) if config.actor_average else None,
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
        -jnp.mean(log_prob),
    )
    return moved, info


def u_target(
    config: DeepConfig, local: uncertainty.Local, batch: Batch, next_variance: Float[Array, " B"]
) -> Float[Array, " B"]:
    """z = Var[r] + discount^2 (u + U(s', a')), without U after termination."""
    return ube.uncertainty_reward(local.u + (1.0 - batch.terminated) * next_variance, local.reward_variance, config.discount)


def unet_loss(config: DeepConfig, raw: Float[Array, " B"], target: Float[Array, " B"]) -> Float[Array, ""]:
    """Squared uncertainty Bellman error with the penalty that keeps the network from collapsing (eqs. loss_u and its penalty).

    `raw` is the network's output before softplus.
    """
    error = target - jax.nn.softplus(raw) - config.floor
    return jnp.sum(error**2) + config.regularisation * jnp.sum(jax.nn.relu(config.floor - raw) ** 2)


def critic_targets(
    config: DeepConfig,
    task: Task,
    noise: Float[Array, "M B Z"],
    agent: AgentState,
    shared: Batch,
    own: Batch,
    alpha: Float[Array, ""],
    bounds: Bounds,
) -> tuple[Float[Array, "C B O"], Float[Array, "C B A"], Float[Array, "C B"]]:
    """Where each critic is fitted, and to what: soft values of the next step by the smallest target among its rivals."""
    for_rivals = functools.partial(critic.for_rivals, config)
    batch = Batch(*(x[None] for x in shared)) if config.twin else own

    def later_values(observation: Float[Array, "N B O"], action: Float[Array, "N B A"]) -> Float[Array, "N B"]:
        said = critic.own_values(agent.critics_target, for_rivals(observation), for_rivals(action))
        return jnp.clip(critic.smallest(config, said), *bounds)

    kind = policy.of(task)
    later, log_prob = kind.expected(agent.deployed, batch.next_observation, noise, later_values, config.density_floor)
    goal = backed_up(config, batch, later - alpha * log_prob)
    return for_rivals(batch.observation), for_rivals(batch.action), for_rivals(goal)


def backed_up(config: DeepConfig, batch: Batch, next_value: Float[Array, "*b"]) -> Float[Array, "*b"]:
    """r + discount * value of the next step, which is 0 after termination (eq. loss_q)."""
    return batch.reward + config.discount * (1.0 - batch.terminated) * next_value


def fitted_to(
    config: DeepConfig, network: MLP, outputs: Callable[[MLP], Array], loss: Callable[[Array], Float[Array, ""]]
) -> tuple[Float[Array, ""], MLP]:
    """The loss of a network's outputs, and its gradient with respect to the network's weights.

    Where factors are rounded to float16, the slopes of the loss are first scaled to 1, so that none is out of its range.
    """
    with training_precision(config):
        said, back = jax.vjp(outputs, network)
        value, slope = jax.value_and_grad(loss)(said)
        if config.precision != "split16":
            return value, back(slope)[0]
        most = jnp.max(jnp.abs(slope))
        scale = jnp.where(most > 0.0, most, 1.0)
        gradient: MLP = jax.tree.map(lambda x: scale * x, back(slope / scale)[0])
        return value, gradient


Bounds = tuple[Float[Array, ""], Float[Array, ""]]
"""The lowest and the highest value that there can be."""


def value_bounds(config: DeepConfig, task: Task, dynamics: Dynamics | None, alpha: Float[Array, ""]) -> Bounds:
    """What soft values can be, by the rewards that there can be; infinite unless rollouts are `trusted`.

    An episode may end, so 0 lies within.
    """
    if dynamics is None or config.rollout_ends != "trusted" or config.discount == 1.0:
        return jnp.asarray(-jnp.inf, jnp.float32), jnp.asarray(jnp.inf, jnp.float32)
    low, high = dynamics.support.rewards
    steps, (least, most) = 1.0 / (1.0 - config.discount), policy.of(task).entropy_bounds(alpha, task.action_size)
    return steps * (jnp.minimum(low, 0.0) + least), steps * (jnp.maximum(high, 0.0) + most)


def bounded_variance(
    config: DeepConfig, unet: MLP, bounds: Bounds, observation: Float[Array, "B O"], action: Float[Array, "B A"]
) -> Float[Array, " B"]:
    """U, no larger than the values that there can be allow."""
    return jnp.minimum(uncertainty.variance(config, unet, observation, action), largest_variance(*bounds))


def largest_variance(low: Float[Array, ""], high: Float[Array, ""]) -> Float[Array, ""]:
    """The largest variance of a random number on an interval: a quarter of its squared width."""
    return 0.25 * (high - low) ** 2
