"""The tabular loop: plan, act for an episode, learn; in compiled blocks of episodes, so that it can stop between them."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from ubex.envs.base import TabularEnv, rollout
from ubex.keys import named
from ubex.tabular.agents import AgentConfig, update
from ubex.tabular.belief import Belief, observe, prior
from ubex.types import Key


class Episodes(NamedTuple):
    """What a block of episodes gives; on the host in NumPy."""

    returns: Float[Array | np.ndarray, "*k E"]
    """Undiscounted return of each episode."""
    policies: Int[Array | np.ndarray, "*k E S"]
    """The policy that each episode followed."""
    steps: Int[Array | np.ndarray, "*k E"]
    """Improvements that each update made."""


def begin(env: TabularEnv) -> Belief:
    """The belief before the first episode."""
    return prior(env.num_states, env.num_actions, env.branching)


@functools.partial(jax.jit, static_argnames=("env", "config"))
def run_episodes(
    env: TabularEnv, config: AgentConfig, key: Key, belief: Belief, episodes: Int[Array, " E"]
) -> tuple[Belief, Episodes]:
    """Runs episodes number `episodes[0]`, `episodes[1]`, ...; randomness depends on the key and those numbers alone."""

    def one(belief: Belief, episode: Int[Array, ""]) -> tuple[Belief, Episodes]:
        here = jax.random.fold_in(key, episode)
        plan = update(config, named(here, "plan"), belief, env.start)
        seen = rollout(env, named(here, "act"), plan.policy)
        reward = jnp.sum(jnp.where(seen.valid, seen.reward, 0.0))
        return observe(belief, seen, config.repeats), Episodes(reward, plan.policy[: env.num_states], plan.steps)

    return jax.lax.scan(one, belief, episodes)


@functools.partial(jax.jit, static_argnames=("env", "config"))
def run_batch(
    env: TabularEnv, config: AgentConfig, keys: Shaped[PRNGKeyArray, " K"], beliefs: Belief, episodes: Int[Array, " E"]
) -> tuple[Belief, Episodes]:
    """The same for several keys at once, on a leading axis: one program for all seeds, which is what a GPU wants."""
    result: tuple[Belief, Episodes] = jax.vmap(lambda key, belief: run_episodes(env, config, key, belief, episodes))(
        keys, beliefs
    )
    return result
