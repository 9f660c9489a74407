"""Transitions as rows of one array: observation, action, reward, next observation, terminated."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt32

from ubex.deep.config import DeepConfig


class Batch(NamedTuple):
    """Transitions, apart."""

    observation: Float[Array, "*b O"]
    action: Float[Array, "*b A"]
    """In [-1, 1]."""
    reward: Float[Array, "*b"]
    next_observation: Float[Array, "*b O"]
    terminated: Float[Array, "*b"]
    """1 where the episode ended there, else 0."""


def width(observation_size: int, action_size: int) -> int:
    """Numbers in a row."""
    return 2 * observation_size + action_size + 2


def pack(batch: Batch) -> Float[Array, "*b D"]:
    """Transitions as rows."""
    parts = (batch.observation, batch.action, batch.reward[..., None], batch.next_observation, batch.terminated[..., None])
    return jnp.concatenate(parts, axis=-1)


def unpack(rows: Float[Array, "*b D"], observation_size: int) -> Batch:
    """Rows as transitions."""
    action_size = rows.shape[-1] - 2 * observation_size - 2
    first, second = observation_size, observation_size + action_size
    return Batch(rows[..., :first], rows[..., first:second], rows[..., second], rows[..., second + 1 : -1], rows[..., -1])


class ModelBuffer(NamedTuple):
    """Rows that models generated, as a ring: first in, first out.

    A retraining whose rollouts end early writes fewer rows; the older ones that it leaves are drawn as before.
    """

    rows: Float[Array, "C D"]
    """F x M x k x `retain` places, the capacity that the paper's formula gives."""
    written: Int[Array, ""]
    """Rows written so far, those that were overwritten included; the next place is this modulo the capacity."""


def empty(config: DeepConfig, row: int, leading: tuple[int, ...] = ()) -> ModelBuffer:
    """A buffer before the first rollouts, or as many as the leading axes say."""
    shape = (config.retain * config.rollouts * config.rollout_length, row)
    return ModelBuffer(jnp.zeros((*leading, *shape), jnp.float32), jnp.zeros(leading, jnp.int32))


def put(buffer: ModelBuffer, rows: Float[Array, "R D"], valid: Bool[Array, " R"]) -> ModelBuffer:
    """Appends the valid rows, at most as many as there are places, over the oldest ones."""
    capacity = buffer.rows.shape[0]
    rank = jnp.cumsum(valid.astype(jnp.int32))
    place = jnp.where(valid, (buffer.written + rank - 1) % capacity, capacity)  # no such place: the row is dropped
    return ModelBuffer(buffer.rows.at[place].set(rows, mode="drop"), buffer.written + rank[-1])


def pick(bits: UInt32[Array, " B"], buffer: ModelBuffer) -> Float[Array, "B D"]:
    """Rows by random bits: all that are held are equally likely. Of an empty buffer they are NaN, which stops a run."""
    held = jnp.minimum(buffer.written, buffer.rows.shape[0])
    return jnp.where(held > 0, buffer.rows[below(bits, jnp.maximum(held, 1))], jnp.nan)


def below(bits: UInt32[Array, "*b"], limit: Int[Array, ""]) -> Int[Array, "*b"]:
    """Whole numbers below a limit, by random bits; for a million of them, likelihoods differ by a part in four thousand."""
    return (bits % limit.astype(jnp.uint32)).astype(jnp.int32)
