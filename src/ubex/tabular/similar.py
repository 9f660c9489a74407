"""Bellman equations of a policy that differs in few states from one whose equations are inverted already.

After three or so improvements, policy iteration changes the action of a few states per step, and of the same ones again and
again. Then only their rows of I - g P differ from those of an earlier policy, and its inverse G still solves all the others.
With Z the columns of G that belong to the changed states C, and v the earlier values, the new ones are v + Z c, where c makes
the equations of C hold: a system of the size of C. This is Woodbury's formula, and as exact as a factorisation.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ubex.tabular import bellman
from ubex.tabular.bellman import Values
from ubex.tabular.models import Dense
from ubex.types import MDP, NextValues

Actions = Int[Array, " S"]
MOST = 24
"""States that may differ; a system of this size costs next to nothing."""
LEAST_STATES = 4 * MOST
"""With fewer states a factorisation costs next to nothing either."""


class Inverse(NamedTuple):
    """Of the Bellman equations of N MDPs under a policy."""

    columns: Float[Array, "N S S"]
    """The columns of (I - discount P)^-1, one after another."""
    v: Float[Array, "N S"]
    """The values of the policy."""


class Similar(NamedTuple):
    """Any samples and any mean, and the inverted equations of a policy."""

    model: Dense
    inverted: Actions
    """The policy; -1 where nothing is inverted."""
    own: Inverse
    """Of the samples."""
    mean: Inverse
    variance: Inverse | None
    """Of the uncertainty equation: the mean MDP with the discount squared; `None` where nobody asks for it."""

    @property
    def samples(self) -> MDP:
        """The samples."""
        return self.model.samples

    def average(self, policy: Actions, discount: float) -> Values:
        """Values of the policy in the mean MDP."""
        v = self._solve(self.mean, one(self.model.mean), policy, discount)[0]
        return Values(v, bellman.backup(self.model.mean, v, discount))

    def members(self, policy: Actions, discount: float) -> Values:
        """Values of the policy in every sample."""
        v = self._solve(self.own, self.samples, policy, discount)
        return bellman.with_actions(self.samples, v[:, :, None], discount)

    def moments(self, members: Values, average: Values, policy: Actions, needs_chi_square: bool) -> NextValues:
        """Next-value moments, in the Q form."""
        return self.model.moments(members, average, policy, needs_chi_square)

    def propagate(self, reward: Float[Array, "S A"], policy: Actions, discount: float) -> Float[Array, "S A"]:
        """Action values of the policy in the mean MDP with another reward."""
        assert self.variance is not None, "asked for in `similar_to`"
        mdp, columns = MDP(self.model.mean.p, reward), self.variance.columns
        v = bellman.policy_average(reward, self.inverted) @ columns[0]
        return bellman.backup(mdp, self._solve(Inverse(columns, v[None]), one(mdp), policy, discount)[0], discount)

    def _solve(self, inverse: Inverse, mdps: MDP, policy: Actions, discount: float) -> Float[Array, "N S"]:
        """Values of the policy in all of the MDPs, whose equations are inverted for a near policy or factorised."""
        found: Float[Array, "N S"] = jax.lax.cond(
            is_near(policy, self.inverted),
            lambda: corrected(inverse, mdps, policy, self.inverted, discount),
            lambda: jnp.linalg.solve(*bellman.equation(mdps, policy, discount))[:, :, 0],
        )
        return found


def one(mdp: MDP) -> MDP:
    """An ensemble of one."""
    return MDP(jnp.asarray(mdp.p)[None], jnp.asarray(mdp.r)[None])


def is_near(policy: Actions, other: Actions) -> Bool[Array, ""]:
    """Whether few states differ."""
    near: Bool[Array, ""] = jnp.sum(policy != other) <= MOST
    return near


def inverse_of(mdps: MDP, policy: Actions, discount: float) -> Inverse:
    """Inverts the equations of every MDP."""
    matrix, reward = bellman.equation(mdps, policy, discount)
    columns = jnp.linalg.inv(jnp.swapaxes(matrix, 1, 2))
    return Inverse(columns, jnp.einsum("nts,nt->ns", columns, reward[:, :, 0]))


def corrected(inverse: Inverse, mdps: MDP, policy: Actions, inverted: Actions, discount: float) -> Float[Array, "N S"]:
    """Values of a policy that is near the inverted one."""
    _, places = jax.lax.top_k((policy != inverted).astype(jnp.int32), MOST)  # all that differ, and some that do not
    actions = policy[places]

    def solve(p: Float[Array, "S A S"], r: Float[Array, "S A"], inverse: Inverse) -> Float[Array, " S"]:
        rows, columns = p[places, actions], inverse.columns[places]
        error = r[places, actions] + discount * (rows @ inverse.v) - inverse.v[places]
        matrix = columns[:, places].T - discount * (rows @ columns.T)
        v: Float[Array, " S"] = inverse.v + jnp.linalg.solve(matrix, error) @ columns
        return v

    found: Float[Array, "N S"] = jax.vmap(solve)(jnp.asarray(mdps.p), jnp.asarray(mdps.r), inverse)
    return found


def similar_to(model: Dense, policy: Actions, discount: float, worth_it: Bool[Array, ""], variance: bool) -> Similar:
    """Inverts the equations of a policy if that is worth it: the samples', the mean's, and on request the uncertainty's."""
    mean = one(model.mean)

    def invert() -> tuple[Inverse, Inverse, Inverse | None]:
        own, average = (inverse_of(mdps, policy, discount) for mdps in (model.samples, mean))
        return own, average, inverse_of(mean, policy, discount**2) if variance else None

    def nothing() -> tuple[Inverse, Inverse, Inverse | None]:
        empty: tuple[Inverse, Inverse, Inverse | None] = jax.tree.map(
            lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(invert)
        )
        return empty

    return Similar(model, jnp.where(worth_it, policy, -1), *jax.lax.cond(worth_it, invert, nothing))


def is_quicker(model: Dense) -> bool:
    """Whether steps should learn from each other: not in batches of seeds, as on a GPU, where some seed always factorises."""
    return jnp.asarray(model.mean.r).shape[0] >= LEAST_STATES and jax.default_backend() == "cpu"
