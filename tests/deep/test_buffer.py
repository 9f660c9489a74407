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
    assert made.rows.shape == (10 * 400 * 400, 9)
    locomotion = DeepConfig(retrain_every=250, rollout_length=1, retain=10)
    assert jax.eval_shape(lambda: buffer.empty(locomotion, 9)).rows.shape[0] == 1 * 400 * 250 * 10


def test_a_buffer_is_a_ring_first_in_first_out() -> None:
    """Four retrainings that store a third of their rows each: the last three fill the ring, and what they left is drawn."""
    settings = config()
    size = settings.rollouts * settings.rollout_length
    held = buffer.empty(settings, 5)
    for time in range(4):
        held = buffer.put(held, rows(size) + 100.0 * time, jnp.arange(size) % 3 == time % 3)
    assert int(held.written) == 4 * size // 3
    np.testing.assert_array_equal(held.rows[: size // 3, 0], 300.0 + 3.0 * np.arange(size // 3))  # over the oldest
    bits = jax.random.bits(jax.random.key(0), (20000,), jnp.uint32)
    picked = np.asarray(buffer.pick(bits, held))[:, 0]
    expected = [100.0 * time + i for time in (1, 2, 3) for i in range(size) if i % 3 == time % 3]
    values, counts = np.unique(picked, return_counts=True)
    assert sorted(values) == sorted(expected)
    assert counts.min() > 0.85 * 20000 / len(expected)  # all are equally likely


def test_of_a_buffer_that_is_not_full_only_what_it_holds_is_picked_and_of_an_empty_one_nothing() -> None:
    settings = config()
    size = settings.rollouts * settings.rollout_length
    bits = jax.random.bits(jax.random.key(0), (1000,), jnp.uint32)
    held = buffer.put(buffer.empty(settings, 5), rows(size) + 1.0, jnp.arange(size) % 2 == 0)
    assert set(np.unique(np.asarray(buffer.pick(bits, held))[:, 0])) == {1.0 + i for i in range(0, size, 2)}
    assert bool(jnp.all(jnp.isnan(buffer.pick(bits, buffer.empty(settings, 5)))))
