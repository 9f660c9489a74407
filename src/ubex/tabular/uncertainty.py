"""Algorithm 1 of the paper, tabular: the variance of values from samples of the posterior over MDPs.

The uncertainty Bellman equation is a Bellman equation in the "uncertainty MDP" (mean dynamics, discount squared), so the
same linear solve serves it. The V and the Q form share the matrix: one factorisation, two right-hand sides.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ubex import ube
from ubex.estimators import Estimator
from ubex.tabular import bellman
from ubex.tabular.bellman import Policy, Scalar, Values
from ubex.types import MDP, NextValues

ROUNDED = 64.0
"""How many times the precision of a number rounding may leave in a local uncertainty."""


class Uncertainty(NamedTuple):
    """Variances in both forms, the mean values, and the uncertainty rewards that were propagated in both forms."""

    v: Float[Array, " S"]
    q: Float[Array, "S A"]
    mean: Values
    local_v: Float[Array, " S"]
    local_q: Float[Array, "S A"]
    clipped: Float[Array, ""] | None = None
    """The share of states and actions whose u was below `u_min`, where that was counted."""


def direct(estimator: Estimator, members: Values, mean_values: Values, ddof: int = 0) -> Uncertainty:
    """The variance straight from the members' values: nothing is propagated."""
    assert estimator.direct is not None, "only for estimators with `direct`"
    v, q = estimator.direct(members.v, ddof), estimator.direct(members.q, ddof)
    return Uncertainty(v, q, mean_values, jnp.zeros_like(v), jnp.zeros_like(q))


def local_rewards(
    estimator: Estimator,
    moments: bellman.Moments,
    rewards: Float[Array, "N S A"],
    policy: Policy,
    discount: Scalar,
    *,
    u_min: Scalar,
    ddof: int,
) -> tuple[Float[Array, " S"], Float[Array, "S A"]]:
    """Uncertainty rewards Var[r] + discount^2 max(u, u_min) in V and in Q form (appendix B).

    The clip acts on u alone, before the reward variance is added, as the paper's text has it.
    """
    local = estimator.local
    assert local is not None, "only for estimators with `local`"

    def reward(moments: NextValues, rewards: Float[Array, "N *sa"]) -> Float[Array, "*sa"]:
        u = ube.clip(local(moments, ddof), u_min)
        return ube.uncertainty_reward(u, ube.member_variance(rewards, ddof), discount)

    rewards_v = jax.vmap(lambda r: bellman.policy_average(r, policy))(rewards)
    return reward(moments.v, rewards_v), reward(moments.q, rewards)


def clipped_share(unclipped: Float[Array, "S A"], local: Float[Array, "S A"], values: Float[Array, " S"]) -> Float[Array, ""]:
    """The share of states and actions that the clip raised by more than rounding makes of the values' squares."""
    rounding = ROUNDED * float(np.finfo(local.dtype).eps) * jnp.max(jnp.abs(values)) ** 2
    return jnp.mean((local - unclipped > rounding).astype(local.dtype))


def propagate(
    local_v: Float[Array, " S"],
    local_q: Float[Array, "S A"],
    mean: MDP,
    mean_values: Values,
    policy: Policy,
    discount: Scalar,
    terminal: Bool[Array, " S"] | None = None,
) -> Uncertainty:
    """Solves the uncertainty Bellman equation in its V form and its Q form (eq. bellman_exact, Theorem ube_q)."""
    p_bar = jnp.asarray(mean.p)
    right = jnp.stack([local_v, bellman.policy_average(local_q, policy)], axis=1)
    solution = jnp.linalg.solve(bellman.system(p_bar, policy, discount**2, terminal), right)
    q = bellman.backup(MDP(p_bar, local_q), solution[:, 1], discount**2)
    return Uncertainty(solution[:, 0], q, mean_values, local_v, local_q)
