"""Models that the planner plans in: sampled MDPs and their mean, and the fastest exact way to evaluate a policy in each.

`Dense` takes any MDPs and factorises. `Flat` is for the belief of an agent in a deterministic environment (see `solvers`).
`Single` is for PSRL, whose model is one sample without uncertainty. `Known` has no samples: the closed form needs none.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ubex.closed_form import DirichletRows, Local, local_uncertainty, variances
from ubex.tabular import bellman
from ubex.tabular.belief import FlatMean
from ubex.tabular.bellman import RowMoments, Values
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


class Known(NamedTuple):
    """The posterior by its moments, for the closed form: nothing is sampled."""

    mean: FlatMean
    rows: DirichletRows

    def root(self, policy: Actions, discount: float) -> Float[Array, "S S"]:
        """(I - discount Pbar)^-1 under the policy."""
        unit = jnp.eye(self.mean.r.shape[0], dtype=self.mean.r.dtype)
        if self.mean.weights.shape[-1] == 1:
            return solver_of(self.mean, policy, discount).solve(unit).T
        inverse: Float[Array, "S S"] = jnp.linalg.inv(unit - discount * bellman.policy_rows(self.mean.p, policy))
        return inverse

    def values(self, reward: Float[Array, "S A"], policy: Actions, discount: float) -> Values:
        """Values of the policy in the mean MDP with any reward."""
        if self.mean.weights.shape[-1] == 1:
            return flat_values(self.mean, reward, policy, discount)
        return bellman.solve(MDP(self.mean.p, reward), policy, discount)

    def evaluate(self, policy: Actions, discount: float, first_order: bool) -> tuple[Values, Float[Array, "S A"]]:
        """Mean values and the variance of Q."""
        root, v, local = self.local(policy, discount, first_order)
        average = Values(v, self.mean.r + discount * self.mean.expect(v))
        return average, variances(self.rows, root, local, discount)[1]

    def local(
        self, policy: Actions, discount: float, first_order: bool
    ) -> tuple[Float[Array, "S S"], Float[Array, " S"], Local]:
        """`root`, the mean values, and what every state and action adds to their variance."""
        root, choice = self.root(policy, discount), jax.nn.one_hot(policy, self.mean.r.shape[1], dtype=self.mean.r.dtype)
        v = root @ bellman.policy_average(self.mean.r, policy)
        return root, v, local_uncertainty(self.rows, (root, root), (v, v), (choice, choice), discount, first_order)


PlanningModel = Dense | Flat | Single | Known


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
