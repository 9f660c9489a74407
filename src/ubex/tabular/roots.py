"""G = (I - g Pbar)^-1 and its products with itself, where every action was seen to lead to one next state: vectors, no table.

Under a policy the mean MDP is one observed successor per state plus a share that all next states have in common, as in
`solvers`. Write H for the inverse of the observed part alone. Then G = H + a b^T with b = H^T 1, and

    (G*G) x = (H*H) x + 2 a * H (b * x) + a^2 (b^2 . x).

One way leads on from a state, so H(s,t) is a product along it, and H*H has the squares of its factors: following successors
finds it as it finds H. Only a state on a cycle is met again. With c the product around its cycle, H(t,t) = 1 / (1 - c), whose
square is (1 + c) / (1 - c) times what following with squares gives, 1 / (1 - c^2).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ubex.tabular.solvers import Doubling, doubling, follow, follow_back

Vector = Float[Array, " S"]


class Sums(NamedTuple):
    """What all products of G with itself, applied to x, are made of."""

    squares: Vector
    """(H*H) x."""
    once: Vector
    """H (b * x)."""
    total: Float[Array, ""]
    """b^2 . x."""


class Rows(NamedTuple):
    """Rows of transition probabilities: a weight on one successor, and a share on every state."""

    successor: Int[Array, "*n"]
    weight: Float[Array, "*n"]
    share: Float[Array, "*n"]

    def taken(self, policy: Int[Array, " S"]) -> Rows:
        """Of rows for every state and action, those of a policy's actions."""
        return Rows(*(jnp.take_along_axis(x, policy[:, None], axis=1)[:, 0] for x in self))


class Root(NamedTuple):
    """G as H + a b^T."""

    observed: Doubling
    """H."""
    leaving: Vector
    """a."""
    arriving: Vector
    """b."""
    kept: Float[Array, ""]
    """1 - discount share . b; the columns of G add up to b over this."""
    around: Vector
    """c, the product around the cycle that a state lies on; 0 elsewhere."""

    def times(self, x: Vector) -> Vector:
        """G x."""
        return follow(self.observed, x[None])[0] + self.leaving * jnp.sum(self.arriving * x)

    def row(self, state: int | Int[Array, ""]) -> Vector:
        """G(state, t) for every t."""
        unit = jnp.zeros_like(self.leaving).at[state].set(1.0)
        return follow_back(self.observed, unit) + self.leaving[state] * self.arriving

    def again(self) -> Vector:
        """G(s,s) - 1: discounted visits of a state after the first; the terminal state is no matter here."""
        return self.around / (1.0 - self.around) + self.leaving * self.arriving

    def sums(self, x: Vector) -> Sums:
        """What the products of G with itself need to know of x."""
        places, factors, rounds, absorbing = self.observed
        again = (1.0 + self.around) / (1.0 - self.around)

        def add(k: Int[Array, ""], found: tuple[Vector, Vector]) -> tuple[Vector, Vector]:
            place, factor = places[k], factors[k]
            squares, once = found
            return squares + factor**2 * squares[place], once + factor * once[place]

        start = ((again * x).at[-1].multiply(absorbing**2), (self.arriving * x).at[-1].multiply(absorbing))
        squares, once = jax.lax.fori_loop(0, rounds, add, start)
        return Sums(squares, once, jnp.sum(self.arriving**2 * x))

    def squared(self, sums: Sums) -> Vector:
        """(G*G) x."""
        return sums.squares + 2.0 * self.leaving * sums.once + self.leaving**2 * sums.total

    def rows_squared(self, sums: Sums, rows: Rows) -> Float[Array, "*n"]:
        """((p G)*(p G)) x for every row p."""
        after, mixed = self.squared(sums), (sums.once + self.leaving * sums.total) / self.kept
        weight, share = rows.weight, rows.share
        found: Float[Array, "*n"] = weight**2 * after[rows.successor] + 2.0 * weight * share * mixed[rows.successor]
        return found + share**2 * (sums.total / self.kept**2)


def root_of(rows: Rows, discount: float) -> Root:
    """G of a policy's rows, the last of which is absorbing."""
    share = discount * rows.share
    observed = doubling(rows.successor, discount * rows.weight, discount)
    leaving = follow(observed, share[None])[0]
    kept = 1.0 - jnp.sum(leaving)
    arriving = follow_back(observed, jnp.ones_like(share))
    return Root(observed, leaving / kept, arriving, kept, around_cycles(rows.successor, discount * rows.weight))


def around_cycles(successor: Int[Array, " S"], factor: Vector) -> Vector:
    """The product of the factors around the cycle that a state lies on; 0 where it lies on none, and at the end."""
    num_states = successor.shape[0]

    def double(_: Int[Array, ""], state: tuple[Array, Array]) -> tuple[Array, Array]:
        first, place = state
        return jnp.minimum(first, first[place]), place[place]

    # the first in number of the states that follow, and the last of them; after as many steps as states it is on a cycle
    states = jnp.arange(num_states, dtype=successor.dtype)
    first, place = jax.lax.fori_loop(0, (num_states - 1).bit_length() + 1, double, (states, successor))
    cyclic = jnp.zeros(num_states, bool).at[place].set(True)
    logs = jnp.zeros_like(factor).at[first].add(jnp.where(cyclic, jnp.log(factor), 0.0))
    return jnp.where(cyclic, jnp.exp(logs[first]), 0.0).at[-1].set(0.0)
