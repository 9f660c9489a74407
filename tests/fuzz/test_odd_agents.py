"""`ubex.train` and `ubex.Agent` with odd arguments: an agent, or one line. What learns for long is not let run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hypothesis
import numpy as np
import pytest
from odd import Calls, campaign, odd_calls, refusal

import ubex
from ubex.learn import driver

P, R = np.full((2, 2, 2), 0.5), np.eye(2)
SIZE = {"size": 3}
TABULAR = {"method": "psrl", "env": "deep-sea", "env_args": SIZE, "key": 0, "horizon": None, "gain": 1.0, "num_models": 5}
DEEP = {"method": "sac", "env": "Pendulum-v1", "preset": "laptop", "key": 0, "horizon": 9, "termination": None, "reward": None}
RESTS = {
    "u_min": -0.05,
    "repeats": 2,
    "prior_mass": None,
    "planner": "policy-iteration",
    "discount": 0.9,
    "reward_precision": 1.0,
}
SIZES = {"critic_hidden": (8,), "actor_hidden": (8,), "batch_size": 8, "gain": 0.5}


def made() -> ubex.Agent:
    """One that knows three by three cells."""
    return ubex.Agent("psrl", "deep-sea", env_args=SIZE)


def learn(total_steps: Any, callback: Any) -> ubex.Agent:
    """A few steps; what a callback of the user's own raises is the user's."""
    return made().learn(total_steps, None if callable(callback) else callback)


CALLS: Calls = {
    "train": (ubex.train, {"env": (P, R), "agent": "psrl", "episodes": 1, "key": 0, "horizon": 3, "env_args": None, **RESTS}),
    "train on arrays": (lambda p, r: ubex.train((p, r), "psrl", episodes=1, horizon=3), {"p": P, "r": R}),
    "tabular agent": (ubex.Agent, {**TABULAR, **RESTS}),
    "deep agent": (ubex.Agent, {**DEEP, **SIZES}),
    "learn": (learn, {"total_steps": 3, "callback": None}),
    "predict": (lambda **given: made().predict(**given), {"observation": np.array([0, 1]), "deterministic": True}),
    "value": (lambda **given: made().value(**given), {"observation": np.array([0, 1]), "action": np.array([1, 0])}),
    "map": (lambda **given: made().uncertainty_map(**given), {"observations": np.array([0, 1]), "axes": (0, 1), "points": 5}),
    "evaluate": (lambda **given: made().evaluate(**given), {"episodes": 1, "env": None, "deterministic": True, "seed": 0}),
    "load": (ubex.Agent.load, {"path": "nothing.ubex", "env": None, "termination": None, "reward": None}),
    "results": (ubex.load_results, {"path": "results.csv"}),
    "curves": (ubex.load_curves, {"path": "curves.csv"}),
    "save": (lambda path: made().save(path), {"path": "agent.ubex"}),
}


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing learns for long, in a folder of its own."""
    advance = driver.advance

    def one_piece(learner: Any, state: Any, goal: int, see: Any) -> Any:
        return advance(learner, state, min(goal, learner.done(state) + 1), see)

    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(tmp_path_factory.mktemp("agents"))
        patched.setattr(driver, "advance", one_piece)
        yield


@pytest.mark.usefixtures("as_users_have_it", "quick")
@campaign(0.2)
@hypothesis.given(odd_calls(CALLS))
def test_odd_arguments_are_refused_in_one_line_or_understood(call: tuple[str, dict[str, Any]]) -> None:
    name, arguments = call
    refusal(lambda: CALLS[name][0](**arguments))
