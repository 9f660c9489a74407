"""`ubex train --steps N` and `ubex evaluate`: a run leaves an agent, can be stopped, and refuses what does not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ubex
from ubex import cli
from ubex.experiments.spec import Outcome
from ubex.experiments.train_deep import AGENT_FILE, TrainDeep, curve
from ubex.runs.checkpoint import CheckpointFolder
from ubex.runs.jobs import JobContext

SMALL = '{"initial_steps": 20, "batch_size": 4, "updates_per_step": 1, "critic_hidden": [4], "actor_hidden": [4]}'
TASK = TrainDeep(env="Pendulum-v1", agent="sac", steps=60, settings=SMALL, horizon=20, evaluate_every=30, evaluation_episodes=1)


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
    assert notes == {"rows": 40, "episodes": 2, "evaluations": 1, "resumed": 0}
    out = tmp_path / "run" / "artifacts" / "cell"
    found = TASK.run(cell, [0], JobContext(CheckpointFolder(tmp_path / "c"), lambda *_: None, out))[0]
    assert isinstance(found, Outcome)
    assert found.scalars["times_resumed"] == 1.0
    assert list(found.curves["return"].index) == [20, 40, 60]
    assert list(found.curves["evaluation"].index) == [40, 60]

    agent = ubex.Agent.load(out / "seed-0" / AGENT_FILE)
    assert agent.steps == 60
    for target in (tmp_path / "run", out / "seed-0" / AGENT_FILE):
        assert cli.run(["evaluate", str(target), "--episodes", "2", "--seed", "1"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("seed-0: Agent('sac', 'Pendulum-v1', steps=60, episodes=3): mean -")
    assert first.split(": ", 1)[1] == second.split(": ", 1)[1]


def test_a_curve_has_one_value_a_step() -> None:
    found = curve([(10.0, 1.0), (20.0, 2.0), (20.0, 3.0)])
    assert (list(found.index), list(found.values)) == ([10, 20], [1.0, 3.0])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--env", "CartPole-v1"], "but the actions of CartPole-v1 are Discrete(2)"),
        (["--env", "deep-sea"], "deep-sea is tabular"),
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
    assert "there is no trained agent" in capsys.readouterr().err


def test_smoke_is_small() -> None:
    assert TASK.smoke().steps == 30
    assert TASK.smoke().make().config.initial_steps == 20
    assert np.isclose(TASK.make().config.discount, 0.99)
