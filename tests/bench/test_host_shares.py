"""What the bench of the host prints: shares of a step that add up, and errors at a task's own sizes."""

from __future__ import annotations

import json

import pytest
from deep.tiny import config

from ubex import cli
from ubex.bench.deep import errors
from ubex.envs.task import Task

SMALL = '{"initial_steps": 20, "retrain_every": 10, "batch_size": 4, "updates_per_step": 1, "critic_hidden": [4]}'


def test_shares_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "host", "--env", "Pendulum-v1", "--methods", "sac", "--steps", "30", "--settings", SMALL, "--json"]
    assert cli.run(words) == 0
    (found,) = json.loads(capsys.readouterr().out)["host"]
    assert found["share_models"] == 0.0, "it has none"
    shares = [found[f"share_{name}"] for name in ("environment", "device", "rest")]
    assert min(shares) > 0.0
    assert sum(shares) == pytest.approx(1.0, abs=1e-6)
    assert (found["env"], found["method"], found["steps"]) == ("Pendulum-v1", "sac", 30)
    assert found["rest_within_bound"] == (shares[2] <= 0.15)
    speeds = [found[f"{name}_per_second"] for name in ("steps", "environment_steps", "seed_rounds")]
    assert speeds == [pytest.approx(speeds[0])] * 3, "one seed, one round per step"
    assert cli.run(["bench", "host", "--env", "Pendulum-v1", "--settings", "7"]) == 2
    assert "settings must be a JSON object" in capsys.readouterr().err


@pytest.mark.parametrize("task", [Task(20, 6), Task(4, 2, discrete=True)])
@pytest.mark.parametrize("per_model", [1, 2])
def test_errors_are_measured_at_the_sizes_of_any_task(task: Task, per_model: int) -> None:
    found = errors(config(method="exact-ube", critics_per_model=per_model), task)
    assert set(found) == {"error_w", "error_gap", "error_u"}
    assert all(0.0 < error < 0.05 for error in found.values())
    assert errors(config(method="sac"), task) == {}, "it has none of them"
