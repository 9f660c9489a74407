"""The covariance of values across states, and how sure one policy is better than another: by the closed form or by members.

Nothing is sampled by the closed form where the posterior is one of ours; of any other it takes the moments of samples.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from numpy.typing import ArrayLike

from ubex import checks, returns
from ubex import closed_form as form
from ubex.calls import doubts
from ubex.calls.answers import PolicyDifference, ValueCovariance, ValueVariance
from ubex.calls.members import ArrayOrHost, ensemble, gap, values_in
from ubex.calls.source import FROM_MEMBERS, Source, common_offset, default_for, policy_in, posterior_of, raised, resolve
from ubex.closed_form import DirichletRows, Local, Rows, SampledRows, Table
from ubex.estimators.base import Closed
from ubex.precision import float64
from ubex.returns import OwnReturns
from ubex.tabular import unrolled
from ubex.tabular.posterior import INSTEAD, TabularPosterior
from ubex.tabular.terminal import reaching, terminal_states
from ubex.tabular.unrolled import Step
from ubex.types import MDP, InputError, KeyLike, Posterior

COVARIANCES = ("closed-form", "first-order", "ensemble-var")
"""Estimators that know how the values of two states, or of two policies, depend on each other."""
ONE_POLICY, TWO_POLICIES = (4, 8), (6, 22)
"""Arrays (S, A, S) and (S, S) that a call by exact moments holds at its peak; measured for 1, 4 and 8 actions."""

ROUNDED = 64.0
"""How many times the precision of a number rounding may leave in a difference of values."""


class Side(NamedTuple):
    """One policy in the mean MDP."""

    policy: Float[Array, "S A"]
    rows: Float[Array, "S S"]
    """Its transition matrix, without what enters a terminal state at discount 1."""
    root: Float[Array, "S S"]
    v: Float[Array, " S"]


class Problem(NamedTuple):
    """A posterior by its moments."""

    source: MDP | Posterior
    mean: MDP
    """Without the offset."""
    offset: float
    """What all rewards have in common."""
    rows: Rows
    members: MDP
    """Members in which discount 1 has to end: the samples, or the mean alone, with infinite rewards where they are unknown."""


@float64
def value_covariance(
    source: Source,
    policy: ArrayLike,
    discount: float,
    *,
    estimator: str | None = None,
    key: KeyLike | None = None,
    num_models: int = 1000,
    ddof: int = 0,
    horizon: int | None = None,
) -> ValueCovariance:
    """Posterior covariance of the values of a policy across states.

    Args:
        source: a `DirichletNormal` posterior or the belief of an agent (exact moments, no key), another posterior, or samples
            as for `value_variance`.
        policy: probabilities (S, A), or one action for each state (S,) as integers. It may leave out the terminal state of a
            posterior that has one.
        discount: in [0, 1].
        estimator: "closed-form", "first-order", which leaves out its part of second order, or "ensemble-var", the covariance
            over the members' own values. By default as in `value_variance`. The closed form takes the rows of different
            states for independent, also those of samples, and is far too small where they are not.
        key: for a posterior that is sampled, the key of its samples.
        num_models: for a posterior that is sampled, the number of samples.
        ddof: with samples, moments divide by N - ddof.
        horizon: number of steps that the values count, at discount 1 too; without it they never end. The closed form then
            takes every step's rows for fresh draws of the posterior, and is exact for these.

    Warns:
        UbexWarning: where the closed form does not converge, and where data are too few for it, as far as it can tell.

    Example:
        >>> value_covariance(ubex.DirichletNormal(3, 2, concentration=20.0), [0, 0, 0], 0.9).covariance.shape
        (3, 3)
    """
    known, discount, name, steps = asked(source, discount, estimator, horizon)
    if name == FROM_MEMBERS:
        members = ensemble(known, key, num_models, ddof, 2, f"estimator {name!r}")
        choice = jnp.asarray(members.policy(policy))
        terminal = members.terminal(choice, discount, steps)
        values = functools.partial(values_in, policy=choice, discount=discount, terminal=terminal, horizon=steps)
        off, mean = deviations(members.each(values), ddof), raised(values(members.mean), members.offset, discount, steps)
        return ValueCovariance(off.T @ off, np.asarray(mean), True, name)
    problem, first_order = moments(known, key, num_models, ddof), name == "first-order"
    level = functools.partial(raised, offset=problem.offset, discount=discount, horizon=steps)
    if steps is not None:
        now = unrolled_form(problem, (policy, policy), discount, steps, first_order).now
        return ValueCovariance(no_negative_variance(now.covariance), np.asarray(level(now.first)), True, name)
    side = solve(problem, policy, discount)
    closed: Closed = "first-order" if first_order else "full"
    local, _, _, own = evaluate(problem.rows, side, discount, closed)
    doubts.closed_form(name, closed, bool(local.converged), own)
    covariance = form.covariance((side.root, side.root), local.states)
    return ValueCovariance(no_negative_variance(covariance), np.asarray(level(side.v)), bool(local.converged), name)


def asked(
    source: Source, discount: float, estimator: str | None, horizon: int | None
) -> tuple[MDP | Posterior, float, str, int | None]:
    """What is looked at, the discount, the estimator and the number of steps, checked."""
    known = posterior_of(source)
    name = default_for(known, horizon) if estimator is None else checks.one_of("estimator", estimator, COVARIANCES)
    return known, checks.discount_factor(discount), name, None if horizon is None else checks.steps("horizon", horizon)


def deviations(values: Float[np.ndarray, "N S"], ddof: int) -> Float[np.ndarray, "N S"]:
    """From the mean of the members, such that products add up to covariances."""
    apart = values - values[:1]  # identical members give zeros
    found: np.ndarray = (apart - apart.mean(axis=0)) / np.sqrt(len(values) - ddof)
    return found


def no_negative_variance(covariance: Float[Array, "S S"]) -> Float[np.ndarray, "S S"]:
    """On the host, with a diagonal of at least 0: what is below is rounding."""
    found = np.array(covariance)
    np.fill_diagonal(found, np.maximum(np.diag(found), 0.0))
    return found


@float64
def policy_difference(
    source: Source,
    policy: ArrayLike,
    other: ArrayLike,
    discount: float,
    *,
    estimator: str | None = None,
    key: KeyLike | None = None,
    num_models: int = 1000,
    ddof: int = 0,
    horizon: int | None = None,
) -> PolicyDifference:
    """Mean and posterior variance of V(policy) - V(other) in every state.

    What both policies do in a state they do under the same unknown row, so much of the uncertainty cancels.
    Both are probabilities (S, A) or actions (S,); the other arguments are those of `value_covariance`, and so are the warnings.

    Example:
        >>> found = policy_difference(ubex.DirichletNormal(3, 2, concentration=20.0), [0, 0, 0], [1, 1, 1], 0.9)
        >>> found.mean.shape, found.variance.shape
        ((3,), (3,))
    """
    known, discount, name, steps = asked(source, discount, estimator, horizon)
    if name == FROM_MEMBERS:
        members = ensemble(known, key, num_models, ddof, 2, f"estimator {name!r}")
        both = (jnp.asarray(members.policy(policy)), jnp.asarray(members.policy(other)))
        terminals = tuple(members.terminal(one, discount, steps) for one in both)
        gaps = functools.partial(gap, policies=both, discount=discount, terminals=terminals, horizon=steps)
        apart = members.each(gaps)
        found = PolicyDifference(apart.mean(axis=0), (deviations(apart, ddof) ** 2).sum(axis=0), True, name)
        return where_they_part(members.mean, both, discount, steps, found)
    problem, first_order = moments(known, key, num_models, ddof, TWO_POLICIES), name == "first-order"
    (rows, unpaid), rewards = unknown_rewards(problem.rows), jnp.asarray(problem.mean.r)
    if steps is not None:
        choices = tuple(probabilities(problem, choice) for choice in (policy, other))

        def unrolled_between(rows: Rows, first_order: bool) -> tuple[Array, Array]:
            ahead = _unrolled_difference(rows, rewards, choices, discount, steps, first_order)
            return ahead.above, jnp.diag(ahead.covariance.apart)

        mean, variance = unrolled_between(rows, first_order)
        endless = None if unpaid is None else unrolled_between(unpaid, True)[1]
        converged, own = True, OwnReturns()
    else:
        sides = tuple(solve(problem, choice, discount) for choice in (policy, other))
        choices = (sides[0].policy, sides[1].policy)
        mean, variance, converged, own = _difference(rows, rewards, sides, discount, first_order)
        endless = None if unpaid is None else _difference(unpaid, rewards, sides, discount, True)[1]
    part = functools.partial(where_they_part, problem.mean, choices, discount, steps)
    found = part(PolicyDifference(np.asarray(mean), np.asarray(jnp.maximum(variance, 0.0)), bool(converged), name))
    if endless is not None:
        lost = np.sqrt(np.maximum(np.asarray(endless), 0.0)) > rounding_of(1.0, discount, steps, len(endless))
        found = found._replace(variance=np.where(lost, np.inf, found.variance))
    if found.variance.any():
        doubts.closed_form(name, "first-order" if first_order else "full", bool(converged), own)
    return found


def unknown_rewards(rows: Rows) -> tuple[Rows, DirichletRows | None]:
    """The rows without rewards whose variance is infinite, of which sums make no number, and rows of which these alone are not
    known, with a variance of 1: what is not 0 for those is infinite for all. None where there are none."""
    infinite = np.isinf(rows.reward_variance) if isinstance(rows, DirichletRows) else np.zeros(0, bool)
    if not infinite.any():
        return rows, None
    assert isinstance(rows, DirichletRows)
    alone = DirichletRows(rows.mean, jnp.full_like(rows.total, jnp.inf), jnp.asarray(infinite, rows.total.dtype))
    return rows._replace(reward_variance=jnp.where(infinite, 0.0, rows.reward_variance)), alone


def where_they_part(
    mean: MDP, policies: tuple[ArrayOrHost, ...], discount: float, horizon: int | None, found: PolicyDifference
) -> PolicyDifference:
    """The difference without what is mere rounding. It is 0 for certain in states from which the policies never part, and where
    neither its mean nor its deviation is larger than what rounding leaves of values of that size."""
    p, r = (np.asarray(array) for array in mean)
    first, second = (np.eye(r.shape[1])[choice] if choice.ndim == 1 else choice for choice in map(np.asarray, policies))
    edges = np.asarray(np.any((first > 0)[:, :, None] & (p > 0), axis=1))
    meets = reaching(edges, (first != second).any(axis=1))
    paid = np.abs(r).max(where=(first > 0) | (second > 0), initial=0.0)  # actions that neither takes may cost anything
    rounding = rounding_of(float(paid), discount, horizon, len(r))
    real = meets & (np.maximum(np.abs(found.mean), np.sqrt(found.variance)) > rounding)
    return found._replace(mean=np.where(real, found.mean, 0.0), variance=np.where(real, found.variance, 0.0))


def rounding_of(reward: float, discount: float, horizon: int | None, states: int) -> float:
    """What rounding may leave of a difference between values that such rewards add up to."""
    endless = 1.0 / (1.0 - discount) if discount < 1.0 else states if horizon is None else horizon
    return ROUNDED * float(np.finfo(float).eps) * reward * min(endless, horizon or np.inf)


def variance(
    problem: Problem, policy: ArrayLike, discount: float, horizon: int | None, closed: Closed
) -> tuple[ValueVariance, bool, OwnReturns]:
    """The answer of `value_variance` by the closed form, whether the fixed point was reached, and `returns.own_returns`."""
    level = functools.partial(raised, offset=problem.offset, discount=discount, horizon=horizon)
    if horizon is not None:
        step = unrolled_form(problem, (policy, policy), discount, horizon, closed == "first-order")
        fields = (jnp.diag(step.now.covariance), step.variance, level(step.now.first), level(step.q), step.local)
        converged, own = True, OwnReturns()
    else:
        side = solve(problem, policy, discount)
        local, v, q, own = evaluate(problem.rows, side, discount, closed)
        q_mean = jnp.asarray(np.asarray(problem.mean.r) + discount * np.asarray(problem.rows.mean.expect(side.v)))
        fields, converged = (v, q, level(side.v), level(q_mean), local.actions), bool(local.converged)
    arrays = [np.asarray(field) for field in fields]
    arrays[:2] = (np.maximum(array, 0.0) for array in arrays[:2])  # what is below is rounding
    return ValueVariance._make([*arrays, "", None]), converged, own


def unrolled_form(
    problem: Problem, policies: tuple[ArrayLike, ArrayLike], discount: float, horizon: int, first_order: bool
) -> Step:
    """The closed form of two policies, or of one with itself, over a number of steps."""
    horizon = checks.steps("horizon", horizon)
    choices = tuple(probabilities(problem, policy) for policy in policies)
    (rows, unpaid), rewards = unknown_rewards(problem.rows), jnp.asarray(problem.mean.r)
    step: Step = _unrolled(rows, rewards, choices, discount, horizon, first_order)
    if unpaid is None:
        return step
    alone: Step = _unrolled(unpaid, rewards, choices, discount, horizon, True)
    covariance, local, variance = (
        jnp.where(counts > 0.0, jnp.inf, array)
        for counts, array in (
            (alone.now.covariance, step.now.covariance),
            (alone.local, step.local),
            (alone.variance, step.variance),
        )
    )
    return Step(step.now._replace(covariance=covariance), step.q, local, variance)


def moments(
    source: MDP | Posterior, key: KeyLike | None, num_models: int, ddof: int, arrays: tuple[int, int] = ONE_POLICY
) -> Problem:
    """The posterior by its moments: exact ones where it is ours, else those of samples."""
    if isinstance(source, TabularPosterior):
        copies = arrays[0] + arrays[1] / source.num_actions
        checks.fits("the closed form, with an array", source.transitions.alpha.shape, copies, INSTEAD)
        mean = MDP(*map(jnp.asarray, checks.mdp_arrays(source.mean())))
        total, variances = source.transitions.alpha.sum(axis=-1), np.array(source.rewards.variance())
        if source.terminal:
            variances[-1] = 0.0
        rows = DirichletRows(Table(jnp.asarray(mean.p)), jnp.asarray(total), jnp.asarray(variances))
        never_zero = np.where(variances > 0.0, np.inf, np.asarray(mean.r))  # a reward that is not known may be anything
        return Problem(source, *centred(mean), rows, MDP(np.asarray(mean.p)[None], never_zero[None]))
    p, r = resolve(source, key, num_models, ddof)
    mean, sampled = sample_moments(p, r, ddof)
    return Problem(source, *centred(mean), sampled, MDP(p, r))


def sample_moments(p: Float[ArrayOrHost, "N S A S"], r: Float[ArrayOrHost, "N S A"], ddof: int) -> tuple[MDP, SampledRows]:
    """The mean of samples, and how they vary about it; also of traced arrays."""
    scale = (p.shape[0] / (p.shape[0] - ddof)) ** 0.5
    centre, level = (x[0] + (x - x[:1]).mean(axis=0) for x in (p, r))  # identical members give that very member
    rows = SampledRows(
        Table(jnp.asarray(centre)), jnp.asarray(scale * (p - centre[None])), jnp.asarray(scale * (r - level[None])), scale
    )
    return MDP(jnp.asarray(centre), jnp.asarray(level)), rows


def centred(mean: MDP) -> tuple[MDP, float]:
    """The MDP without what all its rewards have in common, and that."""
    offset = common_offset(np.asarray(mean.r))
    return (MDP(mean.p, jnp.asarray(mean.r) - offset) if offset else mean), offset


def probabilities(problem: Problem, policy: ArrayLike) -> Float[Array, "S A"]:
    """The policy as probabilities."""
    num_states, num_actions = jnp.asarray(problem.mean.r).shape
    choice = policy_in(problem.source, policy, num_states, num_actions)
    return jnp.asarray(np.eye(num_actions)[choice] if choice.ndim == 1 else choice)


def solve(problem: Problem, policy: ArrayLike, discount: float) -> Side:
    """The policy in the mean MDP: the inverse of its Bellman equation, and its values."""
    choice, (p, r) = np.asarray(probabilities(problem, policy)), problem.members
    terminal = terminal_states(np.asarray(p), np.asarray(r), choice) if discount == 1.0 else None
    try:
        side = side_of(np, problem.mean, choice, discount, terminal)  # NumPy has nothing to compile
    except np.linalg.LinAlgError:
        raise InputError("discount 1 needs states that reach an end, but some do so too seldom to have a value") from None
    return Side(*map(jnp.asarray, side))


def side_of(library: ModuleType, mean: MDP, choice: ArrayOrHost, discount: form.Scalar, terminal: ArrayOrHost | None) -> Side:
    """`solve` for arrays of `numpy`, or of `jax.numpy`, which may be traced."""
    policy, p, r = (library.asarray(array) for array in (choice, *mean))
    rows = library.einsum("sa,sat->st", policy, p)
    if terminal is not None:
        rows = library.where(terminal[None, :], 0.0, rows)
    root = library.linalg.inv(library.eye(rows.shape[0], dtype=rows.dtype) - discount * rows)
    return Side(policy, rows, root, root @ library.sum(policy * r, axis=1))


@functools.partial(jax.jit, static_argnames="closed")
def evaluate(rows: Rows, side: Side, discount: form.Scalar, closed: Closed) -> tuple[Local, Array, Array, OwnReturns]:
    """What every step adds, both variances and `returns.own_returns`, as one program: the first parts need the product of the
    mean with the root, by far the largest, and it is made once."""
    if closed == "integral":
        local = returns.local_uncertainty(rows, side.root, side.v, side.policy, discount)
    else:
        pairs = ((side.root, side.root), (side.v, side.v), (side.policy, side.policy))
        local = form.local_uncertainty(rows, *pairs, discount, closed == "first-order")
    own = returns.own_returns(rows, side.root, side.v, local.states, side.policy, discount)
    return local, *form.variances(rows, side.root, local, discount), own


_unrolled = jax.jit(unrolled.closed_form, static_argnames="first_order")
_unrolled_difference = jax.jit(unrolled.difference, static_argnames="first_order")


@functools.partial(jax.jit, static_argnames="first_order")
def _difference(
    rows: Rows, rewards: Float[Array, "S A"], sides: tuple[Side, Side], discount: form.Scalar, first_order: bool
) -> tuple[Float[Array, " S"], Float[Array, " S"], Bool[Array, ""], OwnReturns]:
    """Mean and variance of V_a - V_b, whether the fixed point was reached, and how much rows change their own returns under
    either policy; no value is subtracted from another."""
    a, b = sides
    change = discount * (a.rows - b.rows)
    above = a.root @ (jnp.sum((a.policy - b.policy) * rewards, axis=1) + change @ b.v)
    pairs = ((a.v, above), (a.policy, b.policy))
    root_change = a.root @ change @ b.root
    found = form.difference(rows, (a.root, b.root), root_change, *pairs, discount, first_order)
    if first_order:
        return above, *found, OwnReturns()
    parts = form.difference_parts(rows, b.root, root_change, *pairs, discount)
    varies = jnp.maximum(*(returns.met_again(rows, side.root, side.policy, discount) for side in sides))
    lopsided = jnp.maximum(*(returns.lopsided_values(rows, side.root, side.v, side.policy, discount) for side in sides))
    return above, *found, OwnReturns(*returns.by_state(parts, varies), lopsided)
