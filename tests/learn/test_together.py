"""Several seeds of a deep agent in worker processes: killed and continued, or one of them broken, with the same numbers."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

import ubex
from ubex import Agent
from ubex.deep import steps
from ubex.envs.adapter import answer
from ubex.experiments import train_deep
from ubex.experiments.spec import Outcome, SeedError
from ubex.experiments.train_deep import AGENT_FILE, TrainDeep
from ubex.learn import together
from ubex.learn.crew import Maker
from ubex.learn.deep_agent import DeepBackend
from ubex.learn.together import SeedsLearner, Shown
from ubex.runs import checkpoint
from ubex.runs.checkpoint import CheckpointFolder
from ubex.runs.jobs import JobContext
from ubex.runs.records import SO_FAR, from_json
from ubex.types import InputError

UNEVEN = """
import gymnasium, numpy as np, signal
from gymnasium import spaces

envs, calls, stop = 0, [], -1

def called(env, what):
    calls.append((what, env % 2))
    if len(calls) == stop:
        signal.raise_signal(signal.SIGTERM)

class Uneven(gymnasium.Env):
    observation_space = spaces.Box(-9.0, 9.0, (2,), np.float32)
    action_space = spaces.Box(-2.0, 2.0, (1,), np.float32)
    def __init__(self, breaks=-1):
        global envs
        self.left, self.first, self.number, envs = breaks, None, envs, envs + 1
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        called(self.number, "reset")
        self.first = seed if self.first is None else self.first
        self.time, self.length, self.at = 0, 6 + seed % 5, self.np_random.normal(size=2)
        return self.at, {}
    def step(self, action):
        called(self.number, "step")
        self.time, self.left = self.time + 1, self.left - 1
        if self.left == 0 and self.first % 2:
            raise OSError("cable")
        self.at = self.at + np.array([0.1 * float(action[0]), 0.0])
        return self.at, -float(self.at[0]) ** 2, False, self.time == self.length, {}
"""
"""Episodes of 6 to 10 steps, by their seed; with `breaks`, environments that began with an odd one fail.

Call number `stop` is interrupted. A run of one seed makes two environments, and the second one is for evaluations."""
SETTINGS: dict[str, Any] = {
    **{"num_models": 2, "initial_steps": 20, "retrain_every": 8, "batch_size": 4, "updates_per_step": 1, "max_epochs": 2},
    **{"rollouts_per_step": 2, "critic_hidden": (4,), "actor_hidden": (4,), "model_hidden": (4,), "model_batch": 16},
}
TASK = TrainDeep(
    env="uneven:Uneven",
    agent="ensemble-mean",
    steps=50,
    settings=json.dumps(SETTINGS),
    evaluate_every=15,
    evaluation_episodes=1,
)
SCRIPT = """
import os, pickle, signal, sys
from pathlib import Path
from ubex.experiments import train_deep
from ubex.runs import checkpoint
from ubex.runs.checkpoint import CheckpointFolder
from ubex.runs.jobs import JobContext

def report(done, total, unit):
    if done >= 35:
        os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    train_deep.CHECKPOINT_SECONDS = 0.0
    task, cell = pickle.loads(Path(sys.argv[1]).read_bytes())
    task.run(cell, [0, 1], JobContext(CheckpointFolder(Path(sys.argv[2])), report))
"""


@pytest.fixture(autouse=True)
def _uneven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "uneven.py").write_text(UNEVEN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(train_deep, "CHECKPOINT_SECONDS", 0.0)


def run(task: TrainDeep, seeds: list[int], folder: Path) -> dict[int, Outcome | SeedError]:
    (cell,) = dataclasses.replace(task, env_args="{}").cells()  # the same keys
    return dict(task.run(cell, seeds, JobContext(CheckpointFolder(folder / "c"), lambda *_: None, folder)))


def test_killed_and_continued_is_as_if_it_had_not_been(tmp_path: Path) -> None:
    (tmp_path / "task").write_bytes(pickle.dumps((TASK, TASK.cells()[0])))
    script = tmp_path / "killed.py"
    script.write_text(SCRIPT)
    straight = run(TASK, [0, 1], tmp_path / "b")  # first, so that the other process finds everything compiled
    killed = subprocess.run([sys.executable, str(script), str(tmp_path / "task"), str(tmp_path / "a" / "c")], cwd=tmp_path)
    assert killed.returncode == -signal.SIGKILL
    notes = CheckpointFolder(tmp_path / "a" / "c").notes() or {}
    assert 20 < notes["rows"] < 35
    early = {int(seed): from_json(one) for seed, one in json.loads((tmp_path / "a" / "c" / SO_FAR).read_text()).items()}
    again = run(TASK, [0, 1], tmp_path / "a")
    for seed in (0, 1):
        mine, other = again[seed], straight[seed]
        assert isinstance(mine, Outcome)
        assert isinstance(other, Outcome)
        assert mine == other
        (last, scalars), curves = *early[seed].earlier.items(), early[seed].curves
        number = {15: 1, 30: 2}[last]  # of evaluations that had come
        assert (early[seed].scalars, early[seed].earlier_unit) == ({}, "steps")
        assert scalars["final_evaluation"] == curves["evaluation"].values[-1]
        assert curves["evaluation"].values == other.curves["evaluation"].values[:number]
        assert curves["return"].values == other.curves["return"].values[: len(curves["return"].index)]
        agents = [(tmp_path / name / f"seed-{seed}" / AGENT_FILE).read_bytes() for name in "ab"]
        assert agents[0] == agents[1]
    first, second = (straight[seed] for seed in (0, 1))
    assert isinstance(first, Outcome)
    assert isinstance(second, Outcome)
    assert first.curves["evaluation"].index == second.curves["evaluation"].index == [15, 30, 45, 50]
    assert first.curves["return"].index != second.curves["return"].index, "episodes of their own"
    (alone,) = run(TASK, [1], tmp_path / "alone").values()
    assert isinstance(alone, Outcome)
    assert alone.curves["evaluation"].index == second.curves["evaluation"].index
    assert alone.curves["evaluation"].values == pytest.approx(second.curves["evaluation"].values, rel=1e-3)
    agent = ubex.Agent.load(tmp_path / "b" / "seed-1" / AGENT_FILE, env="uneven:Uneven")
    assert (agent.steps, agent.evaluate(1)[0]) == (50, pytest.approx(second.scalars["final_evaluation"], rel=1e-4))


@pytest.mark.parametrize("method", ["ensemble-mean", "sac"])
def test_interrupted_anywhere_and_continued_is_as_if_it_had_not_been(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a reset, in the first step of an episode, in a later one, and in an evaluation, while the agent is trained."""
    monkeypatch.setattr(train_deep, "CHECKPOINT_SECONDS", 1000.0)
    uneven, task = importlib.import_module("uneven"), dataclasses.replace(TASK, agent=method)
    uneven.envs, uneven.calls = 0, []
    straight = run(task, [0], tmp_path / "straight")
    reset, evaluated = (uneven.calls.index(call, 40) + 1 for call in (("reset", 0), ("step", 1)))
    for stop in (reset, reset + 1, reset + 3, evaluated):
        uneven.envs, uneven.calls, uneven.stop, out = 0, [], stop, tmp_path / str(stop)
        with pytest.raises(KeyboardInterrupt):
            run(task, [0], out)
        uneven.stop = -1
        assert len(list((out / "c").glob("*.ckpt"))) == 2, "one of the first block, and one of the interrupt"
        (mine,), (other,) = run(task, [0], out).values(), straight.values()
        assert isinstance(mine, Outcome)
        assert isinstance(other, Outcome)
        assert mine.scalars == other.scalars, stop
        assert all(mine.curves[name] == other.curves[name] for name in ("return", "evaluation"))
        agents = [(folder / "seed-0" / AGENT_FILE).read_bytes() for folder in (tmp_path / "straight", out)]
        assert agents[0] == agents[1], stop


def test_evaluations_ask_the_actor_beside_the_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU each of their small questions would wait for the device, a thousand times per episode."""
    places = list[tuple[str, bool]]()

    def modes(config: Any, task: Any, actor: Any, observation: Any) -> Any:
        places.extend((leaf.device.platform, leaf.committed) for leaf in jax.tree.leaves(actor))
        return steps.modes(config, task, actor, observation)

    monkeypatch.setattr(together, "steps", SimpleNamespace(**{**vars(steps), "modes": modes}))
    run(dataclasses.replace(TASK, agent="sac", steps=22, evaluate_every=21), [0], tmp_path)
    assert set(places) == {("cpu", True)}


def test_a_broken_environment_stops_its_seed_alone(tmp_path: Path) -> None:
    task = dataclasses.replace(TASK, agent="sac", env_args='{"breaks": 42}')
    found = run(task, [0, 1, 2], tmp_path / "a")
    whole = run(dataclasses.replace(task, env_args="{}"), [0, 1, 2], tmp_path / "b")
    failed = {seed: one.error for seed, one in found.items() if isinstance(one, SeedError)}
    assert 0 < len(failed) < 3
    for seed, error in failed.items():
        assert error.startswith(f"seed {seed}: Uneven failed at step ")
        assert error.endswith(": OSError: cable")
        assert not (tmp_path / "a" / f"seed-{seed}").exists()
    for seed in set(found) - set(failed):
        assert found[seed] == whole[seed], "to the last bit"


class Beside:
    """Seeds whose evaluations have environments of their own, which answer when they may."""

    def __init__(self, method: str = "sac", every: int = 25, breaks: int = -1, kept: bytes = b"") -> None:
        agent = Agent(method, "uneven:Uneven", **SETTINGS)
        assert isinstance(agent.backend, DeepBackend)
        maker = Maker("uneven:Uneven", {}, None, agent.backend.config.scaled_observations)
        self.may, here = threading.Event(), [maker(), maker()]
        there = [maker(), maker._replace(settings={"breaks": breaks})()]

        def ask(method: str, words: Any) -> Any:
            return {k: answer(here[k], method, given) for k, given in words.items()}

        def ask_apart(method: str, words: Any) -> Any:
            self.may.wait()
            return {k: answer(there[k], method, given) for k, given in words.items()}

        keys = jax.random.split(jax.random.key(0))
        self.learner = SeedsLearner.of(agent.backend, keys, every, 1, ask=ask, ask_apart=ask_apart, other=maker())
        like = self.learner.blank(checkpoint.notes_of(kept, Path()) if kept else {})
        state = checkpoint.unpack(kept, like, Path())[1] if kept else like
        self.now = self.learner.ready(self.learner.restore(state), 60)
        if kept:
            self.may.set()

    def kept(self) -> bytes:
        """What a checkpoint would hold now."""
        return checkpoint.pack(0, self.learner.kept(self.now), self.learner.notes(self.now))

    def piece(self) -> Shown | None:
        """One piece, and what it showed."""
        self.now, shown = self.learner.advance(self.now, 60)
        if isinstance(shown, Exception):
            raise shown
        return shown

    def to(self, step: int) -> list[Shown]:
        """What showed on the way to a step."""
        found = list[Shown]()
        while self.now.state.step < step:
            shown = self.piece()
            found += [] if shown is None else [shown]
        return found


def evaluations(shown: Iterable[Shown | None]) -> list[tuple[int, int, float, Any]]:
    """Those that were seen: step, seed, value, and what was inside."""
    every = [(one.step, k, one.value, one.inside) for some in shown if some for k, one in some.evaluations.items()]
    return sorted(every, key=lambda one: one[:2])


def test_training_goes_on_while_seeds_are_evaluated() -> None:
    slow, quick = Beside(), Beside()
    quick.may.set()
    assert not evaluations(slow.to(40)), "fifteen steps after it was asked for"
    slow.may.set()
    found = evaluations(quick.to(60))
    assert [one[:2] for one in found] == [(25, 0), (25, 1), (50, 0), (50, 1)]
    assert evaluations(slow.to(60)) == found, "it does not matter when it comes"
    assert slow.now.beside is None, "nothing is under way at the goal"
    jax.tree.map(np.testing.assert_array_equal, slow.learner.saved(slow.now).data, quick.learner.saved(quick.now).data)


@pytest.mark.parametrize("method", ["sac", "ensemble-mean"])
def test_a_checkpoint_after_any_piece_goes_on_to_the_same(method: str) -> None:
    """After resets, choices and steps, and with an evaluation that was asked for, is under way, or has come at any of these."""
    straight = Beside(method, every=6)
    straight.may.set()
    whole, kept = list[Shown | None](), dict[int, tuple[bytes, bool]]()
    while straight.now.state.step < 45:
        before = straight.now.state.step
        whole.append(straight.piece())
        straight.may.clear() if straight.now.state.step % 6 == 0 else straight.may.set()
        if 27 <= before < 36:
            kept[len(whole)] = straight.kept(), straight.now.beside is not None
    assert {late for _, late in kept.values()} == {True, False}
    episodes = [(k, one) for some in whole if some for k, one in some.episodes.items()]
    whole_ones = [one for one in evaluations(whole) if one[0] < 42]
    for number, (bytes_then, _) in kept.items():
        again = Beside(method, every=6, kept=bytes_then)
        after, early = again.to(45), whole[:number]
        assert [one for one in evaluations([*early, *after]) if one[0] < 42] == whole_ones, "that of 42 may come later"
        later = [(k, one) for some in after for k, one in some.episodes.items()]
        assert [(k, one.step, one.reward) for k, one in later] == [
            (k, one.step, one.reward) for k, one in episodes[len(episodes) - len(later) :]
        ], number
        np.testing.assert_array_equal(again.learner.saved(again.now).data, straight.learner.saved(straight.now).data)


def test_a_seed_whose_evaluation_fails_is_out_alone() -> None:
    broken = Beside(breaks=3)
    broken.may.set()
    found = [shown.evaluations for shown in broken.to(60) if shown.evaluations]
    assert [list(one) for one in found] == [[0], [0]]
    assert broken.now.errors[0] == ""
    assert broken.now.errors[1] == "Uneven failed at step 25, in episode 0 of an evaluation: OSError: cable"


@pytest.mark.parametrize("method", ["sac", "ensemble-mean"])
@pytest.mark.parametrize("where", ["evaluation", "first step"])
def test_what_fails_for_all_is_made_again_by_a_run_that_goes_on(where: str, method: str) -> None:
    """In an evaluation, or after the choice of the first action of an episode."""
    straight, broken = Beside(method), Beside(method)
    straight.may.set()
    broken.may.set()
    whole = straight.to(50)

    def refuse(asked: Callable[..., Any], method: str, words: Mapping[int, Any]) -> Any:
        first = method == "step" and any(elapsed == 0 for _, step, elapsed, _ in words.values() if step > 30)
        return {k: InputError("cable") for k in words} if where == "evaluation" or first else asked(method, words)

    name = "ask_apart" if where == "evaluation" else "ask"
    object.__setattr__(broken.learner, name, functools.partial(refuse, getattr(broken.learner, name)))
    early = list[Shown | None]()
    with pytest.raises(InputError, match="cable"):
        early.extend(iter(broken.piece, ...))  # list.extend keeps what came before the error
    again = Beside(method, kept=broken.kept())
    assert 25 <= again.now.state.step < 50
    assert evaluations([*early, *again.to(50)]) == evaluations(whole) != []
    np.testing.assert_array_equal(again.learner.saved(again.now).data, straight.learner.saved(straight.now).data)


@pytest.mark.parametrize("late", range(33, 42))
def test_no_checkpoint_can_hold_an_agent_that_is_not_sound(late: int) -> None:
    """Whenever an evaluation comes, the agent whose losses are not finite any more is not shown with it."""
    broken = Beside(every=30)
    ask = broken.learner.ask
    assert ask is not None

    def paid(method: str, words: Mapping[int, Any]) -> Any:
        big = method == "step" and next(iter(words.values()))[1] >= 33
        return {k: one._replace(reward=1e30) if big else one for k, one in ask(method, words).items()}

    object.__setattr__(broken.learner, "ask", paid)

    def learn() -> None:
        while True:
            if broken.now.state.step == late and broken.now.beside is not None:
                broken.may.set()
                broken.now.beside.answers.result()
            shown = broken.piece()
            assert shown is None or steps.finite(broken.now.state.agent).all()

    with pytest.raises(FloatingPointError, match="not finite"):
        learn()
