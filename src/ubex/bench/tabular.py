"""What `ubex bench tabular` measures: `value_variance` next to the linear solves that it cannot do without, and agents."""

from __future__ import annotations

import statistics
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from ubex.bench import exploration
from ubex.bench.timing import seconds
from ubex.calls import value_variance
from ubex.tabular.posterior import DirichletNormal
from ubex.types import MDP, UbexWarning

NUM_STATES, NUM_ACTIONS, NUM_MODELS, DISCOUNT = 1000, 4, 5, 0.95
NUM_SOLVES = NUM_MODELS + 2
"""Members, mean values and the uncertainty equation: the count that the paper gives for exact-ube."""
ROUNDS = 5
CLOSED_STATES, CLOSED_ROUNDS = 400, 25
"""The closed form is measured on smaller MDPs, and more often: one call takes milliseconds."""


def random_samples(num_models: int, num_states: int, num_actions: int) -> MDP:
    """Random dense MDPs; one row at a time in memory, so that making them does not set the memory's high-water mark."""
    generator = np.random.default_rng(0)
    p = np.empty((num_models, num_states, num_actions, num_states))
    for member in p:
        for rows in member:
            rows[:] = generator.random(rows.shape)
            rows /= rows.sum(axis=-1, keepdims=True)
    return MDP(p=p, r=generator.normal(size=p.shape[:-1]))


def papers(samples: MDP, policy: Float[np.ndarray, "S A"]) -> None:
    """The paper's equation, for its cost: that it does not hold in dense MDPs is no news here."""
    with warnings.catch_warnings(action="ignore", category=UbexWarning):
        value_variance(samples, policy, DISCOUNT, estimator="exact-ube")


def cost_in_solves() -> dict[str, Any]:
    """Time of one call over the time of seven `numpy.linalg.solve` of that size, interleaved, medians."""
    samples = random_samples(NUM_MODELS, NUM_STATES, NUM_ACTIONS)
    policy = np.full((NUM_STATES, NUM_ACTIONS), 1.0 / NUM_ACTIONS)
    matrix = np.eye(NUM_STATES) - DISCOUNT * np.asarray(samples.p)[0, :, 0]
    right = np.ones(NUM_STATES)

    def call() -> None:
        papers(samples, policy)

    def solves() -> None:
        for _ in range(NUM_SOLVES):
            np.linalg.solve(matrix, right)

    call()
    solves()
    calls, references = zip(*((seconds(call), seconds(solves)) for _ in range(ROUNDS)), strict=True)
    return {
        "states": NUM_STATES,
        "actions": NUM_ACTIONS,
        "models": NUM_MODELS,
        "call_seconds": statistics.median(calls),
        "seven_solves_seconds": statistics.median(references),
        "ratio": statistics.median(a / b for a, b in zip(calls, references, strict=True)),
    }


def closed_form_in_solves() -> dict[str, Any]:
    """Time of one closed-form evaluation (V and Q) over that of one `numpy.linalg.solve` of that size, interleaved, medians."""
    generator = np.random.default_rng(0)
    shape = (CLOSED_STATES, NUM_ACTIONS, CLOSED_STATES)
    posterior = DirichletNormal(CLOSED_STATES, NUM_ACTIONS, concentration=generator.random(shape) + 0.1)
    policy = np.full((CLOSED_STATES, NUM_ACTIONS), 1.0 / NUM_ACTIONS)
    matrix = np.eye(CLOSED_STATES) - DISCOUNT * np.asarray(posterior.mean().p)[:, 0]
    right = np.ones(CLOSED_STATES)

    def call() -> None:
        value_variance(posterior, policy, DISCOUNT, estimator="closed-form")

    def solve() -> None:
        np.linalg.solve(matrix, right)

    call()
    solve()
    calls, references = zip(*((seconds(call), seconds(solve)) for _ in range(CLOSED_ROUNDS)), strict=True)
    return {
        "states": CLOSED_STATES,
        "actions": NUM_ACTIONS,
        "call_seconds": statistics.median(calls),
        "solve_seconds": statistics.median(references),
        "solves": statistics.median(calls) / statistics.median(references),
        "bound": 4 + 4 * NUM_ACTIONS,
    }


def peak_memory_ratio(source: str = "samples") -> float:
    """Peak memory of a call on samples, or on a posterior that is sampled, over the size of the samples, which count too.

    It is measured in a process of its own.
    """
    output = subprocess.run([sys.executable, "-m", __name__, source], check=True, capture_output=True, text=True).stdout
    return float(output.strip().splitlines()[-1])


@dataclass(frozen=True)
class Tabular:
    """Measure the cost of `value_variance`, and of one update of each tabular agent, in linear solves of the same size."""

    sizes: tuple[int, ...] = (10, 20, 30)
    """The sizes of DeepSea. At size 30, 1,000 episodes of exact-ube take some minutes."""
    methods: tuple[str, ...] = ()
    """The agents to measure. By default they are the paper's four up to size 20, and exact-ube above."""
    episodes: int = 1000
    """The number of episodes per run."""
    variance: bool = True
    """Also measure `value_variance` and the closed form."""
    json: bool = False
    """Print one line of JSON instead of a list."""

    def __call__(self, say: Callable[[str], None]) -> dict[str, Any]:
        """Cost of `value_variance`, and of one update of each agent over a whole run."""
        planned = exploration.cases(self.sizes, self.methods, self.episodes)
        result: dict[str, Any] = {}
        if self.variance:
            say("value_variance against its solves")
            result["value_variance"] = cost_in_solves() | {"peak_memory_ratio": peak_memory_ratio()}
            say("closed form against one solve")
            result["closed_form"] = closed_form_in_solves()
        for number, case in enumerate(planned, start=1):
            say(f"update {number}/{len(planned)}: {case.method}, DeepSea {case.size}, {case.episodes} episodes")
            result.setdefault("update", []).append(exploration.measure_alone(case))
        return result


def high_water_mark() -> int:
    """The most memory this process ever held, in bytes. Not `getrusage` on Linux, where a child inherits its parent's mark."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _measure_memory(source: str) -> float:
    def call(num_models: int, num_states: int, num_actions: int) -> None:
        policy = np.full((num_states, num_actions), 1.0 / num_actions)
        if source == "posterior":
            posterior = DirichletNormal(num_states, num_actions)
            value_variance(posterior, policy, DISCOUNT, estimator="ensemble-var", key=0, num_models=num_models)
        else:
            papers(random_samples(num_models, num_states, num_actions), policy)

    call(2, 8, 2)  # loads what any call needs
    before = high_water_mark()
    call(NUM_MODELS, NUM_STATES, NUM_ACTIONS)
    return (high_water_mark() - before) / (8 * NUM_MODELS * NUM_STATES * NUM_ACTIONS * NUM_STATES)


if __name__ == "__main__":
    print(_measure_memory(sys.argv[1]))
