"""The deep loop for environments that live on the host, one seed: the rounds of `loop.py`, driven from Python.

While the environment makes a step, the device is already busy with the gradient rounds after it: agents with a model do not
need the new transition for them. Randomness depends on the key and the number of the step alone, as in the compiled loop.

Differs from the paper: `sac` learns from each transition one step later than in the compiled loop, for the same reason.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from ubex.deep import agents, dynamics, loop
from ubex.deep.agents import Agent, Info
from ubex.deep.buffer import ModelBuffer, empty, width
from ubex.deep.config import DeepConfig
from ubex.deep.dynamics import Dynamics, Fitted
from ubex.deep.networks import MLP
from ubex.deep.rollout import Terminates
from ubex.envs.adapter import Moved, World
from ubex.keys import named
from ubex.types import Key

LOG = logging.getLogger("ubex")
LOSSES = ("critic_loss", "actor_loss", "u_loss")
SEED_LIMIT = 2**31
"""Seeds of environments are below it."""


class HostState(NamedTuple):
    """What a run carries on, and what a checkpoint holds: not the environment's own state, nor the models' rollouts."""

    agent: Agent
    dynamics: Dynamics | None
    """None for agents without a model."""
    data: Float[np.ndarray, "C D"]
    """All transitions so far, oldest first."""
    step: int
    """Steps in the environment so far, which is the number of transitions."""
    episodes: int
    """Finished episodes."""
    key: Key


class Episode(NamedTuple):
    """A finished episode."""

    number: int
    """Counted from 0."""
    step: int
    """Steps in the environment so far."""
    reward: float
    """Its return, undiscounted."""
    length: int
    info: Info | None
    """The gradient rounds after its last step but one; None before training."""


class Shares(NamedTuple):
    """Seconds of a run, by what they were spent on."""

    environment: float
    device: float
    """Starting its work and waiting for it, compilation included; on a CPU rounds may run while they are started."""
    rest: float


def begin(config: DeepConfig, key: Key, observation_size: int, action_size: int, rows: int = 0) -> HostState:
    """An untrained agent, with places for this many transitions."""
    sizes = (observation_size, action_size)
    agent = agents.init(config, named(key, "agent"), *sizes)
    model = dynamics.init(config, named(key, "model"), *sizes) if config.model_based else None
    return HostState(agent, model, np.zeros((rows, width(*sizes)), np.float32), 0, 0, key)


@functools.partial(jax.jit, static_argnames="config")
def _initial_keys(config: DeepConfig, key: Key) -> Shaped[PRNGKeyArray, " I"]:
    return jax.random.split(jax.random.split(named(key, "initial"), 3)[0], config.initial_steps)


_step_keys = functools.partial(jax.jit, static_argnames="config")(loop.step_keys)


@functools.partial(jax.jit, static_argnames=("config", "action_size"))
def _act(
    config: DeepConfig,
    keys: Shaped[PRNGKeyArray, " F"],
    number: Int[Array, ""],
    actor: MLP,
    observation: Float[Array, " O"],
    action_size: int,
) -> Float[Array, " A"]:
    with agents.precision(config):
        return loop.act(jax.random.split(keys[number], 3)[0], actor, observation, action_size)


@functools.partial(jax.jit, static_argnames=("config", "observation_size"))
def _fit(
    config: DeepConfig, key: Key, model: Dynamics, data: Float[Array, "C D"], index: Int[Array, ""], observation_size: int
) -> tuple[Dynamics, Fitted]:
    with agents.precision(config):
        return loop.fit_one(config, key, model, data, index, observation_size)


@functools.partial(jax.jit, static_argnames=("config", "observation_size", "terminates"), donate_argnames="buffers")
def _imagine(
    config: DeepConfig,
    key: Key,
    model: Dynamics,
    actor: MLP,
    buffers: ModelBuffer,
    data: Float[Array, "C D"],
    index: Int[Array, ""],
    observation_size: int,
    terminates: Terminates,
) -> ModelBuffer:
    with agents.precision(config):
        return loop.imagine_one(config, key, model, actor, buffers, data, index, observation_size, terminates)


@functools.partial(jax.jit, static_argnames=("config", "observation_size", "terminates"), donate_argnames="agent")
def _rounds(
    config: DeepConfig,
    keys: Shaped[PRNGKeyArray, "F G 2"],
    number: Int[Array, ""],
    agent: Agent,
    model: Dynamics | None,
    buffers: ModelBuffer | None,
    data: Float[Array, "C D"],
    count: Int[Array, ""],
    observation_size: int,
    terminates: Terminates,
) -> tuple[Agent, Info, Bool[Array, ""]]:
    with agents.precision(config):
        return loop.rounds(config, keys[number], agent, model, buffers, data, count, observation_size, terminates)


@functools.partial(jax.jit, donate_argnames="data")
def _append(data: Float[Array, "C D"], place: Int[Array, ""], row: Float[Array, " D"]) -> Float[Array, "C D"]:
    return data.at[place].set(row)


class HostLoop:
    """One run: the state, and what is made from it again when a run goes on. Its attributes change from step to step."""

    def __init__(self, config: DeepConfig, world: World, state: HostState) -> None:
        """Goes on from a state; the environment begins a new episode, since its own state cannot be had."""
        self.config, self.world = config, world
        own: Agent = jax.tree.map(jnp.array, state.agent)  # rounds use their arguments up, and targets start as the same arrays
        self.agent, self.dynamics = own, state.dynamics
        self.data, self.count, self.episodes, self.key = state.data, state.step, state.episodes, state.key
        self.buffers: ModelBuffer | None = None
        self.fitted: Fitted | None = None
        """How the last training of the models went."""
        self.spent = Shares(0.0, 0.0, 0.0)
        self._on_device = jnp.zeros((1, self.data.shape[1]), jnp.float32)  # the transitions, for agents that learn from them
        self._keys: tuple[int, Shaped[PRNGKeyArray, " F"], Shaped[PRNGKeyArray, "F G 2"] | None] | None = None
        self._last: tuple[int, Info, Bool[Array, ""]] | None = None

    @property
    def state(self) -> HostState:
        """What a checkpoint holds."""
        return HostState(self.agent, self.dynamics, self.data[: self.count], self.count, self.episodes, self.key)

    def run(self, steps: int, watch: Callable[[Episode], bool]) -> None:
        """Makes this many steps; `watch` sees every finished episode and says whether to go on.

        When something fails, everything up to the step before is kept and the loop can go on.
        """
        if self.count > 0:
            LOG.info("going on at step %d with a new episode: an environment's own state is not kept", self.count)
        began, before = time.perf_counter(), self.spent
        try:
            self._steps(self.count + steps, watch)
        finally:
            rest = time.perf_counter() - began - sum(self.spent[:2]) + sum(before[:2])
            self.spent = self.spent._replace(rest=self.spent.rest + rest)

    def _steps(self, goal: int, watch: Callable[[Episode], bool]) -> None:
        self._make_room(goal)
        seed = int(jax.random.bits(jax.random.fold_in(named(self.key, "environment"), self.count), dtype=jnp.uint32))
        observation, total, length = self._reset(seed % SEED_LIMIT), 0.0, 0
        while self.count < goal:
            index, number = self._place()
            training = index >= 0
            if training and self.config.model_based:
                self._retrain(index, number)
            action = self._choose(index, number, observation)
            if training:
                self._dispatch(number)
            moved = self._move(action, length)
            self._keep(observation, action, moved)
            observation, total, length = moved.observation, total + moved.reward, length + 1
            if moved.terminated or moved.truncated:
                info = None if self._last is None else self._last[1]
                self.episodes += 1
                if not watch(Episode(self.episodes - 1, self.count, total, length, info)):
                    break
                if self.count < goal:
                    observation, total, length = self._reset(None), 0.0, 0
        self._check()

    def _place(self) -> tuple[int, int]:
        """The segment of the next step and its number there; segment -1 is what comes before training."""
        first = self.config.initial_steps
        return divmod(self.count - first, self.config.retrain_every) if self.count >= first else (-1, self.count)

    def _make_room(self, rows: int) -> None:
        """Programs are compiled for a capacity: it is fixed while a run lasts, and at least doubled by one that goes on."""
        places, row = self.data.shape
        if rows > places:
            room = np.zeros((max(rows, 2 * places), row), np.float32)
            room[: self.count] = self.data[: self.count]
            self.data = room
        if not self.config.model_based:
            self._on_device = jnp.array(self.data.copy())

    def _reset(self, seed: int | None) -> Float[np.ndarray, " O"]:
        start = time.perf_counter()
        observation = self.world.reset(self.count, seed)
        self._add(environment=time.perf_counter() - start)
        return observation

    def _move(self, action: Float[np.ndarray, " A"], length: int) -> Moved:
        start = time.perf_counter()
        moved = self.world.step(action, self.count, length)
        self._add(environment=time.perf_counter() - start)
        return moved

    def _add(self, environment: float = 0.0, device: float = 0.0) -> None:
        self.spent = self.spent._replace(environment=self.spent.environment + environment, device=self.spent.device + device)

    def _retrain(self, index: int, number: int) -> None:
        """At the start of a segment new models and new rollouts; where a run goes on within one, rollouts alone."""
        if number > 0 and self.buffers is not None:
            return
        assert self.dynamics is not None
        start = time.perf_counter()
        data, place, size = jnp.array(self.data.copy()), jnp.asarray(index, jnp.int32), self.world.observation_size
        if number == 0:
            self.dynamics, self.fitted = _fit(self.config, self.key, self.dynamics, data, place, size)
        buffers, self.buffers = self.buffers, None
        if buffers is None:
            one, number_of = empty(self.config, self.data.shape[1]), self.config.num_buffers
            buffers = jax.tree.map(lambda x: jnp.zeros((number_of, *x.shape), x.dtype), one)
        assert buffers is not None
        known = (self.dynamics, self.agent.actor, buffers, data, place, size, self.world.terminates)
        self.buffers = _imagine(self.config, self.key, *known)
        self.buffers.counts.block_until_ready()
        self._add(device=time.perf_counter() - start)

    def _choose(self, index: int, number: int, observation: Float[np.ndarray, " O"]) -> Float[np.ndarray, " A"]:
        """A sampled action, after the rounds before it are done."""
        start = time.perf_counter()
        if self._keys is None or self._keys[0] != index:
            if index < 0:
                self._keys = (index, _initial_keys(self.config, self.key), None)
            else:
                self._keys = (index, *_step_keys(self.config, self.key, jnp.asarray(index, jnp.int32)))
        at, size = np.int32(number), self.world.action_size
        action = np.asarray(_act(self.config, self._keys[1], at, self.agent.actor, observation, size))
        self._check()
        self._add(device=time.perf_counter() - start)
        return action

    def _dispatch(self, number: int) -> None:
        """Starts the rounds after this step; nothing waits for them here."""
        assert self._keys is not None
        assert self._keys[2] is not None
        start = time.perf_counter()
        at, count = np.int32(number), np.int32(self.count)
        known = (self.dynamics, self.buffers, self._on_device, count, self.world.observation_size, self.world.terminates)
        self.agent, info, bad = _rounds(self.config, self._keys[2], at, self.agent, *known)
        self._last = (self.count, info, bad)
        self._add(device=time.perf_counter() - start)

    def _check(self) -> None:
        """Stops at a loss that is not finite."""
        if self._last is not None and bool(self._last[2]):
            step, info, _ = self._last
            names = LOSSES if self.config.has_unet else LOSSES[:2]
            bad = [name for name in names if not np.isfinite(getattr(info, name))]
            raise FloatingPointError(f"{' and '.join(bad) or 'a loss'} is not finite at step {step}")

    def _keep(self, observation: Float[np.ndarray, " O"], action: Float[np.ndarray, " A"], moved: Moved) -> None:
        row = self.data[self.count]
        ends = np.array([moved.terminated], np.float32)
        row[:] = np.concatenate((observation, action, np.array([moved.reward], np.float32), moved.observation, ends))
        if not self.config.model_based:
            self._on_device = _append(self._on_device, np.int32(self.count), row.copy())
        self.count += 1
