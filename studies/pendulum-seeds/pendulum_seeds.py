"""Why seeds differ on the sparse pendulum: how far the first rollouts run away, and what the kept runs say of it.

python studies/pendulum-seeds/pendulum_seeds.py [--seeds 5]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import pandas as pd
from scipy import stats

from ubex.deep import loop
from ubex.deep.buffer import unpack
from ubex.deep.config import DeepConfig
from ubex.envs.sparse_pendulum import sparse_pendulum

ROOT = Path(__file__).resolve().parents[2]
METHODS = ("exact-ube", "pombu", "ensemble-mean")
"""ensemble-var is left out: it solves nothing, whatever its first episodes were like."""
EARLY = 2
"""Episode in which the spread of the critics is looked at."""
SOLVED = 150.0


def first_rollouts(seeds: int) -> pd.DataFrame:
    """One line per seed: rollouts of the first models, with the paper's settings but a twentieth of the rollouts."""
    config, env, first = DeepConfig(rollouts_per_step=20), sparse_pendulum(0.0), jnp.asarray(0, jnp.int32)
    keys = jax.random.split(jax.random.key(0), seeds)
    begun = loop.begin(config, env, keys, 1)
    model, fitted = loop.fit(config, env, keys, begun, first)
    buffers = loop.imagine(config, env, keys, begun._replace(dynamics=model), loop.begin_buffers(config, env, seeds), first)
    lines = []
    for seed in range(seeds):
        data = unpack(begun.data[seed, : config.initial_steps], env.observation_size)
        rows = unpack(buffers.rows[seed, :, 0], env.observation_size)
        low, high = data.observation.min(axis=0), data.observation.max(axis=0)
        beyond = jnp.maximum(rows.next_observation - high, low - rows.next_observation) / (high - low)
        lines.append(
            {
                "seed": seed,
                "epochs": int(fitted.epochs[seed]),
                "error": float(fitted.error[seed].mean()),
                "outside": float((beyond.max(axis=-1) > 1.0).mean()),
                "wrong_reward": float((jnp.abs(rows.reward - jnp.clip(rows.reward, -0.2, 1.0)) > 0.5).mean()),
                "least_reward": float(rows.reward.min()),
                "largest_reward": float(rows.reward.max()),
            }
        )
    return pd.DataFrame(lines)


def kept_runs() -> pd.DataFrame:
    """One line per kept run of the paper's size: the critics' spread early on, and what became of it."""
    curves = pd.concat([pd.read_csv(path) for path in sorted((ROOT / "results").glob("pendulum/*-alone/curves.csv"))])
    curves = curves[(curves["preset"] == "paper") & curves["method"].isin(METHODS)]
    lines = []
    for (method, noise, seed), run in curves.groupby(["method", "noise", "seed"]):
        table = run.pivot(index="episode", columns="metric", values="value")
        returns = table["return"]
        last = returns.loc[66:].mean()
        spread = table["critic_std"].loc[EARLY]
        lines.append((method, noise, seed, spread, returns.mean(), last, last > SOLVED))
    return pd.DataFrame(lines, columns=["method", "noise", "seed", "spread", "mean_return", "last", "solved"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    print(first_rollouts(parser.parse_args().seeds).to_string(index=False, float_format="%.4g"))
    runs = kept_runs()
    print(runs.to_string(index=False, float_format="%.4g"))
    print(runs.groupby(["method", "noise"])["solved"].agg(["sum", "size"]).to_string())
    found = stats.spearmanr(runs["spread"], runs["mean_return"])
    print(f"rank correlation of spread and mean return: {found.statistic:.2f}, p = {found.pvalue:.3f}, {len(runs)} runs")
