"""The first buffers of a run on the sparse pendulum, next to the fingerprint of the published ones.

As published, over twelve seeds: the buffers hold 30% to 100% of the transitions, 0% to 33% of them terminal, and the standard
deviation of the rewards is about 12, where it is about 64 with rollouts that end each alone. Models have the paper's size and
training here, with fewer rollouts. Seeds are the first ones of a key; the limits were written after looking at these seeds.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from ubex.deep import loop, steps
from ubex.deep.config import DeepConfig
from ubex.envs.sparse_pendulum import sparse_pendulum

SEEDS = 5
ENV = sparse_pendulum(0.0)
KEYS = jax.random.split(jax.random.key(5), SEEDS)


def test_first_buffers_look_like_the_published_ones() -> None:
    together = DeepConfig(rollout_ends="together", initial_resets=False, rollouts_per_step=3)
    begun = loop.begin(together, ENV, KEYS, 1)
    speeds = np.abs(np.asarray(begun.data[:, : together.initial_steps, 2])).max(axis=1)
    assert 1.0 < np.median(speeds) < 8.0, "published: a median of 4"
    model, fitted = steps.fit(together, ENV.task, KEYS, begun.dynamics, begun.data, jnp.asarray(0))
    assert 1e-3 < float(fitted.error.mean()) < 6e-3, "published: 2e-3 to 3.5e-3 with 1,000 transitions"

    def filled(config: DeepConfig) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Share stored and share terminal of each seed, and the standard deviation of its rewards; means over buffers."""
        known = (model._replace(optimiser=None), begun.agent.actor, begun.data, loop.begin_buffers(config, ENV, SEEDS))
        buffers, outlook = steps.refill(config, ENV.task, KEYS, *known, jnp.asarray(0))
        rewards = np.asarray(buffers.rows[..., ENV.observation_size + ENV.action_size])
        written = np.asarray(buffers.written)
        spread = [np.mean([rewards[k, m, : written[k, m]].std() for m in range(written.shape[1])]) for k in range(SEEDS)]
        return (
            np.asarray(outlook.stored_share).mean(axis=1),
            np.asarray(outlook.terminal_share).mean(axis=1),
            np.asarray(spread),
        )

    stored, terminal, spread = filled(together)
    assert 0.3 <= stored.min() < 0.7, "some seed has a runaway rollout early"
    assert stored.max() == 1.0, "and some seed has none"
    assert terminal.min() == 0.0
    assert 0.1 < terminal.max() <= 0.34
    early = stored < 0.7
    alone_stored, alone_terminal, alone_spread = filled(dataclasses.replace(together, rollout_ends="alone"))
    assert (alone_stored[early] > stored[early]).all(), "each row by itself, more is stored"
    assert (alone_terminal[early] < terminal[early]).all()
    assert (alone_spread[early] > 2.0 * spread[early]).all(), "and what has run away goes on"
    trusted_stored, trusted_terminal, trusted_spread = filled(
        dataclasses.replace(together, rollout_ends="trusted", reward_range=(-0.2, 1.0))
    )
    assert (trusted_stored[early] < alone_stored[early]).all()
    assert trusted_terminal.max() == 0.0
    assert trusted_spread.max() < spread[early].min()
