"""Bellman equations of a posterior over a deterministic world, without a factorisation.

Where an action leads to one next state, the mean MDP under a policy is one observed successor per state plus a share that all
next states have in common. Following successors, twice as far in each round, solves it in a few gathers; a rank-one
correction adds the share. A sampled MDP differs from the mean by little (by sampling noise of order 1/sqrt(total of the
Dirichlet parameters) per row), so correcting with the mean's solution converges in 15 to 20 matrix-vector products, while a
factorisation costs as much as some S/5 of them. Where it does not converge, a factorisation is made after all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

MAX_DOUBLINGS = 24
"""Steps followed: 2^24, at which even a discount of 0.9999 has forgotten everything."""
FEW_DOUBLINGS = 6
"""Rounds of the approximate operator, which only steers corrections: 64 steps."""
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

    def add(k: Int[Array, ""], x: Float[Array, "C S"]) -> Float[Array, "C S"]:
        return x + operator.factors[k][None] * x[:, operator.places[k]]

    total: Float[Array, "C S"] = jax.lax.fori_loop(0, operator.rounds, add, b.at[:, -1].multiply(operator.absorbing))
    return total


def follow_back(operator: Doubling, b: Float[Array, " S"]) -> Float[Array, " S"]:
    """Applies the transposed operator: what flows from every state into those that follow it."""

    def add(k: Int[Array, ""], x: Float[Array, " S"]) -> Float[Array, " S"]:
        return x.at[operator.places[k]].add(operator.factors[k] * x)

    total: Float[Array, " S"] = jax.lax.fori_loop(0, operator.rounds, add, b)
    return total.at[-1].multiply(operator.absorbing)


def follow_a_while(operator: Doubling, b: Float[Array, "C S"]) -> Float[Array, "C S"]:
    """Nearly the same, by a fixed number of rounds, which a GPU makes without asking after each whether to go on."""
    x = b.at[:, -1].multiply(operator.absorbing)
    for k in range(FEW_DOUBLINGS):
        x = x + operator.factors[k][None] * x[:, operator.places[k]]
    return x


Follow = Callable[[Doubling, Float[Array, "C S"]], Float[Array, "C S"]]


class MeanSolver(NamedTuple):
    """Solution operator of the Bellman equation in the mean MDP under a policy."""

    observed: Doubling
    share: Float[Array, " S"]
    """What every next state has of the probability, times the discount."""

    def solve(self, b: Float[Array, "C S"]) -> Float[Array, "C S"]:
        """Solves for every row of b."""
        return self._solve(follow, b, follow(self.observed, self.share[None])[0])

    def approximately(self) -> Callable[[Float[Array, "C S"]], Float[Array, "C S"]]:
        """An approximate `solve` that is cheaper to call many times."""
        shared = follow_a_while(self.observed, self.share[None])[0]
        return lambda b: self._solve(follow_a_while, b, shared)

    def _solve(self, follow: Follow, b: Float[Array, "C S"], shared: Float[Array, " S"]) -> Float[Array, "C S"]:
        """Sherman and Morrison's formula; `shared` is the observed part's answer to the shares."""
        x = follow(self.observed, b)
        amount = jnp.sum(x, axis=1, keepdims=True) / (1.0 - jnp.sum(shared))
        return x + amount * shared[None]


def mean_solver(
    successor: Int[Array, " S"], weight: Float[Array, " S"], share: Float[Array, " S"], discount: float
) -> MeanSolver:
    """Prepares (I - discount (W + share 1^T))^-1, where W has `weight(s)` at `successor(s)`."""
    return MeanSolver(doubling(successor, discount * weight, discount), discount * share)


class Solution(NamedTuple):
    """Values of the members, and how many corrections they took."""

    v: Float[Array, "N S"]
    corrections: Int[Array, ""]


def member_solve(solver: MeanSolver, p: Float[Array, "N S S"], r: Float[Array, "N S"], discount: float) -> Solution:
    """Solves v = r + discount p v for every member, correcting with the mean's solution until the corrections are small.

    The error left is a fraction of the last correction: corrections shrink by the same factor each time, a fifth or so.
    """
    State = tuple[Int[Array, ""], Float[Array, "N S"], Bool[Array, ""]]
    nearly = solver.approximately()

    def go_on(state: State) -> Bool[Array, ""]:
        corrections, _, done = state
        return (corrections < MAX_CORRECTIONS) & ~done

    def correct(state: State) -> State:
        corrections, v, _ = state
        step = nearly(r + discount * jnp.einsum("nst,nt->ns", p, v) - v)
        v = v + step
        done: Bool[Array, ""] = jnp.all(largest(step) <= TOLERANCE * largest(v))
        return corrections + 1, v, done

    start = (jnp.asarray(0, jnp.int32), nearly(r), jnp.asarray(False))
    corrections, v, done = jax.lax.while_loop(go_on, correct, start)

    def factorise() -> Float[Array, "N S"]:
        unit = jnp.eye(r.shape[1], dtype=r.dtype)
        solved: Float[Array, "N S 1"] = jax.lax.map(
            lambda one: jnp.linalg.solve(unit - discount * one[0], one[1][:, None]), (p, r)
        )
        return solved[:, :, 0]

    # a loop of one round and not `cond`, whose branches are both taken when seeds are batched
    v, _ = jax.lax.while_loop(lambda state: ~state[1], lambda _: (factorise(), jnp.asarray(True)), (v, done))
    return Solution(v, corrections)


def largest(x: Float[Array, "N S"]) -> Float[Array, " N"]:
    """Largest absolute entry of each row."""
    return jnp.max(jnp.abs(x), axis=1)
