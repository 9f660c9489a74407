"""One gradient round, from top to bottom: U-net, critics, actor, temperature, targets (appendix, Algorithm 2).

Numbers in brackets are those of the paper's equations. Everything happens on one batch of every model-generated buffer: rewards
r, next states s' and flags of termination are what a model said, actions a' are the policy's.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from ubex import ube
from ubex.deep import agents, policy, uncertainty
from ubex.deep import critics as critic
from ubex.deep.actor import temperature_loss
from ubex.deep.agents import AgentState, Info, Networks, Opinion, training_precision
from ubex.deep.buffer import Batch
from ubex.deep.config import DeepConfig
from ubex.deep.dynamics import Dynamics
from ubex.deep.networks import MLP, descend
from ubex.envs.task import Task
from ubex.types import Key

T = TypeVar("T")


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
    nothing = jnp.full_like(shared.reward, jnp.nan)
    local = uncertainty.Local(nothing, nothing, nothing, nothing)

    if config.has_unet and dynamics is not None:
        # u = w - gap, clipped, and Var[r], at (s, a): eq. (7), here of Q as in the appendix
        local = uncertainty.local(config, task, noise.local, dynamics, agent.values, agent.actor, shared)

    with training_precision(config):
        goals = targets(config, task, noise, agent, shared, own, alpha, bounds, local)
    # one step down the losses of critics and U-net
    (critic_loss, u_loss), gradient = fitted_to(
        config,
        agent.values,
        lambda nets: critic.own_values(nets, goals.observation, goals.action),
        lambda said: losses(config, said, goals.value),
    )
    values, values_state = descend(how.values, gradient, before.values, agent.values)

    def actor_loss(actor: MLP) -> tuple[Float[Array, ""], tuple[Float[Array, " B"], Opinion]]:
        # up mean Q + gain * sqrt(U), eq. (9), plus the entropy
        climbed = functools.partial(agents.opinion, config, values)
        held, log_prob = kind.expected(actor, shared.observation, noise.actor, climbed, config.density_floor)
        return jnp.sum(alpha * log_prob - held.optimistic), (log_prob, held)

    with training_precision(config):
        (loss, (log_prob, held)), gradient = jax.value_and_grad(actor_loss, has_aux=True)(agent.actor)
    actor, actor_state = descend(how.actor, gradient, before.actor, agent.actor)

    # the temperature, towards the entropy that is asked for
    aim = kind.usual_entropy(config, task.action_size) if config.target_entropy is None else config.target_entropy
    gradient = jax.grad(temperature_loss)(agent.log_alpha, log_prob, aim)
    log_alpha, alpha_state = descend(how.log_alpha, gradient, before.log_alpha, agent.log_alpha)

    moved = AgentState(
        actor,
        values,
        optax.incremental_update(values, agent.values_target, config.polyak),
        log_alpha,
        Networks(actor_state, values_state, alpha_state),
        optax.incremental_update(actor, agent.actor_average, config.actor_average) if config.actor_average else None,
    )
    size = float(shared.reward.shape[0])
    of_batch = (held.mean, jnp.sqrt(held.critic_variance), held.variance, local.w, local.gap, local.u, -log_prob)
    value, deviation, variance, w, gap, u, entropy = jnp.mean(jnp.stack(of_batch), axis=-1)
    sums = (critic_loss / size, loss / size, u_loss / size)
    return moved, Info(*sums, value, deviation, variance, w, gap, u, alpha, entropy)


class Goals(NamedTuple):
    """Where each critic is fitted, and to what; the U-net, if there is one, is the last of them."""

    observation: Float[Array, "V B O"]
    action: Float[Array, "V B A"]
    value: Float[Array, "V B"]


def targets(
    config: DeepConfig,
    task: Task,
    noise: Noise,
    agent: AgentState,
    shared: Batch,
    own: Batch,
    alpha: Float[Array, ""],
    bounds: Bounds,
    local: uncertainty.Local,
) -> Goals:
    """Soft values of the next step, by the smallest target among rivals; and of the U-net what follows from `local`."""
    batch = Batch(*(x[None] for x in shared)) if config.twin else own
    number, last = len(batch.reward), [(shared, noise.unet)] if config.has_unet else []

    def later_values(observation: Float[Array, "M B O"], action: Float[Array, "M B A"]) -> Float[Array, "M B"]:
        places = (critic.for_rivals(config, x[:number], *x[number:]) for x in (observation, action))
        critics, raw = agents.told_apart(config, critic.own_values(agent.values_target, *places))
        values = jnp.clip(critic.smallest(config, critics), *bounds)
        if raw is None:
            return values
        variance = jnp.minimum(uncertainty.variance(config, raw), largest_variance(*bounds))
        return jnp.concatenate((values, variance[None]))

    after = jnp.concatenate((batch.next_observation, *(one.next_observation[None] for one, _ in last)))
    draws = jnp.concatenate((noise.critics, *(drawn[None] for _, drawn in last)))
    later, log_prob = policy.of(task).expected(agent.deployed, after, draws, later_values, config.density_floor)
    # y_i = r + discount (Q_i(s', a') - alpha log pi(a'|s')), the target of eq. (10), on critic i's own model
    y = backed_up(config, batch, later[:number] - alpha * log_prob[:number])
    # z = Var[r] + discount^2 (u + U(s', a')), the target of eq. (12)
    z = [u_target(config, local, one, later[-1]) for one, _ in last]
    return Goals(
        critic.for_rivals(config, batch.observation, *(one.observation for one, _ in last)),
        critic.for_rivals(config, batch.action, *(one.action for one, _ in last)),
        critic.for_rivals(config, y, *z),
    )


def losses(
    config: DeepConfig, said: Float[Array, "V B"], goal: Float[Array, "V B"]
) -> tuple[Float[Array, ""], tuple[Float[Array, ""], Float[Array, ""]]]:
    """The sum of the losses of the critics, (y_i - Q_i(s, a))^2 of eq. (10), and of the U-net, eqs. (11) and (12); and both."""
    critics, raw = agents.told_apart(config, said)
    critic_loss = jnp.sum((critics - goal[: config.num_critics]) ** 2)
    if raw is None:
        return critic_loss, (critic_loss, jnp.asarray(jnp.nan, jnp.float32))
    u_loss = unet_loss(config, raw, goal[-1])
    return critic_loss + u_loss, (critic_loss, u_loss)


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


def backed_up(config: DeepConfig, batch: Batch, next_value: Float[Array, "*b"]) -> Float[Array, "*b"]:
    """r + discount * value of the next step, which is 0 after termination (eq. loss_q)."""
    return batch.reward + config.discount * (1.0 - batch.terminated) * next_value


def fitted_to(
    config: DeepConfig,
    networks: MLP,
    outputs: Callable[[MLP], Float[Array, "V B"]],
    loss: Callable[[Float[Array, "V B"]], tuple[Float[Array, ""], T]],
) -> tuple[T, MLP]:
    """What the loss of the networks' outputs says besides its sum, and that sum's gradient with respect to their weights.

    Where factors are rounded to float16, the slopes of each network are first scaled to 1, so that none is out of its range.
    """
    with training_precision(config):
        said, back = jax.vjp(outputs, networks)
        slope, told = jax.grad(loss, has_aux=True)(said)
        if config.precision != "split16":
            return told, back(slope)[0]
        most = jnp.max(jnp.abs(slope), axis=-1)
        scale = jnp.where(most > 0.0, most, 1.0)
        gradient: MLP = jax.tree.map(lambda x: x * scale.reshape(-1, *(1,) * (x.ndim - 1)), back(slope / scale[:, None])[0])
        return told, gradient


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


def largest_variance(low: Float[Array, ""], high: Float[Array, ""]) -> Float[Array, ""]:
    """The largest variance of a random number on an interval: a quarter of its squared width."""
    return 0.25 * (high - low) ** 2
