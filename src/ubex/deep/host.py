"""The deep loop for environments that live on the host, one seed: the pieces of `steps.py`, driven from Python.

While the environment makes a step, the device is already busy with the gradient rounds after it: agents with a model do not
need the new transition for them. `sac` does, and waits for it. Randomness depends on the key and on the numbers of the step and
the episode alone, as in the compiled loop, so a run that was stopped goes on as if it had not been.

An environment's own state is not saved, but made again: its episode began with a seed that is known, and the actions since are
in the data. Where other observations or rewards come back, a new episode begins.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Shaped

from ubex.deep import agents, dynamics, refills, steps, termination
from ubex.deep.agents import Agent, Info
from ubex.deep.buffer import ModelBuffer, empty, width
from ubex.deep.config import DeepConfig
from ubex.deep.dynamics import Dynamics, Fitted
from ubex.deep.refills import Refill
from ubex.deep.rollout import Outlook
from ubex.deep.termination import Termination
from ubex.envs.adapter import Moved, World
from ubex.envs.task import Task
from ubex.keys import named
from ubex.types import InputError, Key

LOG = logging.getLogger("ubex")
LOSSES = ("critic_loss", "actor_loss", "u_loss")
SEED_LIMIT = 2**31
"""Seeds of environments are below it."""


class HostState(NamedTuple):
    """What a run carries on, and what a checkpoint holds."""

    agent: Agent
    dynamics: Dynamics | None
    """None for agents without a model."""
    termination: Termination | None
    """None unless terminations are learned."""
    refills: tuple[Refill, ...]
    """What made the rollouts, which are not held: so they can be made again."""
    data: Float[np.ndarray, "C D"]
    """All transitions so far, oldest first."""
    pending: Float[np.ndarray, " A"]
    """The action of the next step where its gradient rounds were made already, but the environment failed; else NaN."""
    step: int
    """Steps in the environment so far, which is the number of transitions."""
    episodes: int
    """Finished episodes."""
    begun: int
    """Episodes that were begun."""
    elapsed: int
    """Steps of the episode under way; 0 where there is none."""
    capacity: int
    """Transitions that programs are compiled for: draws depend on it."""
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
    """The last gradient rounds; None before training."""


class Shares(NamedTuple):
    """Seconds of a run, by what they were spent on."""

    environment: float
    device: float
    """Starting its work and waiting for it, compilation included; on a CPU rounds may run while they are started."""
    rest: float


def begin(
    config: DeepConfig,
    task: Task,
    key: Key,
    rows: int = 0,
    learn_ends: bool = False,
    ends_known: Sequence[bool] = (),
) -> HostState:
    """An untrained agent, with places for this many transitions; `learn_ends` for one that learns where episodes end.

    `ends_known` says of every retraining whose rollouts are to be made again whether such an end had been seen.
    """
    if not config.initial_resets:
        raise InputError("initial_resets must be True: environments on the host begin their episodes anew at the horizon")
    agent = agents.init(config, named(key, "agent"), task)
    modelled = config.model_based
    model = dynamics.init(config, named(key, "model"), task) if modelled else None
    ends = termination.init(named(key, "termination"), task) if modelled and learn_ends else None
    data, none = (
        np.zeros((rows, width(task.observation_size, task.action_size)), np.float32),
        np.full(task.action_size, np.nan, np.float32),
    )
    history = tuple[Refill, ...]()
    if model is not None:
        written = np.zeros(config.num_buffers, np.int32)
        history = tuple(refills.recorded(0, written, model, agent.actor, ends if known else None) for known in ends_known)
    return HostState(agent, model, ends, history, data, none, 0, 0, 0, 0, 0, key)


class HostLoop:
    """One run: the state, and what is made from it again when a run goes on. Its attributes change from step to step."""

    def __init__(self, config: DeepConfig, world: World, state: HostState) -> None:
        """Goes on from a state."""
        self.config, self.world = config, world
        self.data = state.data
        self._take(state)
        self.buffers: ModelBuffer | None = None
        self.fitted: Fitted | None = None
        """How the last training of the models went."""
        self.spent = Shares(0.0, 0.0, 0.0)
        self._on_device = jnp.zeros((1, self.data.shape[1]), jnp.float32)  # the transitions, for agents that learn from them
        self._keys: tuple[int, Shaped[PRNGKeyArray, " F"], Shaped[PRNGKeyArray, "F G 2"] | None] | None = None
        self._sound: HostState | None = None
        self._ends: Termination | None = None

    def _take(self, state: HostState) -> None:
        """Everything but the data, of which only the number of rows counts."""
        self.agent: Agent = steps.copied(state.agent)  # rounds use their arguments up, and targets start as the same arrays
        self.dynamics, self.termination, self.refills = state.dynamics, state.termination, state.refills
        self.pending = None if np.isnan(state.pending).any() else state.pending
        self.count, self.episodes, self.begun, self.elapsed = state.step, state.episodes, state.begun, state.elapsed
        self.capacity, self.key = state.capacity, state.key
        self.buffers = None
        self._last: tuple[int, Info, Bool[Array, ""]] | None = None

    @property
    def state(self) -> HostState:
        """What a checkpoint holds."""
        pending = np.full(self.world.task.action_size, np.nan, np.float32) if self.pending is None else self.pending
        learned = (self.agent, self.dynamics, self.termination, self.refills, self.data[: self.count], pending)
        return HostState(*learned, self.count, self.episodes, self.begun, self.elapsed, self.capacity, self.key)

    def run(self, steps: int, watch: Callable[[Episode], bool]) -> None:
        """Makes this many steps; `watch` sees every finished episode and says whether to go on.

        When the environment fails, everything up to the step before is kept and the loop can go on. At a loss that is not
        finite, the loop goes back to the last training of the models, or the start of the run if that is later.
        """
        began, before = time.perf_counter(), self.spent
        try:
            self._steps(self.count + steps, watch)
        finally:
            rest = time.perf_counter() - began - sum(self.spent[:2]) + sum(before[:2])
            self.spent = self.spent._replace(rest=self.spent.rest + rest)

    def _steps(self, goal: int, watch: Callable[[Episode], bool]) -> None:
        self._make_room(goal)
        self._sound = None
        observation, total = self._resume() if self.elapsed else (self._reset(), 0.0)
        while self.count < goal:
            index, number = self._place()
            training, early = index >= 0, self.config.model_based
            if training and (number == 0 or self._sound is None):
                self._secure()
            if training and self.config.model_based and self.pending is None:
                self._retrain(index, number)
            action = self.pending
            if action is None:
                action = self._choose(index, number, observation)
                if training and early:
                    self.pending = action
                    self._dispatch(number, self.count)
            moved = self._move(action)
            self._keep(observation, action, moved)
            if training and not early:
                self._dispatch(number, self.count - 1)
            observation, total = moved.observation, total + moved.reward
            if moved.terminated or moved.truncated:
                length, self.elapsed = self.elapsed, 0
                self.episodes += 1
                self._check()
                info = None if self._last is None else self._last[1]
                if not watch(Episode(self.episodes - 1, self.count, total, length, info)):
                    break
                if self.count < goal:
                    observation, total = self._reset(), 0.0
        self._check()

    def _place(self) -> tuple[int, int]:
        """The segment of the next step and its number there; segment -1 is what comes before training."""
        first = self.config.initial_steps
        return divmod(self.count - first, self.config.retrain_every) if self.count >= first else (-1, self.count)

    def _make_room(self, rows: int) -> None:
        """Programs are compiled for a capacity: it is fixed while a run lasts, and at least doubled by a longer one."""
        if rows > self.capacity:
            self.capacity = max(rows, 2 * self.capacity)
        if self.data.shape[0] < self.capacity:
            room = np.zeros((self.capacity, self.data.shape[1]), np.float32)
            room[: self.count] = self.data[: self.count]
            self.data = room
        if not self.config.model_based:
            self._on_device = jnp.array(self.data.copy())

    def _seed(self) -> int:
        """Of the episode under way."""
        key = jax.random.fold_in(named(self.key, "environment"), self.begun - 1)
        return int(jax.random.bits(key, dtype=jnp.uint32)) % SEED_LIMIT

    def _reset(self) -> Float[np.ndarray, " O"]:
        """A new episode."""
        start = time.perf_counter()
        self.begun, self.elapsed, self.pending = self.begun + 1, 0, None
        observation = self.world.reset(self.count, self._seed())
        self._add(environment=time.perf_counter() - start)
        return observation

    def _resume(self) -> tuple[Float[np.ndarray, " O"], float]:
        """The observation and the return so far of the episode under way, or of a new one where it cannot be had again."""
        start = time.perf_counter()
        first, size = self.count - self.elapsed, self.world.task.observation_size
        acted, total = slice(size, size + self.world.task.action_size), 0.0
        observation = self.world.reset(first, self._seed())
        for number in range(first, self.count):
            row = self.data[number]
            if not np.array_equal(observation, row[:size]):
                break  # before an action is made anew where nobody expects it
            moved = self.world.step(row[acted], number, number - first)
            observation, total = moved.observation, total + moved.reward
            if not (np.array_equal(observation, row[-size - 1 : -1]) and np.float32(moved.reward) == row[acted.stop]):
                break
        else:
            self._add(environment=time.perf_counter() - start)
            LOG.info("going on at step %d, %d steps into an episode that was made again", self.count, self.elapsed)
            return observation, total
        self._add(environment=time.perf_counter() - start)
        LOG.warning(
            "%s does not give the same episode for the same seed and actions: going on at step %d with a new one",
            self.world.name,
            self.count,
        )
        return self._reset(), 0.0

    def _move(self, action: Float[np.ndarray, " A"]) -> Moved:
        start = time.perf_counter()
        moved = self.world.step(action, self.count, self.elapsed)
        self._add(environment=time.perf_counter() - start)
        return moved

    def _add(self, environment: float = 0.0, device: float = 0.0) -> None:
        self.spent = self.spent._replace(environment=self.spent.environment + environment, device=self.spent.device + device)

    def _retrain(self, index: int, number: int) -> None:
        """At the start of a segment new models and new rollouts; where a run goes on, the rollouts that it had again."""
        if number > 0 and self.buffers is not None:
            return
        assert self.dynamics is not None
        start = time.perf_counter()
        data, place, task = jnp.array(self.data.copy()), np.int32(index), self.world.task
        if self.buffers is None:
            one, number_of = empty(self.config, self.data.shape[1]), self.config.num_buffers
            blank: ModelBuffer = jax.tree.map(lambda x: jnp.zeros((number_of, *x.shape), x.dtype), one)
            self.buffers = refills.again(self.refills, blank, functools.partial(self._refill, data))
        if number == 0:
            self.dynamics, self.fitted = steps.fit(self.config, task, self.key, self.dynamics, data, place)
            if self.termination is not None and self.data[: self.count, -1].any():
                ends = (self.termination, data, place)
                self.termination = steps.fit_termination(self.config, task, self.key, *ends)
        self._ends = None  # nothing is compiled for the classifier before it has seen a termination
        if self.termination is not None and np.isfinite(self.termination.log_odds):
            self._ends = self.termination
        if number == 0:
            buffers, self.buffers = self.buffers, None
            made = refills.recorded(index, buffers.written, self.dynamics, self.agent.actor, self._ends)
            self.buffers = self._refill(data, buffers, made)
            self.refills = refills.needed((*self.refills, made), self.buffers)
        self.buffers.written.block_until_ready()
        self._add(device=time.perf_counter() - start)

    def _refill(self, data: Float[Array, "C D"], buffers: ModelBuffer, made: Refill) -> ModelBuffer:
        """The buffers, used up, with the rollouts of one retraining."""
        known = (made.dynamics, made.actor, buffers, data, made.segment, made.termination)
        filled: tuple[ModelBuffer, Outlook] = steps.refill(self.config, self.world.task, self.key, *known)
        return filled[0]

    def _choose(self, index: int, number: int, observation: Float[np.ndarray, " O"]) -> Float[np.ndarray, " A"]:
        """A sampled action, after the rounds before it are done."""
        start = time.perf_counter()
        if self._keys is None or self._keys[0] != index:
            if index < 0:
                self._keys = (index, steps.initial_keys(self.config, self.key), None)
            else:
                self._keys = (index, *steps.step_keys(self.config, self.key, np.int32(index)))
        at = np.int32(number)
        action = np.asarray(steps.act(self.config, self.world.task, self._keys[1], at, self.agent.actor, observation))
        self._add(device=time.perf_counter() - start)
        self._check()
        return action

    def _dispatch(self, number: int, step: int) -> None:
        """Starts the rounds after this step; nothing waits for them here."""
        assert self._keys is not None
        assert self._keys[2] is not None
        start = time.perf_counter()
        at, count = np.int32(number), np.int32(self.count)
        known = (self.dynamics, self.buffers, self._on_device, count, self._ends)
        self.agent, info, bad = steps.rounds_after(self.config, self.world.task, self._keys[2], at, self.agent, *known)
        self._last = (step, info, bad)
        self._add(device=time.perf_counter() - start)

    def _secure(self) -> None:
        """Remembers the run as it is now, to go back to when a loss is not finite."""
        self._check()
        start = time.perf_counter()
        if not bool(steps.finite(self.agent)):
            self._go_back(f"a weight is not finite at step {self.count}")
        self._sound = self.state._replace(agent=steps.copied(self.agent))
        self._add(device=time.perf_counter() - start)

    def _check(self) -> None:
        """Stops at a loss that is not finite."""
        start = time.perf_counter()
        bad = self._last is not None and bool(self._last[2])
        self._add(device=time.perf_counter() - start)
        if bad:
            assert self._last is not None
            step, info, _ = self._last
            names = LOSSES if self.config.has_unet else LOSSES[:2]
            found = [name for name in names if not np.isfinite(getattr(info, name))]
            self._go_back(f"{' and '.join(found) or 'a loss'} is not finite at step {step}")

    def _go_back(self, why: str) -> None:
        """Raises, with the agent as it was when its numbers were sound."""
        kept = ""
        if self._sound is not None:
            self._take(self._sound)
            kept = f"; the agent is kept as it was at step {self.count}"
        raise FloatingPointError(f"{why}{kept}")

    def _keep(self, observation: Float[np.ndarray, " O"], action: Float[np.ndarray, " A"], moved: Moved) -> None:
        row = self.data[self.count]
        ends = np.array([moved.terminated], np.float32)
        row[:] = np.concatenate((observation, action, np.array([moved.reward], np.float32), moved.observation, ends))
        if not self.config.model_based:
            self._on_device = steps.append(self._on_device, np.int32(self.count), row.copy())
        self.count, self.elapsed, self.pending = self.count + 1, self.elapsed + 1, None
