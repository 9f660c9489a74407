"""The paper's assumptions and the lemmas that rest on them, as quantities that can be measured on any ensemble.

Each is 0 (or equal to its partner) where independent transitions and acyclicity hold, and tells how far they fail where not.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ubex.tabular.bellman import Policy, Scalar, policy_rows

BLOCK_ENTRIES = 10**6
"""Transition probabilities that are looked at together."""


def visits_no_state_twice(p: Float[np.ndarray, "N S A S"], r: Float[np.ndarray, "N S A"] | None = None) -> bool:
    """Whether no state can be visited again in any member (Assumption acyclic).

    Absorbing states do not count as cycles, because nothing about their rows is unknown. With rewards `r` they do if their
    rewards differ over members, because the same unknown reward is then met in every step.

    Example:
        >>> from ubex.envs import toy
        >>> visits_no_state_twice(toy.posterior_samples().p)
        True
    """
    num_states = p.shape[1]
    edges, others = np.zeros((num_states, num_states), dtype=bool), ~np.eye(num_states, dtype=bool)
    size = max(1, BLOCK_ENTRIES // p[0].size)
    for start in range(0, p.shape[0], size):
        edges |= np.any(p[start : start + size] > 0, axis=0).any(axis=1)
        if np.any(edges & edges.T & others):  # there and back: no need to look further
            return False
    absorbing = np.diag(edges) & (edges.sum(axis=1) == 1)
    if r is not None:
        absorbing &= np.all(r == r[:1], axis=(0, 2))
    loops: Bool[np.ndarray, " S"] = np.diag(edges) & ~absorbing
    return not loops.any() and every_way_ends(edges & others)


def every_way_ends(edges: Bool[np.ndarray, "S S"]) -> bool:
    """Whether no way along the edges goes on forever. States without a way out are taken away until there are none.

    Example:
        >>> every_way_ends(np.array([[False, True], [False, False]])), every_way_ends(np.array([[True]]))
        (True, False)
    """
    into, ways_out = np.ascontiguousarray(edges.T), edges.sum(axis=1)
    ends = ways_out == 0
    gone = ends
    while ends.any():
        ways_out = ways_out - into[ends].sum(axis=0)
        ends = (ways_out == 0) & ~gone
        gone = gone | ends
    return bool(gone.all())


def transition_value_covariance(p: Float[Array, "N S A T"], v: Float[Array, "N T"]) -> Float[Array, "S A T"]:
    """`Cov[p(s'|s,a), V(s')]` over members (Lemma independence_from_assumptions: 0 under the assumptions).

    Example:
        >>> p = jnp.array([[[[0.25, 0.75]]], [[[0.75, 0.25]]]])
        >>> transition_value_covariance(p, jnp.array([[1.0, 0.0], [3.0, 0.0]])).tolist()
        [[[0.25, 0.0]]]
    """
    mean_p, mean_v = jnp.mean(p, axis=0, keepdims=True), jnp.mean(v, axis=0, keepdims=True)
    return jnp.einsum("nsat,nt->sat", p - mean_p, v - mean_v) / p.shape[0]


def uncorrelated_residual(p: Float[Array, "N S A S"], v: Float[Array, "N S"], policy: Policy) -> Float[Array, " S"]:
    """E[sum p V] - sum E[p] E[V], the two sides of Lemma uncorrelated_property: 0 under the assumptions.

    Example:
        >>> p = jnp.array([[[[0.25, 0.75]], [[0.0, 1.0]]], [[[0.75, 0.25]], [[0.0, 1.0]]]])
        >>> uncorrelated_residual(p, jnp.array([[1.0, 0.0], [3.0, 0.0]]), jnp.array([0, 0])).tolist()
        [0.25, 0.0]
    """
    return jnp.sum(policy_rows(transition_value_covariance(p, v), policy), axis=1)


def variance_decomposition(
    p: Float[Array, "N S A S"], v: Float[Array, "N S"], policy: Policy, discount: Scalar
) -> Float[Array, " S"]:
    """discount^2 (E[(sum p V)^2] - (E[sum p V])^2): the variance of V for known rewards, without assumptions.

    Lemma variance_decomp_no_assumptions.

    Example:
        >>> p = jnp.array([[[[0.25, 0.75]], [[0.0, 1.0]]], [[[0.75, 0.25]], [[0.0, 1.0]]]])
        >>> variance_decomposition(p, jnp.array([[1.0, 0.0], [3.0, 0.0]]), jnp.array([0, 0]), 1.0).tolist()
        [1.0, 0.0]
    """
    expected = jnp.stack([policy_rows(member, policy) @ own for member, own in zip(p, v, strict=True)])
    return discount**2 * (jnp.mean(expected**2, axis=0) - jnp.mean(expected, axis=0) ** 2)
