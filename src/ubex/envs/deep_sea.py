"""DeepSea (Osband et al., 2019): a grid in which only going right all the way down pays, and every step right costs.

State row * L + column; action 1 is right in every cell. Right costs 0.01 / L, also in the last row, and pays 1 in the last
column, which only the last row can reach. An episode has L steps and ends with termination. Deterministic.

Two variants are bsuite's (Osband et al., 2020). In the stochastic one right fails with probability 1 / L and leads straight
down, and the last row's rewards at both ends have noise of variance 1. With a seed for the actions, each cell draws by itself
which of the two actions is right.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from ubex import checks
from ubex.envs.base import Step, TabularEnv, finite_horizon_optimum
from ubex.keys import named
from ubex.types import MDP, Key

COST = 0.01


@functools.lru_cache(maxsize=32)
def deep_sea(size: int = 10, stochastic: bool = False, action_seed: int | None = None) -> TabularEnv:
    """DeepSea with a grid of `size` times `size` cells; the same record each time, so that programs are compiled once.

    Example:
        >>> deep_sea(3).num_states, deep_sea(3).as_mdp().p.shape
        (9, (10, 2, 10))
        >>> deep_sea(3, stochastic=True).branching
        2
    """
    size, stochastic = checks.whole("size", size, 2), checks.flag("stochastic", stochastic)
    states, failing = size * size, 1.0 / size if stochastic else 0.0
    rights = np.ones(states, np.int32)
    if action_seed is not None:
        rights = np.random.default_rng(checks.whole("action_seed", action_seed, 0)).integers(2, size=states, dtype=np.int32)

    def step(key: Key, state: Int[Array, ""], action: Int[Array, ""]) -> Step:
        row, column = state // size, state % size
        right, last = action == jnp.asarray(rights)[state], row == size - 1
        reward = jnp.where(right, -COST / size, 0.0) + jnp.where(right & (column == size - 1), 1.0, 0.0)
        moves = right
        if stochastic:
            ends = last & ((column == 0) | (column == size - 1))
            reward = reward + jnp.where(ends, jax.random.normal(named(key, "reward")), 0.0)
            moves = right & (jax.random.uniform(named(key, "move")) >= failing)
        there = jnp.where(moves, jnp.minimum(column + 1, size - 1), jnp.where(right, column, jnp.maximum(column - 1, 0)))
        return Step(jnp.where(last, states, (row + 1) * size + there).astype(jnp.int32), reward, last)

    def as_mdp() -> MDP:
        p, r = np.zeros((states + 1, 2, states + 1)), np.zeros((states + 1, 2))
        p[states, :, states] = 1.0
        for row in range(size):
            for column in range(size):
                here = row * size + column
                right = rights[here]
                for action, place, share in (
                    (1 - right, max(column - 1, 0), 1.0),
                    (right, min(column + 1, size - 1), 1.0 - failing),
                    (right, column, failing),
                ):
                    p[here, action, states if row == size - 1 else (row + 1) * size + place] += share
                r[here, right] = -COST / size + (1.0 if column == size - 1 else 0.0)
        return MDP(p, r)

    best = 1.0 - COST
    if stochastic:
        p, r = (np.asarray(array) for array in as_mdp())
        best = float(finite_horizon_optimum(p, r, size)[0])
    return TabularEnv("deep-sea", states, 2, size, 0, step, as_mdp, best_return=best, branching=2 if stochastic else 1)
