"""DeepSea (Osband et al., 2019): a grid in which only going right all the way down pays, and every step right costs.

State row * L + column; action 1 is right in every cell. Right costs 0.01 / L, also in the last row, and pays 1 in the last
column, which only the last row can reach. An episode has L steps and ends with termination. Deterministic.
"""

from __future__ import annotations

import functools

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from ubex import checks
from ubex.envs.base import Step, TabularEnv
from ubex.types import MDP, Key

SUMMARY = "DeepSea: a grid in which only going right all the way down pays"
COST = 0.01
RIGHT = 1


@functools.lru_cache(maxsize=32)
def deep_sea(size: int = 10) -> TabularEnv:
    """DeepSea with a grid of `size` times `size` cells; the same record each time, so that programs are compiled once.

    Example:
        >>> deep_sea(3).num_states, deep_sea(3).as_mdp().p.shape
        (9, (10, 2, 10))
    """
    size = checks.whole("size", size, 2)
    states = size * size

    def step(key: Key, state: Int[Array, ""], action: Int[Array, ""]) -> Step:
        del key
        row, column = state // size, state % size
        right = action == RIGHT
        reward = jnp.where(right, -COST / size, 0.0) + jnp.where(right & (column == size - 1), 1.0, 0.0)
        below = (row + 1) * size + jnp.where(right, jnp.minimum(column + 1, size - 1), jnp.maximum(column - 1, 0))
        last = row == size - 1
        return Step(jnp.where(last, states, below).astype(jnp.int32), reward, last)

    def as_mdp() -> MDP:
        p, r = np.zeros((states + 1, 2, states + 1)), np.zeros((states + 1, 2))
        p[states, :, states] = 1.0
        for row in range(size):
            for column in range(size):
                here = row * size + column
                left, right = max(column - 1, 0), min(column + 1, size - 1)
                p[here, 0, states if row == size - 1 else (row + 1) * size + left] = 1.0
                p[here, 1, states if row == size - 1 else (row + 1) * size + right] = 1.0
                r[here, 1] = -COST / size + (1.0 if column == size - 1 else 0.0)
        return MDP(p, r)

    return TabularEnv("deep-sea", states, 2, size, 0, step, as_mdp, best_return=1.0 - COST, branching=1)
