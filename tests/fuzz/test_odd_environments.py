"""Environments that give anything at any place: an episode, or one line that names it; through both gates of the agents."""

from __future__ import annotations

from typing import Any

import hypothesis
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import strategies as st
from odd import campaign, odd, refusal

from ubex.envs import adapter
from ubex.learn import tabular
from ubex.tabular.host import HostEnv

STEPS = 4
PLACES = (
    "reset",
    "first",
    "info",
    "step",
    "after",
    "reward",
    "terminated",
    "truncated",
    "note",
    "observation_space",
    "action_space",
)
"""Where an environment can give something else: whole answers, and their parts."""


class World:
    """States or observations without surprise, but for what is odd: at a place, in a step."""

    def __init__(self, deep: bool, odd: dict[str, Any], at: int) -> None:
        box, few = spaces.Box(-1.0, 1.0, (2,), np.float32), spaces.Discrete(3)
        self.odd, self.at, self.time = odd, at, 0
        self.one: Any = np.zeros(2, np.float32) if deep else 1
        self.observation_space = odd.get("observation_space", box if deep else few)
        self.action_space = odd.get("action_space", box if deep else few)

    def given(self, place: str, usual: Any) -> Any:
        """What is odd at this place, in its step."""
        return self.odd[place] if place in self.odd and self.time >= self.at else usual

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        answer = self.given("reset", (self.given("first", self.one), self.given("info", {})))
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def step(self, action: Any) -> Any:
        self.time += 1
        parts = (("after", self.one), ("reward", 0.5), ("terminated", False), ("truncated", False), ("note", {}))
        answer = self.given("step", tuple(self.given(place, usual) for place, usual in parts))
        if isinstance(answer, BaseException):
            raise answer
        return answer


class Own(BaseException):
    """An exception that is none of Python's."""


RAISED = [ValueError("a\nb"), SystemExit(3), KeyError(), Own("x"), MemoryError(), GeneratorExit(), StopIteration()]


def tried(world: World, deep: bool) -> None:
    """An episode of a few steps through the gate of deep or of tabular agents."""
    if deep:
        env = adapter.hosted(world)
        env.reset(0, 1)
        for number in range(STEPS):
            env.step(np.zeros(env.task.action_size, np.float32), number, number)
        return
    host = tabular.environment(world)
    assert isinstance(host, HostEnv)
    state = host.reset(0, 1)
    for number in range(STEPS):
        state, _, over = host.step(state, 0, 0, number)
        if over:
            return


@pytest.mark.usefixtures("as_users_have_it")
@campaign(0.2)
@hypothesis.given(
    st.booleans(),
    st.dictionaries(st.sampled_from(PLACES), st.one_of(odd(), st.sampled_from(RAISED)), min_size=1, max_size=2),
    st.integers(0, STEPS - 1),
)
def test_an_episode_or_one_line(deep: bool, surprises: dict[str, Any], at: int) -> None:
    refusal(lambda: tried(World(deep, surprises, at), deep))
