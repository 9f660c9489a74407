"""exact-ube on the sparse pendulum with other settings, all seeds together, and a table of what happened in every episode.

python studies/trusted-rollouts/trial.py FILE '{"patience": 10}' --preset paper --seeds 10 --episodes 75

Seeds have the keys that they have in `ubex run pendulum`, so that trials can be compared in pairs, with each other and with
its runs. The table is written anew after every episode: a trial can be stopped at any time.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pandas as pd

from ubex.deep import loop
from ubex.envs.sparse_pendulum import sparse_pendulum
from ubex.experiments import deep_cells
from ubex.experiments.pendulum import Pendulum

KEPT = ("return", "model_epochs", "stored_share", "outside_share", "critic_std", "variance")


def trial(file: Path, settings: dict[str, object], preset: str, noise: float, seeds: int, episodes: int) -> None:
    """Runs the agent of a preset with some settings changed."""
    experiment = Pendulum(methods=("exact-ube",), noises=(noise,), preset=preset, precision="split16", seeds=seeds)
    (cell,) = experiment.cells()
    config = dataclasses.replace(experiment.agent(cell), **settings)  # type: ignore[arg-type]
    env, keys = sparse_pendulum(noise), jnp.stack([experiment.key(cell, seed) for seed in range(seeds)])
    state, buffers, seen = loop.begin(config, env, keys, episodes), loop.begin_buffers(config, env, seeds), []
    for episode in range(episodes):
        state, filled, segment = loop.advance(config, env, keys, state, buffers, episode)
        assert filled is not None
        buffers = filled
        table = pd.DataFrame(deep_cells.columns(segment), columns=list(deep_cells.COLUMNS))[list(KEPT)]
        table.insert(0, "seed", np.arange(seeds))
        table.insert(0, "episode", episode + 1)
        seen.append(table)
        pd.concat(seen).to_csv(file, index=False, float_format="%.4g")
        print(f"episode {episode + 1}: returns {table['return'].round().astype(int).tolist()}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("settings", type=json.loads)
    parser.add_argument("--preset", default="trusted")
    parser.add_argument("--noise", type=float, default=0.0)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--episodes", type=int, default=75)
    given = parser.parse_args()
    trial(given.file, given.settings, given.preset, given.noise, given.seeds, given.episodes)
