"""Bellman equations of a posterior over a deterministic world, without a factorisation.

Where an action leads to one next state, the mean MDP under a policy is one observed successor a state plus a share that all
next states have in common. Following successors, twice as far in each round, solves it in a few gathers; a rank-one
correction adds the share. A sampled MDP differs from the mean by little (by sampling noise of order 1/sqrt(total of the
Dirichlet parameters) a row), so correcting with the mean's solution converges in some twenty matrix-vector products, while a
factorisation costs as much as some S/5 of them. Where it does not converge, a factorisation is made after all.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

MAX_DOUBLINGS = 24
"""Steps followed: 2^24, at which even a discount of 0.9999 has forgotten everything."""
NEGLIGIBLE = 1e-18
TOLERANCE = 1e-10
"""Largest last correction of a member's values, relative to the largest of them."""
MAX_CORRECTIONS = 80
"""Corrections after which a factorisation is cheaper."""


class Doubling(NamedTuple):
    """Solution operator of x(s) = b(s) + factor(s) x(next(s)): in round k, every state adds its 2^k-th successor's sum."""

    places: Int[Array, "K S"]
    factors: Float[Array, "K S"]
    rounds: Int[Array, ""]
    absorbing: Float[Array, ""]
    """What a reward in the terminal state, the last one, is worth in total."""


def doubling(successor: Int[Array, " S"], factor: Float[Array, " S"], discount: float) -> Doubling:
    """Prepares the operator; the last state is absorbing."""
    num_states = successor.shape[0]
    State = tuple[Int[Array, ""], Int[Array, "K S"], Float[Array, "K S"], Int[Array, " S"], Float[Array, " S"]]

    def go_on(state: State) -> Bool[Array, ""]:
        rounds, _, _, _, factor = state
        left: Bool[Array, ""] = jnp.max(jnp.abs(factor)) > NEGLIGIBLE
        return left & (rounds < MAX_DOUBLINGS)

    def double(state: State) -> State:
        rounds, places, factors, place, factor = state
        places, factors = places.at[rounds].set(place), factors.at[rounds].set(factor)
        return rounds + 1, places, factors, place[place], factor * factor[place]

    shape = (MAX_DOUBLINGS, num_states)
    start = (
        jnp.asarray(0, jnp.int32),
        jnp.zeros(shape, jnp.int32),
        jnp.zeros(shape, factor.dtype),
        successor,
        factor.at[-1].set(0.0),
    )
    rounds, places, factors, _, _ = jax.lax.while_loop(go_on, double, start)
    return Doubling(places, factors, rounds, jnp.asarray(1.0 / (1.0 - discount), factor.dtype))


def follow(operator: Doubling, b: Float[Array, "C S"]) -> Float[Array, "C S"]:
    """Applies the operator to every row of b."""
    first = b.at[:, -1].multiply(operator.absorbing)

    def add(k: Int[Array, ""], x: Float[Array, "C S"]) -> Float[Array, "C S"]:
        return x + operator.factors[k][None] * x[:, operator.places[k]]

    total: Float[Array, "C S"] = jax.lax.fori_loop(0, operator.rounds, add, first)
    return total


class MeanSolver(NamedTuple):
    """Solution operator of the Bellman equation in the mean MDP under a policy."""

    observed: Doubling
    shared: Float[Array, " S"]
    """The operator's answer to the shares, which the rank-one correction adds in the right amount."""


def mean_solver(
    successor: Int[Array, " S"], weight: Float[Array, " S"], share: Float[Array, " S"], discount: float
) -> MeanSolver:
    """Prepares (I - discount (W + share 1^T))^-1, where W has `weight(s)` at `successor(s)`."""
    observed = doubling(successor, discount * weight, discount)
    return MeanSolver(observed, follow(observed, discount * share[None])[0])


def mean_solve(solver: MeanSolver, b: Float[Array, "C S"]) -> Float[Array, "C S"]:
    """Solves for every row of b (Sherman and Morrison's formula)."""
    x = follow(solver.observed, b)
    amount = jnp.sum(x, axis=1, keepdims=True) / (1.0 - jnp.sum(solver.shared))
    return x + amount * solver.shared[None]


class Solution(NamedTuple):
    """Values of the members, and how many corrections they took."""

    v: Float[Array, "N S"]
    corrections: Int[Array, ""]


def member_solve(solver: MeanSolver, p: Float[Array, "N S S"], r: Float[Array, "N S"], discount: float) -> Solution:
    """Solves v = r + discount p v for every member, correcting with the mean's solution until the corrections are small.

    The error left is a fraction of the last correction: corrections shrink by the same factor each time, a fifth or so.
    """
    State = tuple[Int[Array, ""], Float[Array, "N S"], Bool[Array, ""]]

    def go_on(state: State) -> Bool[Array, ""]:
        corrections, _, done = state
        return (corrections < MAX_CORRECTIONS) & ~done

    def correct(state: State) -> State:
        corrections, v, _ = state
        step = mean_solve(solver, r + discount * jnp.einsum("nst,nt->ns", p, v) - v)
        v = v + step
        done: Bool[Array, ""] = jnp.all(largest(step) <= TOLERANCE * largest(v))
        return corrections + 1, v, done

    start = (jnp.asarray(0, jnp.int32), mean_solve(solver, r), jnp.asarray(False))
    corrections, v, done = jax.lax.while_loop(go_on, correct, start)

    def factorise() -> Float[Array, "N S"]:
        unit = jnp.eye(r.shape[1], dtype=r.dtype)
        solved: Float[Array, "N S 1"] = jax.lax.map(
            lambda one: jnp.linalg.solve(unit - discount * one[0], one[1][:, None]), (p, r)
        )
        return solved[:, :, 0]

    return Solution(jax.lax.cond(done, lambda: v, factorise), corrections)


def largest(x: Float[Array, "N S"]) -> Float[Array, " N"]:
    """Largest absolute entry of each row."""
    return jnp.max(jnp.abs(x), axis=1)
