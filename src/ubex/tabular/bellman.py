"""Exact Bellman mathematics for finite MDPs: values by linear algebra, and the moments of next values.

A policy is an array of probabilities (S, A), or of actions (S,) with an integer type; the second kind never multiplies by a
one-hot matrix but gathers rows. Everything here is unbatched unless it says N, pure, and as precise as its input.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Num

from ubex.types import MDP, NextValues

Policy = Float[Array, "S A"] | Int[Array, " S"]
Scalar = float | Float[Array, ""]
Equation = tuple[Float[Array, "*n S S"], Float[Array, "*n S 1"]]
"""A matrix and a right-hand side, of one MDP or of each of N."""


class Values(NamedTuple):
    """State and action values of one MDP, or of N on a leading axis."""

    v: Float[Array, "*n S"]
    q: Float[Array, "*n S A"]


def is_deterministic(policy: Policy) -> bool:
    """Whether the policy is given as actions rather than probabilities (decided by its type, never by its content)."""
    return policy.ndim == 1


def policy_average(x: Float[Array, "S A"], policy: Policy) -> Float[Array, " S"]:
    """Average of x(s, a) over the policy's actions."""
    if is_deterministic(policy):
        return jnp.take_along_axis(x, policy[:, None], axis=1)[:, 0]
    return jnp.sum(policy * x, axis=1)


def policy_rows(p: Num[Array, "S A T"], policy: Policy) -> Num[Array, "S T"]:
    """Transition matrix of the Markov chain that the policy makes: sum over a of pi(a|s) p(s'|s,a)."""
    if is_deterministic(policy):
        return jnp.take_along_axis(p, policy[:, None, None], axis=1)[:, 0]
    return jnp.sum(policy[:, :, None] * p, axis=1)


def system(
    p: Float[Array, "S A S"], policy: Policy, discount: Scalar, terminal: Bool[Array, " S"] | None = None
) -> Float[Array, "S S"]:
    """Matrix I - discount * P_pi of the Bellman equation.

    `terminal` marks states whose value is known to be 0: their columns drop out, which is what makes discount 1 solvable.
    """
    rows = policy_rows(p, policy)
    if terminal is not None:
        rows = jnp.where(terminal[None, :], 0.0, rows)
    return jnp.eye(rows.shape[0], dtype=rows.dtype) - discount * rows


def backup(mdp: MDP, v: Float[Array, " S"], discount: Scalar) -> Float[Array, "S A"]:
    """One Bellman backup: r(s,a) + discount * sum over s' of p(s'|s,a) v(s')."""
    return jnp.asarray(mdp.r) + discount * (jnp.asarray(mdp.p) @ v)


def equation(mdp: MDP, policy: Policy, discount: Scalar, terminal: Bool[Array, " S"] | None = None) -> Equation:
    """Matrix and right-hand side of the Bellman equation of one MDP or, with a leading axis, of each of N."""
    p, r = jnp.asarray(mdp.p), jnp.asarray(mdp.r)
    if p.ndim == 4:
        return jax.vmap(lambda p, r: equation(MDP(p, r), policy, discount, terminal))(p, r)
    return system(p, policy, discount, terminal), policy_average(r, policy)[:, None]


def gap_side(first: Equation, second: Equation, v: Float[Array, "*n S 1"]) -> Float[Array, "*n S 1"]:
    """Right-hand side of the equation with the first matrix for the values of one policy minus v, those of another."""
    return first[1] - second[1] - (first[0] - second[0]) @ v


def with_actions(mdp: MDP, v: Float[Array, "*n S 1"], discount: Scalar) -> Values:
    """State values (a column, as solvers return it) together with the action values that follow from them."""
    p, r = jnp.asarray(mdp.p), jnp.asarray(mdp.r)
    if p.ndim == 4:
        return jax.vmap(lambda p, r, v: with_actions(MDP(p, r), v, discount))(p, r, v)
    return Values(v=v[:, 0], q=backup(MDP(p, r), v[:, 0], discount))


def solve(mdp: MDP, policy: Policy, discount: Scalar, terminal: Bool[Array, " S"] | None = None) -> Values:
    """Values of a policy in one MDP or, with a leading axis, in each of N (eq. bellman_expectation, exactly).

    One S x S solve per member, for stochastic and deterministic policies alike; action values follow by one backup.
    """
    return with_actions(mdp, jnp.linalg.solve(*equation(mdp, policy, discount, terminal)), discount)


def mean_mdp(chunks: Iterable[MDP]) -> MDP:
    """Mean over the members of all chunks (eq. mean_model, with the ensemble as the posterior).

    Deviations from the first member are averaged, so identical members give that very member. Chunks are taken one by one.
    """
    first, total, number = MDP(0.0, 0.0), MDP(0.0, 0.0), 0
    for chunk in chunks:
        if number:
            total = add_deviations(total, chunk, first)
        else:
            first, total = first_deviations(chunk)
        number += jnp.asarray(chunk.r).shape[0]
        del chunk  # before the next one is made
    assert number, "there is at least one chunk"
    mean: MDP = plus(first, divided(total, number))
    return mean


@jax.jit
def first_deviations(chunk: MDP) -> tuple[MDP, MDP]:
    """The first member of a chunk, and the sum of the deviations from it."""
    first = MDP(jnp.asarray(chunk.p)[0], jnp.asarray(chunk.r)[0])
    return first, deviations(chunk, first)


def deviations(chunk: MDP, first: MDP) -> MDP:
    """Sum over a chunk of the deviations from the first member."""
    p, r = (jnp.sum(jnp.asarray(x) - jnp.asarray(start)[None], axis=0) for x, start in zip(chunk, first, strict=True))
    return MDP(p, r)


@jax.jit
def divided(total: MDP, number: int | Int[Array, ""]) -> MDP:
    """Both arrays divided by a number."""
    return MDP(jnp.asarray(total.p) / number, jnp.asarray(total.r) / number)


@jax.jit
def plus(first: MDP, change: MDP) -> MDP:
    """Both arrays added; not in one program with the division, which would round once where there are two roundings."""
    return MDP(jnp.asarray(first.p) + jnp.asarray(change.p), jnp.asarray(first.r) + jnp.asarray(change.r))


@functools.partial(jax.jit, donate_argnums=0)
def add_deviations(total: MDP, chunk: MDP, first: MDP) -> MDP:
    """`deviations`, added to those of earlier chunks in place."""
    p, r = (jnp.asarray(x) + jnp.asarray(change) for x, change in zip(total, deviations(chunk, first), strict=True))
    return MDP(p, r)


class Moments(NamedTuple):
    """Next-value moments in both forms of the equation."""

    v: NextValues
    """Of V(s') with a ~ pi(.|s) and s' ~ p(.|s,a): trailing shape S (Theorems 1 and 2)."""
    q: NextValues
    """Of Q(s', a') with s' ~ p(.|s,a) and a' ~ pi(.|s'): trailing shape S A (appendix B)."""


def next_values(
    samples: MDP, members: Values, p_bar: Float[Array, "S A S"], mean: Values, policy: Policy, needs_chi_square: bool = True
) -> Moments:
    """Everything that the paper's local uncertainties are made of, exactly, from samples of the posterior and its mean.

    Without `needs_chi_square` the chi-square sums, which alone cost a pass over arrays of the size of the samples, are NaN.
    """
    moments = member_moments(samples, members, row_moments(p_bar, mean, policy), mean, policy)
    if not needs_chi_square:
        return moments
    p = jnp.asarray(samples.p)
    rows, rows_bar = jax.vmap(policy_rows, in_axes=(0, None))(p, policy), policy_rows(p_bar, policy)
    chi_v = jax.vmap(chi_square, in_axes=(0, None))(rows, rows_bar)
    chi_q = jax.vmap(chi_square, in_axes=(0, None))(p, p_bar)
    return Moments(moments.v._replace(chi_square=chi_v), moments.q._replace(chi_square=chi_q))


def member_moments(samples: MDP, members: Values, total: RowMoments, mean: Values, policy: Policy) -> Moments:
    """`next_values` without the chi-square sums, from samples and from the moments of the mean values under the mean MDP."""

    def one(p: Float[Array, "S A S"], own: Values) -> tuple[RowMoments, RowMoments, RowMoments]:
        gap = Values(own.v - mean.v, own.q - mean.q)
        return row_moments(p, mean, policy), row_moments(p, own, policy), row_moments(p, gap, policy)

    bar, member, gap = jax.vmap(one)(jnp.asarray(samples.p), members)
    chi_v, chi_q = jnp.full_like(bar.mean_v, jnp.nan), jnp.full_like(bar.mean_q, jnp.nan)
    bound_v, bound_q = jnp.max(jnp.abs(members.v)), jnp.max(jnp.abs(members.q))
    return Moments(
        v=NextValues(bar.mean_v, bar.var_v, member.var_v, gap.var_v, total.var_v, chi_v, bound_v),
        q=NextValues(bar.mean_q, bar.var_q, member.var_q, gap.var_q, total.var_q, chi_q, bound_q),
    )


class RowMoments(NamedTuple):
    """Mean and variance of next values under one transition function and a policy, in both forms."""

    mean_v: Float[Array, " S"]
    var_v: Float[Array, " S"]
    mean_q: Float[Array, "S A"]
    var_q: Float[Array, "S A"]


def row_moments(p: Float[Array, "S A S"], values: Values, policy: Policy) -> RowMoments:
    """Mean and variance of the next value under every row of p, and under the policy's mixture of rows.

    Matrix-vector products only: no array of the size of p is made. Values are shifted by the middle of their range first,
    so that a large common offset costs no digits; what rounding leaves below zero is cut off, variances being non-negative.
    """
    shift = 0.5 * (jnp.max(values.v) + jnp.min(values.v))
    x = values.v - shift
    columns = [x, x**2]
    if not is_deterministic(policy):
        columns.append(policy_average((values.q - values.v[:, None]) ** 2, policy))
    first, second, *spread = jnp.moveaxis(p @ jnp.stack(columns, axis=1), -1, 0)
    inner = spread[0] if spread else jnp.zeros_like(first)
    first_v, second_v = policy_average(first, policy), policy_average(second, policy)
    return RowMoments(
        mean_v=first_v + shift,
        var_v=jnp.maximum(second_v - first_v**2, 0.0),
        mean_q=first + shift,
        var_q=jnp.maximum(second - first**2, 0.0) + inner,
    )


class MeanSums(NamedTuple):
    """Of the mean values about that of each row's likeliest next state, summed over all the other next states."""

    first: Float[Array, "*n S A"]
    second: Float[Array, "*n S A"]
    spread: Float[Array, "*n S A"]
    """Of the variance over the policy's actions."""


class Centred(NamedTuple):
    """Every row's likeliest next state under the mean MDP, and the mean values; all sums are about that state.

    Its own probability multiplies nothing then: what is summed, and its rounding, is as small as the chance of all others.
    """

    likeliest: Int[Array, "S A"]
    others: Bool[Array, "S A S"]
    x: Float[Array, " S"]
    """Mean state values minus the middle of their range."""
    spread: Float[Array, " S"]
    """Variance of the mean action values over the policy's actions."""
    advantage: Float[Array, "S A"]
    policy: Policy

    def sums(self, p: Float[Array, "S A S"]) -> MeanSums:
        """Of the mean values under p, or under how much one p differs from another."""
        columns = jnp.stack([jnp.ones_like(self.x), self.x, self.x**2, self.spread], axis=1)
        mass, x, square, spread = jnp.moveaxis(jnp.where(self.others, p, 0.0) @ columns, -1, 0)
        at = self.x[self.likeliest]
        return MeanSums(x - at * mass, square - at * (2.0 * x - at * mass), spread - self.spread[self.likeliest] * mass)

    def rises(self, p: Float[Array, "S A S"], gap: Values, first: Float[Array, "S A"]) -> tuple[Array, Array]:
        """Var[own value] - Var[mean value] = Cov[gap, 2 mean value + gap] under p, in V and in Q form."""
        y = 2.0 * self.x + gap.v
        extra = policy_average((gap.q - gap.v[:, None]) * (2.0 * self.advantage + gap.q - gap.v[:, None]), self.policy)
        columns = jnp.stack([jnp.ones_like(y), gap.v, y, gap.v * y, extra], axis=1)
        mass, g, y_sum, product, spread = jnp.moveaxis(jnp.where(self.others, p, 0.0) @ columns, -1, 0)
        at_g, at_y, at_extra = (column[self.likeliest] for column in (gap.v, y, extra))
        mean_g = g - at_g * mass
        rise = product - at_g * y_sum - at_y * mean_g - mean_g * (y_sum - at_y * mass)
        g_apart = self._apart(at_g + mean_g)
        x_apart = self._apart(self.x[self.likeliest] + first)
        rise_v = policy_average(rise + g_apart * (2.0 * x_apart + g_apart), self.policy)
        return rise_v, rise + at_extra + spread - at_extra * mass

    def drops(self, bar: Float[Array, "S A"], change: MeanSums) -> tuple[Array, Array]:
        """Var under the mean MDP - Var under p of the mean value, in V and in Q form."""
        drop = change.first * (2.0 * bar + change.first) - change.second
        apart, bar_apart = self._apart(change.first), self._apart(self.x[self.likeliest] + bar)
        drop_v = policy_average(drop - apart * (2.0 * bar_apart + apart), self.policy)
        return drop_v, drop - change.spread

    def _apart(self, x: Float[Array, "S A"]) -> Float[Array, "S A"]:
        """Every action's x minus the policy's average of it."""
        return x - policy_average(x, self.policy)[:, None]


def centred(p_bar: Float[Array, "S A S"], mean: Values, policy: Policy) -> Centred:
    """What centring needs to know of the mean MDP."""
    likeliest = jnp.argmax(p_bar, axis=-1)
    advantage = mean.q - mean.v[:, None]
    return Centred(
        likeliest=likeliest,
        others=jnp.arange(p_bar.shape[-1])[None, None] != likeliest[..., None],
        x=mean.v - 0.5 * (jnp.max(mean.v) + jnp.min(mean.v)),
        spread=policy_average(advantage**2, policy),
        advantage=advantage,
        policy=policy,
    )


def changes(samples: MDP, p_bar: Float[Array, "S A S"], mean: Values, policy: Policy) -> MeanSums:
    """What is different under every sample's p and under the mean one."""
    known = centred(p_bar, mean, policy)
    found: MeanSums = jax.lax.map(lambda p: known.sums(p - p_bar), jnp.asarray(samples.p))
    return found


def gap_rewards(samples: MDP, mean: MDP, change: MeanSums, discount: Scalar) -> Float[Array, "N S A"]:
    """Rewards whose values are the samples' own minus those of the mean MDP, without what both have in common.

    V_i - V = (r_i - r) + discount (p_i - p) V + discount p_i (V_i - V).
    """
    return jnp.asarray(samples.r) - jnp.asarray(mean.r)[None] + discount * change.first


def centred_next_values(
    samples: MDP, gaps: Values, change: MeanSums, p_bar: Float[Array, "S A S"], mean: Values, policy: Policy
) -> Moments:
    """`next_values` for an estimator with `centred`, from the values of `gap_rewards`; what it does not look at is NaN."""
    known = centred(p_bar, mean, policy)
    bar = known.sums(p_bar).first
    drop_v, drop_q = jax.vmap(lambda change: known.drops(bar, change))(change)
    members = (jnp.asarray(samples.p), gaps, change.first)
    rise_v, rise_q = jax.lax.map(lambda member: known.rises(member[0], member[1], bar + member[2]), members)
    bar_v = jax.vmap(policy_average, in_axes=(0, None))(change.first, policy)

    def moments(mean_bar: Float[Array, "N *sa"], drop: Float[Array, "N *sa"], rise: Float[Array, "N *sa"]) -> NextValues:
        none = jnp.full_like(mean_bar, jnp.nan)
        return NextValues(mean_bar, none, none, none, none[0], none, jnp.asarray(jnp.nan, none.dtype), drop, rise)

    return Moments(moments(bar_v, drop_v, rise_v), moments(change.first, drop_q, rise_q))


def chi_square(p: Float[Array, "*sa T"], p_bar: Float[Array, "*sa T"]) -> Float[Array, "*sa"]:
    """Sum over next states of (p - p_bar)^2 / p_bar, where a next state of probability 0 adds nothing."""
    possible = p_bar > 0
    return jnp.sum(jnp.where(possible, (p - p_bar) ** 2 / jnp.where(possible, p_bar, 1.0), 0.0), axis=-1)


def merge(parts: Sequence[Moments]) -> Moments:
    """The moments of one ensemble whose members were handled in parts."""
    if len(parts) == 1:
        return parts[0]

    def joined(parts: Sequence[NextValues]) -> NextValues:
        members = {
            field: jnp.concatenate([getattr(part, field) for part in parts])
            for field in ("mean_bar", "var_bar", "var_member", "var_gap", "chi_square", "drop", "rise")
            if getattr(parts[0], field) is not None
        }
        bound = jnp.max(jnp.stack([part.value_bound for part in parts]))
        return NextValues(total=parts[0].total, value_bound=bound, **members)

    return Moments(v=joined([part.v for part in parts]), q=joined([part.q for part in parts]))
