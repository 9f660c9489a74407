"""Optimistic policy iteration: argmax over policies of mean + gain * sqrt(variance) (eq. policy_opt), tabular.

Every improvement evaluates the policy in the mean MDP and in the members, estimates the variance of Q by any estimator, and
takes the greedy action of the optimistic Q. Where it cycles, the policy of the last allowed step is read off the cycle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ubex import ube
from ubex.estimators import Estimator
from ubex.tabular import similar
from ubex.tabular.bellman import Values
from ubex.tabular.models import ByMoments, Dense, Flat, PlanningModel, Single
from ubex.tabular.similar import Similar
from ubex.types import Key

MAX_IMPROVEMENTS = 40
"""Most improvements that one update makes in the published runs."""

Evaluation = Callable[[Int[Array, " S"]], Float[Array, "S A"]]
"""Policy -> the values whose greedy actions improve it."""


class Optimism(NamedTuple):
    """What the optimistic value is made of; hashable, so that it can be compiled in."""

    estimator: Estimator
    gain: float
    discount: float
    u_min: float
    clip_sum: bool
    """Clip Var[r] + discount^2 u, as in the published runs, instead of u alone, as in the text."""
    random_ties: bool
    """Break ties at random, as in the text, instead of taking the first action, as in the published runs."""
    max_improvements: int = MAX_IMPROVEMENTS
    """Most improvements that one update may make."""


class Plan(NamedTuple):
    """The policy that policy iteration ends with, and how it got there."""

    policy: Int[Array, " S"]
    steps: Int[Array, ""]
    """Improvements that were computed."""
    converged: Bool[Array, ""]
    """Whether an improvement changed nothing; otherwise it cycled or ran out of steps."""


def optimistic_values(how: Optimism, model: PlanningModel | Similar, policy: Int[Array, " S"]) -> Float[Array, "S A"]:
    """Mean Q plus gain times the standard deviation of Q, for a deterministic policy."""
    if isinstance(model, Single) or (how.gain == 0.0 and not isinstance(model, ByMoments)):
        return model.average(policy, how.discount).q
    mean, deviation = q_moments(how, model, policy)
    return mean + how.gain * deviation


def q_moments(
    how: Optimism, model: Dense | Similar | Flat | ByMoments, policy: Int[Array, " S"]
) -> tuple[Float[Array, "S A"], Float[Array, "S A"]]:
    """Mean and standard deviation of Q, for a deterministic policy; a negative variance counts as 0."""
    if isinstance(model, ByMoments):
        average, variance = model.evaluate(policy, how.discount, how.estimator.closed == "first-order")
    else:
        average = model.average(policy, how.discount)
        variance = q_variance(how, model, model.members(policy, how.discount), average, policy)
    return average.q, jnp.sqrt(jnp.maximum(variance, 0.0))


def q_variance(
    how: Optimism, model: Dense | Similar | Flat, members: Values, average: Values, policy: Int[Array, " S"]
) -> Float[Array, "S A"]:
    """Variance of Q by the estimator, in the Q form alone; the compiler drops the members' values where nobody looks."""
    if how.estimator.direct is not None:
        return how.estimator.direct(members.q, 0)
    local = how.estimator.local
    assert local is not None, "the closed form has a model of its own"
    u = local(model.moments(members, average, policy, how.estimator.needs_chi_square), 0)
    reward_variance = ube.member_variance(jnp.asarray(model.samples.r))
    if how.clip_sum:
        reward = ube.clip(ube.uncertainty_reward(u, reward_variance, how.discount), how.u_min)
    else:
        reward = ube.uncertainty_reward(ube.clip(u, how.u_min), reward_variance, how.discount)
    return model.propagate(reward, policy, how.discount**2)


def policy_iteration(how: Optimism, key: Key, model: PlanningModel, first: Int[Array, " S"]) -> Plan:
    """Improves the first policy by its optimistic values.

    Once few states change their action in a step, the equations of that policy may be inverted for all steps that follow. It
    pays where the samples' own values are needed: there are many equations, and many steps.
    """

    def values(model: PlanningModel | Similar) -> Evaluation:
        return lambda policy: optimistic_values(how, model, policy)

    own_values = how.gain != 0.0 and how.estimator.own_values
    if not isinstance(model, Dense) or not own_values or not similar.is_quicker(model):
        return iterate(values(model), key, first, how.random_ties, how.max_improvements)
    early = improve(values(model), key, begin(first, how.max_improvements), how.random_ties, few_changes)
    propagates = how.estimator.local is not None
    near = similar.similar_to(model, early.history[early.step], how.discount, goes_on(early), propagates)
    return plan_of(improve(values(near), key, early, how.random_ties))


def iterate(
    values: Evaluation, key: Key, first: Int[Array, " S"], random_ties: bool, max_improvements: int = MAX_IMPROVEMENTS
) -> Plan:
    """Improves the first policy until it stays, cycles, or `max_improvements` are made."""
    return plan_of(improve(values, key, begin(first, max_improvements), random_ties))


class Progress(NamedTuple):
    """Where policy iteration is."""

    step: Int[Array, ""]
    history: Int[Array, "T S"]
    """All policies so far, with a row for the first one and one per improvement that may be made."""
    seen_at: Int[Array, ""]
    """When the last policy was seen before; -1 if it was not."""

    @property
    def most(self) -> int:
        """Most improvements that may be made."""
        return len(self.history) - 1


def begin(first: Int[Array, " S"], max_improvements: int) -> Progress:
    """Before the first step."""
    history = jnp.full((max_improvements + 1, first.shape[0]), -1, jnp.int32).at[0].set(first)
    return Progress(jnp.asarray(0, jnp.int32), history, jnp.asarray(-1, jnp.int32))


def goes_on(progress: Progress) -> Bool[Array, ""]:
    """Whether there are more steps to make."""
    return (progress.step < progress.most) & (progress.seen_at < 0)


def few_changes(progress: Progress) -> Bool[Array, ""]:
    """Whether the last step changed the actions of few states."""
    step, history, _ = progress
    return (step > 0) & similar.is_near(history[step], history[step - 1])


def improve(
    values: Evaluation,
    key: Key,
    progress: Progress,
    random_ties: bool,
    until: Callable[[Progress], Bool[Array, ""]] | None = None,
) -> Progress:
    """Makes steps until there are none to make, or until it is told to stop.

    Policy number t + 1 depends on policy number t alone (ties are broken by one draw for the whole update), so a policy seen
    before means a cycle, and the last one that is allowed can be read off it.
    """

    def improved(policy: Int[Array, " S"]) -> Int[Array, " S"]:
        value = values(policy)
        if random_ties:
            noise = jax.random.uniform(key, value.shape, value.dtype)
            value = jnp.where(value == jnp.max(value, axis=1, keepdims=True), noise, -1.0)
        return jnp.argmax(value, axis=1).astype(jnp.int32)

    def go_on(progress: Progress) -> Bool[Array, ""]:
        return goes_on(progress) if until is None else goes_on(progress) & ~until(progress)

    def body(progress: Progress) -> Progress:
        step, history, _ = progress
        policy = improved(history[step])
        same = jnp.all(history == policy[None], axis=1) & (jnp.arange(len(history), dtype=jnp.int32) <= step)
        seen_at = jnp.where(jnp.any(same), jnp.argmax(same), -1).astype(jnp.int32)
        return Progress(step + 1, history.at[step + 1].set(policy), seen_at)

    return jax.lax.while_loop(go_on, body, progress)


def plan_of(progress: Progress) -> Plan:
    """The policy of the last step that is allowed, which was made or is read off a cycle."""
    step, history, seen_at = progress
    length = jnp.maximum(step - seen_at, 1)
    last = jnp.where(seen_at < 0, step, seen_at + (progress.most - seen_at) % length)
    return Plan(policy=history[last], steps=step, converged=(seen_at >= 0) & (length == 1))
