"""BEB, the bonus of Kolter and Ng (ICML 2009): greedy in the mean MDP, where rows that are little known pay more.

Their bonus is beta / (1 + alpha_0), where alpha_0 is the sum of a row's Dirichlet parameters, the prior's included.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from ubex.tabular.belief import FlatMean


def with_bonus(mean: FlatMean, mass: Float[Array, "S A"], beta: float) -> FlatMean:
    """The mean MDP in which every row also pays its bonus; the terminal state, the last one, is known and pays none."""
    terminal = (jnp.arange(mass.shape[0]) == mass.shape[0] - 1)[:, None]
    return mean._replace(r=mean.r + jnp.where(terminal, 0.0, beta / (1.0 + mass)))
