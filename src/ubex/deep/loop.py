"""The deep loop (appendix, Algorithm 2), in compiled pieces, all seeds at once on a leading axis K.

A segment is F steps in the environment: the model is trained, its rollouts refill the buffers, and then every step is followed
by G gradient rounds. Segments are numbered; randomness depends on the key and the numbers alone, so that a run can stop between
two segments and go on as if it had not.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from ubex.deep import actor as policy
from ubex.deep import agents, dynamics, refills, rollout
from ubex.deep.agents import Agent, Info, draw_noise, gradient_round
from ubex.deep.buffer import Batch, ModelBuffer, below, empty, pack, pick, unpack, width
from ubex.deep.config import DeepConfig
from ubex.deep.dynamics import Dynamics, Fitted
from ubex.deep.networks import MLP
from ubex.deep.refills import Refill
from ubex.deep.rollout import Outlook, Reward, Terminates
from ubex.envs.continuous import ContinuousEnv
from ubex.keys import named
from ubex.types import Key

STRAGGLERS = 4
"""The models of all seeds are trained together until one seed in this many is left."""


class Seed(NamedTuple):
    """What a run of one seed carries from segment to segment; of several seeds, on a leading axis."""

    agent: Agent
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


def capacity(config: DeepConfig, segments: int) -> int:
    """Transitions of a whole run."""
    return config.initial_steps + segments * config.retrain_every


def observed(config: DeepConfig, index: Int[Array, ""]) -> Int[Array, ""]:
    """Transitions before segment number `index`."""
    return config.initial_steps + index * config.retrain_every


def act(key: Key, actor: MLP, observation: Float[Array, " O"], action_size: int) -> Float[Array, " A"]:
    """A sampled action, in [-1, 1]."""
    return policy.sample(actor, observation, jax.random.normal(key, (action_size,), jnp.float32)).action


def step_keys(
    config: DeepConfig, key: Key, index: Int[Array, ""]
) -> tuple[Shaped[PRNGKeyArray, " F"], Shaped[PRNGKeyArray, "F G 2"]]:
    """Keys of the steps of segment number `index` in the environment, and of the gradient rounds after each."""
    for_steps, for_rounds = jax.random.split(named(jax.random.fold_in(key, index), "learn"))
    keys = jax.random.split(for_rounds, (config.retrain_every, config.updates_per_step, 2))
    return jax.random.split(for_steps, config.retrain_every), keys


def _environment_step(
    env: ContinuousEnv, key: Key, actor: MLP, state: Any, elapsed: Int[Array, ""], resets: bool = True
) -> tuple[Any, Int[Array, ""], Float[Array, " D"], Float[Array, ""]]:
    """One step with a sampled action; after the end of an episode, the state of a new one.

    Without `resets` an episode ends by termination alone, not at the horizon.
    """
    observation = env.observe(state)
    for_action, for_step, for_reset = jax.random.split(key, 3)
    action = act(for_action, actor, observation, env.action_size)
    step = env.step(for_step, state, policy.to_environment(action, env.action_low, env.action_high))
    row = pack(Batch(observation, action, step.reward, env.observe(step.state), step.terminated.astype(jnp.float32)))
    over = step.terminated | (elapsed + 1 >= env.horizon) if resets else step.terminated
    fresh = env.reset(for_reset)
    state = jax.tree.map(lambda new, old: jnp.where(over, new, old), fresh, step.state)
    return state, jnp.where(over, 0, elapsed + 1), row, step.reward


def begin(config: DeepConfig, env: ContinuousEnv, keys: Shaped[PRNGKeyArray, " K"], segments: int) -> Seed:
    """Untrained agents, and the first steps in the environment."""
    sizes = (env.observation_size, env.action_size)
    each = [agents.init(config, named(key, "agent"), *sizes) for key in keys]
    agent = jax.tree.map(lambda *parts: jnp.stack(parts), *each)
    model: Dynamics | None = None
    if config.model_based:
        models = [dynamics.init(config, named(key, "model"), *sizes) for key in keys]
        model = jax.tree.map(lambda *parts: jnp.stack(parts), *models)
    data, state = _first_steps(config, env, keys, agent.actor, segments)
    return Seed(agent, model, data, state, jnp.zeros(len(keys), jnp.int32))


@functools.partial(jax.jit, static_argnames=("config", "env", "segments"))
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
        data = jnp.zeros((capacity(config, segments), rows.shape[1]), jnp.float32).at[: config.initial_steps].set(rows)
        return data, env.reset(for_start)

    with agents.precision(config):
        result: tuple[Float[Array, "K C D"], Any] = jax.vmap(one)(keys, actors)
    return result


def begin_buffers(config: DeepConfig, env: ContinuousEnv, seeds: int) -> ModelBuffer:
    """Model-generated buffers before the first rollouts: seeds x buffers."""
    one = empty(config, width(env.observation_size, env.action_size))
    leading = (seeds, config.num_buffers)
    return ModelBuffer(jnp.zeros((*leading, *one.rows.shape), jnp.float32), jnp.zeros(leading, jnp.int32))


def fit_one(
    config: DeepConfig, key: Key, model: Dynamics, data: Float[Array, "C D"], index: Int[Array, ""], observation_size: int
) -> tuple[Dynamics, Fitted]:
    """Trains the models of one seed on all data before segment number `index`."""
    return dynamics.train(config, _fit_key(key, index), model, data, observed(config, index), observation_size)


def _fit_key(key: Key, index: Int[Array, ""]) -> Key:
    return named(jax.random.fold_in(key, index), "fit")


@functools.partial(jax.jit, static_argnames=("config", "env"))
def fit(
    config: DeepConfig, env: ContinuousEnv, keys: Shaped[PRNGKeyArray, " K"], seeds: Seed, index: Int[Array, ""]
) -> tuple[Dynamics, Fitted]:
    """Trains the models on all data before segment number `index`."""

    assert seeds.dynamics is not None
    here = jax.vmap(_fit_key, in_axes=(0, None))(keys, index)
    few = len(keys) // STRAGGLERS
    known = (seeds.dynamics, seeds.data, observed(config, index), env.observation_size)
    with agents.precision(config):
        return dynamics.train_together(config, here, *known, few)


def refill_one(
    config: DeepConfig,
    key: Key,
    model: Dynamics,
    actor: MLP,
    buffers: ModelBuffer,
    data: Float[Array, "C D"],
    index: Int[Array, ""],
    observation_size: int,
    terminates: Terminates,
    reward: Reward | None = None,
) -> tuple[ModelBuffer, Outlook]:
    """Rollouts of one seed from states before segment number `index`, into its buffers."""
    here = named(jax.random.fold_in(key, index), "rollouts")
    start = (data, observed(config, index))
    return rollout.refill(config, here, model, actor, buffers, *start, observation_size, terminates, reward)


@functools.partial(jax.jit, static_argnames=("config", "env"), donate_argnames="buffers")
def refill(
    config: DeepConfig,
    env: ContinuousEnv,
    keys: Shaped[PRNGKeyArray, " K"],
    model: Dynamics,
    actor: MLP,
    data: Float[Array, "K C D"],
    buffers: ModelBuffer,
    index: Int[Array, ""],
) -> tuple[ModelBuffer, Outlook]:
    """Rollouts in the models, into the buffers; the optimiser of the models is not asked for, and may be None."""

    def one(
        key: Key, model: Dynamics, actor: MLP, data: Float[Array, "C D"], buffers: ModelBuffer
    ) -> tuple[ModelBuffer, Outlook]:
        return refill_one(config, key, model, actor, buffers, data, index, env.observation_size, env.terminates)

    with agents.precision(config):
        return jax.vmap(one)(keys, model, actor, data, buffers)


def refilled(
    config: DeepConfig,
    env: ContinuousEnv,
    keys: Shaped[PRNGKeyArray, " K"],
    data: Float[Array, "K C D"],
    history: Sequence[Refill],
) -> ModelBuffer:
    """The buffers of a run that goes on, made again."""

    def one(buffers: ModelBuffer, made: Refill) -> ModelBuffer:
        found: tuple[ModelBuffer, Outlook] = refill(config, env, keys, made.dynamics, made.actor, data, buffers, made.segment)
        return found[0]

    return refills.again(history, begin_buffers(config, env, len(keys)), one)


@functools.partial(jax.jit, static_argnames=("config", "env"), donate_argnames="seeds")
def learn(
    config: DeepConfig,
    env: ContinuousEnv,
    keys: Shaped[PRNGKeyArray, " K"],
    seeds: Seed,
    buffers: ModelBuffer | None,
    index: Int[Array, ""],
) -> tuple[Seed, Learned]:
    """The steps of segment number `index` in the environment, each followed by its gradient rounds."""

    def one(key: Key, seed: Seed, buffers: ModelBuffer | None) -> tuple[Seed, Learned]:
        numbers = jnp.arange(config.retrain_every, dtype=jnp.int32)
        for_steps, for_rounds = step_keys(config, key, index)

        def step(
            carry: Seed, now: tuple[Int[Array, ""], Key, Shaped[PRNGKeyArray, "G 2"]]
        ) -> tuple[Seed, tuple[Info, Array, Array]]:
            number, for_step, keys = now
            state, elapsed, row, reward = _environment_step(env, for_step, carry.agent.actor, carry.env_state, carry.elapsed)
            place = observed(config, index) + number
            data = carry.data.at[place].set(row)
            known = (buffers, data, place + 1, env.observation_size, env.terminates)
            agent, info, bad = rounds(config, keys, carry.agent, carry.dynamics, *known)
            return carry._replace(agent=agent, data=data, env_state=state, elapsed=elapsed), (info, bad, reward)

        seed, (info, bad, reward) = jax.lax.scan(step, seed, (numbers, for_steps, for_rounds))
        first_bad = jnp.where(jnp.any(bad), jnp.argmax(bad).astype(jnp.int32), -1)
        return seed, Learned(jax.tree.map(lambda x: jnp.mean(x), info), first_bad, jnp.sum(reward))

    with agents.precision(config):
        result: tuple[Seed, Learned] = jax.vmap(one)(keys, seeds, buffers)
    return result


def rounds(
    config: DeepConfig,
    keys: Shaped[PRNGKeyArray, "G 2"],
    agent: Agent,
    model: Dynamics | None,
    buffers: ModelBuffer | None,
    data: Float[Array, "C D"],
    count: Int[Array, ""],
    observation_size: int,
    terminates: Terminates,
    reward: Reward | None = None,
) -> tuple[Agent, Info, Bool[Array, ""]]:
    """The gradient rounds after one step in the environment: the agent, averages, and whether some loss is not finite.

    Agents without a model learn from the first `count` rows of the data; others do not look at them.
    """
    action_size = data.shape[-1] - width(observation_size, 0)

    def update(agent: Agent, keys: Shaped[PRNGKeyArray, "2"]) -> tuple[Agent, Info]:
        noise = draw_noise(config, keys[0], observation_size, action_size)
        shared, own = batches(config, keys[1], buffers, data, count, observation_size)
        return gradient_round(config, noise, agent, model, shared, own, terminates, reward)

    agent, info = jax.lax.scan(update, agent, keys)
    bad = ~(jnp.isfinite(jnp.sum(info.critic_loss)) & jnp.isfinite(jnp.sum(info.actor_loss)))
    if config.has_unet:
        bad = bad | ~jnp.isfinite(jnp.sum(info.u_loss))
    return agent, jax.tree.map(lambda x: jnp.mean(x), info), bad


def batches(
    config: DeepConfig,
    key: Key,
    buffers: ModelBuffer | None,
    data: Float[Array, "C D"],
    count: Int[Array, ""],
    observation_size: int,
) -> tuple[Batch, Batch]:
    """A batch of the model-randomised buffer, and one of each model's own; without a model, of the data."""
    if buffers is None:
        bits = jax.random.bits(key, (config.batch_size,), jnp.uint32)
        batch = unpack(data[below(bits, count)], observation_size)
        return batch, batch
    bits = jax.random.bits(key, (config.num_buffers, config.batch_size), jnp.uint32)
    drawn = unpack(jax.vmap(pick)(bits, buffers), observation_size)
    shared = Batch(*(x[0] for x in drawn))
    return shared, shared if config.twin else Batch(*(x[1:] for x in drawn))


@functools.partial(jax.jit, static_argnames=("config", "env"))
def evaluate(
    config: DeepConfig, env: ContinuousEnv, keys: Shaped[PRNGKeyArray, " K"], agent: Agent, index: Int[Array, ""]
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
        return jax.vmap(one)(keys, agent.actor)


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
    seeds: Seed,
    buffers: ModelBuffer | None,
    index: int,
) -> tuple[Seed, ModelBuffer | None, Segment]:
    """One whole segment and an evaluation after it; the given state and buffers are used up."""
    number = jnp.asarray(index, jnp.int32)
    fitted, outlook, made = None, None, None
    if config.model_based:
        assert buffers is not None
        model, fitted = fit(config, env, keys, seeds, number)
        seeds = seeds._replace(dynamics=model)
        made = refills.recorded(index, buffers.written, model, seeds.agent.actor)
        known = (model._replace(optimiser=None), seeds.agent.actor, seeds.data)
        buffers, outlook = refill(config, env, keys, *known, buffers, number)
    seeds, learned = learn(config, env, keys, seeds, buffers, number)
    return seeds, buffers, Segment(fitted, outlook, made, learned, evaluate(config, env, keys, seeds.agent, number))
