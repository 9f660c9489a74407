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
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Shaped

from ubex.deep import agents, dynamics, refills, steps, termination
from ubex.deep.agents import AgentState, Info
from ubex.deep.buffer import ModelBuffer, empty, width
from ubex.deep.clock import Clock
from ubex.deep.config import DeepConfig
from ubex.deep.dynamics import Dynamics, Fitted
from ubex.deep.refills import Refill
from ubex.deep.rollout import Outlook
from ubex.deep.termination import Termination
from ubex.envs.adapter import Episode, HostedEnv, Moved
from ubex.envs.task import Task
from ubex.keys import named
from ubex.types import InputError, Key

LOG = logging.getLogger("ubex")
LOSSES = ("critic_loss", "actor_loss", "u_loss")
SEED_LIMIT = 2**31
"""Seeds of environments are below it."""


class HostState(NamedTuple):
    """What a run carries on, and what a checkpoint holds."""

    agent: AgentState
    dynamics: Dynamics | None
    """None for agents without a model."""
    termination: Termination | None
    """None unless terminations are learned."""
    refills: tuple[Refill, ...]
    """What made the rollouts, which are not held: so they can be made again."""
    data: Float[np.ndarray, "C D"]
    """All transitions so far, oldest first; in a run there are free places after them, which are written in place."""
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


class Rounds(NamedTuple):
    """The last gradient rounds, which the device may still be busy with."""

    step: int
    info: Info
    bad: Bool[Array, ""]
    """Whether a loss is not finite."""


class HostRun(NamedTuple):
    """A state, and what is made from it again when a run goes on."""

    state: HostState
    buffers: ModelBuffer | None = None
    on_device: Float[Array, "C D"] | None = None
    """The transitions, for agents that learn from them."""
    keys: tuple[int, Shaped[PRNGKeyArray, " F"], Shaped[PRNGKeyArray, "F G 2"] | None] | None = None
    """A segment, and the keys of its steps and rounds."""
    ends: Termination | None = None
    """The classifier of terminations, once it has seen one: nothing is compiled for it before."""
    fitted: Fitted | None = None
    """How the last training of the models went."""
    observation: Float[np.ndarray, " O"] | None = None
    """Of the episode under way; None where it is still to be begun, or made again."""
    total: float = 0.0
    """Its return so far."""
    action: Float[np.ndarray, " A"] | None = None
    """What is done next; None where it is still to be chosen."""
    last: Rounds | None = None
    sound: HostState | None = None
    """Where to go back to at a loss that is not finite."""


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
    data = np.zeros((rows, width(task.observation_size, task.action_size)), np.float32)
    history = tuple[Refill, ...]()
    if model is not None:
        written = np.zeros(config.num_buffers, np.int32)
        history = tuple(refills.recorded(0, written, model, agent.actor, ends if known else None) for known in ends_known)
    return HostState(agent, model, ends, history, data, no_action(task), 0, 0, 0, 0, 0, key)


def no_action(task: Task) -> Float[np.ndarray, " A"]:
    """What stands for an action where none is pending."""
    return np.full(task.action_size, np.nan, np.float32)


@dataclass(frozen=True)
class HostLoop:
    """The loop of one agent on one environment: functions of a run, which use up what they are given."""

    config: DeepConfig
    env: HostedEnv
    clock: Clock = field(default_factory=Clock, kw_only=True)

    def done(self, run: HostRun) -> int:
        """Steps."""
        return run.state.step

    def restore(self, kept: HostState) -> HostRun:
        """A run that goes on. Rounds use their arguments up, and targets start as the same arrays: so it has a copy."""
        return HostRun(kept._replace(agent=steps.copied(kept.agent)))

    def whole(self, run: HostRun) -> HostRun:
        """The run, or the last sound state where an interrupt came while the agent was being used up."""
        return self.restore(run.sound) if run.sound is not None and run.state.agent.log_alpha.is_deleted() else run

    def kept(self, run: HostRun) -> HostState:
        """What a checkpoint holds: no free places."""
        state = self.whole(run).state
        return state._replace(data=state.data[: state.step])

    def notes(self, run: HostRun) -> dict[str, Any]:
        """Transitions, and for every retraining whose rollouts are held whether a termination had been seen."""
        state = self.whole(run).state
        return {"rows": state.step, "refills": [one.termination is not None for one in state.refills]}

    def ready(self, run: HostRun, goal: int) -> HostRun:
        """A run that is about to go on to step `goal`; its episode is made again, since others may have used the environment.

        Programs are compiled for a capacity: it is fixed while a run lasts, and at least doubled by a longer one.
        """
        self.clock.start()
        run = self.whole(run)
        state, buffers = run.state, run.buffers
        room, capacity = state.data, state.capacity if goal <= state.capacity else max(goal, 2 * state.capacity)
        if room.shape[0] < capacity:
            room = np.zeros((capacity, state.data.shape[1]), np.float32)
            room[: state.step] = state.data[: state.step]
        if buffers is not None and buffers.rows.is_deleted():  # by an interrupt
            buffers = None
        return run._replace(
            state=state._replace(data=room, capacity=capacity),
            buffers=buffers,
            on_device=jnp.zeros((1, room.shape[1]), jnp.float32) if self.config.model_based else jnp.array(room.copy()),
            observation=None,
            action=None,
            sound=None,
        )

    def advance(self, run: HostRun, goal: int) -> tuple[HostRun, Episode | FloatingPointError | None]:
        """One piece on the way to step `goal`: a reset, the choice of an action, or a step, which may end an episode.

        When the environment fails in a piece, the run before it is good. At a loss that is not finite, the run goes back to
        the last training of the models, or its own start if that is later, and says why.
        """
        if run.observation is None:
            return (self._resume(run) if run.state.elapsed else self._reset(run)), None
        return self._choose(run) if run.action is None else self._move(run, run.observation, run.action, goal)

    def _place(self, state: HostState) -> tuple[int, int]:
        """The segment of the next step and its number there; segment -1 is what comes before training."""
        first = self.config.initial_steps
        return divmod(state.step - first, self.config.retrain_every) if state.step >= first else (-1, state.step)

    def _reset(self, run: HostRun) -> HostRun:
        """A new episode."""
        state = run.state._replace(begun=run.state.begun + 1, elapsed=0, pending=no_action(self.env.task))
        with self.clock.measure("environment"):
            observation = self.env.reset(state.step, seed_of(state))
        return run._replace(state=state, observation=observation, total=0.0)

    def _resume(self, run: HostRun) -> HostRun:
        """The observation and the return so far of the episode under way, or of a new one where it cannot be had again."""
        state, size = run.state, self.env.task.observation_size
        first, acted, total = state.step - state.elapsed, slice(size, size + self.env.task.action_size), 0.0
        with self.clock.measure("environment"):
            observation, same = self.env.reset(first, seed_of(state)), True
            for number in range(first, state.step):
                row = state.data[number]
                same = np.array_equal(observation, row[:size])
                if same:  # no action is made anew where nobody expects it
                    moved = self.env.step(row[acted], number, number - first)
                    observation, total = moved.observation, total + moved.reward
                    same = np.array_equal(observation, row[-size - 1 : -1]) and np.float32(moved.reward) == row[acted.stop]
                if not same:
                    break
        if same:
            LOG.info("going on at step %d, %d steps into an episode that was made again", state.step, state.elapsed)
            return run._replace(observation=observation, total=total)
        message = "%s does not give the same episode for the same seed and actions: going on at step %d with a new one"
        LOG.warning(message, self.env.name, state.step)
        return self._reset(run)

    def _choose(self, run: HostRun) -> tuple[HostRun, FloatingPointError | None]:
        """A sampled action, after the rounds before it are done; with a model, its own rounds are started."""
        index, number = self._place(run.state)
        if index >= 0 and (number == 0 or run.sound is None):
            run, error = self._secure(run)
            if error is not None:
                return run, error
        if not np.isnan(run.state.pending).any():
            return run._replace(action=run.state.pending), None
        modelled = index >= 0 and self.config.model_based
        if modelled and (number == 0 or run.buffers is None):
            with self.clock.measure("device"):
                run = self._retrain(run, index, number)
        with self.clock.measure("device"):
            keys = run.keys
            if keys is None or keys[0] != index:
                drawn = (steps.initial_keys(self.config, run.state.key), None)
                keys = (index, *(drawn if index < 0 else steps.step_keys(self.config, run.state.key, np.int32(index))))
            known = (keys[1], np.int32(number), run.state.agent.actor, run.observation)
            action = np.asarray(steps.act(self.config, self.env.task, *known))
        run = run._replace(keys=keys)
        wrong = self._error(run)
        if wrong is not None:
            return self._back(run, wrong)
        if modelled:
            run = self._learn(run, number, run.state.step)
            run = run._replace(state=run.state._replace(pending=action))
        return run._replace(action=action), None

    def _move(
        self, run: HostRun, observation: Float[np.ndarray, " O"], action: Float[np.ndarray, " A"], goal: int
    ) -> tuple[HostRun, Episode | FloatingPointError | None]:
        """A step in the environment; without a model, its rounds are started."""
        state = run.state
        with self.clock.measure("environment"):
            moved = self.env.step(action, state.step, state.elapsed)
        run, (index, number) = self._record(run, observation, action, moved), self._place(state)
        if index >= 0 and not self.config.model_based:
            run = self._learn(run, number, state.step)
        over = moved.terminated or moved.truncated
        error = self._error(run) if over or run.state.step >= goal else None
        if error is not None:
            return self._back(run, error)
        if not over:
            return run, None
        losses = {} if run.last is None else {name: float(loss) for name, loss in run.last.info._asdict().items()}
        known = {name: loss for name, loss in losses.items() if not np.isnan(loss)}
        ended = Episode(run.state.step, state.episodes, run.total, run.state.elapsed, known)
        return run._replace(state=run.state._replace(elapsed=0, episodes=state.episodes + 1), observation=None), ended

    def _record(
        self, run: HostRun, observation: Float[np.ndarray, " O"], action: Float[np.ndarray, " A"], moved: Moved
    ) -> HostRun:
        """The run with one more transition."""
        state, on_device, ends = run.state, run.on_device, np.array([moved.terminated], np.float32)
        row = state.data[state.step]
        row[:] = np.concatenate((observation, action, np.array([moved.reward], np.float32), moved.observation, ends))
        if not self.config.model_based:
            on_device = steps.append(on_device, np.int32(state.step), row.copy())
        after = state._replace(step=state.step + 1, elapsed=state.elapsed + 1, pending=no_action(self.env.task))
        total = run.total + moved.reward
        return run._replace(state=after, on_device=on_device, observation=moved.observation, total=total, action=None)

    def _retrain(self, run: HostRun, index: int, number: int) -> HostRun:
        """At the start of a segment new models and new rollouts; where a run goes on, the rollouts that it had again."""
        state, buffers, fitted, task = run.state, run.buffers, run.fitted, self.env.task
        data, place, model, ends = jnp.array(state.data.copy()), np.int32(index), state.dynamics, state.termination
        assert model is not None
        refill = functools.partial(self._refill, state.key, data)
        if buffers is None:
            blank = empty(self.config, state.data.shape[1], (self.config.num_buffers,))
            buffers = refills.again(state.refills, blank, refill)
        if number == 0:
            model, fitted = steps.fit(self.config, task, state.key, model, data, place)
            if ends is not None and state.data[: state.step, -1].any():
                ends = steps.fit_termination(self.config, task, state.key, ends, data, place)
        in_use = ends if ends is not None and np.isfinite(ends.log_odds) else None
        history = state.refills
        if number == 0:
            made = refills.recorded(index, buffers.written, model, state.agent.actor, in_use)
            buffers = refill(buffers, made)
            history = refills.needed((*history, made), buffers)
        buffers.written.block_until_ready()
        state = state._replace(dynamics=model, termination=ends, refills=history)
        return run._replace(state=state, buffers=buffers, ends=in_use, fitted=fitted)

    def _refill(self, key: Key, data: Float[Array, "C D"], buffers: ModelBuffer, made: Refill) -> ModelBuffer:
        """The buffers, used up, with the rollouts of one retraining."""
        known = (made.dynamics, made.actor, buffers, data, made.segment, made.termination)
        filled: tuple[ModelBuffer, Outlook] = steps.refill(self.config, self.env.task, key, *known)
        return filled[0]

    def _learn(self, run: HostRun, number: int, step: int) -> HostRun:
        """Starts the rounds after a step; nothing waits for them here."""
        assert run.keys is not None
        state = run.state
        known = (state.dynamics, run.buffers, run.on_device, np.int32(state.step), run.ends)
        with self.clock.measure("device"):
            keys, at = run.keys[2], np.int32(number)
            agent, info, bad = steps.rounds_after(self.config, self.env.task, keys, at, state.agent, *known)
        return run._replace(state=state._replace(agent=agent), last=Rounds(step, info, bad))

    def _secure(self, run: HostRun) -> tuple[HostRun, FloatingPointError | None]:
        """Remembers the run as it is now, to go back to when a loss is not finite."""
        error = self._error(run)
        with self.clock.measure("device"):
            if error is None and not bool(steps.finite(run.state.agent)):
                error = f"a weight is not finite at step {run.state.step}"
            if error is not None:
                return self._back(run, error)
            return run._replace(sound=run.state._replace(agent=steps.copied(run.state.agent))), None

    def _error(self, run: HostRun) -> str | None:
        """What was wrong with the last rounds, if anything."""
        with self.clock.measure("device"):
            if run.last is None or not bool(run.last.bad):
                return None
        names = LOSSES if self.config.has_unet else LOSSES[:2]
        found = [name for name in names if not np.isfinite(getattr(run.last.info, name))]
        return f"{' and '.join(found) or 'a loss'} is not finite at step {run.last.step}"

    def _back(self, run: HostRun, why: str) -> tuple[HostRun, FloatingPointError]:
        """The run as it was when its numbers were sound, and why."""
        if run.sound is None:
            return run, FloatingPointError(why)
        return self.restore(run.sound), FloatingPointError(f"{why}; the agent is kept as it was at step {run.sound.step}")


def seed_of(state: HostState) -> int:
    """The seed of the episode under way."""
    key = jax.random.fold_in(named(state.key, "environment"), state.begun - 1)
    return int(jax.random.bits(key, dtype=jnp.uint32)) % SEED_LIMIT
