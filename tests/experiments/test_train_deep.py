"""`ubex train --steps N` and `ubex evaluate`: a run leaves an agent, can be stopped, and refuses what does not fit."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces
from PIL import Image

import ubex
from ubex import cli
from ubex.envs import adapter
from ubex.experiments import train_deep
from ubex.experiments.spec import Outcome, SeedError
from ubex.experiments.train_deep import AGENT_FILE, TrainDeep, curve, curve_of
from ubex.learn.crew import Crew, Maker
from ubex.runs.checkpoint import CheckpointFolder
from ubex.runs.jobs import JobContext

SMALL = '{"initial_steps": 20, "batch_size": 4, "updates_per_step": 1, "critic_hidden": [4], "actor_hidden": [4]}'
TASK = TrainDeep(env="Pendulum-v1", agent="sac", steps=60, settings=SMALL, horizon=20, evaluate_every=30, evaluation_episodes=1)


class Switches(gymnasium.Env[Any, Any]):
    """Several choices at once."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.MultiBinary(3)


class Stop(Exception):
    """Stands for a kill."""


def test_a_run_is_stopped_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (cell,) = TASK.cells()

    def stop(done: int, total: int, unit: str) -> None:
        assert (total, unit) == (60, "step")
        if done == 40:
            raise Stop

    with pytest.raises(Stop):
        TASK.run(cell, [0], JobContext(CheckpointFolder(tmp_path / "c"), stop))
    notes = CheckpointFolder(tmp_path / "c").notes()
    assert notes is not None
    shapes = notes.pop("history")
    assert notes == {"rows": 40, "refills": [], "errors": [""], "asked": False}
    assert {name: shapes.pop(name) for name in ("return", "evaluation")} == {"return": [2, 3], "evaluation": [1, 3]}
    assert {"critic_loss", "value", "alpha"} <= set(shapes), "what the agent looks like inside, at every evaluation"
    assert set(map(tuple, shapes.values())) == {(1, 3)}
    out = tmp_path / "run" / "artifacts" / "cell"
    found = TASK.run(cell, [0], JobContext(CheckpointFolder(tmp_path / "c"), lambda *_: None, out))[0]
    assert isinstance(found, Outcome)
    straight = TASK.run(cell, [0], JobContext(CheckpointFolder(tmp_path / "d"), lambda *_: None))[0]
    assert isinstance(straight, Outcome)
    assert found == straight, "as if it had not been stopped"
    assert list(found.curves["return"].index) == [20, 40, 60]
    assert list(found.curves["evaluation"].index) == [30, 60], "at the steps that were asked for, in the middle of episodes"
    assert list(found.curves["critic_std"].index) == [30]

    agent = ubex.Agent.load(out / "seed-0" / AGENT_FILE)
    assert agent.steps == 60
    for target in (tmp_path / "run", out / "seed-0" / AGENT_FILE):
        assert cli.run(["evaluate", str(target), "--episodes", "2", "--seed", "1"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("seed-0: Agent('sac', 'Pendulum-v1', steps=60, episodes=3): mean -")
    assert first.split(": ", 1)[1] == second.split(": ", 1)[1]


def test_a_single_seed_has_its_evaluations_beside_it_where_there_is_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is evaluated at the same steps, with the same numbers."""
    cell, made, found = TASK.cells()[0], list[int](), []

    class Counted(Crew):
        def __init__(self, make: Maker, seeds: int) -> None:
            super().__init__(make, seeds)
            made.append(seeds)

    monkeypatch.setattr(train_deep, "Crew", Counted)
    for device, crews in (("cpu", []), ("gpu", [1])):
        monkeypatch.setattr(jax, "default_backend", lambda device=device: device)
        outcome = TASK.run(cell, (0,), JobContext(CheckpointFolder(tmp_path / device), lambda *_: None))[0]
        assert isinstance(outcome, Outcome)
        assert made == crews
        found.append(outcome.curves["evaluation"])
    assert found[0] == found[1]
    assert list(found[0].index) == [30, 60]


def test_one_of_the_seeds_that_ran_together_is_the_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[int, bool] = {}
    monkeypatch.setattr(TrainDeep, "leave", lambda self, agent, seed, context, best: seen.update({seed: best}))
    found = TASK.run(TASK.cells()[0], [3, 4], JobContext(CheckpointFolder(tmp_path), lambda *_: None))
    last = {seed: one.scalars["final_evaluation"] for seed, one in found.items() if isinstance(one, Outcome)}
    assert sorted(last) == [3, 4]
    assert seen == {seed: value == max(last.values()) for seed, value in last.items()}


BROKEN = """
import gymnasium, numpy as np
from gymnasium import spaces

class Broken(gymnasium.Env):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
    observation_space = spaces.Box(-9.0, 9.0, (3,), np.float32)
    action_space = spaces.Box(-2.0, 2.0, (1,), np.float32)
    def __init__(self, at=35, reward=0.0, render_mode=None):
        self.at, self.reward, self.render_mode = at, reward, render_mode
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.state = 0, self.np_random.normal(size=3).astype(np.float32)
        return self.state, {}
    def step(self, action):
        self.steps += 1
        if self.steps == self.at:
            raise OSError("cable")
        return self.state, self.reward if self.steps > 20 else 0.0, False, False, {}
    def render(self):
        return np.full((8, 8, 3), 30 * self.steps % 256, np.uint8)
"""


def fail(words: str) -> None:
    raise gymnasium.error.DependencyNotInstalled(words)


def test_what_breaks_leaves_a_checkpoint_and_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fragile.py").write_text(BROKEN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(TrainDeep, "mode", "inline")
    words = ["--env", "fragile:Broken", "--agent", "sac", "--steps", "60", "--settings", SMALL, "--horizon", "50"]
    assert cli.run(["train", *words, "--evaluation-episodes", "1", "--no-report", "--out", "a"]) == 1
    said = " ".join("".join(capsys.readouterr()).split())
    assert "seed 0: Broken failed at step 34, in episode 0: OSError: cable; there is a checkpoint of step 34" in said
    assert "Traceback" not in said
    assert len(list(Path("a").glob("cells/*/checkpoints-0/*34.ckpt"))) == 1
    assert cli.run(["train", "--resume", "a", "--no-report"]) == 1
    assert "failed at step 34" in " ".join("".join(capsys.readouterr()).split())

    task = TrainDeep(env="fragile:Broken", agent="sac", steps=60, settings=SMALL, horizon=50, env_args='{"reward": 1e30}')
    found = task.run(task.cells()[0], [0], JobContext(CheckpointFolder(tmp_path / "b"), lambda *_: None))[0]
    assert isinstance(found, SeedError)
    assert re.search(r"seed 0: critic_loss is not finite at step 2\d; .* kept as it was at step 20; .* checkpoint", found.error)
    assert (CheckpointFolder(tmp_path / "b").notes() or {})["rows"] == 20

    ubex.Agent("sac", "fragile:Broken", horizon=20, **json.loads(SMALL)).save("c/agent.ubex")
    assert cli.run(["evaluate", "c/agent.ubex", "--episodes", "2", "--video", "--env", "fragile:Broken"]) == 0
    assert "video: c/evaluation.gif" in capsys.readouterr().out
    with Image.open("c/evaluation.gif") as film:
        assert film.n_frames > 5
    missing = 'pygame is not installed, run `pip install "gymnasium[classic-control]"`'
    monkeypatch.setattr(sys.modules["fragile"].Broken, "render", lambda self: fail(missing))
    capsys.readouterr()
    assert cli.run(["evaluate", "c/agent.ubex", "--episodes", "2", "--video", "--env", "fragile:Broken"]) == 2
    said = capsys.readouterr()
    assert said.out.startswith("agent.ubex: Agent('sac', 'Broken', steps=0, episodes=0): mean "), "the returns all the same"
    assert said.err == f"ubex: no video: Broken cannot draw: DependencyNotInstalled: {missing}\n"
    assert cli.run(["train", "--resume", "c"]) == 2
    assert "c is not a run folder" in capsys.readouterr().err


ENDLESS = """
import gymnasium, numpy as np
from gymnasium import spaces

class Endless(gymnasium.Env):
    observation_space = spaces.Box(-9.0, 9.0, (3,), np.float32)
    action_space = spaces.Box(-2.0, 2.0, (1,), np.float32)
    made = 0
    def __init__(self, last=10**9):
        self.last = last
    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return np.zeros(3, np.float32), {}
    def step(self, action):
        self.steps += 1
        Endless.made += 1
        return np.zeros(3, np.float32), 0.0, False, self.steps == self.last, {}
"""


def test_episodes_that_never_end_are_refused_before_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "without_end.py").write_text(ENDLESS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(adapter, "MAX_STEPS", 50)
    line = "an episode of Endless is longer than 50 steps: give it a horizon (--horizon N, in Python horizon=N)"
    words = ["train", "--env", "without_end:Endless", "--agent", "sac", "--steps", "60", "--settings", SMALL, "--out", "a"]
    assert cli.run(words) == 2
    assert line in capsys.readouterr().err
    assert not Path("a").exists()
    endless = sys.modules["without_end"].Endless
    for env_args, horizon, made in (('{"last": 40}', None, 40), ("{}", 20, 0)):
        endless.made = 0
        TrainDeep(env="without_end:Endless", agent="sac", settings=SMALL, env_args=env_args, horizon=horizon).ready()
        assert endless.made == made
    ubex.Agent("sac", "without_end:Endless", **json.loads(SMALL)).save("agent.ubex")
    allowed = ["evaluate", "agent.ubex", "--env", "without_end:Endless", "--episodes", "2"]
    assert cli.run(allowed) == 2
    assert line in capsys.readouterr().err
    endless.made = 0
    assert cli.run([*allowed, "--horizon", "7"]) == 0
    assert endless.made == 14


def test_an_evaluation_says_which_agent_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def said(target: str) -> str:
        assert cli.run(["evaluate", target]) == 2
        return capsys.readouterr().err.removeprefix("ubex: ").rstrip("\n")

    monkeypatch.chdir(tmp_path)
    (tmp_path / "fragile.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(TrainDeep, "mode", "inline")
    words = ["train", "--env", "fragile:Broken", "--agent", "sac", "--steps", "60", "--settings", SMALL, "--horizon", "50"]
    assert cli.run([*words, "--no-report", "--out", "runs/my own"]) == 1
    assert cli.run(["run", "toy", "--no-report", "--out", "runs/toy"]) == 0
    capsys.readouterr()
    failed = said("runs/my own")
    assert failed.startswith("no seed of the run runs/my own has finished (seed 0: Broken failed at step 34, in episode 0: ")
    assert failed.endswith("): `ubex train --resume 'runs/my own'` goes on with it")
    assert said("runs") == "runs is not a run but holds some: give runs/my own or runs/toy"
    assert said("runs/toy").startswith("the run runs/toy left no agent: `ubex train` does, except for an agent of your own")
    (tmp_path / "empty").mkdir()
    assert said("empty").startswith("no run at empty: it has no spec.json")


def test_a_failure_in_the_last_evaluation_promises_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fragile.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(str(tmp_path))
    task = TrainDeep(env="fragile:Broken", agent="sac", steps=10, settings=SMALL, horizon=50, env_args='{"at": 12}')
    found = task.run(task.cells()[0], [7], JobContext(CheckpointFolder(tmp_path / "c"), lambda *_: None))[7]
    assert isinstance(found, SeedError)
    assert found.error == "seed 7: Broken failed at step 10, in episode 0 of an evaluation: OSError: cable"


def test_functions_come_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    task = dataclasses.replace(TASK, termination="jax.numpy:isnan", agent="ensemble-mean")
    with pytest.raises(ubex.InputError, match="termination must be a JAX function"):
        task.make()
    assert dataclasses.replace(TASK, termination="none", agent="ensemble-mean").make().state.termination is None
    assert dataclasses.replace(TASK, agent="ensemble-mean").make().state.termination is not None
    assert dataclasses.replace(TASK, agent="ensemble-mean", env="sparse-pendulum").make().state.termination is None


def test_a_curve_has_one_value_a_step() -> None:
    found = curve([(10.0, 1.0), (20.0, 2.0), (20.0, 3.0)])
    assert (list(found.index), list(found.values)) == ([10, 20], [1.0, 3.0])


def test_what_was_shown_before_a_run_went_back_does_not_count_twice() -> None:
    rows = np.array([(0, 10, 1.0), (1, 10, 9.0), (0, 20, 2.0), (0, 30, 3.0), (0, 15, 4.0), (0, 25, 5.0), (1, 20, 8.0)])
    assert curve_of({"return": rows}, "return", 0) == [(10.0, 1.0), (15.0, 4.0), (25.0, 5.0)]
    assert curve_of({"return": rows}, "return", 1) == [(10.0, 9.0), (20.0, 8.0)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--env", f"{__name__}:Switches"], "Box of real-valued ones, but the actions of Switches are MultiBinary(3)"),
        (["--env", "deep-sea"], "deep-sea is tabular"),
        (["--env", "FrozenLake-v1", "--agent", "sac"], "sac is a deep agent, but the spaces of FrozenLake-v1 are Discrete"),
        (["--env", "Pendulum-v1", "--agent", "psrl"], "unknown method 'psrl'"),
        (["--env", "Pendulum-v1", "--settings", "a=1"], "settings must be a JSON object"),
        (["--env", "Pendulum-v1", "--settings", '{"gane": 1}'], "unknown setting 'gane'"),
        (["--env", "Pendulum-v1", "--settings", '{"preset": "paper"}'], "preset is no setting of the agent"),
        (["--env", "Pendulum-v1", "--termination", "over"], "termination must be learned, none or module:function"),
        (["--env", "Pendulum-v1", "--reward", "over"], "reward must be module:function"),
        (["--env", "Pendulum-v1", "--preset", "desk"], "unknown preset 'desk'"),
    ],
)
def test_the_command_line_refuses(words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["train", "--steps", "30", *words, "--out", str(tmp_path / "x")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
    assert cli.run(["evaluate", str(tmp_path / "x")]) == 2
    assert "there is no file or folder" in capsys.readouterr().err


def test_smoke_is_small() -> None:
    assert TASK.smoke().steps == 30
    assert TASK.smoke().make().config.initial_steps == 20
    assert np.isclose(TASK.make().config.discount, 0.99)
