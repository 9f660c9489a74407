from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from deep.tiny import config
from ubex.deep import buffer
from ubex.deep.config import DeepConfig


def rows(count: int) -> jax.Array:
    return jnp.arange(count, dtype=jnp.float32)[:, None] * jnp.ones((1, 5))


def test_packing_loses_nothing() -> None:
    parts = [jax.random.normal(jax.random.key(i), shape) for i, shape in enumerate([(6, 3), (6, 2), (6,), (6, 3), (6,)])]
    batch = buffer.Batch(*parts)
    assert buffer.pack(batch).shape == (6, buffer.width(3, 2))
    for a, b in zip(buffer.unpack(buffer.pack(batch), 3), batch, strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_capacity_is_the_papers() -> None:
    made = jax.eval_shape(lambda: buffer.empty(DeepConfig(), 9))
    assert made.rows.shape == (1, 10 * 400 * 400, 9)
    locomotion = DeepConfig(retrain_every=250, rollout_length=1, retain=10)
    assert int(np.prod(jax.eval_shape(lambda: buffer.empty(locomotion, 9)).rows.shape[:2])) == 1 * 400 * 250 * 10


def test_invalid_rows_are_never_picked_and_the_oldest_slot_is_overwritten() -> None:
    settings = config(retain=2)
    size = settings.rollouts * settings.rollout_length
    held = buffer.empty(settings, 5)
    for time in range(3):
        valid = jnp.arange(size) % 3 == time
        held = buffer.put(held, jnp.asarray(time % 2), rows(size) + 100.0 * time, valid)
    bits = jax.random.bits(jax.random.key(0), (20000,), jnp.uint32)
    picked = np.asarray(buffer.pick(bits, held))[:, 0]
    expected = [100.0 * time + i for time in (1, 2) for i in range(size) if i % 3 == time]
    values, counts = np.unique(picked, return_counts=True)
    assert sorted(values) == sorted(expected)
    assert counts.min() > 0.85 * 20000 / len(expected)  # all are equally likely
