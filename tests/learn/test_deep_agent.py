"""Pendulum-v1 with the laptop preset is learned, as promised with `UBEX_LONG=1`; discrete actions work from end to end."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ubex
from ubex.callbacks import Evaluate, StopOnReward
from ubex.deep.methods import DEEP_METHODS

LONG = bool(os.environ.get("UBEX_LONG"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "steps", "promised"),
    [
        pytest.param("sac", 20_000 if LONG else 3_000, -300.0),
        pytest.param("ensemble-mean", 5_000, -300.0, marks=pytest.mark.skipif(not LONG, reason="minutes: UBEX_LONG=1")),
    ],
)
def test_the_pendulum_is_learned(method: str, steps: int, promised: float) -> None:
    """An untrained policy has -1,200 or less; the mean over ten episodes passes the promised return at some evaluation."""
    evaluate = Evaluate(every=1_000, episodes=10, then=StopOnReward(promised, 1))
    agent = ubex.Agent(method, "Pendulum-v1", preset="laptop").learn(steps, evaluate)
    means = [mean for _, mean, _ in evaluate.history] or [float(agent.evaluate(10).mean())]
    assert max(means) > promised, evaluate.history


class Renumbered(gymnasium.Wrapper[Any, Any, Any, Any]):
    """CartPole-v1 with the actions 5 and 6, which have to be whole numbers."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self.action_space = spaces.Discrete(2, start=5)
        self.done: set[int] = set()

    def step(self, action: Any) -> Any:
        assert type(action) is int
        assert self.action_space.contains(action)
        self.done.add(action)
        return self.env.step(action - 5)


SMALL: dict[str, Any] = {
    **{"num_models": 2, "updates_per_step": 1, "rollouts_per_step": 2, "retrain_every": 5, "rollout_length": 2},
    **{"initial_steps": 30, "batch_size": 4, "critic_hidden": (4,), "actor_hidden": (4,), "model_hidden": (4,)},
    **{"max_epochs": 1, "preset": "laptop"},
}


@pytest.mark.parametrize("method", DEEP_METHODS)
def test_every_method_learns_with_discrete_actions(method: str) -> None:
    env, seen = Renumbered(), list[Mapping[str, float]]()
    agent = ubex.Agent(method, env, **SMALL).learn(60, lambda info: seen.append(info.losses))
    assert env.done == {5, 6}
    assert {"critic_loss", "actor_loss", "alpha", "entropy"} <= set(seen[-1])
    assert np.isfinite(list(seen[-1].values())).all()
    assert 0.0 <= seen[-1]["entropy"] <= np.log(2.0) + 1e-6
    rows = agent.state.data[:, 4:6]
    np.testing.assert_array_equal(np.sort(rows, axis=1), np.tile([0.0, 1.0], (60, 1)))
    assert agent.evaluate(1)[0] >= 5.0


def test_a_discrete_agent_predicts_and_values_whole_numbers() -> None:
    agent = ubex.Agent("exact-ube", Renumbered(), **SMALL)
    batch = np.zeros((3, 4))
    one, many = agent.predict(batch[0])[0], agent.predict(batch)[0]
    assert type(one) is int
    assert one in (5, 6)
    np.testing.assert_array_equal(many, [one] * 3)
    assert {agent.predict(batch[0], deterministic=False)[0] for _ in range(20)} == {5, 6}
    means, deviations = agent.value(batch[:2], [5, 6])
    assert (means.shape, deviations.shape) == ((2,), (2,))
    assert means[0] != means[1]
    assert agent.value(batch[0], 6)[0] == pytest.approx(means[1], rel=1e-5)
    assert agent.uncertainty_map(batch).mean.shape == (3,)
    for given, message in (
        (0, "action must be 5 to 6 in whole numbers"),
        ([5.0, 6.0], "action must be 5 to 6 in whole numbers"),
        (5, r"must go together, but their shapes are \(2, 4\) and \(\)"),
    ):
        with pytest.raises(ubex.InputError, match=message):
            agent.value(batch[:2], given)


def test_a_discrete_agent_goes_on_from_its_file_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    whole = ubex.Agent("exact-ube", Renumbered(), **SMALL).learn(60)
    stopped = ubex.Agent("exact-ube", Renumbered(), **SMALL).learn(60, lambda info: info.step < 35)
    assert 35 <= stopped.steps < 60
    again = ubex.Agent.load(stopped.save(tmp_path / "agent"), Renumbered())
    assert type(again.predict(np.zeros(4))[0]) is int
    again.learn(60 - again.steps)
    found, wanted = (jax.tree.leaves((agent.state.agent, agent.state.data)) for agent in (again, whole))
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    with pytest.raises(ubex.InputError, match=r"actions of this agent is 5 to 6 in whole numbers, .* is 0 to 1 in whole"):
        again.evaluate(1, env=gymnasium.make("CartPole-v1"))


def test_functions_get_a_discrete_action_as_a_number() -> None:
    known: dict[str, Any] = {
        "termination": lambda observation, action, after: jnp.abs(after[2]) > 0.2,
        "reward": lambda observation, action, after: jnp.where(action == 5, 1.0, 0.0).astype(jnp.float32),
    }
    task = ubex.Agent("exact-ube", Renumbered(), **SMALL, **known).backend.env.task
    at = jnp.zeros(4, jnp.float32)
    assert [float(task.reward(at, jnp.asarray(row, jnp.float32), at)) for row in np.eye(2)] == [1.0, 0.0]
    assert bool(task.terminates(at, at[:2], at + 1.0))
