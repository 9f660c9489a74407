"""The ready callbacks, with a stand-in for the agent."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ubex import callbacks
from ubex.callbacks import Checkpoint, Evaluate, Info, Progress, StopOnReward
from ubex.types import InputError


class Actor:
    """Saves nothing and returns what it was told to."""

    def __init__(self, *returns: float) -> None:
        self.saved: list[str] = []
        self.returns = list(returns)

    def save(self, path: Path) -> None:
        self.saved.append(str(path))

    def evaluate(self, episodes: int, env: Any = None, deterministic: bool = True) -> Any:
        self.env, self.deterministic = env, deterministic
        return np.array([self.returns.pop(0)] * episodes)


def info(agent: Any, step: int, reward: float = 0.0) -> Info:
    return Info(agent, "episode", step, 1000, step // 10, reward, 10, {})


def test_checkpoints_come_every_so_many_steps() -> None:
    agent, callback = Actor(), Checkpoint("a.ubex", every=100)
    assert [(callback(info(agent, step)), len(agent.saved))[1] for step in (50, 120, 180, 220, 350)] == [0, 1, 1, 2, 3]


def test_evaluations_keep_the_best_and_pass_on() -> None:
    agent, seen = Actor(1.0, 3.0, 2.0), list[Info]()
    callback = Evaluate(every=100, episodes=2, best="best.ubex", then=lambda one: seen.append(one))
    for step in (50, 100, 200, 300):
        assert callback(info(agent, step)) is None
    assert callback.history == [(100, 1.0, 0.0), (200, 3.0, 0.0), (300, 2.0, 0.0)]
    assert agent.saved == ["best.ubex"] * 2
    assert [(one.kind, one.reward, one.length) for one in seen] == [("evaluation", x, 2) for x in (1.0, 3.0, 2.0)]
    assert agent.deterministic
    stopping = Evaluate(every=100, then=StopOnReward(2.0, 1), deterministic=False)
    agent = Actor(1.0, 2.0)
    assert [stopping(info(agent, step)) for step in (100, 200)] == [True, False]
    assert not agent.deterministic


def test_where_episodes_are_awaited_none_is_left_out() -> None:
    agent, callback = Actor(1.0, 2.0, 3.0), Evaluate(every=1000)
    for number in range(1, 5):
        callback(info(agent, 999 * number))
    assert [step for step, *_ in callback.history] == [1998, 2997, 3996]


def test_an_evaluation_goes_on_where_the_agent_is() -> None:
    agent, callback = Actor(1.0), Evaluate(every=1000)
    callback.begin(1500)
    assert [callback.due(step) for step in (1501, 1999, 2000)] == [False, False, True]
    callback(info(agent, 2000), "another")
    assert (agent.env, callback.due(2000), callback.due(2999)) == ("another", False, False)


def test_stopping_needs_enough_episodes() -> None:
    callback = StopOnReward(2.0, episodes=2)
    said = [callback(info(None, 0, reward)) for reward in (5.0, -2.0, 5.0, -0.5, 4.0, 0.0)]
    assert said == [True, True, True, False, True, False]


def test_progress_prints_lines() -> None:
    file = io.StringIO()
    callback = Progress(0.0, file)
    callback(info(None, 10, 1.5))
    callback(info(None, 20, 2.5))
    first, second = file.getvalue().splitlines()
    assert first == "step 10 of 1000, episode 1, return 1.5"
    assert second.startswith("step 20 of 1000, episode 2, return 2.5, ")
    quiet = Progress(1000.0, file)
    quiet(info(None, 30))
    quiet(info(None, 40))
    assert len(file.getvalue().splitlines()) == 3


@pytest.mark.parametrize(("kind", "losses", "said"), [("deep", {}, True), ("deep", {"w": 1.0}, False), ("tabular", {}, False)])
def test_progress_says_when_a_deep_agent_does_not_train_yet(kind: str, losses: dict[str, float], said: bool) -> None:
    file = io.StringIO()
    Progress(0.0, file)(info(SimpleNamespace(kind=kind), 10)._replace(losses=losses))
    assert file.getvalue().endswith(", not training yet\n") == said


def test_compiling_is_not_counted_into_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now, file = 0.0, io.StringIO()
    monkeypatch.setattr(callbacks.time, "monotonic", lambda: now)
    callback = Progress(0.0, file)
    for now, step, losses in ((1.0, 10, {}), (2.0, 20, {}), (500.0, 30, {"w": 1.0}), (510.0, 50, {"w": 1.0})):  # noqa: B007
        callback(info(None, step)._replace(losses=losses))
    said = [line.split("return 0", 1)[1] for line in file.getvalue().splitlines()]
    assert said == ["", ", 10 steps/s", "", ", 2 steps/s, 7 min 55 s left"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Checkpoint("a", every=0), "every must be at least 1"),
        (lambda: Evaluate(episodes=0), "episodes must be at least 1"),
        (lambda: StopOnReward(1.0, 0), "episodes must be at least 1"),
    ],
)
def test_bad_settings(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()
