"""The loop on the host: the same numbers as the compiled one, and what happens when something breaks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import config, drifting

from ubex.deep import host, loop
from ubex.deep.buffer import unpack
from ubex.deep.config import DeepConfig
from ubex.envs.adapter import Moved, World, world
from ubex.runs import checkpoint
from ubex.types import InputError

KEY = jax.random.key(3)
STEPS = 48
"""Forty steps before training, and two segments."""


class Breaking:
    """The environment, which raises at some step."""

    def __init__(self, env: Any, step: int) -> None:
        self.env, self.left = env, step
        self.observation_space, self.action_space = env.observation_space, env.action_space

    def reset(self, *, seed: int | None = None) -> Any:
        return self.env.reset(seed=seed)

    def step(self, action: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise OSError("cable")
        return self.env.step(action)


def new(settings: DeepConfig, env: World | None = None) -> host.HostLoop:
    return host.HostLoop(settings, env or world(drifting()), host.begin(settings, KEY, 1, 1))


def go_on(episode: host.Episode) -> bool:
    return True


def close(a: Any, b: Any) -> None:
    jax.tree.map(lambda x, y: np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=2e-3, atol=2e-4), a, b)


@pytest.fixture(scope="module")
def finished() -> tuple[host.HostLoop, list[host.Episode]]:
    run, seen = new(config()), list[host.Episode]()
    run.run(STEPS, lambda episode: seen.append(episode) is None)
    return run, seen


def test_it_is_the_compiled_loop(finished: tuple[host.HostLoop, list[host.Episode]]) -> None:
    run, seen = finished
    settings, keys = config(), KEY[None]
    seeds, buffers = loop.begin(settings, drifting(), keys, 2), loop.begin_buffers(settings, drifting(), 1)
    for index in range(2):
        seeds, buffers, _ = loop.advance(settings, drifting(), keys, seeds, buffers, index)
    close(run.state.data, seeds.data[0])
    close((run.agent, run.dynamics), jax.tree.map(lambda x: x[0], (seeds.agent, seeds.dynamics)))
    assert [(episode.number, episode.step, episode.length) for episode in seen] == [(i, 10 * (i + 1), 10) for i in range(4)]
    assert seen[0].reward == pytest.approx(float(run.data[:10, 2].sum()), rel=1e-4)
    assert seen[3].info is None
    assert run.fitted is not None
    assert min(run.spent) > 0.0


def test_it_goes_on_from_a_checkpoint(finished: tuple[host.HostLoop, list[host.Episode]], tmp_path: Path) -> None:
    run, _ = finished
    kept = checkpoint.pack(run.count, run.state, {})
    _, state, _ = checkpoint.unpack(kept, host.begin(config(), jax.random.key(0), 1, 1, STEPS), tmp_path)
    again = host.HostLoop(config(), world(drifting()), state)
    again.run(6, go_on)  # ends within a segment
    assert again.count == STEPS + 6
    np.testing.assert_array_equal(again.data[:STEPS], run.data[:STEPS])
    assert float(unpack(jnp.asarray(again.data), 1).observation[STEPS, 0]) == 1.0, "a new episode"
    again.buffers = again.fitted = None  # as in a new process
    again.run(2, go_on)
    assert again.buffers is not None
    assert again.fitted is None, "within a segment the models are those of its start"


def test_sac_learns_from_its_transitions() -> None:
    settings = config(method="sac")
    run = new(settings)
    run.run(STEPS, lambda episode: episode.step < 20)
    assert run.count == 20, "watch stops it"
    run.run(26, go_on)
    np.testing.assert_array_equal(np.asarray(run._on_device), run.data)
    batch = unpack(jnp.asarray(run.data[:46]), 1)
    np.testing.assert_allclose(batch.next_observation, batch.observation + 0.1 * 2.0 * batch.action, atol=1e-6)
    untrained = host.begin(settings, KEY, 1, 1).agent
    assert float(jnp.abs(run.agent.critics.weights[0] - untrained.critics.weights[0]).max()) > 0.0

    run.agent = run.agent._replace(log_alpha=jnp.asarray(jnp.nan, jnp.float32))
    with pytest.raises(FloatingPointError, match="critic_loss and actor_loss is not finite at step 46"):
        run.run(2, go_on)


def test_what_was_learned_before_an_error_is_kept() -> None:
    settings = config(method="sac")
    whole = world(drifting())
    run = new(settings, whole._replace(env=Breaking(whole.env, 43)))
    with pytest.raises(InputError, match="drifting failed at step 43: OSError: cable"):
        run.run(STEPS, go_on)
    assert run.count == 43
    assert run.state.data.shape[0] == 43
    run.world = whole
    run.run(3, go_on)
    assert run.count == 46


def test_a_termination_is_kept_and_a_time_limit_is_not() -> None:
    settings = config(method="sac")
    run = new(settings)
    run._make_room(2)
    for over in (True, False):
        run._keep(np.ones(1, np.float32), np.ones(1, np.float32), Moved(np.ones(1, np.float32), 0.0, over, not over))
    np.testing.assert_array_equal(run.data[:, -1], [1.0, 0.0])
