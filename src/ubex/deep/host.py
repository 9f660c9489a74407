"""The deep loop for environments that live on the host: the pieces of `steps.py`, driven from Python, for K seeds in lockstep.

Agents with a model do not need the newest transition for their gradient rounds, so the rounds after a step are started before
its action has come: while the host looks at it and the environments move, the device is never idle. `sac` waits for them.
Randomness depends on a seed's key and on the numbers of the step and the episode alone, as in the compiled loop, so a run that
was stopped goes on as if it had not been.

An environment's own state is not saved, but made again: its episode began with a seed that is known, and the actions since are
in the data. Where other observations or rewards come back, a new episode begins.

A seed that fails is out: its environment is left alone, what is computed for it is ignored, and the others go on.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from ubex.deep import refills, steps, termination
from ubex.deep.buffer import ModelBuffer, empty
from ubex.deep.clock import Clock
from ubex.deep.config import DeepConfig
from ubex.deep.refills import Refill
from ubex.deep.rollout import Outlook
from ubex.deep.seeds import MODELS, Actions, HostRun, HostState, Rounds, described, seed_of, shown, unknown
from ubex.envs.adapter import Episode, HostedEnv, Moved, answer
from ubex.types import InputError

LOG = logging.getLogger("ubex")
LOSSES = ("critic_loss", "actor_loss", "u_loss")
Ask = Callable[[str, Mapping[int, tuple[Any, ...]]], Mapping[int, Any]]
"""(method of `HostedEnv`, its arguments for some seeds) -> what their environments answer, or an InputError."""


def here(env: HostedEnv) -> Ask:
    """Asks an environment of this process."""
    return lambda method, words: {k: answer(env, method, given) for k, given in words.items()}


@dataclass(frozen=True)
class HostLoop:
    """The loop of one agent on one environment: functions of a run of K seeds, which use up what they are given."""

    config: DeepConfig
    env: HostedEnv
    """What it is; of a single seed, also where it lives."""
    ask: Ask | None = field(default=None, kw_only=True)
    """Where the environments of several seeds live."""
    names: Sequence[int] = field(default=(), kw_only=True)
    """Numbers of the seeds, as people know them; without them they are counted from 0."""
    clock: Clock = field(default_factory=Clock, kw_only=True)

    def done(self, run: HostRun) -> int:
        """Steps."""
        return run.state.step

    def compiled(self, run: HostRun) -> bool:
        """From the first gradient rounds on."""
        return run.last is not None

    def inside(self, run: HostRun) -> Float[np.ndarray, "K I"]:
        """What the last rounds of all seeds looked like, and their models: `seeds.INSIDE`."""
        if run.last is None:
            return run.inside
        rounds = np.stack([np.asarray(x, np.float64) for x in run.last.info], axis=1)
        return np.concatenate((rounds, run.inside[:, -len(MODELS) :]), axis=1)

    def shown(self, run: HostRun, seed: int) -> dict[str, float]:
        """The same of one seed, by name."""
        return shown(self.inside(run)[seed])

    def resumed(self, state: HostState, errors: Sequence[str] = (), inside: Float[np.ndarray, "K I"] | None = None) -> HostRun:
        """A run that goes on. Rounds use their arguments up, and targets start as the same arrays: so it has a copy."""
        number = len(state.episodes)
        nowhere = np.full((number, self.env.task.observation_size), np.nan, np.float32)
        own = state._replace(agent=steps.copied(state.agent))
        inside = unknown(number) if inside is None else inside
        return HostRun(own, tuple(errors) or ("",) * number, nowhere, np.zeros(number), inside)

    def whole(self, run: HostRun) -> HostRun:
        """The run, or the last sound state where an interrupt came while the agent was being used up."""
        lost = run.sound is not None and run.state.agent.log_alpha.is_deleted()
        return self.back(run, run.sound) if lost and run.sound is not None else run

    def back(self, run: HostRun, sound: HostState) -> HostRun:
        """The run as it was, with what is made beside it."""
        return self.resumed(sound, run.errors, run.inside)._replace(beside=run.beside)

    def saved(self, run: HostRun) -> HostState:
        """What a checkpoint holds: no free places."""
        state = self.whole(run).state
        return state._replace(data=state.data[:, : state.step])

    def notes(self, run: HostRun) -> dict[str, Any]:
        """Transitions, and for every retraining whose rollouts are held whether a termination had been seen."""
        state = self.whole(run).state
        return {"rows": state.step, "refills": [one.termination is not None for one in state.refills]}

    def ready(self, run: HostRun, goal: int) -> HostRun:
        """A run that is about to go on to step `goal`; episodes are made again, since others may have used the environments.

        Programs are compiled for a capacity: it is fixed while a run lasts, and at least doubled by a longer one.
        """
        self.clock.start()
        run = self.whole(run)
        state, buffers = run.state, run.buffers
        room, capacity = state.data, state.capacity if goal <= state.capacity else max(goal, 2 * state.capacity)
        if room.shape[1] < capacity:
            room = np.zeros((room.shape[0], capacity, room.shape[2]), np.float32)
            room[:, : state.step] = state.data[:, : state.step]
        if buffers is not None and buffers.rows.is_deleted():  # by an interrupt
            buffers = None
        return run._replace(
            state=state._replace(data=room, capacity=capacity),
            buffers=buffers,
            on_device=jnp.array(room.copy()),
            held=state.step,
            observation=np.full_like(run.observation, np.nan),
            action=None,
            sound=None,
        )

    def piece(self, run: HostRun, goal: int) -> tuple[HostRun, dict[int, Episode] | FloatingPointError | None]:
        """One piece on the way to step `goal`: resets, the choice of actions, or a step, which may end episodes.

        A seed that fails is out. Where none would be left, it is not: when the environment fails in a piece, the run before it
        is good; at a loss that is not finite, the run goes back to the last training of the models, or its own start if that is
        later, and says why.
        """
        if np.isnan(run.observation[run.living]).any():
            return self._begin(run), None
        return self._choose(run) if run.action is None else self._move(run, run.action, goal)

    def asked(self, run: HostRun, method: str, words: Mapping[int, tuple[Any, ...]]) -> tuple[HostRun, dict[int, Any]]:
        """What the environments of some seeds answer; those that fail are out, and where none would be left, it raises."""
        with self.clock.measure("environment"):
            answers = (self.ask or here(self.env))(method, words)
        return self.told(run, answers)

    def told(self, run: HostRun, answers: Mapping[int, Any]) -> tuple[HostRun, dict[int, Any]]:
        """The same of answers that have come."""
        wrong = {k: said for k, said in answers.items() if isinstance(said, InputError) and not run.errors[k]}
        if wrong and len(wrong) == len(run.living):
            raise next(iter(wrong.values()))
        run = self._out(run, {k: str(error) for k, error in wrong.items()})
        return run, {k: said for k, said in answers.items() if not isinstance(said, InputError)}

    def _out(self, run: HostRun, wrong: Mapping[int, str]) -> HostRun:
        """The run without the seeds that went wrong."""
        for k, error in wrong.items():
            LOG.warning("seed %d: %s; the other seeds go on", self.names[k] if self.names else k, error)
        return run._replace(errors=tuple(wrong.get(k, error) for k, error in enumerate(run.errors)))

    def _place(self, state: HostState) -> tuple[int, int]:
        """The segment of the next step and its number there; segment -1 is what comes before training."""
        first = self.config.initial_steps
        return divmod(state.step - first, self.config.retrain_every) if state.step >= first else (-1, state.step)

    def _episode(self, state: HostState, seed: int) -> str:
        """The episode under way, as errors name it."""
        return f", in episode {state.episodes[seed]}"

    def _begin(self, run: HostRun) -> HostRun:
        """Observations for all: episodes under way are made again, and new ones begin where there is none or it is lost.

        A new one counts from its first step on, so whether it was begun makes no difference to a run that goes on.
        """
        state, observation, total = run.state, run.observation.copy(), run.total.copy()
        elapsed, pending = state.elapsed.copy(), np.array(state.pending)
        lacking = [k for k in run.living if np.isnan(observation[k]).any()]
        since = {k: state.step - int(elapsed[k]) for k in lacking if elapsed[k]}
        words = {
            k: (first, seed_of(state, k), state.data[k, first : state.step], self._episode(state, k))
            for k, first in since.items()
        }
        run, found = self.asked(run, "again", words)
        for k, one in found.items():
            if one is not None:
                LOG.info("going on at step %d, %d steps into an episode that was made again", state.step, elapsed[k])
                observation[k], total[k] = one
                continue
            message = "%s does not give the same episode for the same seed and actions: going on at step %d with a new one"
            LOG.warning(message, self.env.name, state.step)
            elapsed[k], pending[k] = 0, np.nan
        fresh = [k for k in run.living if np.isnan(observation[k]).any()]
        total[fresh] = 0.0
        state = state._replace(elapsed=elapsed, pending=pending)
        run, found = self.asked(run, "reset", {k: (state.step, seed_of(state, k), self._episode(state, k)) for k in fresh})
        for k, first in found.items():
            observation[k] = first
        return run._replace(state=state, observation=observation, total=total)

    def _choose(self, run: HostRun) -> tuple[HostRun, FloatingPointError | None]:
        """Sampled actions; with a model, the rounds after them are started at once, and what came of both shows in `_move`."""
        index, number = self._place(run.state)
        if index >= 0 and (number == 0 or run.sound is None):
            run, error = self._secure(run)
            if error is not None:
                return run, error
        pending = ~np.isnan(np.asarray(run.state.pending)).any(axis=1)
        if pending[run.living].all():
            return run._replace(action=run.state.pending), None
        modelled = index >= 0 and self.config.model_based and not pending[run.living].any()
        if modelled and (number == 0 or run.buffers is None):
            with self.clock.measure("models"):
                run = self._retrain(run, index, number)
        with self.clock.measure("device"):
            keys = run.keys
            if keys is None or keys[0] != index:
                drawn = (steps.initial_keys(self.config, run.state.key), None)
                keys = (index, *(drawn if index < 0 else steps.all_step_keys(self.config, run.state.key, np.int32(index))))
            known = (keys[1], np.int32(number), run.state.agent.actor, run.observation)
            action = steps.act(self.config, self.env.task, *known)
        run = run._replace(keys=keys)
        if modelled:
            ahead = self._learn(run, number, run.state.step)
            return ahead._replace(action=action, earlier=run.last, state=ahead.state._replace(pending=action)), None
        run, error = self._without(run, self._losses(run, run.last))
        if error is not None:
            return run, error
        with self.clock.measure("device"):
            return run._replace(action=np.where(pending[:, None], run.state.pending, np.asarray(action))), None

    def _move(self, run: HostRun, chosen: Actions, goal: int) -> tuple[HostRun, dict[int, Episode] | FloatingPointError | None]:
        """A step in the environments, once the rounds before it are done; without a model, its own rounds are started."""
        run, error = self._without(run, self._losses(run, run.earlier))
        if error is not None:
            return run, error
        with self.clock.measure("device"):
            action = np.asarray(chosen)
        step, (index, number) = run.state.step, self._place(run.state)
        words = {k: (action[k], step, int(run.state.elapsed[k]), self._episode(run.state, k)) for k in run.living}
        run, moved = self.asked(run, "step", words)
        run = self._record(run, action, moved)
        if not self.config.model_based:
            with self.clock.measure("device"):
                run = self._synced(run)
            if index >= 0:
                run = self._learn(run, number, step)
        over = [k for k, one in moved.items() if one.terminated or one.truncated]
        if over or run.state.step >= goal:
            run, error = self._without(run, self._losses(run, run.last))
            if error is not None:
                return run, error
        over = [k for k in over if not run.errors[k]]
        if not over:
            return run, None
        state, observation, ended = run.state, run.observation.copy(), dict[int, Episode]()
        elapsed, episodes = state.elapsed.copy(), state.episodes.copy()
        for k in over:
            ended[k] = Episode(state.step, int(episodes[k]), float(run.total[k]), int(elapsed[k]), self.shown(run, k))
        elapsed[over], observation[over] = 0, np.nan
        episodes[over] += 1
        return run._replace(state=state._replace(elapsed=elapsed, episodes=episodes), observation=observation), ended

    def _record(self, run: HostRun, action: Float[np.ndarray, "K A"], moved: Mapping[int, Moved]) -> HostRun:
        """The run with one more transition of some seeds."""
        state, observation, total = run.state, run.observation.copy(), run.total.copy()
        begun, elapsed = state.begun.copy(), state.elapsed.copy()
        for k, one in moved.items():
            said = (np.array([one.reward], np.float32), one.observation, np.array([one.terminated], np.float32))
            state.data[k, state.step] = np.concatenate((observation[k], action[k], *said))
            begun[k] += elapsed[k] == 0
            observation[k], total[k], elapsed[k] = one.observation, total[k] + one.reward, elapsed[k] + 1
        none = np.full_like(state.pending, np.nan)
        after = state._replace(step=state.step + 1, begun=begun, elapsed=elapsed, pending=none)
        return run._replace(state=after, observation=observation, total=total, action=None)

    def _synced(self, run: HostRun) -> HostRun:
        """The run with all transitions on the device."""
        state = run.state
        if run.held == state.step:
            return run
        rows = state.data[:, run.held : state.step].copy()
        return run._replace(on_device=steps.append(run.on_device, np.int32(run.held), rows), held=state.step)

    def _retrain(self, run: HostRun, index: int, number: int) -> HostRun:
        """At the start of a segment new models and new rollouts; where a run goes on, the rollouts that it had again."""
        run = self._synced(run)
        state, buffers, inside, task = run.state, run.buffers, run.inside, self.env.task
        data, place, model, ends = run.on_device, np.int32(index), state.dynamics, state.termination
        assert data is not None
        assert model is not None
        refill = functools.partial(self._refill, state.key, data)
        if buffers is None:
            blank = empty(self.config, state.data.shape[2], (state.data.shape[0], self.config.num_buffers))
            buffers = refills.again(state.refills, blank, lambda rows, made: refill(rows, made)[0])
        if number == 0:
            model, fitted = steps.fit(self.config, task, state.key, model, data, place)
            seen = state.data[:, : state.step, -1].any(axis=1)
            if ends is not None and seen.any():
                ends = steps.fit_termination(self.config, task, state.key, ends, data, place, seen)
        in_use = ends if ends is not None and termination.ends_anything(ends) else None
        history = state.refills
        if number == 0:
            made = refills.recorded(index, buffers.written, model, state.agent.actor, in_use)
            buffers, outlook = refill(buffers, made)
            inside = np.concatenate((inside[:, : -len(MODELS)], described(fitted, outlook)), axis=1)
            history = refills.needed((*history, made), buffers)
        buffers.written.block_until_ready()
        state = state._replace(dynamics=model, termination=ends, refills=history)
        return run._replace(state=state, buffers=buffers, ends=in_use, inside=inside)

    def _refill(
        self, keys: Shaped[PRNGKeyArray, " K"], data: Float[Array, "K C D"], buffers: ModelBuffer, made: Refill
    ) -> tuple[ModelBuffer, Outlook]:
        """The buffers, used up, with the rollouts of one retraining, and what these look like."""
        known = (made.dynamics, made.actor, data, buffers, made.segment, made.termination)
        filled: tuple[ModelBuffer, Outlook] = steps.refill(self.config, self.env.task, keys, *known)
        return filled

    def _learn(self, run: HostRun, number: int, step: int) -> HostRun:
        """Starts the rounds after a step; nothing waits for them here."""
        assert run.keys is not None
        state, data = run.state, None if self.config.model_based else run.on_device
        known = (state.dynamics, run.buffers, data, np.int32(state.step), run.ends)
        with self.clock.measure("device"):
            keys, at = run.keys[2], np.int32(number)
            agent, info, bad = steps.rounds_after(self.config, self.env.task, keys, at, state.agent, *known)
        return run._replace(state=state._replace(agent=agent), last=Rounds(step, info, bad))

    def _secure(self, run: HostRun) -> tuple[HostRun, FloatingPointError | None]:
        """Remembers the run as it is now, to go back to when a loss is not finite."""
        wrong = self._losses(run, run.last)
        with self.clock.measure("device"):
            sound = np.asarray(steps.finite(run.state.agent))
        text = f"a weight is not finite at step {run.state.step}"
        run, error = self._without(run, {k: wrong.get(k, text) for k in run.living if k in wrong or not sound[k]})
        if error is None:
            run = run._replace(sound=run.state._replace(agent=steps.copied(run.state.agent)))
        return run, error

    def _losses(self, run: HostRun, last: Rounds | None) -> dict[int, str]:
        """What was wrong with some seeds in the last rounds, or in those before, if anything."""
        with self.clock.measure("device"):
            bad = np.zeros(len(run.errors), bool) if last is None else np.asarray(last.bad)
        wrong = [k for k in run.living if bad[k]]
        if last is None or not wrong:
            return {}
        names = LOSSES if self.config.has_unet else LOSSES[:2]
        found = {k: [name for name in names if not np.isfinite(np.asarray(getattr(last.info, name))[k])] for k in wrong}
        return {k: f"{' and '.join(which) or 'a loss'} is not finite at step {last.step}" for k, which in found.items()}

    def _without(self, run: HostRun, wrong: Mapping[int, str]) -> tuple[HostRun, FloatingPointError | None]:
        """The run without seeds that went wrong; where none would be left, as it was when all was sound, and why."""
        if len(wrong) < len(run.living):
            return self._out(run, wrong), None
        why = next(iter(wrong.values()))
        if run.sound is None:
            return run, FloatingPointError(why)
        error = FloatingPointError(f"{why}; the agent is kept as it was at step {run.sound.step}")
        return self.back(run, run.sound), error
