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
from ubex.tabular.sampling import sample_dirichlet
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
    """The posterior as arrays; the last state is terminal, absorbing and without reward, and stays so."""

    alpha: Float[Array, "S A S"]
    visits: Float[Array, "S A"]
    """Reward observations."""
    total: Float[Array, "S A"]
    """Their sum."""


def prior(num_states: int, num_actions: int) -> Belief:
    """Dirichlet(1/sqrt(S)) rows over the environment's states and the terminal one, with S the number of the former."""
    concentration = num_states**-0.5
    alpha = jnp.full((num_states + 1, num_actions, num_states + 1), concentration, jnp.float64)
    absorbing = jnp.zeros(num_states + 1, jnp.float64).at[-1].set(1.0)
    nothing = jnp.zeros((num_states + 1, num_actions), jnp.float64)
    return Belief(alpha.at[-1].set(absorbing[None]), nothing, nothing)


def observe(config: AgentConfig, belief: Belief, seen: Trajectory) -> Belief:
    """The belief after an episode."""
    weight = jnp.where(seen.valid, float(config.repeats), 0.0).astype(belief.alpha.dtype)
    place = (seen.state, seen.action)
    return Belief(
        alpha=belief.alpha.at[(*place, seen.next_state)].add(weight),
        visits=belief.visits.at[place].add(weight),
        total=belief.total.at[place].add(weight * seen.reward.astype(weight.dtype)),
    )


def reward_posterior(config: AgentConfig, belief: Belief) -> tuple[Float[Array, "S A"], Float[Array, "S A"]]:
    """Mean and standard deviation of the rewards; those of the terminal state are known to be 0."""
    precision = config.reward_precision + config.noise_precision * belief.visits
    known = (jnp.arange(belief.visits.shape[0]) == belief.visits.shape[0] - 1)[:, None]
    mean = config.noise_precision * belief.total / precision
    return jnp.where(known, 0.0, mean), jnp.where(known, 0.0, precision**-0.5)


def update(config: AgentConfig, key: Key, belief: Belief) -> Plan:
    """A policy for the next episode: samples the posterior and plans, from a random deterministic policy."""
    psrl = config.method == PSRL
    num_models = 1 if psrl else config.num_models
    mean_reward, deviation = reward_posterior(config, belief)
    needs_samples = psrl or config.optimism().gain > 0.0
    mean = MDP(belief.alpha / jnp.sum(belief.alpha, axis=-1, keepdims=True), mean_reward)
    samples = MDP(jnp.asarray(mean.p)[None], mean_reward[None])
    if needs_samples:
        p = sample_dirichlet(named(key, "transitions"), belief.alpha, num_models)
        noise = jax.random.normal(named(key, "rewards"), (num_models, *mean_reward.shape), mean_reward.dtype)
        samples = MDP(p, mean_reward[None] + deviation[None] * noise)
    if psrl:
        mean = MDP(jnp.asarray(samples.p)[0], jnp.asarray(samples.r)[0])
    num_states, num_actions = mean_reward.shape
    first: Int[Array, " S"] = jax.random.randint(named(key, "policy"), (num_states,), 0, num_actions, jnp.int32)
    return policy_iteration(config.optimism(), named(key, "ties"), samples, mean, first)
