"""Shares of a step on the host: they add up, and the command prints them."""

from __future__ import annotations

import json

import pytest

from ubex import cli

SMALL = '{"initial_steps": 20, "retrain_every": 10, "batch_size": 4, "updates_per_step": 1, "critic_hidden": [4]}'


def test_shares_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "host", "--env", "Pendulum-v1", "--methods", "sac", "--steps", "30", "--settings", SMALL, "--json"]
    assert cli.run(words) == 0
    (found,) = json.loads(capsys.readouterr().out)["host"]
    shares = [found[f"share_{name}"] for name in ("environment", "device", "rest")]
    assert min(shares) > 0.0
    assert sum(shares) == pytest.approx(1.0, abs=1e-6)
    assert (found["env"], found["method"], found["steps"]) == ("Pendulum-v1", "sac", 30)
    assert found["rest_within_bound"] == (shares[2] <= 0.15)
    speeds = [found[f"{name}_per_second"] for name in ("steps", "environment_steps", "seed_rounds")]
    assert speeds == [pytest.approx(speeds[0])] * 3, "one seed, one round a step"
    assert cli.run(["bench", "host", "--env", "Pendulum-v1", "--settings", "7"]) == 2
    assert "settings must be a JSON object" in capsys.readouterr().err
