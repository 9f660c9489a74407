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
from ubex.tabular.agents import AgentConfig, no_plan, update
from ubex.tabular.belief import Belief, observe, prior
from ubex.types import Key


class Memory(NamedTuple):
    """What an agent carries from one episode to the next."""

    belief: Belief
    plan: Int[Array, "*k S"]
    """The last policy; -1 before the first episode."""


class Episodes(NamedTuple):
    """What a block of episodes gives; on the host in NumPy."""

    returns: Float[Array | np.ndarray, "*k E"]
    """Undiscounted return of each episode."""
    policies: Int[Array | np.ndarray, "*k E S"]
    """The policy that each episode followed."""
    steps: Int[Array | np.ndarray, "*k E"]
    """Improvements that each update made."""


def begin(env: TabularEnv) -> Memory:
    """Before the first episode."""
    return blank(prior(env.num_states, env.num_actions, env.branching))


def blank(belief: Belief) -> Memory:
    """A belief, and no plan so far."""
    return Memory(belief, no_plan(belief))


@functools.partial(jax.jit, static_argnames=("env", "config"))
def run_episodes(
    env: TabularEnv,
    config: AgentConfig,
    key: Key,
    memory: Memory,
    episodes: Int[Array, " E"],
    number: Int[Array, ""] | int | None = None,
) -> tuple[Memory, Episodes]:
    """Runs episodes number `episodes[0]`, `episodes[1]`, ...; randomness depends on the key and those numbers alone.

    With a `number` only the first so many of them are run, by the same program, and what is given for the others means nothing.
    """

    def one(memory: Memory, episode: Int[Array, ""]) -> tuple[Memory, Episodes]:
        here = jax.random.fold_in(key, episode)
        plan = update(config, named(here, "plan"), memory.belief, env.start, memory.plan)
        seen = rollout(env, named(here, "act"), plan.policy)
        reward = jnp.sum(jnp.where(seen.valid, seen.reward, 0.0))
        after = Memory(observe(memory.belief, seen, config.repeats), plan.policy)
        return after, Episodes(reward, plan.policy[: env.num_states], plan.steps)

    def write(place: Int[Array, ""], run: tuple[Memory, Episodes]) -> tuple[Memory, Episodes]:
        memory, found = one(run[0], episodes[place])
        return memory, jax.tree.map(lambda all_, new: all_.at[place].set(new), run[1], found)

    shapes = jax.eval_shape(one, memory, episodes[0])[1]
    nothing = jax.tree.map(lambda x: jnp.zeros((len(episodes), *x.shape), x.dtype), shapes)
    run: tuple[Memory, Episodes] = jax.lax.fori_loop(0, len(episodes) if number is None else number, write, (memory, nothing))
    return run


@functools.partial(jax.jit, static_argnames=("env", "config"))
def run_batch(
    env: TabularEnv,
    config: AgentConfig,
    keys: Shaped[PRNGKeyArray, " K"],
    memories: Memory,
    episodes: Int[Array, " E"],
    number: Int[Array, ""] | int | None = None,
) -> tuple[Memory, Episodes]:
    """The same for several keys at once, on a leading axis: one program for all seeds, which is what a GPU wants."""
    result: tuple[Memory, Episodes] = jax.vmap(lambda key, memory: run_episodes(env, config, key, memory, episodes, number))(
        keys, memories
    )
    return result
