"""DeepSea as bsuite shows it, one-hot: what models learn of it, and how far a deep agent explores.

python studies/one-hot/one_hot.py models FILE
python studies/one-hot/one_hot.py pairs FILE '{"weight_decay": 0.0}' --size 20
python studies/one-hot/one_hot.py agent FILE '{"likelihood_beta": 1.0}' --episodes 500 --scale 1 --size 10
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

import ubex
from ubex.callbacks import Info
from ubex.deep import dynamics
from ubex.deep.buffer import unpack
from ubex.deep.config import DeepConfig
from ubex.deep.presets import GYMNASIUM
from ubex.envs.task import Task

SIZE = 10


class OneHotSea(gymnasium.Env[np.ndarray, Any]):
    """The cell as L x L numbers, of which one is 1; after the last row all are 0. Which action is "right" differs by cell."""

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, scale: float = 1.0, size: int = SIZE) -> None:
        """Draws the meaning of the actions, always the same. Rewards are multiplied by the scale."""
        self.scale, self.size = scale, size
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (size * size,), np.float32)
        self.right = np.random.default_rng(size).integers(0, 2, (size, size))
        self.cell, self.found, self.tried = (0, 0), [False], set[tuple[int, int, int]]()

    def observed(self) -> np.ndarray:
        """The one-hot cell."""
        shown = np.zeros((self.size + 1, self.size), np.float32)
        shown[self.cell] = 1.0
        return shown[: self.size].ravel()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """At the top left."""
        super().reset(seed=seed)
        self.cell = (0, 0)
        return self.observed(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One row down; right costs a little, and pays 1 at the bottom right."""
        (row, column), goes_right, last = self.cell, action == self.right[self.cell], self.size - 1
        self.tried.add((row, column, int(action)))
        reward = (1.0 if column == last else 0.0) - 0.01 / self.size if goes_right else 0.0
        self.cell = (row + 1, min(column + 1, last) if goes_right else max(column - 1, 0))
        ends = row == last
        if ends:
            self.found.append(reward > 0.5)
        return self.observed(), self.scale * reward, ends, False, {}


def transitions(count: int, seed: int) -> np.ndarray:
    """Rows of a random policy."""
    env, generator = OneHotSea(), np.random.default_rng(seed)
    rows: list[np.ndarray] = []
    before, _ = env.reset()
    while len(rows) < count:
        action = int(generator.integers(2))
        after, reward, ends, _, _ = env.step(action)
        rows.append(np.concatenate((before, np.eye(2)[action], [reward], after, [float(ends)])))
        before = env.reset()[0] if ends else after
    return np.asarray(rows, np.float32)


def models(file: Path) -> None:
    """Trains the laptop preset's models on random play, and counts how often they name the next cell."""
    task, key = Task(SIZE * SIZE, 2, discrete=True), jax.random.key(0)
    held_out = unpack(jnp.asarray(transitions(2000, 2)), task.observation_size)
    known = np.asarray(held_out.next_observation).max(axis=-1) > 0.0
    table = []
    for rows in (400, 2000):
        for beta in (0.0, 0.5, 1.0):
            settings = {**GYMNASIUM["laptop"], "max_epochs": None, "likelihood_beta": beta}
            config, data = DeepConfig(**settings), jnp.asarray(transitions(rows, 1))
            untrained = jax.tree.map(lambda x: x[None], dynamics.init(config, key, task))
            trained, fitted = dynamics.train(config, key[None], untrained, data[None], jnp.int32(rows), task, 1)
            said = dynamics.predict_all(
                config, jax.tree.map(lambda x: x[0], trained), held_out.observation, held_out.action
            ).mean
            error = float(jnp.mean((said - dynamics.targets(held_out)) ** 2))
            place = np.asarray(held_out.observation + said[..., :-1]).argmax(axis=-1)
            right = (place == np.asarray(held_out.next_observation).argmax(axis=-1))[:, known].mean()
            table.append({"rows": rows, "beta": beta, "epochs": int(fitted.epochs[0]), "error": error, "right": float(right)})
            print(table[-1], flush=True)
    pd.DataFrame(table).to_csv(file, index=False, float_format="%.4g")


def pairs(file: Path, settings: dict[str, Any], scale: float, size: int, rows: int = 3000) -> None:
    """Trains models on play that goes everywhere, and counts how often they name the next cell of pairs, by their visits."""
    env, generator, task = OneHotSea(scale, size), np.random.default_rng(1), Task(size * size, 2, discrete=True)
    seen: dict[tuple[int, int, int], np.ndarray] = {}
    data: list[np.ndarray] = []
    visits, before, eager = Counter[tuple[int, int, int]](), env.reset()[0], generator.uniform()
    while len(data) < rows:
        right = env.right[env.cell]
        pair = (*env.cell, int(right if generator.uniform() < eager else 1 - right))
        after, reward, ends, _, _ = env.step(pair[-1])
        data.append(np.concatenate((before, np.eye(2)[pair[-1]], [reward], after, [float(ends)])).astype(np.float32))
        seen[pair], before = data[-1], after
        visits[pair] += 1
        if ends:
            before, eager = env.reset()[0], generator.uniform()
    config, key = DeepConfig(**{**GYMNASIUM["laptop"], **settings}), jax.random.key(0)
    untrained = jax.tree.map(lambda x: x[None], dynamics.init(config, key, task))
    trained, fitted = dynamics.train(config, key[None], untrained, jnp.asarray(data)[None], jnp.int32(rows), task, 1)
    asked = unpack(jnp.asarray(np.stack(list(seen.values()))), task.observation_size)
    said = dynamics.predict_all(config, jax.tree.map(lambda x: x[0], trained), asked.observation, asked.action).mean
    truth, counts = np.asarray(asked.next_observation), np.array([visits[pair] for pair in seen])
    right = (np.asarray(asked.observation + said[..., :-1]).argmax(-1) == truth.argmax(-1)).mean(axis=0)
    table = []
    for least, most in ((1, 1), (2, 3), (4, 10), (11, rows)):
        among = (counts >= least) & (counts <= most) & (truth.max(axis=-1) > 0.0)
        table.append({"from": least, "to": most, "pairs": int(among.sum()), "right": float(right[among].mean())})
    pd.DataFrame(table).assign(epochs=int(fitted.epochs[0])).to_csv(file, index=False, float_format="%.3g")


def agent(file: Path, settings: dict[str, Any], key: int, episodes: int, scale: float, size: int) -> None:
    """Trains an agent, and writes what it tried after every ten episodes or so."""
    env, kept = OneHotSea(scale, size), ("value", "critic_std", "variance", "w", "model_error", "entropy")
    rows: list[dict[str, float]] = []

    def note(info: Info) -> None:
        if len(env.found) % 10 == 0:
            counts = {"episode": len(env.found) - 1, "tried": len(env.tried), "found": sum(env.found)}
            rows.append({**counts, **{name: info.losses.get(name, float("nan")) for name in kept}})
            pd.DataFrame(rows).to_csv(file, index=False, float_format="%.4g")

    ubex.Agent("exact-ube", env, preset="laptop", key=key, **settings).learn(episodes * size, [note])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("models", "pairs", "agent"))
    parser.add_argument("file", type=Path)
    parser.add_argument("settings", type=json.loads, nargs="?", default={})
    parser.add_argument("--key", type=int, default=100)
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--size", type=int, default=SIZE)
    given = parser.parse_args()
    if given.part == "models":
        models(given.file)
    elif given.part == "pairs":
        pairs(given.file, given.settings, given.scale, given.size)
    else:
        agent(given.file, given.settings, given.key, given.episodes, given.scale, given.size)
