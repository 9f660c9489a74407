"""Cost of one update of an exploring agent, over a whole run on DeepSea, next to one linear solve of the same size."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ubex import checks
from ubex.bench.timing import seconds
from ubex.envs.deep_sea import deep_sea
from ubex.runs.processes import worker_environment
from ubex.tabular.agents import METHODS, AgentConfig
from ubex.tabular.loop import Episodes, Memory, begin, run_episodes

PAPER_METHODS = ("exact-ube", "pombu", "ensemble-var", "psrl")
LARGEST_FOR_ALL = 20
"""Above this size only exact-ube is measured by default: the whole would take half an hour."""
BLOCK = 50
SOLVES = 5
"""Solves timed before every block."""


@dataclass(frozen=True)
class Case:
    """One run on DeepSea."""

    size: int
    method: str = "exact-ube"
    episodes: int = 1000
    num_models: int = 5

    def __post_init__(self) -> None:
        """Refuses values that make no sense."""
        checks.whole("size", self.size, 2)
        checks.one_of("method", self.method, METHODS)
        checks.whole("episodes", self.episodes, 1)


def cases(sizes: Sequence[int], methods: Sequence[str] | None, episodes: int) -> list[Case]:
    """What is measured: the methods at every size, or the paper's where that is quick."""
    return [
        Case(size, method, episodes)
        for size in sizes
        for method in (methods or (PAPER_METHODS if size <= LARGEST_FOR_ALL else PAPER_METHODS[:1]))
    ]


def measure_alone(case: Case) -> dict[str, Any]:
    """The measurement in a process of its own, with one thread, as the workers of a run have it."""
    words = [sys.executable, "-m", __name__, json.dumps(dataclasses.asdict(case))]
    done = subprocess.run(words, check=False, capture_output=True, text=True, env=os.environ | worker_environment())
    if done.returncode:
        raise RuntimeError(f"the measurement of {case} failed: {done.stderr.strip().splitlines()[-1:]}")
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def measure(case: Case) -> dict[str, Any]:
    """Runs the agent and times every block of episodes, and solves of the same size in between."""
    env = deep_sea(case.size)
    config = AgentConfig(method=case.method, num_models=case.num_models, u_min=-0.05, repeats=case.size)
    matrix = np.eye(env.num_states + 1) - 0.99 * np.random.default_rng(0).dirichlet(
        np.ones(env.num_states + 1), env.num_states + 1
    )
    right, size = np.ones(env.num_states + 1), min(BLOCK, case.episodes)
    solves, updates, steps, unsolved = [], [], [], 0
    with jax.enable_x64(True):

        def block(memory: Memory, first: int) -> tuple[Memory, Episodes]:
            memory, out = run_episodes(env, config, jax.random.key(0), memory, jnp.arange(first, first + size, dtype=jnp.int32))
            out.returns.block_until_ready()
            return memory, out

        memory = begin(env)
        compiling = seconds(lambda: block(memory, 0))
        np.linalg.solve(matrix, right)
        for first in range(0, case.episodes - size + 1, size):
            solves += [seconds(lambda: np.linalg.solve(matrix, right)) for _ in range(SOLVES)]
            start = time.perf_counter()
            memory, out = block(memory, first)
            updates.append((time.perf_counter() - start) / size)
            steps.append(float(np.mean(out.steps)))
            unsolved += int(np.sum(np.asarray(out.returns) < 0.5))
    solve, update = float(np.median(solves)), float(np.mean(updates))
    return dataclasses.asdict(case) | {
        "states": env.num_states + 1,
        "device": jax.devices()[0].device_kind,
        "seconds_per_update": update,
        "steps_per_update": float(np.mean(steps)),
        "solve_seconds": solve,
        "update_in_solves": update / solve,
        "compile_seconds": compiling - size * updates[0],
        "unsolved_episodes": unsolved,
    }


if __name__ == "__main__":
    print(json.dumps(measure(Case(**json.loads(sys.argv[1])))))
