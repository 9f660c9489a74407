"""What the loop on the host has compiled: the pieces of `loop.py` for one seed, each with its settings as constants."""

from __future__ import annotations

import functools
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from ubex.deep import agents, loop, termination
from ubex.deep.agents import Agent, Info
from ubex.deep.buffer import ModelBuffer
from ubex.deep.config import DeepConfig
from ubex.deep.dynamics import Dynamics, Fitted
from ubex.deep.networks import MLP
from ubex.deep.rollout import Reward, Terminates
from ubex.deep.termination import Termination
from ubex.keys import named
from ubex.types import Key

T = TypeVar("T")


@functools.partial(jax.jit, static_argnames="config")
def initial_keys(config: DeepConfig, key: Key) -> Shaped[PRNGKeyArray, " I"]:
    """Keys of the steps before training."""
    return jax.random.split(jax.random.split(named(key, "initial"), 3)[0], config.initial_steps)


step_keys = functools.partial(jax.jit, static_argnames="config")(loop.step_keys)


@functools.partial(jax.jit, static_argnames=("config", "action_size"))
def act(
    config: DeepConfig,
    keys: Shaped[PRNGKeyArray, " F"],
    number: Int[Array, ""],
    actor: MLP,
    observation: Float[Array, " O"],
    action_size: int,
) -> Float[Array, " A"]:
    """A sampled action, in [-1, 1]."""
    with agents.precision(config):
        return loop.act(jax.random.split(keys[number], 3)[0], actor, observation, action_size)


@functools.partial(jax.jit, static_argnames=("config", "observation_size"))
def fit(
    config: DeepConfig, key: Key, model: Dynamics, data: Float[Array, "C D"], index: Int[Array, ""], observation_size: int
) -> tuple[Dynamics, Fitted]:
    """Trains the models on all data before segment number `index`."""
    with agents.precision(config):
        return loop.fit_one(config, key, model, data, index, observation_size)


@functools.partial(jax.jit, static_argnames=("config", "observation_size"))
def fit_termination(
    config: DeepConfig, key: Key, ends: Termination, data: Float[Array, "C D"], index: Int[Array, ""], observation_size: int
) -> Termination:
    """Trains the classifier of terminations on the same data."""
    with agents.precision(config):
        here = named(jax.random.fold_in(key, index), "termination")
        return termination.train(here, ends, data, loop.observed(config, index), observation_size)


@functools.partial(jax.jit, static_argnames=("config", "observation_size", "terminates", "reward"), donate_argnames="buffers")
def refill(
    config: DeepConfig,
    key: Key,
    model: Dynamics,
    actor: MLP,
    buffers: ModelBuffer,
    data: Float[Array, "C D"],
    index: Int[Array, ""],
    ends: Termination | None,
    observation_size: int,
    terminates: Terminates,
    reward: Reward | None,
) -> ModelBuffer:
    """Rollouts in the models; episodes end in them where the classifier says so, if there is one."""
    over = terminates if ends is None else termination.bound(ends)
    with agents.precision(config):
        return loop.refill_one(config, key, model, actor, buffers, data, index, observation_size, over, reward)[0]


@functools.partial(jax.jit, static_argnames=("config", "observation_size", "terminates", "reward"), donate_argnames="agent")
def rounds(
    config: DeepConfig,
    keys: Shaped[PRNGKeyArray, "F G 2"],
    number: Int[Array, ""],
    agent: Agent,
    model: Dynamics | None,
    buffers: ModelBuffer | None,
    data: Float[Array, "C D"],
    count: Int[Array, ""],
    ends: Termination | None,
    observation_size: int,
    terminates: Terminates,
    reward: Reward | None,
) -> tuple[Agent, Info, Bool[Array, ""]]:
    """The gradient rounds after step `number` of a segment."""
    over = terminates if ends is None else termination.bound(ends)
    with agents.precision(config):
        return loop.rounds(config, keys[number], agent, model, buffers, data, count, observation_size, over, reward)


@functools.partial(jax.jit, donate_argnames="data")
def append(data: Float[Array, "C D"], place: Int[Array, ""], row: Float[Array, " D"]) -> Float[Array, "C D"]:
    """The data with one more transition."""
    return data.at[place].set(row)


@jax.jit
def copied(tree: T) -> T:
    """The same arrays in memory of their own: programs above use their arguments up."""
    same: T = jax.tree.map(jnp.copy, tree)
    return same


@jax.jit
def finite(tree: Any) -> Bool[Array, ""]:
    """Whether no number is NaN or infinite."""
    floats = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return jnp.all(jnp.array([jnp.all(jnp.isfinite(leaf)) for leaf in floats]))
