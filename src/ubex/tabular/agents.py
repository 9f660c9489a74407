"""Tabular agents: a posterior over MDPs that grows with data, and a way to act on it.

The optimistic agents sample N MDPs and improve mean + gain * standard deviation; PSRL samples one MDP and is greedy in it.
All use the Dirichlet/Normal posterior of the paper with an added terminal state (appendix, "Model learning").
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ubex import checks, estimators, fields
from ubex.closed_form import DirichletRows
from ubex.estimators import ESTIMATORS
from ubex.fields import OneOf, Within
from ubex.keys import named
from ubex.tabular import beb, ucbvi
from ubex.tabular.belief import Belief, FlatMean, LearnedBelief, mean_model, reward_posterior, sample_transitions, total_mass
from ubex.tabular.models import ByMoments, Dense, Flat, Known, PlanningModel, Single, Traced
from ubex.tabular.planner import MAX_IMPROVEMENTS, Optimism, Plan, policy_iteration
from ubex.tabular.start import plan_for_start
from ubex.types import MDP, AgentEntry, InputError, Key

PSRL, BEB, UCBVI = OTHERS = ("psrl", "beb", "ucbvi")
"""Agents that have no estimator of a variance: posterior sampling, and two from elsewhere to compare with."""
PLANNED = tuple(name for name, estimator in ESTIMATORS.items() if estimator.closed != "integral")
"""Estimators that agents plan with; integrals take too long to be made for every plan."""
METHODS = (*PLANNED, *OTHERS)
EVERYWHERE, START = PLANNERS = ("policy-iteration", "start")
"""Planners: optimistic at every state at once, or at the state in which episodes begin."""
EPISODE, DOUBLED = OCCASIONS = ("episode", "doubled")
"""When plans are made: before every episode alone, or also whenever what is known of a row has doubled."""
RANDOM, LAST = FIRST_POLICIES = ("random", "last")
"""What planning begins with: a policy drawn at random, or the plan of the episode before."""
SMALLEST, LARGEST = 1e-9, 1e12
"""Of masses and precisions: beyond them sums lose all digits."""
Weight = Annotated[float, Within(SMALLEST, LARGEST)]


AGENTS: Mapping[str, AgentEntry] = MappingProxyType(
    {name: AgentEntry(f"optimistic by {name}: mean + gain * sqrt(variance)") for name in PLANNED if name != "ensemble-mean"}
    | {"ensemble-mean": AgentEntry("greedy in the mean MDP: no exploration")}
    | {PSRL: AgentEntry("posterior sampling: greedy in one sampled MDP")}
    | {BEB: AgentEntry("Kolter and Ng, 2009: greedy in the mean MDP with a bonus of gain / (1 + visits and prior mass)")}
    | {UCBVI: AgentEntry("Azar et al., 2017: value iteration with a bonus of gain / ((1 - discount) sqrt(visits))")}
)


@dataclass(frozen=True)
class AgentConfig:
    """Settings of a tabular agent; the defaults are the paper's."""

    method: str = "exact-ube"
    """An estimator, by its name or as module:name, or psrl, beb or ucbvi."""
    num_models: int = 5
    """N, samples of the posterior; PSRL always takes one."""
    gain: Annotated[float, Within(0.0)] = 1.0
    """lambda, how much a standard deviation is worth; for beb and ucbvi, the size of their bonus."""
    discount: Annotated[float, Within(0.0, 1.0)] = 0.99
    """Discount factor of planning, below 1: plans have no end, and without discounting such values need not exist."""
    u_min: Annotated[float, Within(-math.inf)] = 0.0
    """Smallest uncertainty reward that is propagated; -inf switches the clip off."""
    clip_sum: bool = True
    """Clip Var[r] + discount^2 u (the published runs) instead of u alone (the text)."""
    planner: Annotated[str, OneOf(PLANNERS)] = EVERYWHERE
    """`policy-iteration` improves the optimistic value of every state (the paper); `start` that of the first state alone."""
    plan_when: Annotated[str, OneOf(OCCASIONS)] = EPISODE
    """`episode` plans before every episode (the paper); `doubled` also within one, when the mass of a row, its prior and its
    visits, has doubled since the last plan (as Jaksch et al., 2010, do without a prior). Long episodes need it."""
    plan_from: Annotated[str, OneOf(FIRST_POLICIES)] = RANDOM
    """What planning begins with: a `random` policy (the published runs), or the `last` plan, which needs fewer improvements."""
    max_improvements: Annotated[int, Within(1, 10_000)] = MAX_IMPROVEMENTS
    """Most improvements of the policy per plan. What is known of a far goal moves up one step per improvement, so long ways
    need more. The policies so far are kept, 4 bytes per state and improvement. ucbvi has no such limit: its value iteration
    runs until it converges."""
    ties: Annotated[str, OneOf(("first", "random"))] = "first"
    """`first` maximiser (the published runs) or `random` (the text); it made no difference on DeepSea."""
    repeats: Annotated[int, Within(1)] = 1
    """How often each observed transition counts."""
    prior_mass: Weight | None = None
    """Sum of the Dirichlet parameters of a row before any data, in visits; None is the published rule, (S + 1) / sqrt(S)."""
    reward_precision: Weight = 1.0
    """Prior precision of a reward; its prior mean is 0."""
    noise_precision: Weight = 1e6
    """Precision of an observed reward: nearly noise-free, as in the published runs."""

    def __post_init__(self) -> None:
        """Refuses settings that make no sense."""
        fields.check(self)
        if self.discount == 1.0:
            raise InputError("discount must be in [0, 1), but it is 1: agents plan without an end, so take 0.999, for example")
        estimators.method(self.method, METHODS)
        needed = 1 if self.method in OTHERS else estimators.find(self.method).min_models
        checks.whole("num_models", self.num_models, needed)
        if self.optimism().estimator.closed == "integral":
            raise InputError("integral is for calls such as ubex.value_variance: agents plan with closed-form")
        if self.planner == START and self.optimism().estimator.closed is None:
            raise InputError(f"planner {START!r} needs the method closed-form or first-order, but the method is {self.method}")
        if self.planner == START and self.plan_when == DOUBLED:
            raise InputError(f"planner {START!r} plans for where episodes begin, so plan_when must be {EPISODE!r} with it")

    def optimism(self) -> Optimism:
        """What the planner needs; without an estimator there is no optimism in it."""
        name = "ensemble-mean" if self.method in OTHERS else self.method
        gain = 0.0 if name == "ensemble-mean" else self.gain
        ties, most = self.ties == "random", self.max_improvements
        return Optimism(estimators.find(name), gain, self.discount, self.u_min, self.clip_sum, ties, most)

    def learned(self, belief: Belief) -> LearnedBelief:
        """The belief as a posterior over MDPs."""
        return LearnedBelief.of(belief, self.prior_mass, self.reward_precision, self.noise_precision)


def plan_key(key: Key, number: Int[Array, ""] | int) -> Key:
    """Of a plan of an episode, whose plans are numbered from 0, and whose first one has the key of the episode itself."""
    key = named(key, "plan")
    return jnp.where(number == 0, key, jax.random.fold_in(key, number))


def no_plan(belief: Belief) -> Int[Array, "*k S"]:
    """What stands for the last plan before there is one."""
    return jnp.full(belief.rewards.shape[:-1], -1, jnp.int32)


def update(
    config: AgentConfig, key: Key, belief: Belief, start: int | None = None, last: Int[Array, " S"] | None = None
) -> Plan:
    """A policy for the next episode, which begins in `start`: samples the posterior and plans, from a random policy or the
    last one."""
    if config.method == UCBVI:
        return ucbvi.plan(belief, config.gain, config.discount)
    reward, deviation = reward_posterior(belief, config.reward_precision, config.noise_precision)
    how, mean = config.optimism(), mean_model(belief, reward, config.prior_mass)
    if config.method == BEB:
        mean = beb.with_bonus(mean, total_mass(belief, config.prior_mass), config.gain)
    num_states, num_actions = reward.shape
    first: Int[Array, " S"] = jax.random.randint(named(key, "policy"), (num_states,), 0, num_actions, jnp.int32)
    if config.plan_from == LAST and last is not None:
        first = jnp.where(last < 0, first, last)
    model = planning_model(config, key, belief, mean, deviation)
    if config.planner == START:
        assert start is not None, "checked where the agent meets its environment"
        assert isinstance(model, ByMoments), "checked in the settings"
        return plan_for_start(how, model, start, first)
    return policy_iteration(how, named(key, "ties"), model, first)


def planning_model(
    config: AgentConfig, key: Key, belief: Belief, mean: FlatMean, deviation: Float[Array, "S A"]
) -> PlanningModel:
    """What an update plans in: one sample for PSRL, N samples and the mean for optimism, moments for the closed form."""
    psrl, one_successor = config.method == PSRL, belief.counts.shape[-1] == 1
    if config.optimism().estimator.closed is not None:
        rows = DirichletRows(mean, total_mass(belief, config.prior_mass), deviation**2)
        return Traced(mean, rows) if one_successor else Known(mean, rows)
    num_models = 1 if psrl else config.num_models
    if psrl or config.optimism().gain > 0.0:
        p = sample_transitions(named(key, "transitions"), belief, num_models, config.prior_mass)
        noise = jax.random.normal(named(key, "rewards"), (num_models, *deviation.shape), deviation.dtype)
        samples = MDP(p, mean.r[None] + deviation[None] * noise)
    else:
        samples = MDP(jnp.zeros((0, *deviation.shape, deviation.shape[0])), jnp.zeros((0, *deviation.shape)))
    if psrl and not one_successor:
        return Dense(samples, MDP(jnp.asarray(samples.p)[0], jnp.asarray(samples.r)[0]))
    if psrl:
        return Single(samples, mean)
    return Flat(samples, mean) if one_successor else Dense(samples, mean.dense())
