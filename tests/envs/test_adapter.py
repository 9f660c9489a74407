"""Gymnasium environments for the deep agents: what fits, what does not, and what an environment may do wrong."""

from __future__ import annotations

from typing import Any

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ubex
from ubex.envs import adapter
from ubex.envs.custom import MAX_STEPS
from ubex.envs.sparse_pendulum import sparse_pendulum
from ubex.learn import tabular
from ubex.types import InputError


class Line(gymnasium.Env[Any, Any]):
    """A point on a line that moves by its action, in float64; it ends beyond 3. Some things break at the third step."""

    def __init__(self, broken: str = "", limit: int = 10) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = spaces.Box(np.array([0.0]), np.array([4.0]), dtype=np.float64)
        self.broken, self.limit = broken, limit
        self.at = np.zeros(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.at[:], self.time = [self.np_random.normal(), 0.0], 0
        return self.at, {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        assert action.dtype == np.float64
        self.time += 1
        self.at += [0.1 * float(action[0]), 1.0]
        broken = self.broken if self.time == 3 else ""
        if broken == "raise":
            raise ZeroDivisionError("no way")
        observation: Any = {
            "nan": np.array([0.0, np.nan]),
            "large": np.array([1e300, 0.0]),
            "shape": np.zeros(3),
            "words": "here",
        }.get(broken, self.at)
        reward: Any = {"reward": np.inf, "large reward": 1e300, "nothing": None}.get(broken, -self.at[0])
        return observation, reward, bool(self.at[0] > 3.0), self.time >= self.limit, {}


def test_observations_are_copies_in_float32_and_actions_are_scaled() -> None:
    hosted = adapter.hosted(Line())
    first = hosted.reset(0, seed=1)
    kept = first.copy()
    moved = hosted.step(np.array([0.5], np.float32), 0, 0)
    assert first.dtype == moved.observation.dtype == np.float32
    np.testing.assert_array_equal(first, kept)
    np.testing.assert_allclose(moved.observation, kept + np.array([0.3, 1.0]), rtol=1e-6)
    np.testing.assert_allclose(hosted.actions.outward(np.array([[-1.0], [0.0], [1.0]], np.float32)), [[0.0], [2.0], [4.0]])
    np.testing.assert_allclose(hosted.actions.inward("action", [1.0]), [-0.5])
    np.testing.assert_array_equal(hosted.reset(0, seed=1), kept)
    hosted.env.at = hosted.env.at.astype(np.float32)  # an environment that needs no conversion
    first = hosted.reset(0, seed=1)
    hosted.step(np.array([0.5], np.float32), 0, 0)
    np.testing.assert_array_equal(first, kept)


def test_a_time_limit_is_not_termination() -> None:
    hosted = adapter.hosted(Line(limit=2))
    hosted.reset(0, seed=1)
    assert [hosted.step(np.zeros(1, np.float32), i, i)[2:] for i in range(2)] == [(False, False), (False, True)]
    hosted = adapter.hosted(Line(limit=100), horizon=2)
    hosted.reset(0, seed=1)
    assert hosted.step(np.zeros(1, np.float32), 0, 1)[2:] == (False, True)
    hosted.env.at[0] = 5.0
    assert hosted.step(np.zeros(1, np.float32), 1, 1)[2:] == (True, False)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("raise", "Line failed at step 12: ZeroDivisionError: no way"),
        ("nan", "observation of Line at step 12 is nan at place 1"),
        ("large", "observation of Line at step 12 is inf at place 0"),
        ("shape", r"has shape \(3,\), not \(2,\)"),
        ("words", "holds no numbers: str"),
        ("reward", "reward of Line at step 12 is inf"),
        ("large reward", "reward of Line at step 12 is 1e\\+300"),
        ("nothing", "reward of Line at step 12 is None, not a number"),
    ],
)
def test_what_an_environment_does_wrong_is_named_with_its_step(broken: str, message: str) -> None:
    hosted = adapter.hosted(Line(broken))
    hosted.reset(10)
    for number in (10, 11):
        hosted.step(np.zeros(1, np.float32), number, number - 10)
    with pytest.raises(InputError, match=message):
        hosted.step(np.zeros(1, np.float32), 12, 2)


def test_an_endless_episode_needs_a_horizon() -> None:
    hosted = adapter.hosted(Line(limit=10**9))
    hosted.reset(0)
    with pytest.raises(InputError, match=r"longer than 10000 steps: give it a horizon \(--horizon N, in Python horizon=N\)"):
        hosted.step(np.zeros(1, np.float32), 0, MAX_STEPS - 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"observation_space": spaces.Discrete(3000)}, r"observations of Line are Discrete\(3000\).*TransformObservation"),
        (
            {"observation_space": spaces.Box(0, 255, (64, 64, 3), np.uint8)},
            "observations of Line are Box.*TransformObservation",
        ),
        ({"observation_space": spaces.Dict({"a": spaces.Text(2)})}, "observations of Line are Dict.*TransformObservation"),
        (
            {"action_space": spaces.MultiDiscrete([2, 3])},
            r"support Discrete actions, or .* of Line are MultiDiscrete\(\[2 3\]\); a wr",
        ),
        ({"action_space": spaces.MultiBinary(2)}, "actions of Line are MultiBinary.*as one Discrete space"),
        ({"action_space": spaces.Dict({"a": spaces.Discrete(2)})}, "actions of Line are Dict.*as one Discrete space"),
        ({"action_space": spaces.Discrete(10**6)}, "size of the action space of Line must be at most 1000, but it is 1000000"),
        ({"action_space": spaces.Box(-np.inf, np.inf, (1,))}, "give them finite bounds"),
        (
            {"action_space": spaces.Box(-np.inf, np.inf, (1, 1))},
            r"actions of Line are Box\(.*; .*Action can give them one axis",
        ),
        ({"action_space": spaces.Box(-1.0, 1.0, ())}, r"actions of Line are Box\(.*; .*Action can give them one axis"),
        ({"action_space": spaces.Box(0, 5, (1,), np.int64)}, "actions of Line are Box"),
    ],
)
def test_what_is_not_supported_gets_one_line(change: dict[str, Any], message: str) -> None:
    env = Line()
    for name, space in change.items():
        setattr(env, name, space)
    with pytest.raises(InputError, match=message) as caught:
        adapter.hosted(env)
    assert "\n" not in str(caught.value)


def test_a_vector_environment_gets_a_line_of_its_own() -> None:
    copies = gymnasium.vector.SyncVectorEnv([Line, Line])
    for act in (adapter.hosted, tabular.environment, lambda env: ubex.Agent("psrl", env)):
        with pytest.raises(InputError, match=r"^SyncVectorEnv is a vector environment, .* `ubex train --seeds K`") as caught:
            act(copies)
        assert "\n" not in str(caught.value)


def test_parts_of_an_observation_are_named_with_the_step() -> None:
    env = Line()
    env.observation_space = spaces.Dict({"at": env.observation_space})  # type: ignore[assignment]
    with pytest.raises(
        InputError, match=r"^the part \['at'\] of the observation of Line after reset, before step 7 is not there"
    ):
        adapter.hosted(env).reset(7)


def test_terminates_sees_actions_in_the_bounds() -> None:
    hosted = adapter.hosted(Line(), terminates=lambda o, a, n: a[0] > 3.0)
    at = jnp.zeros(2, jnp.float32)
    assert [bool(hosted.task.terminates(at, jnp.array([a], jnp.float32), at)) for a in (0.4, 0.6)] == [False, True]
    assert not bool(adapter.hosted(Line()).task.terminates(at, at[:1], at))
    env = sparse_pendulum()
    assert adapter.hosted(env).task.terminates is env.terminates
    assert adapter.hosted(gymnasium.make("ubex/SparsePendulum-v0")).task.terminates is env.terminates


@pytest.mark.parametrize(
    ("terminates", "message"),
    [
        (3, "must be a function, but it is a int"),
        (lambda o, a, n: n[0], "must give one truth value"),
        (lambda o, a: o[0] > 0, "must be a JAX function"),
        (lambda o, a, n: bool(n[0] > 0), "must be a JAX function"),
    ],
)
def test_bad_terminates(terminates: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        adapter.hosted(Line(), terminates=terminates)


def test_a_known_reward_sees_actions_in_the_bounds() -> None:
    hosted = adapter.hosted(Line(), reward=lambda o, a, n: a[0] + n[1])
    assert hosted.task.reward is not None
    at = jnp.ones(2, jnp.float32)
    assert float(hosted.task.reward(at, jnp.array([0.5], jnp.float32), at)) == 4.0
    with pytest.raises(InputError, match="reward must give one float32 number"):
        adapter.hosted(Line(), reward=lambda o, a, n: n)


def test_functions_see_observations_as_the_environment_gives_them() -> None:
    """Where the agent's observations are scaled to the bounds: here the position, from 0 to 10."""

    env = Line()
    env.observation_space = spaces.Box(np.array([0.0, -np.inf]), np.array([10.0, np.inf]), dtype=np.float64)
    functions = {"terminates": lambda o, a, n: n[0] > 8.0, "reward": lambda o, a, n: 100.0 * o[0] + n[0]}
    hosted = adapter.hosted(env, **functions, scaled=True)
    at, next_to = (jnp.array([x, 0.0], jnp.float32) for x in (-0.4, 0.7))  # 3 and 8.5
    none = jnp.zeros(1, jnp.float32)
    assert bool(hosted.task.terminates(at, none, next_to))
    assert not bool(hosted.task.terminates(next_to, none, at))
    assert hosted.task.reward is not None
    assert float(hosted.task.reward(at, none, next_to)) == pytest.approx(308.5)
    assert adapter.hosted(env, scaled=True).task.terminates is adapter.never


def test_it_is_known_which_environments_cut_episodes_off() -> None:
    for env in (sparse_pendulum(), gymnasium.make("Pendulum-v1"), gymnasium.wrappers.TimeLimit(Line(), 10)):
        assert adapter.ends_in_time(env)
    for env in (Line(), gymnasium.make("Pendulum-v1").unwrapped, 3):
        assert not adapter.ends_in_time(env)


def test_other_things_are_no_environments() -> None:
    with pytest.raises(InputError, match="but this is a int"):
        adapter.hosted(3)
    with pytest.raises(InputError, match="horizon must be at least 1"):
        adapter.hosted(Line(), horizon=0)
