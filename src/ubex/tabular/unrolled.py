"""Values, variances and covariances over a finite number of steps, by backward induction over the time h.

Unrolled in time, every (state, time) is visited at most once: nothing has to be solved for, and discount 1 is no special case.
The closed form takes the rows at different times for independent draws of the posterior: p_h and r_h are drawn anew at each
step. The paper's assumptions then hold by construction and the answer is exact, for that posterior; one unknown p that is
met again later is another question (docs/equations.md). The sampled estimators follow the paper's u to the letter: member i
keeps its p_i at all times, and u at h takes V_i and the mean values at h + 1.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ubex import closed_form as form
from ubex.closed_form import Pair, Rows
from ubex.estimators import Estimator
from ubex.tabular import bellman, uncertainty
from ubex.tabular.bellman import Equation, Policy, Scalar, Values
from ubex.tabular.uncertainty import Uncertainty
from ubex.types import MDP

Steps = int | Int[Array, ""]


class Joint(NamedTuple):
    """Two policies with the same number of steps to go: their values, and how these vary together."""

    first: Float[Array, " S"]
    """Mean values under the first policy."""
    second: Float[Array, " S"]
    covariance: Float[Array, "S S"]
    """Cov[V_first(s), V_second(t)]."""


class Step(NamedTuple):
    """One step of the closed form; the fields by action are for one policy paired with itself."""

    now: Joint
    q: Float[Array, "S A"]
    """Mean action values under the first policy."""
    local: Float[Array, "S A"]
    """What the step itself adds to the variance of Q."""
    variance: Float[Array, "S A"]
    """Var[Q]."""


def closed_form(
    rows: Rows, rewards: Float[Array, "S A"], policies: Pair, discount: Scalar, horizon: Steps, first_order: bool
) -> Step:
    """C_h = diag(l_h) + discount^2 Pbar_a C_{h+1} Pbar_b^T from C_horizon = 0, with fresh rows at every step.

    l_h = Cov[r + discount p m_{h+1}] + discount^2 tr(Sigma C_{h+1}): nothing refers to itself, so there is no fixed point.
    To first order the trace is left out. Two policies share the unknown rows of each step.
    """
    num_states = rewards.shape[0]
    nothing = jnp.zeros(num_states, rewards.dtype)
    last = Joint(nothing, nothing, jnp.zeros((num_states, num_states), rewards.dtype))

    def step(_: Steps, after: Joint) -> Joint:
        return closed_form_step(rows, rewards, policies, discount, after, first_order).now

    second = jax.lax.fori_loop(0, horizon - 1, step, last)
    return closed_form_step(rows, rewards, policies, discount, second, first_order)


def closed_form_step(
    rows: Rows, rewards: Float[Array, "S A"], policies: Pair, discount: Scalar, after: Joint, first_order: bool
) -> Step:
    """The closed form at h from that at h + 1."""
    a, b = policies
    ones = jnp.ones(rewards.shape[0], rewards.dtype)
    roots = (after.covariance, jnp.eye(rewards.shape[0], dtype=rewards.dtype))  # C = C diag(1) I^T, as `Rows` takes it
    known = rows.known((after.first, after.second), discount)
    if not first_order:
        known = known + discount**2 * rows.trace(roots)(ones)
    moved = rows.mean.times(after.covariance)
    through_a = jnp.einsum("sa,sat->st", a, moved)
    through = jnp.einsum("sa,sat->st", b, rows.mean.times(through_a.T)).T
    local = jnp.einsum("saa->sa", known)
    covariance = jnp.diag(jnp.einsum("sa,sab,sb->s", a, known, b)) + discount**2 * through
    q_a, q_b = (rewards + discount * rows.mean.expect(v) for v in (after.first, after.second))
    means = (jnp.sum(a * q_a, axis=1), jnp.sum(b * q_b, axis=1))
    variance = local + discount**2 * (form.row_products(rows.mean, roots) @ ones)
    return Step(Joint(*means, covariance), q_a, local, variance)


class AheadOf(NamedTuple):
    """Policy a and how far it is ahead of policy b, with the same number of steps to go."""

    v: Float[Array, " S"]
    above: Float[Array, " S"]
    """Mean values of a minus those of b."""
    covariance: form.Apart


def difference(
    rows: Rows, rewards: Float[Array, "S A"], policies: Pair, discount: Scalar, horizon: Steps, first_order: bool
) -> AheadOf:
    """V_a - V_b at h: (a - b) of what follows under a, and b of how far a is ahead at h + 1. Fresh rows at every step."""
    a, b = policies
    num_states = rewards.shape[0]
    unit = jnp.eye(num_states, dtype=rewards.dtype)
    ones, nothing = jnp.ones(num_states, rewards.dtype), jnp.zeros((num_states, num_states), rewards.dtype)
    p_a, p_b, p_change = (jnp.einsum("sa,sat->st", weight, rows.mean.times(unit)) for weight in (a, b, a - b))

    def step(_: Steps, after: AheadOf) -> AheadOf:
        own, cross, apart = after.covariance
        known = form.known_apart(rows, (after.v, after.above), discount)
        if not first_order:
            traces = form.Apart(*(rows.trace((later, unit))(ones) for later in after.covariance))
            known = form.plus(known, traces, discount)
        local = form.averaged_apart(known, policies)
        mixed = p_change @ cross @ p_b.T
        through = form.Apart(
            p_a @ own @ p_a.T,
            p_a @ (own @ p_change.T + cross @ p_b.T),
            p_change @ own @ p_change.T + mixed + mixed.T + p_b @ apart @ p_b.T,
        )
        q = rewards + discount * rows.mean.expect(after.v)
        above = jnp.sum((a - b) * q, axis=1) + discount * p_b @ after.above
        covariance = form.plus(form.Apart(*map(jnp.diag, local)), through, discount)
        return AheadOf(jnp.sum(a * q, axis=1), above, covariance)

    last = AheadOf(nothing[0], nothing[0], form.Apart(nothing, nothing, nothing))
    found: AheadOf = jax.lax.fori_loop(0, horizon, step, last)
    return found


def values(mdp: MDP, policy: Policy, discount: Scalar, horizon: Steps) -> Values:
    """Values of a policy over `horizon` steps in one MDP or, with a leading axis, in each of N."""
    start = jnp.zeros_like(jnp.asarray(mdp.r))

    def step(_: Steps, after: Values) -> Values:
        return back(mdp, after, policy, discount)

    found: Values = jax.lax.fori_loop(0, horizon, step, Values(start[..., 0], start))
    return found


def gap(first: Equation, second: Equation, horizon: Steps) -> Float[Array, "*n S 1"]:
    """Values over `horizon` steps of the policy with the first equation minus those with the second."""

    def step(_: Steps, after: tuple[Array, Array]) -> tuple[Array, Array]:
        v, above = after
        return second[1] + v - second[0] @ v, bellman.gap_side(first, second, v) + above - first[0] @ above

    nothing = jnp.zeros_like(first[1])
    above: Array = jax.lax.fori_loop(0, horizon, step, (nothing, nothing))[1]
    return above


def back(mdp: MDP, after: Values, policy: Policy, discount: Scalar) -> Values:
    """Values with one more step to go."""
    p, r = jnp.asarray(mdp.p), jnp.asarray(mdp.r)
    if p.ndim == 4:
        return jax.vmap(lambda p, r, after: back(MDP(p, r), after, policy, discount))(p, r, after)
    q = bellman.backup(MDP(p, r), after.v, discount)
    return Values(bellman.policy_average(q, policy), q)


class Unrolling(NamedTuple):
    """What the sampled estimators carry from h + 1 to h."""

    mean: Values
    members: Values
    v: Float[Array, " S"]
    """Variance in the V form."""
    q: Float[Array, "S A"]
    """Variance in the Q form."""
    local_v: Float[Array, " S"]
    local_q: Float[Array, "S A"]
    clipped: Float[Array, ""]
    """The largest share of states and actions at a step whose u was below `u_min`."""


def estimate(
    estimator: Estimator,
    samples: MDP,
    mean: MDP,
    policy: Policy,
    discount: Scalar,
    horizon: Steps,
    *,
    u_min: Scalar = 0.0,
    ddof: int = 0,
) -> Uncertainty:
    """Variance of V and Q over `horizon` steps, under a posterior that is given by samples and its mean MDP.

    U_h = Var[r] + discount^2 (max(u_h, u_min) + Pbar U_{h+1}) from U_horizon = 0, in the V and the Q form.
    """
    if estimator.direct is not None:
        members = values(samples, policy, discount, horizon) if estimator.own_values else unknown(samples)
        return uncertainty.direct(estimator, members, values(mean, policy, discount, horizon), ddof)
    p_bar, rewards = jnp.asarray(mean.p), jnp.asarray(samples.r)
    nothing = jnp.zeros_like(jnp.asarray(mean.r))
    members = Values(jnp.zeros_like(rewards)[..., 0], jnp.zeros_like(rewards)) if estimator.own_values else unknown(samples)
    state = nothing[:, 0]
    last = Unrolling(Values(state, nothing), members, state, nothing, state, nothing, jnp.zeros((), nothing.dtype))

    def step(_: Steps, after: Unrolling) -> Unrolling:
        going = samples
        if estimator.centred:  # members are differences from the mean values then
            change = bellman.changes(samples, p_bar, after.mean, policy)
            going = MDP(samples.p, bellman.gap_rewards(samples, mean, change, discount))
            moments = bellman.centred_next_values(samples, after.members, change, p_bar, after.mean, policy)
        else:
            moments = bellman.next_values(samples, after.members, p_bar, after.mean, policy, estimator.needs_chi_square)
        local = functools.partial(uncertainty.local_rewards, estimator, moments, rewards, policy, discount, ddof=ddof)
        v, q = local(u_min=u_min)
        clipped = uncertainty.clipped_share(local(u_min=-jnp.inf)[1], q, after.mean.v)
        through = bellman.policy_average(bellman.backup(MDP(p_bar, nothing), after.v, discount**2), policy)
        after_q = bellman.policy_average(after.q, policy)
        return Unrolling(
            mean=back(mean, after.mean, policy, discount),
            members=back(going, after.members, policy, discount) if estimator.own_values else after.members,
            v=v + through,
            q=bellman.backup(MDP(p_bar, q), after_q, discount**2),
            local_v=v,
            local_q=q,
            clipped=jnp.maximum(after.clipped, clipped),
        )

    done = jax.lax.fori_loop(0, horizon, step, last)
    return Uncertainty(done.v, done.q, done.mean, done.local_v, done.local_q, done.clipped)


def unknown(samples: MDP) -> Values:
    """NaN in place of values that an estimator says it does not look at, so that a false claim shows."""
    q = jnp.full_like(jnp.asarray(samples.r), jnp.nan)
    return Values(v=q[..., 0], q=q)
