"""`ubex.train`: environments of one's own, in every way they can be given, and clear lines for those that do not fit."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ubex
from ubex import cli
from ubex.envs import resolve
from ubex.envs.base import TabularEnv
from ubex.envs.deep_sea import deep_sea
from ubex.learn import driver, tabular
from ubex.tabular import agents, belief, host, loop
from ubex.tabular.agents import AgentConfig
from ubex.tabular.host import HostEnv


class Corridor(gymnasium.Env[Any, Any]):
    """Walk right to the end, where it pays; a step goes the other way now and then. States count from 1."""

    observation_space = spaces.Discrete(5, start=1)
    action_space = spaces.Discrete(2)

    def __init__(self, broken: str = "", slip: float = 0.1) -> None:
        self.broken, self.slip = broken, slip

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.state, self.time = 1, 0
        return 1, {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        forward = bool(action) != bool(self.np_random.random() < self.slip)
        self.state = min(max(self.state + (1 if forward else -1), 1), 5)
        reward = float("nan") if self.broken == "reward" and self.time == 3 else float(self.state == 5)
        state: Any = {"range": 9, "kind": "five"}.get(self.broken, self.state)
        return state, reward, False, self.time >= 15 and self.broken != "endless", {}


PAIR = (np.eye(3)[[[0, 1], [0, 2], [0, 2]]], np.array([[0.0, 0.0], [0.0, 0.0], [0.0, 1.0]]))
"""Action 1 goes on and action 0 back to the start; going on in the last state pays."""


def test_a_gymnasium_environment_is_learned() -> None:
    result = ubex.train(Corridor(), "exact-ube", episodes=40, key=1)
    assert result.returns.shape == (40,)
    assert (result.policy == 1).all()
    assert result.returns[-10:].mean() > 6.0
    assert result.belief.counts.shape[-1] == 2, "two next states per action, found out on the way"
    again = ubex.train(Corridor(), "exact-ube", episodes=40, key=1)
    np.testing.assert_array_equal(again.returns, result.returns)


def test_without_a_name_the_agent_is_the_recommended_one() -> None:
    def returns(*agent: str, **settings: Any) -> list[float]:
        found: list[float] = ubex.train("river-swim", *agent, episodes=12, env_args={"size": 4}, **settings).returns.tolist()
        return found

    assert returns() == returns("closed-form", prior_mass=2.0, plan_when="doubled")
    assert returns(prior_mass=5.0) == returns("closed-form", prior_mass=5.0, plan_when="doubled") != returns()
    assert returns(plan_when="episode") == returns("closed-form", prior_mass=2.0) != returns()
    assert returns(planner="start") == returns("closed-form", prior_mass=2.0, planner="start")
    assert returns("closed-form") not in (returns(), returns(plan_when="episode")), "a named agent has the published settings"


@pytest.mark.parametrize("planner", ["policy-iteration", "start"])
def test_plans_end_at_the_limit_of_improvements(planner: str) -> None:
    made = {
        limit: ubex.train(
            "deep-sea", "first-order", episodes=4, env_args={"size": 5}, planner=planner, max_improvements=limit
        ).steps
        for limit in (1, 40)
    }
    assert max(made[1]) == 1 < max(made[40])


def test_plans_are_made_where_what_is_known_has_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the host, against the rule by hand."""
    env, plan, planned, walked = gymnasium.make("CliffWalking-v1"), host.plan, list[int](), list[tuple[int, int]]()
    step = env.step

    def seen(config: Any, key: Any, belief: Any, start: Any, last: Any) -> Any:
        planned.append(len(walked))
        return plan(config, key, belief, start, last)

    def taken(action: int) -> Any:
        walked.append((int(env.unwrapped.s), int(action)))  # type: ignore[attr-defined]
        return step(action)

    monkeypatch.setattr(host, "plan", seen)
    monkeypatch.setattr(env, "step", taken)
    result = ubex.train(env, "closed-form", episodes=3, horizon=30, prior_mass=2.0, plan_when="doubled", repeats=3)
    begun, visits, known, expected = {0, 30, 60}, dict[Any, int](), dict[Any, int](), [0]
    assert len(walked) == 90, "the goal is not found so soon"
    for number, pair in enumerate(walked, start=1):
        visits[pair] = visits.get(pair, 0) + 1
        if number in begun or 2.0 + 3 * visits[pair] >= 2 * (2.0 + 3 * known.get(pair, 0)):
            expected += [number] if number < 90 else []
            known = dict(visits)
    assert planned == expected
    assert len(planned) > 15
    counts = np.asarray(result.belief.counts).sum(axis=-1)
    assert {(s, a): counts[s, a] for s, a in np.argwhere(counts)} == {pair: 3 * n for pair, n in visits.items()}


def test_the_compiled_loop_plans_where_the_one_on_the_host_does() -> None:
    settings: Any = {"episodes": 10, "prior_mass": 2.0, "plan_when": "doubled", "repeats": 2}
    compiled = ubex.train("deep-sea", "closed-form", env_args={"size": 5}, **settings)
    on_host = ubex.train(gymnasium.make("ubex/DeepSea-v0", size=5), "closed-form", **settings)
    np.testing.assert_array_equal(compiled.returns, on_host.returns)
    np.testing.assert_array_equal(compiled.steps, on_host.steps)
    once = ubex.train("deep-sea", "closed-form", env_args={"size": 5}, **{**settings, "plan_when": "episode"})
    assert (compiled.returns != once.returns).any()


def test_a_long_episode_is_learned_within() -> None:
    """A fixed policy of the cliff runs in circles until the episode is cut off."""
    settings: Any = {"episodes": 30, "horizon": 100, "prior_mass": 2.0}
    cliff = {
        when: ubex.train(gymnasium.make("CliffWalking-v1"), "closed-form", plan_when=when, **settings).returns
        for when in ("episode", "doubled")
    }
    assert cliff["doubled"][-5:].max() == -13.0, "the best there is"
    assert cliff["episode"].max() <= -100.0


def test_what_was_learned_is_a_posterior() -> None:
    """Its moments are those that the agent plans with, and its samples have them; settings of rewards are not forgotten."""
    settings = {"prior_mass": 5.0, "reward_precision": 2.0, "noise_precision": 3.0, "repeats": 2}
    result = ubex.train("n-room", "psrl", episodes=5, key=1, env_args={"rooms": 2}, **settings)
    config = tabular.agent_config("closed-form", settings)
    with jax.enable_x64(True):
        reward, deviation = belief.reward_posterior(result.belief, 2.0, 3.0)
        mean = belief.mean_model(result.belief, reward, 5.0)
        known = agents.planning_model(config, jax.random.key(0), result.belief, mean, deviation)
        average, variance = known.evaluate(jnp.asarray(np.append(result.policy, 0)), 0.9, False)  # type: ignore[union-attr]
    found = ubex.value_variance(result.belief, result.policy, 0.9, estimator="closed-form")
    np.testing.assert_allclose(found.q_mean, average.q, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.q, variance, rtol=1e-8, atol=1e-12)
    covariance = ubex.value_covariance(result.belief, result.policy, 0.9).covariance
    np.testing.assert_allclose(np.diag(covariance), found.v, rtol=1e-9)
    sampled = ubex.value_variance(result.belief, result.policy, 0.9, estimator="ensemble-var", key=0, num_models=400)
    posterior = result.belief.posterior()
    np.testing.assert_array_equal(
        sampled.v,
        ubex.value_variance(posterior, np.append(result.policy, 3), 0.9, estimator="ensemble-var", key=0, num_models=400).v,
    )
    for kept in (jax.tree.map(np.asarray, result.belief), result.belief._replace(rewards=result.belief.rewards)):
        assert (kept.prior_mass, kept.reward_precision, kept.noise_precision) == (5.0, 2.0, 3.0)


@pytest.mark.parametrize("together", [False, True])
def test_the_learner_is_the_loop_by_hand(together: bool) -> None:
    env, config, keys = deep_sea(3), AgentConfig("psrl"), jax.random.split(jax.random.key(0), 2)
    key, run = (keys, loop.run_batch) if together else (keys[0], loop.run_episodes)
    learner, seen, programs = tabular.TabularLearner(env, config, key, block=2), list[Any](), run._cache_size()
    state = driver.advance(learner, learner.blank({}), 5, lambda _, block: seen.append(block) is None)
    assert run._cache_size() == programs + 1, "also for the last block, which is shorter"
    with jax.enable_x64(True):
        memory = jax.tree.map(lambda x: jnp.stack([x] * 2) if together else x, loop.begin(env))
        memory, out = run(env, config, key, memory, jnp.arange(5, dtype=jnp.int32))
    jax.tree.map(np.testing.assert_array_equal, state.memory, memory)
    assert [block.steps.shape[-1] for block in seen[1:]] == [2, 2, 1]
    found = jax.tree.map(lambda *blocks: np.concatenate(blocks, axis=int(together)), *seen[1:])
    jax.tree.map(np.testing.assert_array_equal, found, out)


def test_a_pair_is_learned() -> None:
    result = ubex.train(PAIR, "psrl", episodes=30, horizon=10)
    assert result.returns[-1] == 8.0
    np.testing.assert_array_equal(result.policy, [1, 1, 1])


def test_rewards_of_a_pair_keep_64_bits() -> None:
    result = ubex.train((np.ones((1, 1, 1)), [[2.0**24 + 1.0]]), "psrl", episodes=1, horizon=3)
    assert result.returns[0] == 3.0 * (2.0**24 + 1.0) == result.belief.rewards[0, 0]


def test_what_an_environment_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_worlds.py").write_text(
        "import ubex\npair = ([[[1.0]]], [[0.5]])\ndef make(size=3):\n    return ubex.ENVS['deep-sea'].make(size)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert isinstance(tabular.environment("my_worlds:pair"), TabularEnv)
    assert tabular.environment("my_worlds:make", env_args={"size": 4}).num_states == 16
    assert tabular.environment("seven-room", horizon=7).horizon == 7  # type: ignore[union-attr]
    assert isinstance(tabular.environment("FrozenLake-v1"), HostEnv)
    assert isinstance(tabular.environment("ubex/DeepSea-v0", env_args={"size": 3}), HostEnv)


@pytest.mark.parametrize(
    ("env", "settings", "message"),
    [
        (
            Corridor("reward"),
            {},
            r"the reward of Corridor in episode 0, step 2 \(state \d, action \d\) is nan, not a finite number",
        ),
        (
            Corridor("range"),
            {},
            r"the state of Corridor in episode 0, step 0 \(state 1, action \d\) is 9, but states go from 1 to 5",
        ),
        (
            Corridor("kind"),
            {},
            r"the state of Corridor in episode 0, step 0 \(state 1, action \d\) is 'five', not a whole number",
        ),
        (Corridor("endless"), {}, "episode 0 of Corridor is longer than 10000 steps: give it a horizon"),
        ("CartPole-v1", {}, "need a Discrete observation space, but that of CartPole-v1 is Box"),
        ("Pendulum-v1", {}, r"that of Pendulum-v1 is Box.*: --steps N \(in Python ubex.Agent\) makes a deep agent"),
        ("sparse-pendulum", {}, r"sparse-pendulum is continuous; .*; --steps N \(in Python ubex.Agent\) makes a deep agent"),
        ("deep-sea", {"agent": "sac"}, r"sac is not a tabular agent: --steps N \(in Python ubex.Agent\) makes a deep agent"),
        ("deep-sea", {"discount": 1.0}, r"discount must be in \[0, 1\)"),
        ((PAIR[0], np.full((3, 2), np.nan)), {}, "r is nan at state 0, action 0"),
        ((PAIR[0] * 0.5, PAIR[1]), {}, "p sums to 0.5 instead of 1"),
        (ubex.MDP(PAIR[0][None], PAIR[1][None]), {}, "an environment is one MDP"),
        ("deep-sea", {"env_args": {"width": 3}}, "deep-sea does not take these env_args: .*width"),
        ("FrozenLake-v1", {"env_args": {"width": 3}}, "does not take these env_args|unexpected keyword"),
        ("no-such-env", {}, "unknown environment 'no-such-env'.*deep-sea"),
        ("no_such_module:Env", {}, "there is no module 'no_such_module'"),
        ("ubex:nothing", {}, "the module ubex has no 'nothing'"),
        ("deep-sea", {"gane": 2.0}, "unknown setting 'gane'; choose from: num_models, gain"),
        ("deep-sea", {"episodes": 0}, "episodes must be at least 1"),
        ("deep-sea", {"agent": "magic"}, "unknown method 'magic'"),
        (3, {}, "an environment is a name, .* but this is a int"),
        (Corridor(), {"agent": "closed-form", "planner": "start"}, "planner 'start' has to know where episodes begin"),
        (Corridor(), {"env_args": {"slip": 0.0}}, "env_args go with an environment that is given by name"),
    ],
)
def test_bad_input(env: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ubex.InputError, match=message):
        ubex.train(env, **{"episodes": 2, "agent": "psrl", **settings})


def test_a_continuous_action_is_refused() -> None:
    env = Corridor()
    env.action_space = spaces.Box(-1.0, 1.0, (1,))
    with pytest.raises(ubex.InputError, match="need a Discrete action space, but that of Corridor is Box"):
        ubex.train(env)


def test_the_command_line_trains_and_resumes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    words = ["train", "--env", "deep-sea", "--env-args", '{"size": 3}', "--agent", "psrl", "--episodes", "30", "--no-report"]
    assert cli.run([*words, "--out", str(out)]) == 0
    results = ubex.load_results(out)
    assert set(results["metric"]) == {"final_return", "mean_return", "mean_return_last_10", "best_return"}
    assert set(results["environment"]) == {"deep-sea"}
    assert cli.run([*words, "--out", str(out)]) == 0
    assert "psrl on deep-sea" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--env", "CartPole-v1"], "need a Discrete observation space"),
        (["--env", "deep-sea", "--discount", "1"], "discount must be in [0, 1)"),
        (["--env", "deep-sea", "--env-args", "size=3"], "env_args must be a JSON object"),
        (["--env", "deep-sea", "--agent", "magic"], "unknown method 'magic'"),
        (["--env", "deep-sea", "--agent", "exact-ube", "--planner", "start"], "planner 'start' needs the method"),
        (["--env", "FrozenLake-v1", "--agent", "closed-form", "--planner", "start"], "has to know where episodes begin"),
    ],
)
def test_the_command_line_refuses(words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["train", *words, "--out", str(tmp_path / "x")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_a_killed_run_goes_on_with_the_places_it_had(tmp_path: Path) -> None:
    from ubex.experiments.train import Train
    from ubex.runs.checkpoint import CheckpointFolder
    from ubex.runs.jobs import JobContext

    sys.modules["corridors"] = sys.modules[__name__]
    experiment = Train(env="corridors:Corridor", agent="psrl", episodes=60)
    (cell,) = experiment.cells()

    class Stop(Exception):
        pass

    def stop(done: int, total: int, unit: str) -> None:
        if done == 50:
            raise Stop

    whole = experiment.run(cell, [0], JobContext(CheckpointFolder(tmp_path / "a"), lambda *_: None))[0]
    with pytest.raises(Stop):
        experiment.run(cell, [0], JobContext(CheckpointFolder(tmp_path / "b"), stop))
    resumed = experiment.run(cell, [0], JobContext(CheckpointFolder(tmp_path / "b"), lambda *_: None))[0]
    assert resumed == whole
    assert CheckpointFolder(tmp_path / "b").notes() is not None
    assert jax.config.jax_enable_x64 is False


@pytest.mark.parametrize(
    ("name", "reason", "extra"),
    [
        ("HalfCheetah-v5", "MuJoCo is not installed, run `pip install gymnasium[mujoco]`", "mujoco"),
        ("HalfCheetahBulletEnv-v0", "Environment `HalfCheetahBulletEnv` doesn't exist", "pybullet"),
    ],
)
def test_a_missing_extra_is_named(name: str, reason: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str, **settings: Any) -> Any:
        raise gymnasium.error.DependencyNotInstalled(reason)

    monkeypatch.setattr(gymnasium, "make", missing)
    monkeypatch.setattr(importlib.util, "find_spec", lambda module: None)
    with pytest.raises(ubex.InputError, match=rf"{name} needs an extra that is not installed: pip install 'ubex\[{extra}\]'"):
        resolve.by_name(name, {})
    monkeypatch.setattr(importlib.util, "find_spec", lambda module: object())
    with pytest.raises(ubex.InputError, match=f"{name} needs something that is not installed: "):
        resolve.by_name(name, {})


@pytest.mark.parametrize("name", ["mujoco-half-cheetah", "pybullet-half-cheetah", "HalfCheetah-v99"])
def test_a_mistyped_name_lacks_no_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither where it is installed nor where it is not."""
    with pytest.raises(ubex.InputError, match=rf"unknown environment '{name}': .*or one of: .*mujoco-halfcheetah"):
        resolve.by_name(name, {})
    monkeypatch.setattr(importlib.util, "find_spec", lambda module: None)
    with pytest.raises(ubex.InputError, match=rf"unknown environment '{name}'"):
        resolve.by_name(name, {})
