"""Model rollouts: model-randomised (another model at each step) and model-consistent (one model for good)."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ubex.deep import policy
from ubex.deep.buffer import Batch, ModelBuffer, below, pack, put, unpack
from ubex.deep.config import DeepConfig
from ubex.deep.dynamics import Dynamics, Prediction, predict
from ubex.deep.networks import MLP, Product, product, rounded_product
from ubex.envs.task import Task
from ubex.types import Key

CHUNKS = 16
"""A step of all rollouts is made in about this many parts, one after the other, so that activations stay small."""


def multiplication(config: DeepConfig) -> Product:
    """The product of large matrices in a rollout.

    With `split16` factors are rounded to eleven bits: it shifts a drawn observation by far less than the noise that it is drawn
    with, whose standard deviation the models bound from below.
    """
    return rounded_product if config.precision == "split16" else product


class Rows(NamedTuple):
    """What rollouts give, one entry per step and rollout."""

    batch: Batch
    stored: Bool[Array, "*b"]
    """Whether the transition happened before its rollout ended, so that a buffer holds it."""
    outside: Bool[Array, "*b"]
    """Whether a model was asked there and its next observation lies outside the box around the data."""


class Outlook(NamedTuple):
    """What the rollouts of one retraining looked like, in each buffer."""

    stored_share: Float[Array, "*k M"]
    """Transitions that were stored, of all that rollouts of full length would give."""
    terminal_share: Float[Array, "*k M"]
    """Of the stored ones."""
    outside_share: Float[Array, "*k M"]
    """Predictions outside the box around the data, of all that were made."""
    reward_low: Float[Array, "*k M"]
    """The smallest stored reward."""
    reward_high: Float[Array, "*k M"]


def predict_own(
    config: DeepConfig, dynamics: Dynamics, observation: Float[Array, "N B O"], action: Float[Array, "N B A"]
) -> Prediction:
    """What every model says of its own rows."""
    multiply = multiplication(config)
    return jax.vmap(lambda one, prior, o, a: predict(config, one, dynamics.normaliser, o, a, multiply, prior))(
        dynamics.networks, dynamics.prior, observation, action
    )


def predict_dealt(
    config: DeepConfig, key: Key, dynamics: Dynamics, observation: Float[Array, "B O"], action: Float[Array, "B A"]
) -> Prediction:
    """What a random model says of each row: rows are shuffled and dealt in equal parts, so that a model sees its own alone."""
    number, models = observation.shape[0], config.num_models
    share = -(-number // models)
    dealt = jnp.argsort(jax.random.bits(key, (share * models,), jnp.uint32))  # places beyond the rows repeat some
    place = jnp.zeros_like(dealt).at[dealt].set(jnp.arange(share * models, dtype=dealt.dtype))[:number]
    parts = [x[dealt % number].reshape(models, share, -1) for x in (observation, action)]
    said = predict_own(config, dynamics, parts[0], parts[1])
    return Prediction(*(x.reshape(share * models, -1)[place] for x in said))


def transition(
    task: Task,
    key: Key,
    said: Prediction,
    dynamics: Dynamics,
    observation: Float[Array, "M B O"],
    action: Float[Array, "M B A"],
) -> Batch:
    """A next observation and a reward, such as there can be, drawn from what models say; a known reward is not drawn."""
    drawn = said.mean + jnp.exp(0.5 * said.log_var) * jax.random.normal(key, said.mean.shape, jnp.float32)
    after, earned = dynamics.support.possible(observation + drawn[..., :-1]), dynamics.support.bounded(drawn[..., -1])
    over = jax.vmap(jax.vmap(task.terminates))(observation, action, after).astype(jnp.float32)
    if task.reward is not None:
        earned = jax.vmap(jax.vmap(task.reward))(observation, action, after)
    return Batch(observation, action, earned, after, over)


def rollouts(config: DeepConfig, task: Task, key: Key, dynamics: Dynamics, actor: MLP, start: Float[Array, "P M B O"]) -> Rows:
    """Rollouts of the policy: P parts for M buffers, the model-randomised one first, then one for each model.

    The result has the steps on a leading axis. `config.rollout_ends` says what ends a rollout, and what is stored then.
    """
    multiply = multiplication(config)

    def part(given: tuple[Key, Float[Array, "M B O"]]) -> Batch:
        for_action, for_deal, for_noise = jax.random.split(given[0], 3)
        observation = given[1]
        action = policy.of(task).draw(actor, observation, for_action, multiply)
        said = Prediction(*(x[None] for x in predict_dealt(config, for_deal, dynamics, observation[0], action[0])))
        if len(observation) > 1:
            own = predict_own(config, dynamics, observation[1:], action[1:])
            said = Prediction(*(jnp.concatenate(pair) for pair in zip(said, own, strict=True)))
        return transition(task, for_noise, said, dynamics, observation, action)

    def step(carry: tuple[Array, Bool[Array, "P M B"]], key: Key) -> tuple[tuple[Array, Array], Rows]:
        observation, alive = carry
        batch = jax.lax.map(part, (jax.random.split(key, len(start)), observation))
        over, stored = batch.terminated > 0.5, alive
        outside = dynamics.support.outside(batch.next_observation)
        if config.rollout_ends == "together":
            over = jnp.broadcast_to(jnp.any(over, axis=(0, 2), keepdims=True), over.shape)
        elif config.rollout_ends == "trusted":
            stored = alive & ~outside
        batch = batch._replace(terminated=over.astype(jnp.float32))
        return (batch.next_observation, stored & ~over), Rows(batch, stored, alive & outside)

    alive = jnp.ones(start.shape[:3], bool)
    return jax.lax.scan(step, (start, alive), jax.random.split(key, config.rollout_length))[1]


def refill(
    config: DeepConfig,
    task: Task,
    key: Key,
    dynamics: Dynamics,
    actor: MLP,
    buffers: ModelBuffer,
    data: Float[Array, "C D"],
    count: Int[Array, ""],
) -> tuple[ModelBuffer, Outlook]:
    """New rollouts from observed states in every buffer: model-randomised first, then one buffer per model.

    `buffers` has a leading axis over the buffers. Where no prediction can be trusted, a buffer that holds nothing yet gets the
    observed transitions that its rollouts begin with.
    """
    number = buffers.rows.shape[0]
    parts = next(parts for parts in range(min(CHUNKS, config.rollouts), 0, -1) if config.rollouts % parts == 0)
    for_start, for_steps = jax.random.split(key)
    chosen = below(jax.random.bits(for_start, (parts, number, config.rollouts // parts), jnp.uint32), count)
    observed = data[chosen]
    made = rollouts(config, task, for_steps, dynamics, actor, unpack(observed, task.observation_size).observation)

    def by_buffer(x: Array) -> Array:
        """All steps of one buffer together, the first step first."""
        return jnp.moveaxis(x, 2, 0).reshape(number, config.rollout_length * config.rollouts, *x.shape[4:])

    rows, stored = by_buffer(pack(made.batch)), by_buffer(made.stored)
    if config.rollout_ends == "trusted":
        nothing = (buffers.written == 0) & ~jnp.any(stored, axis=-1)
        first = jnp.arange(stored.shape[-1]) < config.rollouts
        known = jnp.moveaxis(observed, 1, 0).reshape(number, config.rollouts, -1)
        rows = rows.at[:, : config.rollouts].set(jnp.where(nothing[:, None, None], known, rows[:, : config.rollouts]))
        stored = stored | (nothing[:, None] & first[None])
    # else XLA adds up a constant of this size while it compiles
    stored = jax.lax.optimization_barrier(stored)  # type: ignore[no-untyped-call]
    filled = jax.vmap(put)(buffers, rows, stored)
    return filled, _outlook(Rows(unpack(rows, task.observation_size), stored, by_buffer(made.outside)))


def _outlook(made: Rows) -> Outlook:
    held, reward = made.stored.astype(jnp.float32), made.batch.reward
    number, asked = jnp.sum(held, axis=-1), jnp.sum((made.stored | made.outside).astype(jnp.float32), axis=-1)
    return Outlook(
        jnp.mean(held, axis=-1),
        jnp.sum(held * made.batch.terminated, axis=-1) / number,
        jnp.sum(made.outside.astype(jnp.float32), axis=-1) / asked,
        jnp.min(jnp.where(made.stored, reward, jnp.inf), axis=-1),
        jnp.max(jnp.where(made.stored, reward, -jnp.inf), axis=-1),
    )
