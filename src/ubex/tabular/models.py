"""Models that the planner plans in: sampled MDPs and their mean, and the fastest exact way to evaluate a policy in each.

`Dense` takes any MDPs and factorises. `Flat` is for the belief of an agent in a deterministic environment (see `solvers`).
`Single` is for PSRL, whose model is one sample without uncertainty. `Known` and `Traced` have no samples: the closed form needs
none. `Traced` is for deterministic environments again, and makes no table of two states by two.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ubex.closed_form import DirichletRows, Local, iterate, local_uncertainty, variances
from ubex.tabular import bellman
from ubex.tabular.belief import FlatMean
from ubex.tabular.bellman import RowMoments, Values
from ubex.tabular.roots import Root, Rows, root_of
from ubex.tabular.solvers import MeanSolver, mean_solver, member_solve
from ubex.types import MDP, NextValues

Actions = Int[Array, " S"]


class Dense(NamedTuple):
    """Any samples and any mean."""

    samples: MDP
    mean: MDP

    def average(self, policy: Actions, discount: float) -> Values:
        """Values of the policy in the mean MDP."""
        return bellman.solve(self.mean, policy, discount)

    def members(self, policy: Actions, discount: float) -> Values:
        """Values of the policy in every sample."""
        return bellman.solve(self.samples, policy, discount)

    def moments(self, members: Values, average: Values, policy: Actions, needs_chi_square: bool) -> NextValues:
        """Next-value moments, in the Q form."""
        return bellman.next_values(self.samples, members, jnp.asarray(self.mean.p), average, policy, needs_chi_square).q

    def propagate(self, reward: Float[Array, "S A"], policy: Actions, discount: float) -> Float[Array, "S A"]:
        """Action values of the policy in the mean MDP with another reward."""
        return bellman.solve(MDP(self.mean.p, reward), policy, discount).q


class Flat(NamedTuple):
    """Samples of a belief with one successor per action, and its mean."""

    samples: MDP
    mean: FlatMean

    def average(self, policy: Actions, discount: float) -> Values:
        """Values of the policy in the mean MDP."""
        return flat_values(self.mean, self.mean.r, policy, discount)

    def members(self, policy: Actions, discount: float) -> Values:
        """Values of the policy in every sample."""
        return sampled_values(self.samples, self.mean, policy, discount)

    def moments(self, members: Values, average: Values, policy: Actions, needs_chi_square: bool) -> NextValues:
        """Next-value moments, in the Q form."""
        if needs_chi_square:
            return Dense(self.samples, self.mean.dense()).moments(members, average, policy, needs_chi_square)
        return bellman.member_moments(self.samples, members, flat_moments(self.mean, average), average, policy).q

    def propagate(self, reward: Float[Array, "S A"], policy: Actions, discount: float) -> Float[Array, "S A"]:
        """Action values of the policy in the mean MDP with another reward."""
        return flat_values(self.mean, reward, policy, discount).q


class Single(NamedTuple):
    """One sample, in which PSRL is greedy; the mean only serves to solve it."""

    samples: MDP
    mean: FlatMean

    def average(self, policy: Actions, discount: float) -> Values:
        """Values of the policy in the sample."""
        values = sampled_values(self.samples, self.mean, policy, discount)
        return Values(values.v[0], values.q[0])


class Prospect(NamedTuple):
    """What a policy is worth at one state, and why."""

    value: Float[Array, ""]
    """Its mean."""
    visits: Float[Array, " S"]
    """G(state, t): discounted visits in the mean MDP."""
    local: Float[Array, " S"]
    """l(t): the variance is the sum of visits(t)^2 l(t)."""
    local_actions: Float[Array, "S A"]
    """The same for every action by itself."""


class Known(NamedTuple):
    """The posterior by its moments, for the closed form: nothing is sampled."""

    mean: FlatMean
    rows: DirichletRows

    def root(self, policy: Actions, discount: float) -> Float[Array, "S S"]:
        """(I - discount Pbar)^-1 under the policy."""
        unit = jnp.eye(self.mean.r.shape[0], dtype=self.mean.r.dtype)
        inverse: Float[Array, "S S"] = jnp.linalg.inv(unit - discount * bellman.policy_rows(self.mean.p, policy))
        return inverse

    def values(self, reward: Float[Array, "S A"], policy: Actions, discount: float) -> Values:
        """Values of the policy in the mean MDP with any reward."""
        return bellman.solve(MDP(self.mean.p, reward), policy, discount)

    def evaluate(self, policy: Actions, discount: float, first_order: bool) -> tuple[Values, Float[Array, "S A"]]:
        """Mean values and the variance of Q."""
        root, v, local = self._local(policy, discount, first_order)
        average = Values(v, self.mean.r + discount * self.mean.expect(v))
        return average, variances(self.rows, root, local, discount)[1]

    def prospect(self, start: int, policy: Actions, discount: float, first_order: bool) -> Prospect:
        """Of the policy at one state."""
        root, v, local = self._local(policy, discount, first_order)
        return Prospect(v[start], root[start], local.states, local.actions)

    def _local(
        self, policy: Actions, discount: float, first_order: bool
    ) -> tuple[Float[Array, "S S"], Float[Array, " S"], Local]:
        """`root`, the mean values, and what every state and action adds to their variance."""
        root, choice = self.root(policy, discount), jax.nn.one_hot(policy, self.mean.r.shape[1], dtype=self.mean.r.dtype)
        v = root @ bellman.policy_average(self.mean.r, policy)
        return root, v, local_uncertainty(self.rows, (root, root), (v, v), (choice, choice), discount, first_order)


class Traced(NamedTuple):
    """The same of a belief with one successor per action, where nothing has a table of two states by two (see `roots`)."""

    mean: FlatMean
    rows: DirichletRows

    def values(self, reward: Float[Array, "S A"], policy: Actions, discount: float) -> Values:
        """Values of the policy in the mean MDP with any reward."""
        return flat_values(self.mean, reward, policy, discount)

    def evaluate(self, policy: Actions, discount: float, first_order: bool) -> tuple[Values, Float[Array, "S A"]]:
        """Mean values and the variance of Q."""
        root, v, local, actions = self._local(policy, discount, first_order)
        average = Values(v, self.mean.r + discount * self.mean.expect(v))
        ahead = root.rows_squared(root.sums(local), self._every_row())
        common = 2.0 * root.again() * local  # what the action has in common with what follows, where it is the policy's
        choice = jax.nn.one_hot(policy, actions.shape[1], dtype=actions.dtype)
        return average, actions + discount**2 * ahead + common[:, None] * choice

    def prospect(self, start: int, policy: Actions, discount: float, first_order: bool) -> Prospect:
        """Of the policy at one state."""
        root, v, local, actions = self._local(policy, discount, first_order)
        return Prospect(v[start], root.row(start), local, actions)

    def _every_row(self) -> Rows:
        return Rows(self.mean.successors[:, :, 0], self.mean.weights[:, :, 0], self.mean.share)

    def _local(
        self, policy: Actions, discount: float, first_order: bool
    ) -> tuple[Root, Float[Array, " S"], Float[Array, " S"], Float[Array, "S A"]]:
        """G, the mean values, and what every state and every action adds to their variance."""
        every, scale = self._every_row(), 1.0 / (self.rows.total + 1.0)
        own, own_scale = every.taken(policy), bellman.policy_average(scale, policy)
        root = root_of(own, discount)
        v = root.times(bellman.policy_average(self.mean.r, policy))
        known = jnp.einsum("saa->sa", self.rows.known((v, v), discount))
        start = bellman.policy_average(known, policy)
        if first_order:
            return root, v, start, known

        def trace(local: Float[Array, " S"], rows: Rows, scale: Float[Array, "*n"]) -> Float[Array, "*n"]:
            """tr(Sigma C), with C = G diag(l) G^T."""
            sums = root.sums(local)
            variance = root.squared(sums)
            expected = rows.weight * variance[rows.successor] + rows.share * jnp.sum(variance)
            return scale * (expected - root.rows_squared(sums, rows))

        local, (_, converged) = iterate(start, lambda local: discount**2 * trace(local, own, own_scale))
        more = discount**2 * trace(local, every, scale)
        return root, v, jnp.where(converged, local, start), jnp.where(converged, known + more, known)


ByMoments = Known | Traced
PlanningModel = Dense | Flat | Single | ByMoments


def solver_of(mean: FlatMean, policy: Actions, discount: float) -> MeanSolver:
    """The mean's Bellman equation under a policy."""
    successor, weight = (bellman.policy_rows(x, policy)[:, 0] for x in (mean.successors, mean.weights))
    return mean_solver(successor, weight, bellman.policy_average(mean.share, policy), discount)


def flat_values(mean: FlatMean, reward: Float[Array, "S A"], policy: Actions, discount: float) -> Values:
    """Values of the policy in the mean MDP with any reward."""
    v = solver_of(mean, policy, discount).solve(bellman.policy_average(reward, policy)[None])[0]
    return Values(v, reward + discount * mean.expect(v))


def sampled_values(samples: MDP, mean: FlatMean, policy: Actions, discount: float) -> Values:
    """Values of the policy in every sample of the posterior whose mean this is."""
    p, r = jnp.asarray(samples.p), jnp.asarray(samples.r)
    rows = jnp.take_along_axis(p, policy[None, :, None, None], axis=2)[:, :, 0]
    rewards = jnp.take_along_axis(r, policy[None, :, None], axis=2)[:, :, 0]
    v = member_solve(solver_of(mean, policy, discount), rows, rewards, discount).v
    return Values(v, r + discount * jnp.einsum("nsat,nt->nsa", p, v))


def flat_moments(mean: FlatMean, values: Values) -> RowMoments:
    """Mean and variance of the next value under the mean MDP, for a deterministic policy; the V form is not needed."""
    shift = 0.5 * (jnp.max(values.v) + jnp.min(values.v))
    x = values.v - shift
    first, second = mean.expect(x), mean.expect(x**2)
    none = jnp.full_like(x, jnp.nan)
    return RowMoments(none, none, first + shift, jnp.maximum(second - first**2, 0.0))
