"""Do rollouts that stay near the data help? exact-ube on the sparse pendulum without noise, with and without a margin.

Models and rollouts have the paper's sizes, the rest those of the laptop preset, so that a seed takes minutes on a core:

python studies/bounded-rollouts/bounded_rollouts.py FILE [--seeds 4] [--episodes 30] [--margins none 1]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pandas as pd

from ubex.deep import loop
from ubex.deep.config import LAPTOP, DeepConfig
from ubex.envs.sparse_pendulum import sparse_pendulum

SIZES: dict[str, Any] = {
    **LAPTOP,
    "model_hidden": (200, 200, 200, 200),
    "model_rate": 3e-4,
    "max_epochs": None,
    "rollout_length": 10,
}


def learn(margin: float | None, seed: int, episodes: int) -> list[dict[str, Any]]:
    """One line per episode."""
    config, env = DeepConfig(rollout_margin=margin, **SIZES), sparse_pendulum(0.0)
    keys = jnp.stack([jax.random.key(seed)])
    state, buffers = loop.begin(config, env, keys, episodes), loop.begin_buffers(config, env, 1)
    lines = []
    for index in range(episodes):
        state, filled, segment = loop.advance(config, env, keys, state, buffers, index)
        assert filled is not None
        buffers = filled
        lines.append(
            {
                "margin": "none" if margin is None else margin,
                "seed": seed,
                "episode": index + 1,
                "return": float(segment.evaluation.returns[0]),
                "critic_std": float(segment.learned.info.critic_std[0]),
            }
        )
    return lines


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--episodes", type=int, default=30)
    parser.add_argument("--margins", nargs="+", default=["none", "1"])
    given = parser.parse_args()
    found: list[dict[str, Any]] = []
    for seed in range(given.seeds):
        for word in given.margins:
            found += learn(None if word == "none" else float(word), seed, given.episodes)
            pd.DataFrame(found).to_csv(given.file, index=False, float_format="%.6g")
            print(word, seed, [round(line["return"]) for line in found[-given.episodes :]], flush=True)
