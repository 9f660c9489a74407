"""The paper: local uncertainties of the uncertainty Bellman equation as functions of next-value moments.

"Model-Based Uncertainty in Value Functions", Luis et al., AISTATS 2023 (https://arxiv.org/abs/2302.12526).
Every function is pure and knows neither whether the moments are exact (tabular) or sampled (deep), nor whether their
trailing shape belongs to the V form (`S`) or the Q form (`S A`, `B`): the equations are the same.

Solving the equation is solving a Bellman equation in the paper's "uncertainty MDP": mean dynamics, discount squared,
and `uncertainty_reward(...)` as the reward.

Example: moments of two members at one place; the examples below use them
    >>> moments = NextValues(
    ...     mean_bar=jnp.array([[1.0], [3.0]]),
    ...     var_bar=jnp.array([[0.5], [0.5]]),
    ...     var_member=jnp.array([[0.75], [1.25]]),
    ...     var_gap=jnp.array([[0.25], [0.75]]),
    ...     total=jnp.array([1.5]),
    ...     chi_square=jnp.array([[0.25], [0.25]]),
    ...     value_bound=jnp.asarray(4.0),
    ... )
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from ubex.types import NextValues

Scalar = float | Float[Array, ""]


def member_variance(x: Float[Array, "N *sa"], ddof: int = 0) -> Float[Array, "*sa"]:
    """Variance over ensemble members, divided by N - ddof.

    Deviations are taken from the first member, so that identical members give exactly 0 whatever their size.

    Example:
        >>> member_variance(jnp.array([[1.0, 5.0], [3.0, 5.0]])).tolist()
        [1.0, 0.0]
    """
    return jnp.var(x - x[:1], axis=0, ddof=ddof)


def total(moments: NextValues) -> Float[Array, "*sa"]:
    """Total uncertainty about the mean value at the next step (left side of eq. interpretation).

    Example:
        >>> total(moments).tolist()
        [1.5]
    """
    return moments.total


def epistemic(moments: NextValues, ddof: int = 0) -> Float[Array, "*sa"]:
    """w: variance over the posterior of the expected mean value at the next step (w_t; eq. pombu_q_rewards).

    Example:
        >>> epistemic(moments).tolist(), epistemic(moments, ddof=1).tolist()
        ([1.0], [2.0])
    """
    return member_variance(moments.mean_bar, ddof)


def aleatoric(moments: NextValues) -> Float[Array, "*sa"]:
    """Average variance of the mean value inside one model (right term of eq. interpretation).

    Example:
        >>> aleatoric(moments).tolist()
        [0.5]
    """
    return jnp.mean(moments.var_bar, axis=0)


def average_aleatoric(moments: NextValues) -> Float[Array, "*sa"]:
    """Average variance of a model's own value inside that model (second term of eq. bellman_exact_reward).

    Example:
        >>> average_aleatoric(moments).tolist()
        [1.0]
    """
    return jnp.mean(moments.var_member, axis=0)


def gap_difference(moments: NextValues) -> Float[Array, "*sa"]:
    """The gap g as Theorem 2 states it: average aleatoric uncertainty of own values minus that of mean values.

    Example:
        >>> gap_difference(moments).tolist()
        [0.5]
    """
    if moments.rise is not None:
        return jnp.mean(moments.rise, axis=0)
    return average_aleatoric(moments) - aleatoric(moments)


def gap(moments: NextValues) -> Float[Array, "*sa"]:
    """The gap g as one average of variances, hence never negative (Lemma inflated_uncertainty).

    Example:
        >>> gap(moments).tolist()
        [0.5]
    """
    return jnp.mean(moments.var_gap, axis=0)


def exact_1(moments: NextValues) -> Float[Array, "*sa"]:
    """u, first form: total minus average aleatoric (Theorem 1, eq. bellman_exact_reward). May be negative.

    Example:
        >>> exact_1(moments).tolist()
        [0.5]
    """
    if moments.drop is not None and moments.rise is not None:
        return jnp.mean(moments.drop - moments.rise, axis=0)
    return total(moments) - average_aleatoric(moments)


def exact_2(moments: NextValues, ddof: int = 0) -> Float[Array, "*sa"]:
    """u, second form: w minus the gap as a difference (Theorem 2).

    Example:
        >>> exact_2(moments).tolist()
        [0.5]
    """
    return epistemic(moments, ddof) - gap_difference(moments)


def exact_3(moments: NextValues, ddof: int = 0) -> Float[Array, "*sa"]:
    """u, third form: w minus the gap as one variance (eq. exact_ube_q_rewards), the paper's default.

    Example:
        >>> exact_3(moments).tolist()
        [0.5]
    """
    return epistemic(moments, ddof) - gap(moments)


def clip(u: Float[Array, "*sa"], u_min: Scalar) -> Float[Array, "*sa"]:
    """Clipped local uncertainty max(u_min, u) (section "Practical bound"); `u_min = -inf` switches it off.

    Example:
        >>> clip(jnp.array([-1.0, 2.0]), 0.0).tolist()
        [0.0, 2.0]
    """
    return jnp.maximum(u, u_min)


def uncertainty_reward(u: Float[Array, "*sa"], reward_variance: Float[Array, "*sa"], discount: Scalar) -> Float[Array, "*sa"]:
    """Var[r] + discount^2 u: what the uncertainty MDP pays at each step (Theorem ube_unknown_rewards, appendix B).

    Known rewards are the case `reward_variance = 0`.

    Example:
        >>> uncertainty_reward(jnp.array([1.0]), jnp.array([0.5]), 0.5).tolist()
        [0.75]
    """
    return reward_variance + discount**2 * u


def transition_bound(moments: NextValues) -> Float[Array, "*sa"]:
    """Bound of O'Donoghue et al. (2018) on the local uncertainty: bound^2 times the summed Var[p] / E[p].

    By Cauchy-Schwarz, (sum (p - p_bar) V)^2 <= (sum (p - p_bar)^2 / p_bar) (sum p_bar V^2), and V^2 <= bound^2.

    Example:
        >>> transition_bound(moments).tolist()
        [4.0]
    """
    return moments.value_bound**2 * jnp.mean(moments.chi_square, axis=0)
