"""The paper's toy example: a Markov reward process with two uncertain probabilities (figure toy_mdp, Table 1).

s0 goes to s2 with probability delta, else to s1; s1 goes to sT; s2 goes to s3 with probability beta, else to sT; s3 pays
100 and goes to sT, which is absorbing. One action.
"""

from __future__ import annotations

import functools
from itertools import product

import numpy as np

from ubex import checks
from ubex.envs.base import TabularEnv, table_step
from ubex.types import MDP

STATES = ("s0", "s1", "s2", "s3", "sT")
DELTAS = (0.7, 0.6)
BETAS = (0.5, 0.4)
REWARD = 100.0
DISCOUNT = 1.0
"""The printed table needs discount 1 (only its w(s0) = 5.0 is what 0.99 gives)."""


def as_mdp(delta: float, beta: float) -> MDP:
    """The toy example for one choice of the two probabilities.

    Example:
        >>> as_mdp(delta=0.75, beta=0.5).p[0, 0].tolist()
        [0.0, 0.25, 0.75, 0.0, 0.0]
    """
    s0, s1, s2, s3, terminal = range(len(STATES))
    p = np.zeros((len(STATES), 1, len(STATES)))
    p[s0, 0, s2], p[s0, 0, s1] = delta, 1.0 - delta
    p[s1, 0, terminal] = 1.0
    p[s2, 0, s3], p[s2, 0, terminal] = beta, 1.0 - beta
    p[s3, 0, terminal] = 1.0
    p[terminal, 0, terminal] = 1.0
    r = np.zeros((len(STATES), 1))
    r[s3, 0] = REWARD
    return MDP(p, r)


@functools.lru_cache(maxsize=32)
def toy(delta: float = 0.65, beta: float = 0.45) -> TabularEnv:
    """The toy example as an environment with one action, by default with the posterior-mean probabilities.

    Example:
        >>> round(toy().best_return, 2)
        29.25
    """
    delta, beta = checks.real("delta", delta, 0.0, 1.0), checks.real("beta", beta, 0.0, 1.0)
    mdp = as_mdp(delta, beta)
    terminal = len(STATES) - 1
    best = delta * beta * REWARD
    return TabularEnv("toy", terminal, 1, terminal, 0, table_step(mdp, terminal), lambda: mdp, best, branching=2)


def posterior_samples(correlated: bool = False) -> MDP:
    """All members of the posterior, equally likely: the four combinations, or only the two in which both are high or low.

    The second kind makes the rows of s0 and s2 dependent, so the assumption of independent transitions fails.

    Example:
        >>> posterior_samples().p.shape, posterior_samples(correlated=True).p.shape
        ((4, 5, 1, 5), (2, 5, 1, 5))
    """
    pairs = zip(DELTAS, BETAS, strict=True) if correlated else product(DELTAS, BETAS)
    members = [as_mdp(delta, beta) for delta, beta in pairs]
    return MDP(p=np.stack([member.p for member in members]), r=np.stack([member.r for member in members]))
