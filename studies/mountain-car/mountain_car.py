"""An agent on a Gymnasium task with the laptop preset and other settings, and a table of its evaluations.

python studies/mountain-car/mountain_car.py FILE '{"polyak": 0.02}' --key 100 --steps 22000
python studies/mountain-car/mountain_car.py FILE '{}' --env CartPole-v1 --method mbpo --steps 10000

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

BEFORE: dict[str, Any] = {"polyak": 0.005, "scaled_observations": False, "actor_average": 0.0}
"""What the laptop preset had in the first two parts of the study, besides trusted rollouts."""
KEPT = ("value", "critic_std", "variance", "model_error", "terminal_share")


def trial(file: Path, method: str, env: str, settings: dict[str, Any], key: int, steps: int, episodes: int) -> None:
    """Trains one agent and evaluates it after every 1,000 steps, in some episodes with its mean or likeliest action."""
    rows: list[dict[str, float]] = []
    learned: list[float] = []

    def note(info: Info) -> None:
        losses = {name: info.losses.get(name, float("nan")) for name in KEPT}
        training = float(np.mean(learned)) if learned else float("nan")
        rows.append({"step": info.step, "return": info.reward, "training": training, **losses})
        learned.clear()
        pd.DataFrame(rows).to_csv(file, index=False, float_format="%.4g")

    agent = ubex.Agent(method, env, preset="laptop", key=key, **settings)
    evaluate = Evaluate(every=1000, episodes=episodes, env=gymnasium.make(env), then=note)
    agent.learn(steps, [evaluate, lambda info: learned.append(info.reward)])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("settings", type=json.loads)
    parser.add_argument("--env", default="MountainCarContinuous-v0")
    parser.add_argument("--method", default="exact-ube")
    parser.add_argument("--key", type=int, default=100)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--episodes", type=int, default=5, help="of each evaluation")
    parser.add_argument("--before", action="store_true", help="with the settings of the first two parts")
    given = parser.parse_args()
    changed = {**(BEFORE if given.before else {}), **given.settings}
    trial(given.file, given.method, given.env, changed, given.key, given.steps, given.episodes)
