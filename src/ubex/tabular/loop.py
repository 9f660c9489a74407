"""The tabular loop: plan, act for an episode, learn; in compiled blocks of episodes, so that it can stop between them."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from ubex.envs.base import Place, TabularEnv, acted, beginning, rollout
from ubex.keys import named
from ubex.tabular.agents import DOUBLED, AgentConfig, no_plan, plan_key, update
from ubex.tabular.belief import Belief, observe, observe_step, prior
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
    """The policy that each episode followed, the last one if there were several."""
    steps: Int[Array | np.ndarray, "*k E"]
    """Improvements that its update made, or the most that one of several made."""


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
        if config.plan_when == DOUBLED:
            return with_several_plans(env, config, here, memory)
        plan = update(config, plan_key(here, 0), memory.belief, env.start, memory.plan)
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


class Running(NamedTuple):
    """An episode in the middle."""

    memory: Memory
    at: Place
    time: Int[Array, ""]
    total: Float[Array, ""]
    """The rewards so far."""
    plans: Int[Array, ""]
    """How often was planned."""
    steps: Int[Array, ""]
    """The most improvements that a plan took."""
    due: Bool[Array, ""]
    """Whether to plan anew."""


def with_several_plans(env: TabularEnv, config: AgentConfig, key: Key, memory: Memory) -> tuple[Memory, Episodes]:
    """One episode that plans anew each time twice as much is known of a row."""
    keys = jax.random.split(named(key, "act"), env.horizon)

    def goes_on(run: Running) -> Bool[Array, ""]:
        return ~run.at.over & (run.time < env.horizon)

    def planned(run: Running) -> Running:
        plan = update(config, plan_key(key, run.plans), run.memory.belief, env.start, run.memory.plan)
        enough = 2.0 * jnp.sum(run.memory.belief.counts, axis=-1) + run.memory.belief.weight(config.prior_mass)

        def act(run: Running) -> Running:
            at, row = acted(env, keys[run.time], plan.policy, run.at)
            belief, here = observe_step(run.memory.belief, row, config.repeats), (row.state, row.action)
            due = jnp.sum(belief.counts[here]) >= enough[here]
            memory, total = run.memory._replace(belief=belief), run.total + row.reward
            return run._replace(memory=memory, at=at, time=run.time + 1, total=total, due=due)

        memory, steps = run.memory._replace(plan=plan.policy), jnp.maximum(run.steps, plan.steps)
        start = run._replace(memory=memory, plans=run.plans + 1, steps=steps, due=jnp.asarray(False))
        found: Running = jax.lax.while_loop(lambda run: goes_on(run) & ~run.due, act, start)
        return found

    at, none = beginning(env), jnp.zeros((), jnp.int32)
    reward = jax.eval_shape(lambda: env.step(key, at.state, none).reward)
    first = Running(memory, at, none, jnp.zeros((), reward.dtype), none, none, jnp.asarray(False))
    run: Running = jax.lax.while_loop(goes_on, planned, first)
    return run.memory, Episodes(run.total, run.memory.plan[: env.num_states], run.steps)


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
