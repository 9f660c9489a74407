"""Model rollouts: model-randomised (another model at each step) and model-consistent (one model for good)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ubex.deep import actor as policy
from ubex.deep.buffer import Batch, ModelBuffer, below, pack, put, unpack
from ubex.deep.config import DeepConfig
from ubex.deep.dynamics import Dynamics, Prediction, predict
from ubex.deep.networks import MLP, Product, product, rounded_product
from ubex.types import Key

CHUNKS = 16
"""Rollouts are made in about this many parts, one after the other, so that activations stay small."""

Terminates = Callable[[Float[Array, " O"], Float[Array, " A"], Float[Array, " O"]], Bool[Array, ""]]
Reward = Callable[[Float[Array, " O"], Float[Array, " A"], Float[Array, " O"]], Float[Array, ""]]
"""Of (observation, action in [-1, 1], next observation), where it is known; None means that the models predict it."""


def multiplication(config: DeepConfig) -> Product:
    """The product of large matrices in a rollout.

    With `halves` factors are rounded to eleven bits: it shifts a drawn observation by far less than the noise that it is drawn
    with, whose standard deviation the models bound from below.
    """
    return rounded_product if config.precision == "halves" else product


class Box(NamedTuple):
    """Bounds of what models may predict: next observation, then reward."""

    low: Float[Array, " Y"]
    high: Float[Array, " Y"]


def around(data: Float[Array, "C D"], count: Int[Array, ""], observation_size: int, margin: float) -> Box:
    """The range of the next observations and rewards in the first `count` rows, widened on both sides by this share of it."""
    batch = unpack(data, observation_size)
    seen = jnp.concatenate((batch.next_observation, batch.reward[:, None]), axis=-1)
    held = (jnp.arange(data.shape[0]) < count)[:, None]
    low, high = jnp.min(jnp.where(held, seen, jnp.inf), axis=0), jnp.max(jnp.where(held, seen, -jnp.inf), axis=0)
    return Box(low - margin * (high - low), high + margin * (high - low))


class Rows(NamedTuple):
    """What rollouts give: rows, and which of them happened before their rollout ended."""

    rows: Float[Array, "*b D"]
    valid: Bool[Array, "*b"]


def transition(
    key: Key,
    said: Prediction,
    observation: Float[Array, "B O"],
    action: Float[Array, "B A"],
    terminates: Terminates,
    reward: Reward | None = None,
    box: Box | None = None,
) -> Batch:
    """A next observation and a reward drawn from what a model says; a reward that is known is not drawn."""
    drawn = said.mean + jnp.exp(0.5 * said.log_var) * jax.random.normal(key, said.mean.shape, jnp.float32)
    after, earned = observation + drawn[:, :-1], drawn[:, -1]
    if box is not None:
        after = jnp.clip(after, box.low[None, :-1], box.high[None, :-1])
        earned = jnp.clip(earned, box.low[-1], box.high[-1])
    over = jax.vmap(terminates)(observation, action, after).astype(jnp.float32)
    if reward is not None:
        earned = jax.vmap(reward)(observation, action, after)
    return Batch(observation, action, earned, after, over)


def rollouts(
    step: Callable[[Key, Float[Array, "B O"], Float[Array, "B A"]], Batch],
    actor: MLP,
    key: Key,
    start: Float[Array, "B O"],
    length: int,
    multiply: Product = product,
) -> Rows:
    """Rollouts of the policy in a model, k rows for every start; after its end, a rollout's rows are invalid."""

    def one(carry: tuple[Float[Array, "B O"], Bool[Array, " B"]], key: Key) -> tuple[tuple[Array, Array], Rows]:
        observation, alive = carry
        for_action, for_model = jax.random.split(key)
        at = policy.gaussian(actor, observation, multiply)
        action = policy.squash(at, jax.random.normal(for_action, at.mean.shape, jnp.float32)).action
        batch = step(for_model, observation, action)
        return (batch.next_observation, alive & (batch.terminated < 0.5)), Rows(pack(batch), alive)

    alive = jnp.ones(start.shape[0], bool)
    return jax.lax.scan(one, (start, alive), jax.random.split(key, length))[1]


def consistent(
    config: DeepConfig,
    key: Key,
    dynamics: Dynamics,
    actor: MLP,
    start: Array,
    terminates: Terminates,
    reward: Reward | None = None,
    box: Box | None = None,
) -> Rows:
    """Rollouts of all models, each in its own; starts and rows have a leading axis N."""
    multiply = multiplication(config)

    def of_one(key: Key, network: MLP, start: Float[Array, "B O"]) -> Rows:
        def step(key: Key, observation: Float[Array, "B O"], action: Float[Array, "B A"]) -> Batch:
            said = predict(config, network, dynamics.normaliser, observation, action, multiply)
            return transition(key, said, observation, action, terminates, reward, box)

        return rollouts(step, actor, key, start, config.rollout_length, multiply)

    return jax.vmap(of_one)(jax.random.split(key, config.num_models), dynamics.networks, start)


def randomised(
    config: DeepConfig,
    key: Key,
    dynamics: Dynamics,
    actor: MLP,
    start: Array,
    terminates: Terminates,
    reward: Reward | None = None,
    box: Box | None = None,
) -> Rows:
    """Rollouts in which every row has another model at each step.

    Rows are shuffled and dealt to the models in equal parts, so that each model computes its own rows alone.
    """
    number, models, multiply = start.shape[0], config.num_models, multiplication(config)
    share = -(-number // models)

    def step(key: Key, observation: Float[Array, "B O"], action: Float[Array, "B A"]) -> Batch:
        for_models, for_noise = jax.random.split(key)
        dealt = jnp.argsort(jax.random.bits(for_models, (share * models,), jnp.uint32))  # places beyond the rows repeat some
        place = jnp.zeros_like(dealt).at[dealt].set(jnp.arange(share * models, dtype=dealt.dtype))[:number]
        parts = (x[dealt % number].reshape(models, share, -1) for x in (observation, action))
        said = jax.vmap(lambda one, o, a: predict(config, one, dynamics.normaliser, o, a, multiply))(dynamics.networks, *parts)
        back = Prediction(*(x.reshape(share * models, -1)[place] for x in said))
        return transition(for_noise, back, observation, action, terminates, reward, box)

    return rollouts(step, actor, key, start, config.rollout_length, multiply)


def refill(
    config: DeepConfig,
    key: Key,
    dynamics: Dynamics,
    actor: MLP,
    buffers: ModelBuffer,
    data: Float[Array, "C D"],
    count: Int[Array, ""],
    slot: Int[Array, ""],
    observation_size: int,
    terminates: Terminates,
    reward: Reward | None = None,
) -> ModelBuffer:
    """New rollouts from observed states in one slot of every buffer: model-randomised first, then one buffer a model.

    `buffers` has a leading axis over the buffers.
    """
    number = buffers.rows.shape[0]
    parts = next(parts for parts in range(min(CHUNKS, config.rollouts), 0, -1) if config.rollouts % parts == 0)
    size = config.rollouts // parts
    margin = config.rollout_margin
    box = None if margin is None else around(data, count, observation_size, margin)

    def chunk(key: Key) -> Rows:
        for_start, for_mixed, for_own = jax.random.split(key, 3)
        chosen = below(jax.random.bits(for_start, (number, size), jnp.uint32), count)
        start = unpack(data[chosen], observation_size).observation
        mixed = randomised(config, for_mixed, dynamics, actor, start[0], terminates, reward, box)
        if number == 1:
            return Rows(*(x[None] for x in mixed))
        own = consistent(config, for_own, dynamics, actor, start[1:], terminates, reward, box)
        return Rows(*(jnp.concatenate((a[None], b)) for a, b in zip(mixed, own, strict=True)))

    made = jax.lax.map(chunk, jax.random.split(key, parts))  # parts, buffers, steps, rollouts
    rows = jnp.moveaxis(made.rows, 1, 0).reshape(number, -1, made.rows.shape[-1])
    valid = jnp.moveaxis(made.valid, 1, 0).reshape(number, -1)
    return jax.vmap(put, in_axes=(0, None, 0, 0))(buffers, slot, rows, valid)
