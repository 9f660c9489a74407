"""Tabular agents: a posterior over MDPs that grows with data, and a way to act on it.

The optimistic agents sample N MDPs and improve mean + gain * standard deviation; PSRL samples one MDP and is greedy in it.
All use the Dirichlet/Normal posterior of the paper with an added terminal state (appendix, "Model learning").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ubex import checks
from ubex.envs.base import Trajectory
from ubex.estimators import ESTIMATORS
from ubex.keys import named
from ubex.tabular.planner import Optimism, Plan, policy_iteration
from ubex.tabular.sampling import sample_dirichlet, sample_flat_dirichlet
from ubex.types import MDP, Key

PSRL = "psrl"
METHODS = (*ESTIMATORS, PSRL)


@dataclass(frozen=True)
class AgentConfig:
    """Settings of a tabular agent; the defaults are the paper's."""

    method: str = "exact-ube"
    """An estimator, or psrl."""
    num_models: int = 5
    """N, samples of the posterior; PSRL always takes one."""
    gain: float = 1.0
    """lambda, how much a standard deviation is worth."""
    discount: float = 0.99
    """Discount factor of planning."""
    u_min: float = 0.0
    """Smallest uncertainty reward that is propagated; -inf switches the clip off."""
    clip_sum: bool = True
    """Clip Var[r] + discount^2 u (the published runs) instead of u alone (the text)."""
    ties: str = "first"
    """`first` maximiser (the published runs) or `random` (the text); it made no difference on DeepSea."""
    repeats: int = 1
    """How often each observed transition counts."""
    reward_precision: float = 1.0
    """Prior precision of a reward; its prior mean is 0."""
    noise_precision: float = 1e6
    """Precision of an observed reward: nearly noise-free, as in the published runs."""

    def __post_init__(self) -> None:
        """Refuses settings that make no sense."""
        checks.one_of("method", self.method, METHODS)
        needed = 1 if self.method == PSRL else ESTIMATORS[self.method].min_models
        checks.whole("num_models", self.num_models, needed)
        checks.real("gain", self.gain, 0.0)
        checks.real("discount", self.discount, 0.0, 1.0)
        checks.one_of("ties", self.ties, ("first", "random"))
        checks.whole("repeats", self.repeats, 1)

    def optimism(self) -> Optimism:
        """What the planner needs; PSRL is no optimism at all."""
        name = "ensemble-mean" if self.method == PSRL else self.method
        gain = 0.0 if name == "ensemble-mean" else self.gain
        return Optimism(ESTIMATORS[name], gain, self.discount, self.u_min, self.clip_sum, self.ties == "random")


class Belief(NamedTuple):
    """The posterior as sufficient statistics; the last state is terminal, absorbing and without reward, known for certain.

    The prior is flat, so it takes no table: Dirichlet(1/sqrt(S)) rows over the environment's S states and the terminal one.
    """

    counts: Float[Array, "S A S"]
    """Observed transitions."""
    rewards: Float[Array, "S A"]
    """Sum of the observed rewards."""

    @property
    def concentration(self) -> float:
        """Parameter of the flat Dirichlet prior; S is the number of the environment's own states."""
        return float((self.counts.shape[0] - 1) ** -0.5)


def prior(num_states: int, num_actions: int) -> Belief:
    """The belief before any data."""
    shape = (num_states + 1, num_actions)
    return Belief(jnp.zeros((*shape, num_states + 1), jnp.float64), jnp.zeros(shape, jnp.float64))


def observe(config: AgentConfig, belief: Belief, seen: Trajectory) -> Belief:
    """The belief after an episode."""
    weight = jnp.where(seen.valid, float(config.repeats), 0.0).astype(belief.counts.dtype)
    place = (seen.state, seen.action)
    return Belief(
        counts=belief.counts.at[(*place, seen.next_state)].add(weight),
        rewards=belief.rewards.at[place].add(weight * seen.reward.astype(weight.dtype)),
    )


def with_terminal(p: Float[Array, "*n S A S"]) -> Float[Array, "*n S A S"]:
    """Transitions whose last state is absorbing for certain."""
    absorbing = jnp.zeros(p.shape[-1], p.dtype).at[-1].set(1.0)
    return p.at[..., -1, :, :].set(absorbing)


def mean_transitions(belief: Belief) -> Float[Array, "S A S"]:
    """Posterior-mean transition probabilities."""
    alpha = belief.counts + belief.concentration
    return with_terminal(alpha / jnp.sum(alpha, axis=-1, keepdims=True))


def sample_transitions(key: Key, belief: Belief, num_models: int, branching: int | None) -> Float[Array, "N S A S"]:
    """Posterior samples; fast where it is known how many next states an action can lead to."""
    if branching is None:
        return with_terminal(sample_dirichlet(key, belief.counts + belief.concentration, num_models))
    num_states, num_actions, _ = belief.counts.shape
    visited = num_states * num_actions * min(branching, num_states)
    return with_terminal(sample_flat_dirichlet(key, belief.concentration, belief.counts, num_models, visited))


def reward_posterior(config: AgentConfig, belief: Belief) -> tuple[Float[Array, "S A"], Float[Array, "S A"]]:
    """Mean and standard deviation of the rewards; those of the terminal state are known to be 0."""
    precision = config.reward_precision + config.noise_precision * jnp.sum(belief.counts, axis=-1)
    known = (jnp.arange(precision.shape[0]) == precision.shape[0] - 1)[:, None]
    mean = config.noise_precision * belief.rewards / precision
    return jnp.where(known, 0.0, mean), jnp.where(known, 0.0, precision**-0.5)


def update(config: AgentConfig, key: Key, belief: Belief, branching: int | None = None) -> Plan:
    """A policy for the next episode: samples the posterior and plans, from a random deterministic policy."""
    psrl = config.method == PSRL
    num_models = 1 if psrl else config.num_models
    mean_reward, deviation = reward_posterior(config, belief)
    if psrl or config.optimism().gain > 0.0:
        p = sample_transitions(named(key, "transitions"), belief, num_models, branching)
        noise = jax.random.normal(named(key, "rewards"), (num_models, *mean_reward.shape), mean_reward.dtype)
        samples = MDP(p, mean_reward[None] + deviation[None] * noise)
    else:
        samples = MDP(mean_transitions(belief)[None], mean_reward[None])
    mean = MDP(jnp.asarray(samples.p)[0], jnp.asarray(samples.r)[0]) if psrl else MDP(mean_transitions(belief), mean_reward)
    num_states, num_actions = mean_reward.shape
    first: Int[Array, " S"] = jax.random.randint(named(key, "policy"), (num_states,), 0, num_actions, jnp.int32)
    return policy_iteration(config.optimism(), named(key, "ties"), samples, mean, first)
