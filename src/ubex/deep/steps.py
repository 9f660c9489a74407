"""The pieces of the deep algorithm (appendix, Algorithm 2), each a compiled function of all seeds, on a leading axis K.

A segment is F steps in the environment: the models are trained, their rollouts refill the buffers, and then every step is
followed by G gradient rounds. Segments are numbered; randomness depends on a seed's key and the numbers alone, so that a run
can stop and go on as if it had not. `loop.py` runs them as one program, `host.py` beside Gymnasium environments.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from ubex.deep import agents, dynamics, policy, rollout, termination
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
STRAGGLERS = 4
"""The models of all seeds are trained together until one seed in this many is left."""


def for_all_methods(*static: str, **options: Any) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Compiles a program that is no gradient round, once for all methods: what it gets for `config` is `beside_rounds`."""

    def wrapped(program: Callable[..., T]) -> Callable[..., T]:
        compiled = jax.jit(program, static_argnames=("config", *static), **options)

        def call(config: DeepConfig, *rest: Any) -> T:
            found: T = compiled(config.beside_rounds, *rest)
            return found

        return functools.update_wrapper(call, compiled)

    return wrapped


def capacity(config: DeepConfig, segments: int) -> int:
    """Transitions of a whole run."""
    return config.initial_steps + segments * config.retrain_every


def observed(config: DeepConfig, index: Int[Array, ""]) -> Int[Array, ""]:
    """Transitions before segment number `index`."""
    return config.initial_steps + index * config.retrain_every


@for_all_methods()
def initial_keys(config: DeepConfig, keys: Shaped[PRNGKeyArray, " K"]) -> Shaped[PRNGKeyArray, "K I"]:
    """Keys of the steps before training."""
    return jax.vmap(lambda key: jax.random.split(jax.random.split(named(key, "initial"), 3)[0], config.initial_steps))(keys)


def step_keys(
    config: DeepConfig, key: Key, index: Int[Array, ""]
) -> tuple[Shaped[PRNGKeyArray, " F"], Shaped[PRNGKeyArray, "F G 2"]]:
    """Keys of one seed's steps of segment number `index` in the environment, and of the gradient rounds after each."""
    for_steps, for_rounds = jax.random.split(named(jax.random.fold_in(key, index), "learn"))
    keys = jax.random.split(for_rounds, (config.retrain_every, config.updates_per_step, 2))
    return jax.random.split(for_steps, config.retrain_every), keys


@for_all_methods()
def all_step_keys(
    config: DeepConfig, keys: Shaped[PRNGKeyArray, " K"], index: Int[Array, ""]
) -> tuple[Shaped[PRNGKeyArray, "K F"], Shaped[PRNGKeyArray, "K F G 2"]]:
    """The same of all seeds."""
    return jax.vmap(lambda key: step_keys(config, key, index))(keys)


def action(task: Task, key: Key, actor: MLP, observation: Float[Array, " O"]) -> Float[Array, " A"]:
    """A sampled action of one seed, in [-1, 1] or one-hot."""
    return policy.of(task).draw(actor, observation, key)


@for_all_methods("task")
def act(
    config: DeepConfig,
    task: Task,
    keys: Shaped[PRNGKeyArray, "K F"],
    number: Int[Array, ""],
    actor: MLP,
    observation: Float[Array, "K O"],
) -> Float[Array, "K A"]:
    """The sampled actions of step `number` of a segment."""

    def one(keys: Shaped[PRNGKeyArray, " F"], actor: MLP, observation: Float[Array, " O"]) -> Float[Array, " A"]:
        return action(task, jax.random.split(keys[number], 3)[0], actor, observation)

    with agents.precision(config):
        return jax.vmap(one)(keys, actor, observation)


@for_all_methods("task")
def modes(config: DeepConfig, task: Task, actor: MLP, observation: Float[Array, "K O"]) -> Float[Array, "K A"]:
    """The mean action of every seed's policy, or the likeliest one."""
    with agents.precision(config):
        return jax.vmap(policy.of(task).mode)(actor, observation)


@for_all_methods("task")
def fit(
    config: DeepConfig,
    task: Task,
    keys: Shaped[PRNGKeyArray, " K"],
    model: Dynamics,
    data: Float[Array, "K C D"],
    index: Int[Array, ""],
) -> tuple[Dynamics, Fitted]:
    """Trains the models on all data before segment number `index`."""
    here = jax.vmap(lambda key: named(jax.random.fold_in(key, index), "fit"))(keys)
    with agents.precision(config):
        return dynamics.train(config, here, model, data, observed(config, index), task, len(keys) // STRAGGLERS)


@for_all_methods("task")
def fit_termination(
    config: DeepConfig,
    task: Task,
    keys: Shaped[PRNGKeyArray, " K"],
    ends: Termination,
    data: Float[Array, "K C D"],
    index: Int[Array, ""],
    seen: Bool[Array, " K"],
) -> Termination:
    """Learns where episodes end from the same data, for the seeds that have seen an end."""

    def one(key: Key, ends: Termination, data: Float[Array, "C D"], seen: Bool[Array, ""]) -> Termination:
        here = named(jax.random.fold_in(key, index), "termination")
        trained = termination.train(task, here, ends, data, observed(config, index))
        chosen: Termination = jax.tree.map(lambda new, old: jnp.where(seen, new, old), trained, ends)
        return chosen

    with agents.precision(config):
        return jax.vmap(one)(keys, ends, data, seen)


def ending(task: Task, ends: Termination | None) -> Task:
    """The task, whose episodes end in the models where it was learned, if it was."""
    return task if ends is None else task._replace(terminates=termination.bound(ends))


@for_all_methods("task", donate_argnames="buffers")
def refill(
    config: DeepConfig,
    task: Task,
    keys: Shaped[PRNGKeyArray, " K"],
    model: Dynamics,
    actor: MLP,
    data: Float[Array, "K C D"],
    buffers: ModelBuffer,
    index: Int[Array, ""],
    ends: Termination | None = None,
) -> tuple[ModelBuffer, Outlook]:
    """Rollouts in the models before segment number `index`, into the buffers, which are used up.

    The optimisers of the models and of the terminations are not asked for, and may be None.
    """

    def one(
        key: Key,
        model: Dynamics,
        actor: MLP,
        data: Float[Array, "C D"],
        buffers: ModelBuffer,
        ends: Termination | None,
    ) -> tuple[ModelBuffer, Outlook]:
        here = named(jax.random.fold_in(key, index), "rollouts")
        return rollout.refill(config, ending(task, ends), here, model, actor, buffers, data, observed(config, index))

    with agents.precision(config):
        made: tuple[ModelBuffer, Outlook] = jax.vmap(one)(keys, model, actor, data, buffers, ends)
    return made


def rounds(
    config: DeepConfig,
    task: Task,
    keys: Shaped[PRNGKeyArray, "G 2"],
    agent: AgentState,
    model: Dynamics | None,
    buffers: ModelBuffer | None,
    data: Float[Array, "C D"] | None,
    count: Int[Array, ""],
) -> tuple[AgentState, Info, Bool[Array, ""]]:
    """The gradient rounds of one seed after one step: the agent, averages, and whether some loss is not finite.

    Agents without a model learn from the first `count` rows of the data; others do not look at them.
    """

    if model is not None and config.has_unet and config.precision == "split16":
        model = model._replace(networks=with_split_weights(model.networks))  # once, not in every round

    def update(agent: AgentState, keys: Shaped[PRNGKeyArray, "2"]) -> tuple[AgentState, Float[Array, " I"]]:
        noise = draw_noise(config, task, keys[0])
        shared, own = batches(config, task, keys[1], buffers, data, count)
        agent, info = gradient_round(config, task, noise, agent, model, shared, own)
        return agent, jnp.stack(info)  # in one piece: a GPU would need a kernel for each number of a round

    agent, infos = jax.lax.scan(update, agent, keys)
    info = Info(*jnp.mean(infos, axis=0))
    losses = (info.critic_loss, info.actor_loss, info.u_loss) if config.has_unet else (info.critic_loss, info.actor_loss)
    return agent, info, ~jnp.all(jnp.isfinite(jnp.stack(losses)))


@functools.partial(jax.jit, static_argnames=("config", "task"), donate_argnames="agent")
def rounds_after(
    config: DeepConfig,
    task: Task,
    keys: Shaped[PRNGKeyArray, "K F G 2"],
    number: Int[Array, ""],
    agent: AgentState,
    model: Dynamics | None,
    buffers: ModelBuffer | None,
    data: Float[Array, "K C D"] | None,
    count: Int[Array, ""],
    ends: Termination | None,
) -> tuple[AgentState, Info, Bool[Array, " K"]]:
    """The gradient rounds of all seeds after step `number` of a segment; the agents are used up."""

    def one(
        keys: Shaped[PRNGKeyArray, "F G 2"],
        agent: AgentState,
        model: Dynamics | None,
        buffers: ModelBuffer | None,
        data: Float[Array, "C D"] | None,
        ends: Termination | None,
    ) -> tuple[AgentState, Info, Bool[Array, ""]]:
        return rounds(config, ending(task, ends), keys[number], agent, model, buffers, data, count)

    with agents.precision(config):
        made: tuple[AgentState, Info, Bool[Array, " K"]] = jax.vmap(one)(keys, agent, model, buffers, data, ends)
    return made


def batches(
    config: DeepConfig,
    task: Task,
    key: Key,
    buffers: ModelBuffer | None,
    data: Float[Array, "C D"] | None,
    count: Int[Array, ""],
) -> tuple[Batch, Batch]:
    """A batch of the model-randomised buffer, and one of each model's own; without a model, of the data."""
    if buffers is None:
        assert data is not None
        bits = jax.random.bits(key, (config.batch_size,), jnp.uint32)
        batch = unpack(data[below(bits, count)], task.observation_size)
        return batch, batch
    bits = jax.random.bits(key, (config.num_buffers, config.batch_size), jnp.uint32)
    drawn = unpack(jax.vmap(pick)(bits, buffers), task.observation_size)
    shared = Batch(*(x[0] for x in drawn))
    return shared, shared if config.twin else Batch(*(x[1:] for x in drawn))


@functools.partial(jax.jit, donate_argnames="data")
def append(data: Float[Array, "K C D"], place: Int[Array, ""], rows: Float[Array, "K R D"]) -> Float[Array, "K C D"]:
    """The data with more transitions of every seed."""
    return jax.lax.dynamic_update_slice_in_dim(data, rows, place, axis=1)


@jax.jit
def copied(tree: T) -> T:
    """The same arrays in memory of their own: some functions above use their arguments up."""
    same: T = jax.tree.map(jnp.copy, tree)
    return same


def on_processor(tree: T) -> T:
    """The same arrays beside the processor, where a small network answers one question sooner than on a GPU.

    Where JAX was told to know the GPU alone, they stay there.
    """
    try:
        processor = jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return tree
    same: T = jax.device_put(tree, processor)
    return same


@jax.jit
def finite(tree: Any) -> Bool[Array, " K"]:
    """Whether no number of a seed is NaN or infinite."""
    floats = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf.reshape(leaf.shape[0], -1)), axis=1) for leaf in floats]), axis=0)
