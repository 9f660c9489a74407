"""Planning for the start: a policy whose mean + gain * standard deviation is large at the state in which episodes begin.

Policy iteration raises the optimistic value of every state at once. No theorem says that it succeeds: a standard deviation is
no sum of rewards, so what is best at one state need not be at another. Here one number counts,

    J = m(s0) + gain * sd(s0),   sd(s0)^2 = sum over t of G(s0,t)^2 l(t),

with G and l of `ubex.closed_form`. With l frozen and x(t) = G(s0,t), sd is the length of the vector x sigma, sigma^2 = l, and a
length is the largest of its projections: sd = max over |y| <= 1 of y . (x sigma). The best y of a policy is x sigma / sd. With
it the bonus gain * y(t) sigma(t,a) is an ordinary reward. The best policy of that MDP has at least the same J: its own best y
can only add to that. Since l depends on the policy too, J is evaluated anew, and a policy that lowers it is not taken.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ubex.tabular import bellman
from ubex.tabular.models import ByMoments
from ubex.tabular.planner import Optimism, Plan

SMALL = 1e-10
"""Gains below this, relative to the largest value, are rounding."""
MAX_BACKUPS = 100
"""Most improvements of plain policy iteration, which needs a handful."""
SINGLE_CHANGES = 8
"""States that are tried one by one where changing all of them at once lowers J."""


class Outlook(NamedTuple):
    """What a policy promises at the start."""

    value: Float[Array, ""]
    """J."""
    visits: Float[Array, " S"]
    """x(t) = G(s0,t): discounted visits in the mean MDP."""
    bonus: Float[Array, "S A"]
    """gain * y(t) sigma(t,a)."""


def outlook(how: Optimism, model: ByMoments, start: int, policy: Int[Array, " S"]) -> Outlook:
    """Evaluates a deterministic policy at the start."""
    seen = model.prospect(start, policy, how.discount, how.estimator.closed == "first-order")
    lengths = seen.visits * jnp.sqrt(jnp.maximum(seen.local, 0.0))
    deviation = jnp.sqrt(jnp.sum(lengths**2))
    direction = jnp.where(deviation > 0.0, lengths / jnp.where(deviation > 0.0, deviation, 1.0), 0.0)
    bonus = how.gain * direction[:, None] * jnp.sqrt(jnp.maximum(seen.local_actions, 0.0))
    return Outlook(seen.value + how.gain * deviation, seen.visits, bonus)


def best_policy(
    how: Optimism, model: ByMoments, reward: Float[Array, "S A"], first: Int[Array, " S"]
) -> tuple[Int[Array, " S"], Float[Array, " S"]]:
    """The best policy of the mean MDP with this reward, by policy iteration, and what each change adds to the first one's Q."""
    State = tuple[Int[Array, ""], Int[Array, " S"], Float[Array, " S"], Bool[Array, ""]]

    def improve(state: State) -> State:
        number, policy, gains, _ = state
        q = model.values(reward, policy, how.discount).q
        now = bellman.policy_average(q, policy)
        better = jnp.argmax(q, axis=1).astype(jnp.int32)
        more = jnp.max(q, axis=1) - now
        changes = more > SMALL * jnp.max(jnp.abs(now))  # actions that nobody takes may cost anything
        return number + 1, jnp.where(changes, better, policy), jnp.where(number == 0, more, gains), jnp.any(changes)

    def go_on(state: State) -> Bool[Array, ""]:
        return (state[0] < MAX_BACKUPS) & state[3]

    start = (jnp.asarray(0, jnp.int32), first, jnp.zeros(first.shape, reward.dtype), jnp.asarray(True))
    _, policy, gains, _ = jax.lax.while_loop(go_on, improve, start)
    return policy, gains


def improved(
    how: Optimism, model: ByMoments, start: int, policy: Int[Array, " S"], here: Outlook
) -> tuple[Int[Array, " S"], Outlook, Bool[Array, ""]]:
    """A policy with a larger J than this one, whose outlook is `here`; or this one, and False."""
    target, gains = best_policy(how, model, model.mean.r + here.bonus, policy)
    order = jnp.argsort(-jnp.where(target != policy, here.visits * gains, -jnp.inf))
    Trial = tuple[Int[Array, ""], Int[Array, " S"], Outlook]

    def rises(there: Outlook) -> Bool[Array, ""]:
        return there.value > here.value + SMALL * jnp.abs(here.value)

    def another(trial: Trial) -> Trial:
        number, place = trial[0], order[trial[0] - 1]
        chosen = jnp.where(number == 0, target, policy.at[place].set(target[place]))
        return number + 1, chosen, outlook(how, model, start, chosen)

    def go_on(trial: Trial) -> Bool[Array, ""]:
        return (trial[0] <= jnp.minimum(SINGLE_CHANGES, jnp.sum(target != policy, dtype=jnp.int32))) & ~rises(trial[2])

    _, found, there = jax.lax.while_loop(go_on, another, (jnp.asarray(0, jnp.int32), policy, here))
    better = rises(there)
    after, seen = jax.tree.map(lambda new, old: jnp.where(better, new, old), (found, there), (policy, here))
    return after, seen, better


def plan_for_start(how: Optimism, model: ByMoments, start: int, first: Int[Array, " S"]) -> Plan:
    """Improves the first policy until J does not rise any more."""
    State = tuple[Int[Array, ""], Int[Array, " S"], Outlook, Bool[Array, ""]]

    def go_on(state: State) -> Bool[Array, ""]:
        return (state[0] < how.max_improvements) & state[3]

    def improve(state: State) -> State:
        return state[0] + 1, *improved(how, model, start, *state[1:3])

    begin = (jnp.asarray(0, jnp.int32), first, outlook(how, model, start, first), jnp.asarray(True))
    steps, policy, _, rising = jax.lax.while_loop(go_on, improve, begin)
    return Plan(policy, steps, ~rising)
