"""The loop on the host: the same numbers as the compiled one, and what happens when something breaks."""

from __future__ import annotations

import functools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deep.tiny import LINE, config, drifting
from ubex.deep import host, loop, seeds, steps
from ubex.deep.buffer import unpack
from ubex.deep.config import DeepConfig
from ubex.deep.seeds import HostState
from ubex.envs.adapter import Episode, HostedEnv, Moved, answer, hosted
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


class Going:
    """A loop of one or several seeds and where it is, for tests that stop and look."""

    def __init__(self, settings: DeepConfig, env: HostedEnv | list[HostedEnv], *states: HostState) -> None:
        envs = env if isinstance(env, list) else [env]

        def ask(method: str, words: Any) -> Any:
            return {k: answer(envs[k], method, given) for k, given in words.items()}

        self.loop = host.HostLoop(settings, envs[0], ask=ask if len(envs) > 1 else None)
        self.now = self.loop.resumed(seeds.together(states))
        self.seen = list[Episode]()

    @property
    def state(self) -> HostState:
        """Of the first seed; its data are those of the run."""
        return seeds.alone(self.now.state, 0)

    def to(self, goal: int) -> Going:
        """Pieces until a step; what they raise leaves the run before them."""
        self.now = self.loop.ready(self.now, goal)
        while self.state.step < goal:
            self.now, shown = self.loop.piece(self.now, goal)
            if isinstance(shown, FloatingPointError):
                raise shown
            self.seen += [] if shown is None else shown.values()
        return self


def new(settings: DeepConfig, env: HostedEnv | None = None) -> Going:
    return Going(settings, env or hosted(drifting()), seeds.begin(settings, LINE, KEY))


def close(a: Any, b: Any) -> None:
    jax.tree.map(lambda x, y: np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=2e-3, atol=2e-4), a, b)


def test_it_is_the_compiled_loop() -> None:
    run, settings, keys = new(config()).to(STEPS), config(), KEY[None]
    other, buffers = loop.begin(settings, drifting(), keys, 2), loop.begin_buffers(settings, drifting(), 1)
    for index in range(2):
        other, buffers, _ = loop.advance(settings, drifting(), keys, other, buffers, index)
    assert run.state.termination is None, "the environment knows where it ends"
    close(run.loop.saved(run.now).data, other.data)
    close((run.now.state.agent, run.now.state.dynamics), (other.agent, other.dynamics))
    seen = run.seen
    assert [(episode.number, episode.step, episode.length) for episode in seen] == [(i, 10 * (i + 1), 10) for i in range(4)]
    assert seen[0].reward == pytest.approx(float(run.state.data[:10, 2].sum()), rel=1e-4)
    assert seen[3].losses == {}
    shown = run.loop.shown(run.now, 0)
    assert {"critic_loss", "critic_std", "variance", "w", "gap", "u", "alpha"} <= set(shown)
    assert shown["model_error"] == run.loop.inside(run.now)[0, seeds.INSIDE.index("model_error")] > 0.0
    assert 0.0 <= shown["outside_share"] <= 1.0
    assert min(run.loop.clock.spent) > 0.0


def through_a_file(run: Going, settings: DeepConfig, env: HostedEnv) -> Going:
    """The run as another process finds it."""
    state = seeds.alone(run.loop.saved(run.now), 0)
    known = [one.termination is not None for one in state.refills]
    like = seeds.begin(settings, LINE, jax.random.key(0), state.step, state.termination is not None, known)
    return Going(settings, env, checkpoint.unpack(checkpoint.pack(state.step, state, {}), like, Path())[1])


@pytest.mark.parametrize(("method", "retain"), [("exact-ube", 1), ("pombu", 3), ("sac", 1)])
def test_a_run_that_was_stopped_goes_on_to_the_last_bit(method: str, retain: int) -> None:
    """It breaks within a segment and an episode, after the rounds of the step and before its transition.

    Buffers that outlive a retraining are made again as well.
    """
    settings, whole = config(method=method, retain=retain), hosted(shaken())
    start = seeds.begin(settings, LINE, KEY, 0, True)
    straight = Going(settings, whole, start).to(STEPS)
    run = Going(settings, whole._replace(env=Breaking(whole.env, 46)), start)
    with pytest.raises(InputError, match="shaken failed at step 46, in episode 4: OSError: cable"):
        run.to(STEPS)
    assert (run.state.step, run.loop.saved(run.now).data.shape[1], run.state.elapsed) == (46, 46, 6)
    assert np.isnan(run.state.pending).any() == (method == "sac"), "with a model, the rounds were made before the step"
    again = through_a_file(run, settings, hosted(shaken())).to(STEPS)
    assert np.isnan(again.now.inside).all(), "within a segment the models are those of its start"
    assert (again.state.termination is None, again.now.ends) == (method == "sac", None), "nothing ended: nothing was learned"
    for mine, whole_run in zip(*(jax.tree.leaves(one.loop.saved(one.now)) for one in (again, straight)), strict=True):
        if not isinstance(mine, jax.Array) or not jnp.issubdtype(mine.dtype, jax.dtypes.prng_key):
            np.testing.assert_array_equal(np.asarray(mine), np.asarray(whole_run))


def test_an_interrupt_while_the_agent_is_used_up_costs_a_segment() -> None:
    run = new(config(method="sac")).to(46)
    sound = run.now.sound
    assert sound is not None
    run.now.state.agent.log_alpha.delete()  # as gradient rounds do, whose answer never came
    assert run.loop.saved(run.now).step == sound.step == 44
    assert run.to(STEPS).state.step == STEPS


def test_environments_on_the_host_begin_anew_at_the_horizon() -> None:
    with pytest.raises(InputError, match="initial_resets must be True"):
        seeds.begin(config(initial_resets=False), LINE, KEY)


def test_an_episode_that_does_not_come_back_is_begun_anew(caplog: pytest.LogCaptureFixture) -> None:
    run = new(config(method="sac")).to(13)
    run.state.data[11, 0] += 0.1  # as if the environment had been somewhere else
    with caplog.at_level("WARNING", "ubex"):
        run.to(15)
    assert "drifting does not give the same episode for the same seed and actions: going on at step 13" in caplog.text
    assert (run.state.step, run.state.elapsed, run.state.begun) == (15, 2, 3)
    assert float(run.state.data[13, 0]) == 1.0, "the start of an episode"


@pytest.mark.parametrize("method", ["exact-ube", "sac"])
def test_the_device_is_busy_with_rounds_before_the_host_looks_at_the_action(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a model; `sac` learns from the newest transition too."""
    seen, actions, settings = list[str](), list[Any](), config(method=method)

    def chosen(*given: Any) -> Any:
        actions.append(steps.act(*given))
        return actions[-1]

    def looked(x: Any, *rest: Any) -> Any:
        seen.extend(["look"] * any(x is action for action in actions))
        return np.asarray(x, *rest)

    class Watched(Breaking):
        def step(self, action: Any) -> Any:
            seen.append("step")
            return super().step(action)

    def started(*given: Any) -> Any:
        seen.append("rounds")
        return steps.rounds_after(*given)

    monkeypatch.setattr(host, "steps", SimpleNamespace(**{**vars(steps), "act": chosen, "rounds_after": started}))
    monkeypatch.setattr(host, "np", SimpleNamespace(**{**vars(np), "asarray": looked}))
    env = hosted(drifting())
    going, goal = new(settings, env._replace(env=Watched(env.env, 1000))), settings.initial_steps + 2
    run = going.loop.ready(going.now, goal)
    while run.state.step < goal:
        run, _ = going.loop.piece(run, goal)
    once = ["rounds", "look", "step"] if settings.model_based else ["look", "step", "rounds"]
    assert seen == ["look", "step"] * settings.initial_steps + once * 2


def test_sac_is_the_compiled_loop() -> None:
    settings, keys = config(method="sac"), KEY[None]
    run = new(settings)
    run.now = run.loop.ready(run.now, STEPS)  # programs and draws are for all steps
    run.to(20).to(STEPS)
    other, buffers = loop.begin(settings, drifting(), keys, 2), None
    for index in range(2):
        other, buffers, _ = loop.advance(settings, drifting(), keys, other, buffers, index)
    close(run.now.state.data[:, :STEPS], other.data)
    close(run.now.state.agent, other.agent)
    assert run.now.on_device is not None
    np.testing.assert_array_equal(np.asarray(run.now.on_device), run.now.state.data)
    batch = unpack(jnp.asarray(run.state.data[:STEPS]), 1)
    np.testing.assert_allclose(batch.next_observation, batch.observation + 0.1 * 2.0 * batch.action, atol=1e-6)


def test_a_loss_that_is_not_finite_costs_a_segment() -> None:
    settings, whole = config(method="sac"), hosted(drifting())
    run, sound = new(settings, whole._replace(env=Breaking(whole.env, 45, reward=1e30))), new(settings, whole)
    message = "critic_loss is not finite at step 4[567]; the agent is kept as it was at step 44"
    with pytest.raises(FloatingPointError, match=message):
        run.to(STEPS)
    assert (run.state.step, run.state.elapsed) == (44, 4)
    sound.now = sound.loop.ready(sound.now, STEPS)
    jax.tree.map(np.testing.assert_array_equal, run.state.agent, sound.to(44).state.agent)
    run.loop = host.HostLoop(settings, whole)
    assert run.to(46).state.step == 46
    broken = run.now.state.agent._replace(log_alpha=jnp.full(1, jnp.nan, jnp.float32))
    run.now = run.now._replace(state=run.now.state._replace(agent=broken))
    with pytest.raises(FloatingPointError, match="a weight is not finite at step 46"):
        run.to(48)


def test_terminations_are_learned_and_rewards_may_be_known() -> None:
    """The models' rollouts end where the classifier says, and hold the reward that was given."""
    settings = config(method="mbpo", rollouts_per_step=50, updates_per_step=1)
    env = hosted(drifting(), reward=lambda o, a, n: 7.0 + 0.0 * n[0])
    env = env._replace(task=env.task._replace(terminates=never))
    run = Going(settings, env, seeds.begin(settings, LINE, KEY, 0, True))
    run.now = run.loop.ready(run.now, STEPS)
    run.to(40)
    run.state.data[:40, -1] = run.state.data[:40, 3] > np.median(run.state.data[:40, 3])
    run.to(41)
    assert run.now.ends is not None
    assert run.now.buffers is not None
    rows = np.asarray(run.now.buffers.rows)[0, 0, : int(run.now.buffers.written[0, 0])]
    assert set(rows[:, 2].tolist()) == {7.0}
    assert 0.2 < rows[:, -1].mean() < 0.8
    above, below = rows[rows[:, -1] > 0.5, 3], rows[rows[:, -1] < 0.5, 3]
    assert above.mean() > below.mean()
    again = through_a_file(run, settings, env).to(42)
    np.testing.assert_array_equal(again.now.buffers.rows, run.now.buffers.rows)


def test_a_termination_is_kept_and_a_time_limit_is_not() -> None:
    run = new(config(method="sac"))
    run.now = run.loop.ready(run.now, 2)
    one = np.ones(1, np.float32)
    for over in (True, False):
        run.now = run.loop._record(run.now, one[None], {0: Moved(one, 0.0, over, not over)})
    np.testing.assert_array_equal(run.state.data[:, -1], [1.0, 0.0])


def two(settings: DeepConfig, *envs: HostedEnv, learn_ends: bool = False) -> Going:
    """Two seeds, or as many as there are environments."""
    keys = jax.random.split(KEY, len(envs))
    return Going(settings, list(envs), *(seeds.begin(settings, LINE, key, 0, learn_ends) for key in keys))


def same(a: Any, b: Any) -> None:
    for mine, other in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        if not isinstance(mine, jax.Array) or not jnp.issubdtype(mine.dtype, jax.dtypes.prng_key):
            np.testing.assert_array_equal(np.asarray(mine), np.asarray(other))


def of(run: Going, seed: int) -> HostState:
    return seeds.alone(run.loop.saved(run.now), seed)


@pytest.mark.parametrize("method", ["exact-ube", "sac"])
def test_seeds_together_are_seeds_alone(method: str) -> None:
    """Up to rounding, with episodes of different lengths."""
    settings, lengths = config(method=method), (10, 7)
    both = two(settings, *(hosted(shaken(), length) for length in lengths)).to(STEPS)
    for k, (length, key) in enumerate(zip(lengths, jax.random.split(KEY, 2), strict=True)):
        run = Going(settings, hosted(shaken(), length), seeds.begin(settings, LINE, key)).to(STEPS)
        mine, other = of(both, k), of(run, 0)
        close(mine._replace(key=0), other._replace(key=0))
        assert (int(mine.episodes), int(mine.elapsed)) == divmod(STEPS, length)
    assert len(both.seen) == STEPS // 10 + STEPS // 7


@pytest.mark.parametrize("method", ["exact-ube", "sac"])
def test_a_seed_that_fails_leaves_the_others_alone(method: str, caplog: pytest.LogCaptureFixture) -> None:
    """To the last bit; and when all have failed, the run before is good."""
    settings, whole = config(method=method), [hosted(shaken(), 7), hosted(shaken())]
    straight = two(settings, *whole).to(STEPS)
    broken = [whole[0], whole[1]._replace(env=Breaking(whole[1].env, 45))]
    run = two(settings, *broken).to(STEPS)
    assert run.now.errors == ("", "shaken failed at step 45, in episode 4: OSError: cable")
    assert "seed 1: shaken failed at step 45, in episode 4: OSError: cable; the other seeds go on" in caplog.text
    same(of(run, 0), of(straight, 0))
    assert not of(run, 1).data[45:].any(), "its rows stop"
    np.testing.assert_array_equal(of(run, 1).data[:45], of(straight, 1).data[:45])
    again = two(settings, broken[0]._replace(env=Breaking(whole[0].env, 46)), whole[1]._replace(env=Breaking(whole[1].env, 45)))
    with pytest.raises(InputError, match="failed at step 46"):
        again.to(STEPS)
    assert (again.now.errors[0], again.state.step) == ("", 46)


def test_a_loss_that_is_not_finite_stops_its_seed_alone() -> None:
    settings, whole = config(method="sac"), [hosted(drifting()), hosted(drifting())]
    run = two(settings, whole[0]._replace(env=Breaking(whole[0].env, 41, reward=1e30)), whole[1]).to(STEPS)
    assert run.now.errors[0].startswith("critic_loss is not finite at step 4")
    assert run.now.errors[1] == ""
    same(of(run, 1), of(two(settings, *whole).to(STEPS), 1))


def test_several_seeds_go_on_to_the_last_bit() -> None:
    """Stopped within a segment and the episodes of two seeds, while a third one is out."""
    settings, whole = config(retain=2, method="ensemble-mean"), [hosted(shaken(), 7), hosted(shaken()), hosted(shaken(), 9)]
    parts = [whole[0], whole[1], whole[2]._replace(env=Breaking(whole[2].env, 43))]
    straight = two(settings, *parts, learn_ends=True).to(STEPS)
    parts[2] = whole[2]._replace(env=Breaking(whole[2].env, 43))
    run = two(settings, *parts, learn_ends=True)
    run.now = run.loop.ready(run.now, STEPS)
    run.to(46)
    state = run.loop.saved(run.now)
    parts[2] = whole[2]._replace(env=Breaking(whole[2].env, 0))  # nobody asks it
    again = two(settings, *parts, learn_ends=True)
    again.now = again.loop.resumed(state, run.now.errors)
    again.to(STEPS)
    assert again.now.errors == straight.now.errors
    same(again.loop.saved(again.now), straight.loop.saved(straight.now))


def test_only_seeds_that_saw_an_end_learn_where_episodes_end() -> None:
    settings = config(method="mbpo", rollouts_per_step=20, updates_per_step=1)
    envs = [hosted(drifting()) for _ in range(2)]
    run = two(settings, *(env._replace(task=env.task._replace(terminates=never)) for env in envs), learn_ends=True)
    run.now = run.loop.ready(run.now, STEPS)
    run.to(40)
    run.now.state.data[1, :40, -1] = run.now.state.data[1, :40, 3] > np.median(run.now.state.data[1, :40, 3])
    before = run.now.state.termination
    run.to(41)
    assert run.now.ends is not None
    assert run.now.buffers is not None
    assert before is not None
    same(seeds.alone(run.now.state, 0).termination, jax.tree.map(lambda x: x[0], before))
    rows, written = np.asarray(run.now.buffers.rows), np.asarray(run.now.buffers.written)
    assert not rows[0, 0, : written[0, 0], -1].any()
    assert 0.2 < rows[1, 0, : written[1, 0], -1].mean() < 0.8
