"""Several seeds of one deep agent beside their Gymnasium environments, step by step together, with evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import PRNGKeyArray, Shaped

from ubex.deep import seeds, steps
from ubex.deep.host import Ask, HostLoop, HostRun
from ubex.deep.seeds import HostState
from ubex.envs.adapter import Episode, HostedEnv
from ubex.learn.agent import evaluation_seed
from ubex.learn.deep_agent import LEARNED, DeepBackend
from ubex.learn.driver import Learner
from ubex.types import InputError

LONGEST = 500
"""Letters of an error that a checkpoint keeps."""


class Kept(NamedTuple):
    """What a checkpoint holds."""

    state: HostState
    errors: Shaped[np.ndarray, " K"]
    """Why a seed is out; empty for those that go on."""


class Shown(NamedTuple):
    """What ended at a step, by seed."""

    episodes: Mapping[int, Episode]
    evaluations: Mapping[int, float]
    """Mean returns of episodes with the mean action."""


@dataclass(frozen=True)
class SeedsLearner(HostLoop, Learner[HostRun, Shown]):
    """K seeds of an agent."""

    unit: ClassVar[str] = "step"

    keys: Shaped[PRNGKeyArray, " K"]
    learn_ends: bool
    """Whether it learns where episodes end inside the models."""
    every: int
    """Seeds are evaluated after every so many steps."""
    episodes: int
    """Of one evaluation."""
    exact: bool = True
    """Whether there are environments for evaluations alone; if not, a seed is evaluated when its next episode ends."""

    @classmethod
    def of(
        cls,
        agent: DeepBackend,
        keys: Shaped[PRNGKeyArray, " K"],
        every: int,
        episodes: int,
        ask: Ask | None,
        names: Sequence[int] = (),
        other: HostedEnv | None = None,
    ) -> SeedsLearner:
        """Seeds of an agent; without `ask` there is one, in the agent's own environment, with the `other` for evaluations.

        Where the other one is the agent's own again, environments of this name are not made anew.
        """
        exact = other is not None and other.env is not agent.env.env
        known: dict[str, Any] = {"ask": ask, "names": names, "clock": agent.clock, "apart": other if exact else None}
        return cls(agent.config, agent.env, keys, agent.termination == LEARNED, every, episodes, exact, **known)

    def blank(self, notes: Mapping[str, Any]) -> Kept:
        """Untrained seeds with as many transitions as the notes say."""
        rows, known = int(notes.get("rows", 0)), notes.get("refills", ())
        each = [seeds.begin(self.config, self.env.task, key, rows, self.learn_ends, known) for key in self.keys]
        return Kept(seeds.together(each), np.full(len(each), "", f"U{LONGEST}"))

    def restore(self, kept: Kept) -> HostRun:
        """A run that goes on."""
        return self.resumed(kept.state, [str(error) for error in kept.errors])

    def kept(self, state: HostRun) -> Kept:
        """Everything but what is made again."""
        return Kept(self.saved(state), np.array(state.errors, f"U{LONGEST}"))

    def notes(self, state: HostRun) -> dict[str, Any]:
        """Also why seeds are out."""
        return {**super().notes(state), "errors": list(state.errors)}

    def advance(self, state: HostRun, goal: int) -> tuple[HostRun, Shown | Exception | None]:
        """Resets, the choice of actions, or a step, after which seeds may be evaluated."""
        before = state.state.step
        run, ended = self.piece(state, goal)
        if isinstance(ended, Exception):
            return run, ended
        due = self._due(run, ended or {}, before, goal)
        if ended is None and not due:
            return run, None
        run, error = self._without(run, self._losses(run))
        if error is not None:
            return run, error
        try:
            run, found = self.evaluate(run, [k for k in due if not run.errors[k]])
        except InputError as broken:
            return run, broken
        return run, Shown(ended or {}, found)

    def _due(self, run: HostRun, ended: Mapping[int, Episode], before: int, goal: int) -> list[int]:
        """The seeds that are evaluated after a piece that began at step `before`; there is another evaluation at the goal."""
        step = run.state.step
        if not self.exact:
            return [k for k, one in ended.items() if step // self.every > (step - one.length) // self.every]
        return run.living if before < step < goal and step % self.every == 0 else []

    def evaluate(self, run: HostRun, which: Sequence[int]) -> tuple[HostRun, dict[int, float]]:
        """Mean returns of whole episodes with the mean action, of some seeds at once."""
        step, total = run.state.step, dict.fromkeys(which, 0.0)
        actors = steps.on_processor(run.state.agent.deployed)
        for number in range(self.episodes):
            episode = f", in episode {number} of an evaluation"
            begun = {k: (step, evaluation_seed(run.state.key[k], step) if number == 0 else None, episode) for k in total}
            (run, seen), elapsed = self.asked(run, "reset", begun, self.exact), 0
            while seen:
                observation = np.zeros_like(run.observation)
                observation[list(seen)] = list(seen.values())
                with self.clock.measure("device"):
                    action = np.asarray(steps.modes(self.config, self.env.task, actors, observation))
                run, moved = self.asked(run, "step", {k: (action[k], step, elapsed, episode) for k in seen}, self.exact)
                for k, one in moved.items():
                    total[k] += one.reward
                seen = {k: one.observation for k, one in moved.items() if not (one.terminated or one.truncated)}
                elapsed += 1
            total = {k: value for k, value in total.items() if not run.errors[k]}
        return run, {k: value / self.episodes for k, value in total.items()}
