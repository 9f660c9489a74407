"""Tabular agents on small tasks, with the settings that a newcomer gets: which should `ubex.train` take by default?

python studies/default-agent/default_agent.py choice.csv --keys 0 1 2 3 4
python studies/default-agent/default_agent.py check.csv --keys 100 101 102 103 104 --candidates exact-ube "closed-form, mass 2"

One line per task, candidate and key: returns of all episodes and of the last fifth, as shares of what lies between a random
policy (0) and the best one (1). What is there already is not run again.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pandas as pd
from gymnasium import spaces

import ubex
from ubex.envs.base import finite_horizon_optimum

EPISODES, LAST = 100, 20
CANDIDATES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    agent + ("" if mass is None else f", mass {mass:g}") + (", doubled" if when == "doubled" else ""): (
        agent,
        {"prior_mass": mass, "plan_when": when},
    )
    for when in ("episode", "doubled")
    for agent in ("exact-ube", "closed-form", "pombu", "ensemble-var", "psrl")
    for mass in (None, 2.0, 4.0)
}


class Task(NamedTuple):
    """An environment, and the tables that its best and its random return follow from."""

    make: Callable[[], Any]
    """What `ubex.train` is given."""
    p: np.ndarray
    r: np.ndarray
    start: np.ndarray
    """How likely an episode begins in each state."""
    horizon: int


class Corridor(gymnasium.Env[Any, Any]):
    """Ten states in a row; action 1 goes on, action 0 one back, and the last state pays 1."""

    observation_space, action_space = spaces.Discrete(10), spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """At the beginning."""
        self.at, self.time = 0, 0
        return self.at, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """One step."""
        self.at, self.time = min(9, self.at + 1) if action else max(0, self.at - 1), self.time + 1
        return self.at, float(self.at == 9), self.at == 9, self.time == 30, {}


def corridor() -> Task:
    """The corridor and its tables."""
    p, r = np.zeros((10, 2, 10)), np.zeros((10, 2))
    for s in range(9):
        p[s, 0, max(0, s - 1)] = p[s, 1, s + 1] = 1.0
    p[9, :, 9], r[8, 1] = 1.0, 1.0
    return Task(Corridor, p, r, np.eye(10)[0], 30)


def of_ubex(name: str, **settings: Any) -> Task:
    """One of our environments."""
    env: Any = ubex.ENVS[name].make(**settings)
    mdp = env.as_mdp()
    return Task(lambda: env, np.asarray(mdp.p), np.asarray(mdp.r), np.eye(len(mdp.p))[env.start], env.horizon)


def of_gymnasium(name: str, horizon: int, **settings: Any) -> Task:
    """One of Gymnasium's toys, whose tables are in `P`; the end of an episode is one more state."""

    def make() -> Any:
        return gymnasium.make(name, max_episode_steps=horizon, **settings)

    env = make().unwrapped
    states, actions = env.observation_space.n, env.action_space.n
    p, r = np.zeros((states + 1, actions, states + 1)), np.zeros((states + 1, actions))
    p[states, :, states] = 1.0
    for s, by_action in env.P.items():
        for a, outcomes in by_action.items():
            for chance, after, reward, over in outcomes:
                p[s, a, states if over else after] += chance
                r[s, a] += chance * reward
    return Task(make, p, r, np.append(env.initial_state_distrib, 0.0), horizon)


TASKS: Mapping[str, Callable[[], Task]] = {
    "corridor": corridor,
    "frozen-lake 4x4": lambda: of_gymnasium("FrozenLake-v1", 100, is_slippery=False),
    "frozen-lake 4x4, slippery": lambda: of_gymnasium("FrozenLake-v1", 100, is_slippery=True),
    "frozen-lake 8x8": lambda: of_gymnasium("FrozenLake-v1", 100, map_name="8x8", is_slippery=False),
    "cliff-walking": lambda: of_gymnasium("CliffWalking-v1", 100),
    "deep-sea, L = 8": lambda: of_ubex("deep-sea", size=8),
    "river-swim": lambda: of_ubex("river-swim"),
    "chain": lambda: of_ubex("chain"),
    "loop": lambda: of_ubex("loop"),
    "three rooms": lambda: of_ubex("n-room", rooms=3),
}
LARGE: Mapping[str, Callable[[], Task]] = {"taxi": lambda: of_gymnasium("Taxi-v4", 200)}
"""500 states, minutes per run: only by name."""


def bounds(task: Task) -> tuple[float, float]:
    """The expected return of a random policy and of the best one."""
    plain, chosen = np.zeros(len(task.p)), task.r.mean(axis=1)
    for _ in range(task.horizon):
        plain = chosen + task.p.mean(axis=1) @ plain
    return float(task.start @ plain), float(task.start @ finite_horizon_optimum(task.p, task.r, task.horizon))


def run(wanted: tuple[str, str, int]) -> dict[str, Any]:
    """One line of the table."""
    name, candidate, key = wanted
    task, (agent, settings) = {**TASKS, **LARGE}[name](), CANDIDATES[candidate]
    returns = ubex.train(task.make(), agent, episodes=EPISODES, key=key, **settings).returns
    low, high = bounds(task)
    shares = (returns - low) / (high - low)
    return {"task": name, "candidate": candidate, "key": key, "all": shares.mean(), "last": shares[-LAST:].mean()}


def main() -> None:
    """All lines that are missing, written as they come."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--keys", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--candidates", nargs="+", default=list(CANDIDATES))
    parser.add_argument("--tasks", nargs="+", default=list(TASKS))
    given = parser.parse_args()
    rows: list[Any] = pd.read_csv(given.file).to_dict("records") if given.file.exists() else []
    there = {(row["task"], row["candidate"], row["key"]) for row in rows}
    wanted = [(t, c, k) for t in given.tasks for c in given.candidates for k in given.keys if (t, c, k) not in there]
    # a process that compiles hundreds of programs reaches Linux's limit of memory maps
    with get_context("spawn").Pool(2, maxtasksperchild=40) as pool:
        for row in pool.imap_unordered(run, wanted):
            rows.append(row)
            pd.DataFrame(rows).to_csv(given.file, index=False, float_format="%.4g")


if __name__ == "__main__":
    main()
