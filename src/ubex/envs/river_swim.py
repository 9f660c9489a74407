"""RiverSwim (Strehl and Littman, 2008): six places along a river; a small reward lies downstream, a large one upstream.

The numbers are those of Osband et al. (2013). Action 0 swims left and always succeeds. Action 1 swims against the current: from
within the river it gets on with probability 0.35, stays with 0.6 and is carried back with 0.05. Left at the first place pays
0.005, right at the last one pays 1. An episode has 20 steps.
"""

from __future__ import annotations

import functools

import numpy as np

from ubex import checks
from ubex.envs.base import TabularEnv, finite_horizon_optimum, table_step
from ubex.types import MDP

SMALL, LARGE = 0.005, 1.0
BACK, STAY, ON = 0.05, 0.6, 0.35
FIRST_ON, LAST_STAY = 0.6, 0.6
HORIZON = 20


@functools.lru_cache(maxsize=32)
def river_swim(size: int = 6, horizon: int = HORIZON) -> TabularEnv:
    """RiverSwim with `size` places; the same record each time, so that programs are compiled once.

    Example:
        >>> river_swim().as_mdp().p[1, 1].tolist()
        [0.05, 0.6, 0.35, 0.0, 0.0, 0.0]
    """
    size, horizon = checks.whole("size", size, 3), checks.steps("horizon", horizon)
    p, r, last = np.zeros((size, 2, size)), np.zeros((size, 2)), size - 1
    for place in range(size):
        p[place, 0, max(place - 1, 0)] = 1.0
        if 0 < place < last:
            p[place, 1, [place - 1, place, place + 1]] = BACK, STAY, ON
    p[0, 1, [0, 1]] = 1.0 - FIRST_ON, FIRST_ON
    p[last, 1, [last - 1, last]] = 1.0 - LAST_STAY, LAST_STAY
    r[0, 0], r[last, 1] = SMALL, LARGE
    mdp, best = MDP(p, r), float(finite_horizon_optimum(p, r, horizon)[0])
    return TabularEnv("river-swim", size, 2, horizon, 0, table_step(mdp), lambda: mdp, best, branching=3)
