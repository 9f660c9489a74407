"""The pieces of the deep algorithm for one seed (appendix, Algorithm 2), each a compiled function of its settings and its task.

A segment is F steps in the environment: the models are trained, their rollouts refill the buffers, and then every step is
followed by G gradient rounds. Segments are numbered; randomness depends on the key and the numbers alone, so that a run can
stop and go on as if it had not. `loop.py` runs them for several seeds at once, `host.py` beside a Gymnasium environment.
"""

from __future__ import annotations

import functools
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from ubex.deep import actor as policy
from ubex.deep import agents, dynamics, rollout, termination
from ubex.deep.agents import AgentState, Info
from ubex.deep.buffer import Batch, ModelBuffer, below, pick, unpack
from ubex.deep.config import DeepConfig
from ubex.deep.dynamics import Dynamics, Fitted
from ubex.deep.networks import MLP, with_split_weights
from ubex.deep.rollout import Outlook
from ubex.deep.round import draw_noise, gradient_round
from ubex.deep.termination import Termination
from ubex.envs.task import Task
from ubex.keys import named
from ubex.types import Key

T = TypeVar("T")


def capacity(config: DeepConfig, segments: int) -> int:
    """Transitions of a whole run."""
    return config.initial_steps + segments * config.retrain_every


def observed(config: DeepConfig, index: Int[Array, ""]) -> Int[Array, ""]:
    """Transitions before segment number `index`."""
    return config.initial_steps + index * config.retrain_every


@functools.partial(jax.jit, static_argnames="config")
def initial_keys(config: DeepConfig, key: Key) -> Shaped[PRNGKeyArray, " I"]:
    """Keys of the steps before training."""
    return jax.random.split(jax.random.split(named(key, "initial"), 3)[0], config.initial_steps)


@functools.partial(jax.jit, static_argnames="config")
def step_keys(
    config: DeepConfig, key: Key, index: Int[Array, ""]
) -> tuple[Shaped[PRNGKeyArray, " F"], Shaped[PRNGKeyArray, "F G 2"]]:
    """Keys of the steps of segment number `index` in the environment, and of the gradient rounds after each."""
    for_steps, for_rounds = jax.random.split(named(jax.random.fold_in(key, index), "learn"))
    keys = jax.random.split(for_rounds, (config.retrain_every, config.updates_per_step, 2))
    return jax.random.split(for_steps, config.retrain_every), keys


def action(task: Task, key: Key, actor: MLP, observation: Float[Array, " O"]) -> Float[Array, " A"]:
    """A sampled action, in [-1, 1]."""
    return policy.sample(actor, observation, jax.random.normal(key, (task.action_size,), jnp.float32)).action


@functools.partial(jax.jit, static_argnames=("config", "task"))
def act(
    config: DeepConfig,
    task: Task,
    keys: Shaped[PRNGKeyArray, " F"],
    number: Int[Array, ""],
    actor: MLP,
    observation: Float[Array, " O"],
) -> Float[Array, " A"]:
    """The sampled action of step `number` of a segment."""
    with agents.precision(config):
        return action(task, jax.random.split(keys[number], 3)[0], actor, observation)


def fit_key(key: Key, index: Int[Array, ""]) -> Key:
    """Of the training of the models before segment number `index`."""
    return named(jax.random.fold_in(key, index), "fit")


@functools.partial(jax.jit, static_argnames=("config", "task"))
def fit(
    config: DeepConfig, task: Task, key: Key, model: Dynamics, data: Float[Array, "C D"], index: Int[Array, ""]
) -> tuple[Dynamics, Fitted]:
    """Trains the models on all data before segment number `index`."""
    with agents.precision(config):
        return dynamics.train(config, fit_key(key, index), model, data, observed(config, index), task)


@functools.partial(jax.jit, static_argnames=("config", "task"))
def fit_termination(
    config: DeepConfig, task: Task, key: Key, ends: Termination, data: Float[Array, "C D"], index: Int[Array, ""]
) -> Termination:
    """Trains the classifier of terminations on the same data."""
    with agents.precision(config):
        here = named(jax.random.fold_in(key, index), "termination")
        return termination.train(task, here, ends, data, observed(config, index))


def ending(task: Task, ends: Termination | None) -> Task:
    """The task, whose episodes end in the models where the classifier says so, if there is one."""
    return task if ends is None else task._replace(terminates=termination.bound(ends))


@functools.partial(jax.jit, static_argnames=("config", "task"), donate_argnames="buffers")
def refill(
    config: DeepConfig,
    task: Task,
    key: Key,
    model: Dynamics,
    actor: MLP,
    buffers: ModelBuffer,
    data: Float[Array, "C D"],
    index: Int[Array, ""],
    ends: Termination | None = None,
) -> tuple[ModelBuffer, Outlook]:
    """Rollouts from states before segment number `index`, into the buffers, which are used up."""
    here = named(jax.random.fold_in(key, index), "rollouts")
    with agents.precision(config):
        return rollout.refill(config, ending(task, ends), here, model, actor, buffers, data, observed(config, index))


def rounds(
    config: DeepConfig,
    task: Task,
    keys: Shaped[PRNGKeyArray, "G 2"],
    agent: AgentState,
    model: Dynamics | None,
    buffers: ModelBuffer | None,
    data: Float[Array, "C D"],
    count: Int[Array, ""],
) -> tuple[AgentState, Info, Bool[Array, ""]]:
    """The gradient rounds after one step in the environment: the agent, averages, and whether some loss is not finite.

    Agents without a model learn from the first `count` rows of the data; others do not look at them.
    """

    if model is not None and config.has_unet and config.precision == "split16":
        model = model._replace(networks=with_split_weights(model.networks))  # once, not in every round

    def update(agent: AgentState, keys: Shaped[PRNGKeyArray, "2"]) -> tuple[AgentState, Info]:
        noise = draw_noise(config, task, keys[0])
        shared, own = batches(config, task, keys[1], buffers, data, count)
        return gradient_round(config, task, noise, agent, model, shared, own)

    agent, info = jax.lax.scan(update, agent, keys)
    bad = ~(jnp.isfinite(jnp.sum(info.critic_loss)) & jnp.isfinite(jnp.sum(info.actor_loss)))
    if config.has_unet:
        bad = bad | ~jnp.isfinite(jnp.sum(info.u_loss))
    return agent, jax.tree.map(lambda x: jnp.mean(x), info), bad


@functools.partial(jax.jit, static_argnames=("config", "task"), donate_argnames="agent")
def rounds_after(
    config: DeepConfig,
    task: Task,
    keys: Shaped[PRNGKeyArray, "F G 2"],
    number: Int[Array, ""],
    agent: AgentState,
    model: Dynamics | None,
    buffers: ModelBuffer | None,
    data: Float[Array, "C D"],
    count: Int[Array, ""],
    ends: Termination | None,
) -> tuple[AgentState, Info, Bool[Array, ""]]:
    """The gradient rounds after step `number` of a segment; the agent is used up."""
    with agents.precision(config):
        return rounds(config, ending(task, ends), keys[number], agent, model, buffers, data, count)


def batches(
    config: DeepConfig,
    task: Task,
    key: Key,
    buffers: ModelBuffer | None,
    data: Float[Array, "C D"],
    count: Int[Array, ""],
) -> tuple[Batch, Batch]:
    """A batch of the model-randomised buffer, and one of each model's own; without a model, of the data."""
    if buffers is None:
        bits = jax.random.bits(key, (config.batch_size,), jnp.uint32)
        batch = unpack(data[below(bits, count)], task.observation_size)
        return batch, batch
    bits = jax.random.bits(key, (config.num_buffers, config.batch_size), jnp.uint32)
    drawn = unpack(jax.vmap(pick)(bits, buffers), task.observation_size)
    shared = Batch(*(x[0] for x in drawn))
    return shared, shared if config.twin else Batch(*(x[1:] for x in drawn))


@functools.partial(jax.jit, donate_argnames="data")
def append(data: Float[Array, "C D"], place: Int[Array, ""], row: Float[Array, " D"]) -> Float[Array, "C D"]:
    """The data with one more transition."""
    return data.at[place].set(row)


@jax.jit
def copied(tree: T) -> T:
    """The same arrays in memory of their own: some functions above use their arguments up."""
    same: T = jax.tree.map(jnp.copy, tree)
    return same


@jax.jit
def finite(tree: Any) -> Bool[Array, ""]:
    """Whether no number is NaN or infinite."""
    floats = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return jnp.all(jnp.array([jnp.all(jnp.isfinite(leaf)) for leaf in floats]))
