"""The deep loop for environments of this package: the pieces of `steps.py`, compiled, all seeds at once on a leading axis K."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from ubex.deep import actor as policy
from ubex.deep import agents, dynamics, refills, steps
from ubex.deep.agents import AgentState, Info
from ubex.deep.buffer import Batch, ModelBuffer, empty, pack, width
from ubex.deep.config import DeepConfig
from ubex.deep.dynamics import Dynamics, Fitted
from ubex.deep.networks import MLP
from ubex.deep.refills import Refill
from ubex.deep.rollout import Outlook
from ubex.envs.continuous import ContinuousEnv
from ubex.keys import named
from ubex.types import Key


class RunState(NamedTuple):
    """What a run of one seed carries from segment to segment; of several seeds, on a leading axis."""

    agent: AgentState
    dynamics: Dynamics | None
    """None for agents without a model."""
    data: Float[Array, "*k C D"]
    """All transitions of the environment so far, oldest first."""
    env_state: Any
    elapsed: Int[Array, "*k"]
    """Steps of the current episode so far."""


class Learned(NamedTuple):
    """What the rounds of a segment looked like."""

    info: Info
    """Averages over the segment."""
    bad_step: Int[Array, "*k"]
    """The first step of the segment with a loss that is not finite; -1 if there is none."""
    reward: Float[Array, "*k"]
    """Sum of rewards of the segment's steps."""


class Evaluation(NamedTuple):
    """One episode of the mean action."""

    returns: Float[Array, "*k"]
    states: Any
    """The states that it went through."""
    actions: Float[Array, "*k H A"]


def _environment_step(
    env: ContinuousEnv, key: Key, actor: MLP, state: Any, elapsed: Int[Array, ""], resets: bool = True
) -> tuple[Any, Int[Array, ""], Float[Array, " D"], Float[Array, ""]]:
    """One step with a sampled action; after the end of an episode, the state of a new one.

    Without `resets` an episode ends by termination alone, not at the horizon.
    """
    observation = env.observe(state)
    for_action, for_step, for_reset = jax.random.split(key, 3)
    action = steps.action(env.task, for_action, actor, observation)
    step = env.step(for_step, state, policy.to_environment(action, env.action_low, env.action_high))
    row = pack(Batch(observation, action, step.reward, env.observe(step.state), step.terminated.astype(jnp.float32)))
    over = step.terminated | (elapsed + 1 >= env.horizon) if resets else step.terminated
    fresh = env.reset(for_reset)
    state = jax.tree.map(lambda new, old: jnp.where(over, new, old), fresh, step.state)
    return state, jnp.where(over, 0, elapsed + 1), row, step.reward


def begin(config: DeepConfig, env: ContinuousEnv, keys: Shaped[PRNGKeyArray, " K"], segments: int) -> RunState:
    """Untrained agents, and the first steps in the environment."""
    each = [agents.init(config, named(key, "agent"), env.task) for key in keys]
    agent = jax.tree.map(lambda *parts: jnp.stack(parts), *each)
    model: Dynamics | None = None
    if config.model_based:
        models = [dynamics.init(config, named(key, "model"), env.task) for key in keys]
        model = jax.tree.map(lambda *parts: jnp.stack(parts), *models)
    data, state = _first_steps(config, env, keys, agent.actor, segments)
    return RunState(agent, model, data, state, jnp.zeros(len(keys), jnp.int32))


@steps.for_all_methods("env", "segments")
def _first_steps(
    config: DeepConfig, env: ContinuousEnv, keys: Shaped[PRNGKeyArray, " K"], actors: MLP, segments: int
) -> tuple[Float[Array, "K C D"], Any]:
    """The data of the untrained policy, and the state that training starts from."""

    def one(key: Key, actor: MLP) -> tuple[Float[Array, "C D"], Any]:
        def step(carry: tuple[Any, Array], key: Key) -> tuple[tuple[Any, Array], Array]:
            state, elapsed, row, _ = _environment_step(env, key, actor, *carry, config.initial_resets)
            return (state, elapsed), row

        for_steps, for_first, for_start = jax.random.split(named(key, "initial"), 3)
        first = (env.reset(for_first), jnp.asarray(0, jnp.int32))
        rows = jax.lax.scan(step, first, jax.random.split(for_steps, config.initial_steps))[1]
        data = jnp.zeros((steps.capacity(config, segments), rows.shape[1]), jnp.float32).at[: config.initial_steps].set(rows)
        return data, env.reset(for_start)

    with agents.precision(config):
        result: tuple[Float[Array, "K C D"], Any] = jax.vmap(one)(keys, actors)
    return result


def begin_buffers(config: DeepConfig, env: ContinuousEnv, seeds: int) -> ModelBuffer:
    """Model-generated buffers before the first rollouts: seeds x buffers."""
    return empty(config, width(env.observation_size, env.action_size), (seeds, config.num_buffers))


def refilled(
    config: DeepConfig,
    env: ContinuousEnv,
    keys: Shaped[PRNGKeyArray, " K"],
    data: Float[Array, "K C D"],
    history: Sequence[Refill],
) -> ModelBuffer:
    """The buffers of a run that goes on, made again."""

    def one(buffers: ModelBuffer, made: Refill) -> ModelBuffer:
        known = (made.dynamics, made.actor, data, buffers, made.segment)
        found: tuple[ModelBuffer, Outlook] = steps.refill(config, env.task, keys, *known)
        return found[0]

    return refills.again(history, begin_buffers(config, env, len(keys)), one)


@functools.partial(jax.jit, static_argnames=("config", "env"), donate_argnames="seeds")
def learn(
    config: DeepConfig,
    env: ContinuousEnv,
    keys: Shaped[PRNGKeyArray, " K"],
    seeds: RunState,
    buffers: ModelBuffer | None,
    index: Int[Array, ""],
) -> tuple[RunState, Learned]:
    """The steps of segment number `index` in the environment, each followed by its gradient rounds."""

    def one(key: Key, seed: RunState, buffers: ModelBuffer | None) -> tuple[RunState, Learned]:
        numbers = jnp.arange(config.retrain_every, dtype=jnp.int32)
        for_steps, for_rounds = steps.step_keys(config, key, index)

        def step(
            carry: RunState, now: tuple[Int[Array, ""], Key, Shaped[PRNGKeyArray, "G 2"]]
        ) -> tuple[RunState, tuple[Info, Array, Array]]:
            number, for_step, keys = now
            state, elapsed, row, reward = _environment_step(env, for_step, carry.agent.actor, carry.env_state, carry.elapsed)
            place = steps.observed(config, index) + number
            data = carry.data.at[place].set(row)
            known = (carry.agent, carry.dynamics, buffers, data, place + 1)
            agent, info, bad = steps.rounds(config, env.task, keys, *known)
            return carry._replace(agent=agent, data=data, env_state=state, elapsed=elapsed), (info, bad, reward)

        seed, (info, bad, reward) = jax.lax.scan(step, seed, (numbers, for_steps, for_rounds))
        first_bad = jnp.where(jnp.any(bad), jnp.argmax(bad).astype(jnp.int32), -1)
        return seed, Learned(jax.tree.map(lambda x: jnp.mean(x), info), first_bad, jnp.sum(reward))

    with agents.precision(config):
        result: tuple[RunState, Learned] = jax.vmap(one)(keys, seeds, buffers)
    return result


@steps.for_all_methods("env")
def evaluate(
    config: DeepConfig, env: ContinuousEnv, keys: Shaped[PRNGKeyArray, " K"], actors: MLP, index: Int[Array, ""]
) -> Evaluation:
    """One episode with the mean action, numbered."""

    def one(key: Key, actor: MLP) -> Evaluation:
        here = named(jax.random.fold_in(key, index), "evaluate")

        def step(carry: tuple[Any, Array], key: Key) -> tuple[tuple[Any, Array], tuple[Array, Any, Array]]:
            state, over = carry
            action = policy.mode(actor, env.observe(state))
            result = env.step(key, state, policy.to_environment(action, env.action_low, env.action_high))
            reward = jnp.where(over, 0.0, result.reward)
            return (result.state, over | result.terminated), (reward, state, action)

        first = (env.reset(named(here, "reset")), jnp.asarray(False))
        rewards, states, actions = jax.lax.scan(step, first, jax.random.split(here, env.horizon))[1]
        return Evaluation(jnp.sum(rewards), states, actions)

    with agents.precision(config):
        return jax.vmap(one)(keys, actors)


class Segment(NamedTuple):
    """What a segment gives."""

    fitted: Fitted | None
    outlook: Outlook | None
    refill: Refill | None
    """What made the rollouts; like the two above, None for agents without a model."""
    learned: Learned
    evaluation: Evaluation


def advance(
    config: DeepConfig,
    env: ContinuousEnv,
    keys: Shaped[PRNGKeyArray, " K"],
    seeds: RunState,
    buffers: ModelBuffer | None,
    index: int,
) -> tuple[RunState, ModelBuffer | None, Segment]:
    """One whole segment and an evaluation after it; the given state and buffers are used up."""
    number = jnp.asarray(index, jnp.int32)
    fitted, outlook, made = None, None, None
    if config.model_based:
        assert buffers is not None
        model, fitted = steps.fit(config, env.task, keys, seeds.dynamics, seeds.data, number)
        seeds = seeds._replace(dynamics=model)
        made = refills.recorded(index, buffers.written, model, seeds.agent.actor)
        known = (model._replace(optimiser=None), seeds.agent.actor, seeds.data)
        buffers, outlook = steps.refill(config, env.task, keys, *known, buffers, number)
    seeds, learned = learn(config, env, keys, seeds, buffers, number)
    return seeds, buffers, Segment(fitted, outlook, made, learned, evaluate(config, env, keys, seeds.agent.deployed, number))
