"""exact-ube on MountainCarContinuous-v0 with the laptop preset and other settings, and a table of its evaluations.

python studies/mountain-car/mountain_car.py FILE '{"polyak": 0.02}' --key 100 --steps 22000

The table is written anew after every evaluation: a trial can be stopped at any time.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pandas as pd

import ubex
from ubex.callbacks import Evaluate, Info

ENV = "MountainCarContinuous-v0"
TRUSTED: dict[str, Any] = {"rollout_ends": "trusted", "patience": 10, "reward_prior": 0.5}
"""What the pendulum's preset of that name has, on top of the laptop's sizes."""
KEPT = ("value", "critic_std", "variance", "model_error", "terminal_share")


def trial(file: Path, settings: dict[str, Any], key: int, steps: int) -> None:
    """Trains one agent and evaluates it after every 1,000 steps: five episodes with its mean action, five as it acts."""
    rows: list[dict[str, float]] = []
    learned: list[float] = []

    def note(info: Info) -> None:
        acting = info.agent.evaluate(5, gymnasium.make(ENV), deterministic=False)
        known = {"return": info.reward, "drawn": np.mean(acting), "training": np.mean(learned) if learned else np.nan}
        losses = {name: info.losses.get(name, float("nan")) for name in KEPT}
        rows.append({"step": info.step, **known, **losses})
        learned.clear()
        pd.DataFrame(rows).to_csv(file, index=False, float_format="%.4g")

    agent = ubex.Agent("exact-ube", ENV, preset="laptop", key=key, **{**TRUSTED, **settings})
    evaluate = Evaluate(every=1000, episodes=5, env=gymnasium.make(ENV), then=note)
    agent.learn(steps, [evaluate, lambda info: learned.append(info.reward)])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("settings", type=json.loads)
    parser.add_argument("--key", type=int, default=100)
    parser.add_argument("--steps", type=int, default=22_000)
    given = parser.parse_args()
    trial(given.file, given.settings, given.key, given.steps)
