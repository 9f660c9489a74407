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
    """Rows that models generated, in `retain` slots, one a retraining; the oldest slot is overwritten."""

    rows: Float[Array, "R C D"]
    """A slot holds F x M x k rows: with `retain` of them, the capacity that the paper's formula gives."""
    counts: Int[Array, " R"]
    """Rows of each slot that hold something: rollouts end where a model says that the episode does."""


def empty(config: DeepConfig, row: int) -> ModelBuffer:
    """A buffer before the first rollouts."""
    shape = (config.retain, config.rollouts * config.rollout_length, row)
    return ModelBuffer(jnp.zeros(shape, jnp.float32), jnp.zeros(config.retain, jnp.int32))


def put(buffer: ModelBuffer, slot: Int[Array, ""], rows: Float[Array, "C D"], valid: Bool[Array, " C"]) -> ModelBuffer:
    """Overwrites a slot with the valid rows, moved together."""
    place = jnp.where(valid, jnp.cumsum(valid.astype(jnp.int32)) - 1, rows.shape[0])
    together = jnp.zeros_like(rows).at[place].set(rows, mode="drop", unique_indices=False)
    count = jnp.sum(valid.astype(jnp.int32))
    return ModelBuffer(buffer.rows.at[slot].set(together), buffer.counts.at[slot].set(count))


def pick(bits: UInt32[Array, " B"], buffer: ModelBuffer) -> Float[Array, "B D"]:
    """Rows by random bits: all that are held are equally likely."""
    ends = jnp.cumsum(buffer.counts)
    index = below(bits, ends[-1])
    slot = jnp.searchsorted(ends, index, side="right")
    return buffer.rows[slot, index - (ends - buffer.counts)[slot]]


def below(bits: UInt32[Array, "*b"], limit: Int[Array, ""]) -> Int[Array, "*b"]:
    """Whole numbers below a limit, by random bits; for a million of them, likelihoods differ by a part in four thousand."""
    return (bits % limit.astype(jnp.uint32)).astype(jnp.int32)
