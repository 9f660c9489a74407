"""The U-net, which solves the uncertainty Bellman equation, and the moments that its rewards are made of, by sampling.

The moments are those of `ube.py` with a trailing axis B: at each pair (s, a) of a batch, model i gives a next observation, the
policy gives K actions there, and all critics are asked; critic i is model i's own. Of discrete actions there are all,
with their probabilities.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ubex import ube
from ubex.deep import critics as critic
from ubex.deep import fused, policy
from ubex.deep.buffer import Batch
from ubex.deep.config import DeepConfig
from ubex.deep.dynamics import Dynamics, predict_all
from ubex.deep.networks import MLP, Product, mlp, product, split16_product
from ubex.envs.task import Reward, Task, Terminates
from ubex.types import Key, NextValues


class Sampled(NamedTuple):
    """What the models and critics say of the next step."""

    moments: NextValues
    rewards: Float[Array, "N B"]
    """Every model's mean reward."""
    excess: Float[Array, " B"]
    """What the finite number of actions adds to w on average; 0 unless it is asked for."""


class Local(NamedTuple):
    """One step's uncertainty at each pair of a batch."""

    reward_variance: Float[Array, " B"]
    """Variance over models of the mean reward."""
    u: Float[Array, " B"]
    """Local uncertainty, clipped."""
    w: Float[Array, " B"]
    gap: Float[Array, " B"]


def init(config: DeepConfig, key: Key, task: Task) -> MLP:
    """A U-net with orthogonal weights."""
    return mlp(key, task.observation_size + task.action_size, config.critic_hidden, 1, jnp.tanh)


def variance(config: DeepConfig, raw: Float[Array, "*b"]) -> Float[Array, "*b"]:
    """U, from the network's output: never below the floor."""
    return jax.nn.softplus(raw) + config.floor


class Noise(NamedTuple):
    """Standard normal numbers for one batch."""

    actions: Float[Array, "M B K Z"]
    """The policy's, at each model's next state; M is N, or 1 where all models share it. Z is 0 for discrete actions."""
    states: Float[Array, "N B K O"]
    """The models', for sampled next states; K is 0 where the mean is taken."""


def noise_shapes(config: DeepConfig, task: Task) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes of a `Noise`."""
    actions = config.gap_actions if config.estimator.own_values else config.w_actions
    models = config.num_models if config.w_actions == 1 else 1
    states = config.gap_actions if config.sampled_states and config.estimator.own_values else 0
    return (models, config.batch_size, actions, policy.of(task).noise_size(task.action_size)), (
        config.num_models,
        config.batch_size,
        states,
        task.observation_size,
    )


def next_values(
    config: DeepConfig, task: Task, noise: Noise, dynamics: Dynamics, critics: MLP, actor: MLP, batch: Batch
) -> Sampled:
    """Moments of the values at the next step under every model, by its first critic, and every model's mean reward."""
    critics, multiply = critic.first(config, critics), _multiplication(config)
    said = predict_all(config, dynamics, batch.observation, batch.action, multiply)
    predicted = batch.observation[None] + said.mean[..., :-1]
    after = dynamics.support.possible(predicted)
    rewards = dynamics.support.bounded(said.mean[..., -1]) if task.reward is None else _known_rewards(batch, after, task.reward)
    kind, only_w = policy.of(task), not config.estimator.own_values
    actions = jnp.broadcast_to(noise.actions, (config.num_models, *noise.actions.shape[1:]))
    for_w = actions[:, :, : config.w_actions] if config.sampled_states else actions
    at = kind.actions(actor, after, for_w)
    sampled = at.probability is None
    number = config.w_actions if sampled else task.action_size
    values = _at_actions(config, critics, after, at.action, number) * _alive(batch, after[:, :, None], task.terminates)[:, None]
    mean = jnp.mean(values, axis=1)
    used = mean[..., :number]
    bar = at.mean(used)
    excess = jnp.zeros_like(bar[0])
    if config.debias and sampled:
        residual = ube.member_variance(used - bar[..., None], 1)
        excess = jnp.sum(residual, axis=-1) / (config.w_actions * (config.w_actions - 1.0))
    nothing = jnp.full_like(bar, jnp.nan)
    unknown = NextValues(bar, nothing, nothing, nothing, nothing[0], nothing, jnp.asarray(jnp.nan, bar.dtype))
    if only_w:
        return Sampled(unknown, rewards, excess)
    variance = at.variance
    if config.sampled_states:
        spread = jnp.exp(0.5 * said.log_var[:, :, None, :-1]) * noise.states
        drawn = dynamics.support.possible(predicted[:, :, None] + spread)
        there = kind.actions(actor, drawn, actions[:, :, :, None])
        values = _plainly(config, critics, drawn, there.action) * _alive(batch, drawn, task.terminates)[:, None, ..., None]
        mean, variance = jnp.mean(values, axis=1), there.variance_over_states
    own = jnp.einsum("ii...->i...", values)
    var_bar, var_own, var_gap = (variance(x) for x in (mean, own, own - mean))
    if config.debias:
        var_gap = var_gap * (config.num_models / (config.num_models - 1.0))  # the mean critic holds a share of each own one
    total = jnp.mean(var_bar, axis=0) + ube.member_variance(bar)
    moments = unknown._replace(var_bar=var_bar, var_member=var_own, var_gap=var_gap, total=total)
    return Sampled(moments, rewards, excess)


def _multiplication(config: DeepConfig) -> Product:
    """The product of large matrices in the models' means and the critics' values, which nothing is differentiated through."""
    return split16_product if config.precision == "split16" else product


def _known_rewards(batch: Batch, after: Float[Array, "N B O"], reward: Reward) -> Float[Array, "N B"]:
    """The known reward at every model's next observation: models differ in it as far as they differ there."""
    return jax.vmap(jax.vmap(reward), in_axes=(None, None, 0))(batch.observation, batch.action, after)


def _alive(batch: Batch, after: Float[Array, "N B J O"], terminates: Terminates) -> Float[Array, "N B J"]:
    """0 where a model's next observation ends the episode, so that there is no value after it."""
    one = jax.vmap(terminates, in_axes=(None, None, 0))
    over = jax.vmap(jax.vmap(one), in_axes=(None, None, 0))(batch.observation, batch.action, after)
    return 1.0 - over.astype(jnp.float32)


def _at_actions(
    config: DeepConfig, critics: MLP, observation: Float[Array, "N B O"], action: Float[Array, "N B K A"], exact: int
) -> Float[Array, "N C B K"]:
    """What every critic says at each model's next observations and the policy's actions there, of which the first are for w."""
    if config.precision == "split16" and fused.available() and fused.fits(critics):
        state, actions = observation.reshape(-1, observation.shape[-1]), action.reshape(-1, *action.shape[2:])
        said = fused.at_actions(critics, state, actions[:, :exact])
        if actions.shape[1] > exact:  # w is a difference between models, the gap one between actions, which is less delicate
            said = jnp.concatenate((said, fused.at_actions(critics, state, actions[:, exact:], split=False)), axis=-1)
        return jnp.moveaxis(said.reshape(-1, *action.shape[:3]), 0, 1)
    return _plainly(config, critics, observation, action)


def _plainly(
    config: DeepConfig, critics: MLP, observation: Float[Array, "N *b O"], action: Float[Array, "N *b K A"]
) -> Float[Array, "N C *b K"]:
    """The same for any number of observations."""
    said = jax.vmap(lambda one: one.at_actions(observation, action, _multiplication(config))[..., 0])(critics)
    return jnp.moveaxis(said, 0, 1)


def local(config: DeepConfig, task: Task, noise: Noise, dynamics: Dynamics, critics: MLP, actor: MLP, batch: Batch) -> Local:
    """The uncertainty rewards of a batch (eqs. pombu_q_rewards and exact_ube_q_rewards, by sampling)."""
    seen = next_values(config, task, noise, dynamics, critics, actor, batch)
    estimate = config.estimator.local
    assert estimate is not None
    w = ube.epistemic(seen.moments, 1)
    u = estimate(seen.moments, 1)
    return Local(ube.member_variance(seen.rewards, 1), ube.clip(u - seen.excess, config.u_min), w - seen.excess, w - u)
