"""The belief of a tabular agent: the Dirichlet/Normal posterior as counts of what was seen, without any S x A x S table.

The prior is flat over the environment's S states and an added terminal one, which is absorbing and without reward, known for
certain (appendix, "Model learning"): Dirichlet(1/sqrt(S)) rows as published, or rows of another mass. So a mean row is a few
observed entries plus one number that all next states share. A table of the size of an MDP exists only once MDPs are sampled.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ubex.envs.base import Trajectory
from ubex.tabular.posterior import Dirichlet, DirichletNormal
from ubex.tabular.sampling import sample_flat_dirichlet
from ubex.types import MDP, Key


class Belief(NamedTuple):
    """Sufficient statistics; S counts the terminal state, the last one, and B is the most next states an action can have."""

    successors: Int[Array, "*k S A B"]
    """Next states that were seen, in the order in which they were; the terminal state in free places."""
    counts: Float[Array, "*k S A B"]
    """How often each was seen; 0 in free places, and NaN once an action had more than B next states."""
    rewards: Float[Array, "*k S A"]
    """Sum of the observed rewards."""

    def concentration(self, mass: float | None) -> float:
        """Each parameter of a row of the prior, whose sum is the mass; None is the published rule, 1/sqrt(S)."""
        places = self.counts.shape[-3]
        return float((places - 1) ** -0.5) if mass is None else mass / places

    def weight(self, mass: float | None) -> float:
        """The sum of a prior row's parameters: the mass, or what the published rule gives."""
        return self.counts.shape[-3] * self.concentration(None) if mass is None else mass


class LearnedBelief(Belief):
    """What an agent has learned, with its prior: a posterior over MDPs, which `ubex.value_variance` takes."""

    prior_mass: float | None
    reward_precision: float
    noise_precision: float

    @classmethod
    def of(cls, belief: Belief, prior_mass: float | None, reward_precision: float, noise_precision: float) -> LearnedBelief:
        """The belief of an agent with these settings."""
        learned = cls(*belief)
        learned.prior_mass, learned.reward_precision, learned.noise_precision = prior_mass, reward_precision, noise_precision
        return learned

    def _replace(self, **changes: Any) -> LearnedBelief:
        """The same belief, and the same prior, with other arrays."""
        return self.of(super()._replace(**changes), self.prior_mass, self.reward_precision, self.noise_precision)

    def posterior(self) -> DirichletNormal:
        """The same posterior with a table of the size of an MDP."""
        successors, counts, rewards = (np.asarray(array) for array in self)
        states, actions, _ = counts.shape
        settings = {"reward_precision": self.reward_precision, "noise_precision": self.noise_precision}
        prior = DirichletNormal(states - 1, actions, terminal=True, prior_mass=self.prior_mass, **settings)
        alpha, number = prior.transitions.alpha.copy(), counts.sum(axis=-1)
        np.add.at(alpha, (*(place[..., None] for place in np.indices((states, actions))), successors), counts)
        return prior.restored(Dirichlet(alpha), prior.rewards.observe(number, rewards, rewards))


jax.tree_util.register_pytree_node(  # the settings stay when arrays are mapped
    LearnedBelief,
    lambda learned: (tuple(learned), (learned.prior_mass, learned.reward_precision, learned.noise_precision)),  # type: ignore[arg-type,return-value]
    lambda settings, arrays: LearnedBelief.of(Belief(*arrays), *settings),
)


def prior(num_states: int, num_actions: int, branching: int | None = None) -> Belief:
    """The belief before any data; without a known branching every state may follow every other."""
    shape = (num_states + 1, num_actions)
    places = num_states + 1 if branching is None else min(branching, num_states + 1)
    return Belief(
        successors=jnp.full((*shape, places), num_states, jnp.int32),
        counts=jnp.zeros((*shape, places), jnp.float64),
        rewards=jnp.zeros(shape, jnp.float64),
    )


def observe(belief: Belief, seen: Trajectory, repeats: int) -> Belief:
    """The belief after an episode, each of whose transitions counts `repeats` times."""
    return jax.lax.scan(lambda belief, step: (observe_step(belief, step, repeats), None), belief, seen)[0]


def observe_step(belief: Belief, step: Trajectory, repeats: int) -> Belief:
    """The belief after a single step."""
    here = (step.state, step.action)
    weight = jnp.where(step.valid, float(repeats), 0.0).astype(belief.counts.dtype)
    counts, known = belief.counts[here], belief.successors[here]
    same = (counts > 0) & (known == step.next_state)
    fits = jnp.where(jnp.any(same), same, counts == 0)
    place = jnp.argmax(fits)
    weight = jnp.where(jnp.any(fits), weight, jnp.nan)
    return Belief(
        successors=belief.successors.at[(*here, place)].set(jnp.where(step.valid, step.next_state, known[place])),
        counts=belief.counts.at[(*here, place)].add(weight),
        rewards=belief.rewards.at[here].add(weight * step.reward.astype(weight.dtype)),
    )


class FlatMean(NamedTuple):
    """The posterior-mean MDP: p(s'|s,a) is `share(s,a)`, and more by `weights(s,a,b)` where s' is `successors(s,a,b)`."""

    successors: Int[Array, "S A B"]
    weights: Float[Array, "S A B"]
    share: Float[Array, "S A"]
    r: Float[Array, "S A"]

    @property
    def p(self) -> Float[Array, "S A S"]:
        """The transition probabilities as a table."""
        rows, actions = (jnp.arange(size)[:, None] for size in self.r.shape)
        table = jnp.broadcast_to(self.share[:, :, None], (*self.share.shape, self.share.shape[0]))
        return table.at[rows[:, :, None], actions[None], self.successors].add(self.weights)

    def dense(self) -> MDP:
        """The same MDP with its table."""
        return MDP(self.p, self.r)

    def expect(self, x: Float[Array, " S"]) -> Float[Array, "S A"]:
        """Mean of x at the next state."""
        return jnp.sum(self.weights * x[self.successors], axis=-1) + self.share * jnp.sum(x)

    def times(self, x: Float[Array, "S T"]) -> Float[Array, "S A T"]:
        """The same for every column."""
        total = self.share[:, :, None] * jnp.sum(x, axis=0)[None, None]
        for b in range(self.weights.shape[-1]):
            total = total + self.weights[:, :, b, None] * x[self.successors[:, :, b]]
        return total


def total_mass(belief: Belief, mass: float | None = None) -> Float[Array, "S A"]:
    """The sum of each row's Dirichlet parameters, with a prior of this mass."""
    return jnp.sum(belief.counts, axis=-1) + belief.counts.shape[0] * belief.concentration(mass)


def mean_model(belief: Belief, reward: Float[Array, "S A"], mass: float | None = None) -> FlatMean:
    """The posterior-mean MDP with these rewards and a prior of this mass."""
    num_states = belief.counts.shape[0]
    total, flat = total_mass(belief, mass), belief.concentration(mass)
    terminal = (jnp.arange(num_states) == num_states - 1)[:, None]
    first = jnp.arange(belief.counts.shape[-1]) == 0
    weights = jnp.where(terminal[:, :, None], first[None, None].astype(total.dtype), belief.counts / total[:, :, None])
    successors = jnp.where(terminal[:, :, None], num_states - 1, belief.successors)
    return FlatMean(successors, weights, jnp.where(terminal, 0.0, flat / total), reward)


def sample_transitions(key: Key, belief: Belief, num_models: int, mass: float | None = None) -> Float[Array, "N S A S"]:
    """Posterior samples of the transition probabilities, with a prior of this mass."""
    known = (belief.concentration(mass), belief.successors, belief.counts)
    p = sample_flat_dirichlet(key, *known, num_models, small=mass is not None)
    absorbing = jnp.zeros(p.shape[-1], p.dtype).at[-1].set(1.0)
    return p.at[:, -1, :, :].set(absorbing)


def reward_posterior(
    belief: Belief, reward_precision: float, noise_precision: float
) -> tuple[Float[Array, "S A"], Float[Array, "S A"]]:
    """Mean and standard deviation of the rewards; those of the terminal state are known to be 0."""
    precision = reward_precision + noise_precision * jnp.sum(belief.counts, axis=-1)
    known = (jnp.arange(precision.shape[0]) == precision.shape[0] - 1)[:, None]
    mean = noise_precision * belief.rewards / precision
    return jnp.where(known, 0.0, mean), jnp.where(known, 0.0, precision**-0.5)
