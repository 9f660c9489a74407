"""Loop (Dearden et al., 1998; Strens, 2000): two loops of five steps from one state; the harder one pays twice as much.

State 0 is in both. Action 0 enters the easy loop, states 1 to 4, which any action goes on; its last step pays 1. Action 1
enters the hard loop, states 5 to 8, in which action 1 goes on and action 0 leads back to state 0; its last step pays 2.
"""

from __future__ import annotations

import functools

import numpy as np

from ubex import checks
from ubex.envs.base import TabularEnv, finite_horizon_optimum, table_step
from ubex.types import MDP

EASY, HARD = (1, 2, 3, 4), (5, 6, 7, 8)
HORIZON = 100


@functools.lru_cache(maxsize=32)
def loop(horizon: int = HORIZON) -> TabularEnv:
    """Loop; the same record each time, so that programs are compiled once.

    Example:
        >>> loop(10).best_return
        4.0
    """
    horizon = checks.steps("horizon", horizon)
    p, r = np.zeros((9, 2, 9)), np.zeros((9, 2))
    for action, (states, pays) in enumerate(((EASY, 1.0), (HARD, 2.0))):
        for here, there in zip((0, *states), (*states, 0), strict=True):
            p[here, action, there] = 1.0
        r[states[-1], action] = pays
    p[list(EASY), 1], r[list(EASY), 1] = p[list(EASY), 0], r[list(EASY), 0]
    p[list(HARD), 0, 0] = 1.0
    mdp, best = MDP(p, r), float(finite_horizon_optimum(p, r, horizon)[0])
    return TabularEnv("loop", 9, 2, horizon, 0, table_step(mdp), lambda: mdp, best, branching=1)
