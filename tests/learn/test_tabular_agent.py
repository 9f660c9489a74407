"""`ubex.Agent` on environments with Discrete spaces: the episodes of `ubex.train`, values that mean something, files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import ubex
from ubex import cli
from ubex.callbacks import Checkpoint, Info
from ubex.experiments.train import Train
from ubex.learn import tabular_agent
from ubex.learn.agent import AGENT_FILE
from ubex.runs.checkpoint import CheckpointFolder
from ubex.runs.jobs import JobContext

SEA: dict[str, Any] = {"env_args": {"size": 3}}


class Corridor(gymnasium.Env[Any, Any]):
    """Action 12 goes right, 11 stays; the end, three steps away, pays 1 and is the end. States count from 5."""

    observation_space = spaces.Discrete(3, start=5)
    action_space = spaces.Discrete(2, start=11)

    def __init__(self, broken: int = -1) -> None:
        self.broken, self.steps = broken, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.state = 5
        return 5, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        if self.steps == self.broken:
            raise OSError("cable")
        self.steps += 1
        self.state += int(action == 12)
        over = self.state == 8
        return min(self.state, 7), float(over), over, False, {}


@pytest.fixture(scope="module")
def trained() -> tuple[ubex.Agent, list[Info]]:
    agent, seen = ubex.Agent("exact-ube", Corridor(), horizon=6, key=1), list[Info]()
    agent.learn(60, lambda info: seen.append(info))
    return agent, seen


def test_it_makes_the_episodes_of_train(trained: tuple[ubex.Agent, list[Info]]) -> None:
    agent, seen = trained
    train = ubex.train(Corridor(), "exact-ube", episodes=len(seen), horizon=6, key=1)
    np.testing.assert_array_equal([info.reward for info in seen], train.returns)
    for mine, other in zip(agent.state.belief, train.belief, strict=True):
        np.testing.assert_array_equal(mine, other)
    compiled = ubex.Agent("psrl", "deep-sea", **SEA).learn(1)
    assert (compiled.steps, compiled.episodes, compiled.kind) == (3, 1, "tabular"), "a whole episode of three steps"
    assert compiled.state.belief.counts.sum() == 3.0
    assert compiled.state.belief.counts.dtype == np.float64


def test_it_learns_the_way_and_what_it_is_worth(trained: tuple[ubex.Agent, list[Info]]) -> None:
    agent, seen = trained
    assert repr(agent) == f"Agent('exact-ube', 'Corridor', steps={agent.steps}, episodes={agent.episodes})"
    assert agent.steps == sum(info.length for info in seen) >= 60
    assert [agent.predict(state)[0] for state in (5, 6, 7)] == [12, 12, 12]
    np.testing.assert_array_equal(agent.predict(np.array([5, 7]))[0], [12, 12])
    assert agent.predict(5, deterministic=False)[0] in (11, 12)
    np.testing.assert_array_equal(agent.evaluate(2), [1.0, 1.0])
    mean, deviation = agent.value(7, 12)
    assert 0.9 < mean < 1.3, "the prior says that there may be a way back and another reward"
    assert isinstance(deviation, float)
    means, deviations = agent.value([5, 7], [12, 12])
    assert means[1] == mean
    assert 0.0 < deviations[1] < deviations[0], "further away less is known"
    whole = agent.uncertainty_map()
    assert whole.mean.shape == whole.deviation.shape == (3, 2)
    assert (whole.mean[2, 1], whole.deviation[2, 1]) == (mean, deviation)
    np.testing.assert_array_equal(agent.uncertainty_map([7]).mean, whole.mean[[2]])
    fresh = ubex.Agent("exact-ube", Corridor(), horizon=6, key=1)
    assert fresh.value(7, 12)[1] > 3.0 * deviation, "before it has seen anything it is less sure"


def test_it_says_where_the_closed_form_is_not_to_be_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its deviations are those of `value_variance` for what it has learned, and so are the warnings."""
    agent, states = ubex.Agent("closed-form", Corridor(), horizon=6, prior_mass=2.0, plan_when="doubled"), np.array([5, 6, 7])
    for ask in (lambda: agent.value(7, 12), agent.uncertainty_map):
        with pytest.warns(ubex.UbexWarning, match=r"by \d+% in the median.*value_variance\(agent.belief, policy"):
            ask()
    agent.learn(400)
    known = agent.uncertainty_map()  # a warning is an error here
    call = ubex.value_variance(agent.belief, agent.predict(states)[0] - 11, agent.config.discount)
    np.testing.assert_allclose(known.deviation**2, call.q[:3], rtol=1e-9)
    np.testing.assert_allclose(known.mean, call.q_mean[:3], rtol=1e-9)
    assert agent.value(7, 12) == (known.mean[2, 1], known.deviation[2, 1])
    ubex.Agent("first-order", Corridor(), horizon=6).value(7, 12)  # nobody takes it for the whole
    monkeypatch.setattr(tabular_agent, "MOST_ENTRIES", 17)  # 3 x 2 x 3 are 18
    ubex.Agent("closed-form", Corridor(), horizon=6, prior_mass=2.0).value(7, 12)


def test_a_saved_agent_goes_on_as_if_nothing_had_happened(trained: tuple[ubex.Agent, list[Info]], tmp_path: Path) -> None:
    straight, seen = trained
    half = ubex.Agent("exact-ube", Corridor(), horizon=6, key=1).learn(30)
    again = ubex.Agent.load(half.save(tmp_path / "agent.ubex"))
    assert again.env is None
    assert again.predict(5)[0] == half.predict(5)[0]
    with pytest.raises(ubex.InputError, match="this agent has no environment: give Corridor to"):
        again.learn(1)
    again = ubex.Agent.load(tmp_path / "agent.ubex", Corridor()).learn(straight.steps - half.steps)
    for mine, other in zip(again.state.belief, straight.state.belief, strict=True):
        np.testing.assert_array_equal(mine, other)
    assert (again.steps, again.episodes) == (straight.steps, len(seen))
    with pytest.raises(ubex.InputError, match="knows 3 states and 2 actions, but deep-sea has 100 and 2"):
        ubex.Agent.load(tmp_path / "agent.ubex", "deep-sea").learn(1)


def test_training_on_the_command_line_leaves_an_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same that `ubex.Agent` makes with the same key; without pictures there are returns all the same."""
    monkeypatch.chdir(tmp_path)
    task = Train(env="deep-sea", agent="psrl", episodes=6, env_args='{"size": 3}', repeats=2)
    (cell,) = task.cells()
    task.run(cell, [1], JobContext(CheckpointFolder(tmp_path / "c"), lambda *_: None, tmp_path / "run" / "artifacts" / "cell"))
    file = tmp_path / "run" / "artifacts" / "cell" / "seed-1" / AGENT_FILE
    agent = ubex.Agent.load(file)
    same = ubex.Agent("psrl", "deep-sea", key=cell.key(1), env_args={"size": 3}, **task.settings()).learn(18)
    assert (agent.steps, agent.episodes) == (same.steps, same.episodes) == (18, 6)
    np.testing.assert_array_equal(agent.state.belief.counts, same.state.belief.counts)
    assert agent.learn(3).episodes == 7
    assert cli.run(["evaluate", "run", "--episodes", "2"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("seed-1: Agent('psrl', 'deep-sea', steps=18, episodes=6): mean ")
    assert cli.run(["evaluate", "run", "--episodes", "2", "--video"]) == 2
    again = capsys.readouterr()
    assert again.out == said, "nothing is lost"
    assert again.err == "ubex: no video: deep-sea draws no pictures, so there is no video of it: leave out render_mode\n"


def test_an_agent_that_plans_for_the_start_is_saved_with_it(tmp_path: Path) -> None:
    settings = {"planner": "start", "prior_mass": 2.0, "env_args": {"size": 3}}
    agent = ubex.Agent("first-order", "deep-sea", **settings).learn(9)
    again = ubex.Agent.load(agent.save(tmp_path / "agent.ubex"))
    states = np.arange(9)
    for deterministic in (True, False):
        np.testing.assert_array_equal(*(x.predict(states, deterministic=deterministic)[0] for x in (again, agent)))
    with pytest.raises(ubex.InputError, match="has to know where episodes begin"):
        ubex.Agent("first-order", Corridor(), planner="start")


def test_a_broken_environment_is_named_and_what_came_before_is_kept(tmp_path: Path) -> None:
    agent = ubex.Agent("exact-ube", Corridor(broken=20), horizon=6)
    with pytest.raises(
        ubex.InputError, match=r"Corridor failed in episode \d, step \d \(state \d+, action \d+\): OSError: cable"
    ):
        agent.learn(60, Checkpoint(tmp_path / "a"))
    kept = ubex.Agent.load(tmp_path / "a")
    assert 12 <= kept.steps == agent.steps <= 20
    assert np.isnan(ubex.Agent("psrl", Corridor(), horizon=6).value(5, 11)[1])


def test_bad_calls(trained: tuple[ubex.Agent, list[Info]]) -> None:
    agent, _ = trained
    for call, message in (
        (lambda: agent.predict(4), "observation must be whole numbers from 5 to 7"),
        (lambda: agent.predict(5.5), "observation must be whole numbers"),
        (lambda: agent.value(5, 2), "action must be whole numbers from 11 to 12"),
        (lambda: agent.value([5, 6], 11), "must go together"),
        (lambda: agent.spent, "tabular agents have no `spent`"),
        (lambda: agent.film(), "Corridor .*draw"),
    ):
        with pytest.raises(ubex.InputError, match=message):
            call()  # type: ignore[no-untyped-call]
