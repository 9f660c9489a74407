"""The loop on the host: the same numbers as the compiled one, and what happens when something breaks."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deep.tiny import LINE, config, drifting
from ubex.deep import host, loop
from ubex.deep.buffer import unpack
from ubex.deep.config import DeepConfig
from ubex.envs.adapter import Moved, World, world
from ubex.envs.continuous import ContinuousEnv
from ubex.envs.task import never
from ubex.runs import checkpoint
from ubex.types import InputError

KEY = jax.random.key(3)
STEPS = 48
"""Forty steps before training, and two segments."""


class Breaking:
    """The environment, which raises at some step, or gives a large reward from then on."""

    def __init__(self, env: Any, step: int, reward: float | None = None) -> None:
        self.env, self.left, self.reward = env, step, reward
        self.observation_space, self.action_space = env.observation_space, env.action_space

    def reset(self, *, seed: int | None = None) -> Any:
        return self.env.reset(seed=seed)

    def step(self, action: Any) -> Any:
        self.left -= 1
        if self.left < 0 and self.reward is None:
            raise OSError("cable")
        observation, reward, *rest = self.env.step(action)
        return observation, reward if self.left >= 0 or self.reward is None else self.reward, *rest


@functools.lru_cache
def shaken() -> ContinuousEnv:
    """The drifting environment with noise in every step and a random start."""
    calm = drifting()

    def step(key: Any, state: Any, action: Any) -> Any:
        return calm.step(key, state + 0.05 * jax.random.normal(key, (1,), jnp.float32), action)

    return calm._replace(name="shaken", reset=lambda key: jax.random.normal(key, (1,), jnp.float32), step=step)


def new(settings: DeepConfig, env: World | None = None) -> host.HostLoop:
    return host.HostLoop(settings, env or world(drifting()), host.begin(settings, LINE, KEY))


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
    assert run.termination is None, "the environment knows where it ends"
    close(run.state.data, seeds.data[0])
    close((run.agent, run.dynamics), jax.tree.map(lambda x: x[0], (seeds.agent, seeds.dynamics)))
    assert [(episode.number, episode.step, episode.length) for episode in seen] == [(i, 10 * (i + 1), 10) for i in range(4)]
    assert seen[0].reward == pytest.approx(float(run.data[:10, 2].sum()), rel=1e-4)
    assert seen[3].info is None
    assert run.fitted is not None
    assert min(run.spent) > 0.0


def through_a_file(run: host.HostLoop, settings: DeepConfig, env: World) -> host.HostLoop:
    """The run as another process finds it."""
    kept = checkpoint.pack(run.count, run.state, {})
    known = [one.termination is not None for one in run.refills]
    like = host.begin(settings, LINE, jax.random.key(0), run.count, run.termination is not None, known)
    return host.HostLoop(settings, env, checkpoint.unpack(kept, like, Path())[1])


@pytest.mark.parametrize(("method", "retain"), [("exact-ube", 1), ("pombu", 3), ("sac", 1)])
def test_a_run_that_was_stopped_goes_on_to_the_last_bit(method: str, retain: int) -> None:
    """It breaks within a segment and an episode, after the rounds of the step and before its transition.

    Buffers that outlive a retraining are made again as well.
    """
    settings, whole = config(method=method, retain=retain), world(shaken())
    start = host.begin(settings, LINE, KEY, 0, True)
    straight = host.HostLoop(settings, whole, start)
    straight.run(STEPS, go_on)
    run = host.HostLoop(settings, whole._replace(env=Breaking(whole.env, 46)), start)
    with pytest.raises(InputError, match="shaken failed at step 46: OSError: cable"):
        run.run(STEPS, go_on)
    assert (run.count, run.state.data.shape[0], run.elapsed) == (46, 46, 6)
    again = through_a_file(run, settings, world(shaken()))
    again.run(2, go_on)
    assert again.fitted is None, "within a segment the models are those of its start"
    assert (again.termination is None, again._ends) == (method == "sac", None), "nothing ended, so nothing was learned of it"
    for mine, whole_run in zip(jax.tree.leaves(again.state), jax.tree.leaves(straight.state), strict=True):
        if not isinstance(mine, jax.Array) or not jnp.issubdtype(mine.dtype, jax.dtypes.prng_key):
            np.testing.assert_array_equal(np.asarray(mine), np.asarray(whole_run))


def test_environments_on_the_host_begin_anew_at_the_horizon() -> None:
    with pytest.raises(InputError, match="initial_resets must be True"):
        host.begin(config(initial_resets=False), LINE, KEY)


def test_an_episode_that_does_not_come_back_is_begun_anew(caplog: pytest.LogCaptureFixture) -> None:
    settings, whole = config(method="sac"), world(drifting())
    run = new(settings, whole)
    run.run(13, go_on)
    run.data[11, 0] += 0.1  # as if the environment had been somewhere else
    with caplog.at_level("WARNING", "ubex"):
        run.run(2, go_on)
    assert "drifting does not give the same episode for the same seed and actions: going on at step 13" in caplog.text
    assert (run.count, run.elapsed, run.begun) == (15, 2, 3)
    assert float(run.data[13, 0]) == 1.0, "the start of an episode"


def test_sac_is_the_compiled_loop() -> None:
    settings, keys = config(method="sac"), KEY[None]
    run = new(settings)
    run.run(STEPS, lambda episode: episode.step < 20)
    assert run.count == 20, "watch stops it"
    run.run(STEPS - 20, go_on)
    seeds, buffers = loop.begin(settings, drifting(), keys, 2), None
    for index in range(2):
        seeds, buffers, _ = loop.advance(settings, drifting(), keys, seeds, buffers, index)
    close(run.data[:STEPS], seeds.data[0])
    close(run.agent, jax.tree.map(lambda x: x[0], seeds.agent))
    np.testing.assert_array_equal(np.asarray(run._on_device), run.data)
    batch = unpack(jnp.asarray(run.data[:STEPS]), 1)
    np.testing.assert_allclose(batch.next_observation, batch.observation + 0.1 * 2.0 * batch.action, atol=1e-6)


def test_a_loss_that_is_not_finite_costs_a_segment() -> None:
    settings, whole = config(method="sac"), world(drifting())
    run, sound = new(settings, whole._replace(env=Breaking(whole.env, 45, reward=1e30))), new(settings, whole)
    message = "critic_loss is not finite at step 4[567]; the agent is kept as it was at step 44"
    with pytest.raises(FloatingPointError, match=message):
        run.run(STEPS, go_on)
    assert (run.count, run.elapsed) == (44, 4)
    sound._make_room(STEPS)
    sound.run(44, go_on)
    jax.tree.map(np.testing.assert_array_equal, run.state.agent, sound.state.agent)
    run.world = whole
    run.run(2, go_on)
    assert run.count == 46
    run.agent = run.agent._replace(log_alpha=jnp.asarray(jnp.nan, jnp.float32))
    with pytest.raises(FloatingPointError, match="a weight is not finite at step 46"):
        run.run(2, go_on)


def test_terminations_are_learned_and_rewards_may_be_known() -> None:
    """The models' rollouts end where the classifier says, and hold the reward that was given."""
    settings = config(method="mbpo", rollouts_per_step=50, updates_per_step=1)
    env = world(drifting(), reward=lambda o, a, n: 7.0 + 0.0 * n[0])
    env = env._replace(task=env.task._replace(terminates=never))
    run = host.HostLoop(settings, env, host.begin(settings, LINE, KEY, 0, True))
    run._make_room(STEPS)
    run.run(40, go_on)
    run.data[:40, -1] = run.data[:40, 3] > np.median(run.data[:40, 3])
    run.run(1, go_on)
    assert run._ends is not None
    assert run.buffers is not None
    rows = np.asarray(run.buffers.rows)[0, : int(run.buffers.written[0])]
    assert set(rows[:, 2].tolist()) == {7.0}
    assert 0.2 < rows[:, -1].mean() < 0.8
    above, below = rows[rows[:, -1] > 0.5, 3], rows[rows[:, -1] < 0.5, 3]
    assert above.mean() > below.mean()
    again = through_a_file(run, settings, env)
    again.run(1, go_on)
    np.testing.assert_array_equal(again.buffers.rows, run.buffers.rows)


def test_a_termination_is_kept_and_a_time_limit_is_not() -> None:
    settings = config(method="sac")
    run = new(settings)
    run._make_room(2)
    for over in (True, False):
        run._keep(np.ones(1, np.float32), np.ones(1, np.float32), Moved(np.ones(1, np.float32), 0.0, over, not over))
    np.testing.assert_array_equal(run.data[:, -1], [1.0, 0.0])
