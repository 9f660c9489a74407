"""Chain (Dearden et al., 1998; Strens, 2000): five states in a row, a large reward at the end, and a tempting way back.

Action 0 goes on, without reward; at the last state it stays there and pays 10. Action 1 goes back to the first state and pays
2. With probability 0.2 an action does what the other one does, reward included.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from ubex import checks
from ubex.envs.base import Step, TabularEnv, finite_horizon_optimum
from ubex.types import MDP, Key

STATES = 5
BACK, END = 2.0, 10.0
HORIZON = 100


@functools.lru_cache(maxsize=32)
def chain(slip: float = 0.2, horizon: int = HORIZON) -> TabularEnv:
    """Chain with this probability of doing the other action; the same record each time, so that programs are compiled once.

    Example:
        >>> chain().as_mdp().r[[0, 4]].round(3).tolist()
        [[0.4, 1.6], [8.4, 3.6]]
    """
    slip, horizon = checks.real("slip", slip, 0.0, 0.5), checks.steps("horizon", horizon)
    last = STATES - 1

    def step(key: Key, state: Int[Array, ""], action: Int[Array, ""]) -> Step:
        back = (action == 1) != (jax.random.uniform(key) < slip)
        reward = jnp.where(back, BACK, jnp.where(state == last, END, 0.0))
        return Step(jnp.where(back, 0, jnp.minimum(state + 1, last)).astype(jnp.int32), reward, jnp.asarray(False))

    p, r = np.zeros((STATES, 2, STATES)), np.zeros((STATES, 2))
    for state in range(STATES):
        for action, on in ((0, 1.0 - slip), (1, slip)):
            p[state, action, min(state + 1, last)] += on
            p[state, action, 0] += 1.0 - on
            r[state, action] = on * (END if state == last else 0.0) + (1.0 - on) * BACK
    mdp, best = MDP(p, r), float(finite_horizon_optimum(p, r, horizon)[0])
    return TabularEnv("chain", STATES, 2, horizon, 0, step, lambda: mdp, best, branching=2 if slip > 0.0 else 1)
