"""The variance of values as pure functions of arrays, for `jax.jit`, `jax.vmap` and `jax.grad`.

They compute what `ubex.value_variance` computes, with nothing around it. Nothing is checked: rows that do not sum to 1 give a
number all the same. Nothing is switched on: they compute in the precision of the arrays, which is float32 unless 64-bit types
are on (`jax.enable_x64(True)`, or the setting `jax_enable_x64`). `estimator`, `ddof` and `first_order` are static; everything
else may be traced.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ubex.calls import covariance
from ubex.calls.source import FROM_MEMBERS
from ubex.calls.variance import over_chunks
from ubex.closed_form import DirichletRows, Rows, Table
from ubex.estimators import Estimator, find
from ubex.estimators.base import Closed
from ubex.tabular import bellman
from ubex.tabular.bellman import Policy, Scalar, Values
from ubex.tabular.uncertainty import Uncertainty
from ubex.types import MDP


def value_variance(
    p: Float[Array, "N S A S"],
    r: Float[Array, "*n S A"],
    policy: Policy,
    discount: Scalar,
    *,
    estimator: str | Estimator = FROM_MEMBERS,
    u_min: Scalar = 0.0,
    ddof: int = 0,
    terminal: Bool[Array, " S"] | None = None,
) -> Uncertainty:
    """`ubex.value_variance` for samples: variances `v` (S,) and `q` (S, A), mean values, and what was propagated.

    Args:
        p: transition probabilities of the members, (N, S, A, S).
        r: their rewards, (N, S, A), or (S, A) if they are known.
        policy: probabilities (S, A), or one action for each state (S,) as integers.
        discount: below 1; or 1, with `terminal`.
        estimator: a name of `ESTIMATORS`, or an `Estimator`.
        u_min: smallest local uncertainty that is propagated.
        ddof: variances over members divide by N - ddof.
        terminal: states (S,) that are absorbing without reward, and whose value is 0.

    Example:
        >>> p = jnp.array([[[[0.3, 0.7]], [[0.0, 1.0]]], [[[0.5, 0.5]], [[0.0, 1.0]]]])
        >>> r, policy = jnp.array([[1.0], [0.0]]), jnp.ones((2, 1))
        >>> slope = jax.grad(lambda r: value_variance(p, r, policy, 0.9).v[0])(r)
        >>> slope.shape, bool(slope[0, 0] > 0)
        ((2, 1), True)
    """
    chosen, r = find(estimator), jnp.broadcast_to(r, p.shape[:-1])
    if chosen.closed is not None:
        mean, rows = covariance.sample_moments(p, r, ddof)
        return _closed_form(rows, mean, policy, discount, terminal, chosen.closed)
    average = bellman.mean_mdp([MDP(p, r)])
    return over_chunks(chosen, p, r, average, policy, discount, terminal, u_min, ddof, [slice(None)])


def dirichlet_variance(
    alpha: Float[Array, "S A S"],
    r_mean: Float[Array, "S A"],
    r_variance: Float[Array, "S A"],
    policy: Policy,
    discount: Scalar,
    *,
    first_order: bool = False,
    terminal: Bool[Array, " S"] | None = None,
) -> Uncertainty:
    """`ubex.value_variance` by the closed form, for Dirichlet rows with parameters `alpha` (S, A, S) and independent rewards.

    `posterior.transitions.alpha`, `posterior.rewards.mean()` and `posterior.rewards.variance()` are those of a
    `ubex.DirichletNormal`. Where the fixed point is not reached, the answer is that to first order.

    Example:
        >>> alpha, zero = jnp.ones((3, 2, 3)), jnp.zeros((3, 2))
        >>> policies = jnp.stack([jnp.full((3, 2), 0.5), jnp.tile(jnp.array([1.0, 0.0]), (3, 1))])
        >>> jax.vmap(lambda policy: dirichlet_variance(alpha, zero, zero + 1.0, policy, 0.9).v)(policies).shape
        (2, 3)
    """
    total = jnp.sum(alpha, axis=-1)
    mean = MDP(alpha / total[..., None], r_mean)
    rows = DirichletRows(Table(jnp.asarray(mean.p)), total, r_variance)
    return _closed_form(rows, mean, policy, discount, terminal, "first-order" if first_order else "full")


def _closed_form(
    rows: Rows, mean: MDP, policy: Policy, discount: Scalar, terminal: Bool[Array, " S"] | None, closed: Closed
) -> Uncertainty:
    rewards = jnp.asarray(mean.r)
    if bellman.is_deterministic(policy):
        policy = jax.nn.one_hot(policy, rewards.shape[1], dtype=rewards.dtype)
    side = covariance.side_of(jnp, mean, policy, discount, terminal)
    local, v, q, _ = covariance.evaluate(rows, side, discount, closed)
    values = Values(side.v, rewards + discount * rows.mean.expect(side.v))
    return Uncertainty(v, q, values, local.states, local.actions)
