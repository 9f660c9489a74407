"""Pendulum-v1 with the laptop preset is learned, as promised with `UBEX_LONG=1`."""

from __future__ import annotations

import os

import pytest

import ubex
from ubex.callbacks import Evaluate, StopOnReward

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
