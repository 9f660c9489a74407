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
from ubex.envs.adapter import Episode
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
    """A seed is evaluated at the first end of an episode after every so many steps."""
    episodes: int
    """Of one evaluation."""

    @classmethod
    def of(
        cls,
        agent: DeepBackend,
        keys: Shaped[PRNGKeyArray, " K"],
        every: int,
        episodes: int,
        ask: Ask | None,
        names: Sequence[int] = (),
    ) -> SeedsLearner:
        """Seeds of an agent; without `ask` there is one, in the agent's own environment."""
        known: dict[str, Any] = {"ask": ask, "names": names, "clock": agent.clock}
        return cls(agent.config, agent.env, keys, agent.termination == LEARNED, every, episodes, **known)

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
        """Resets, the choice of actions, or a step, after which seeds may be evaluated whose episodes ended."""
        run, ended = self.piece(state, goal)
        if not isinstance(ended, dict):
            return run, ended
        due = [k for k, one in ended.items() if one.step // self.every > (one.step - one.length) // self.every]
        try:
            run, found = self.evaluate(run, due)
        except InputError as error:
            return run, error
        return run, Shown(ended, found)

    def evaluate(self, run: HostRun, which: Sequence[int]) -> tuple[HostRun, dict[int, float]]:
        """Mean returns of whole episodes with the mean action, of some seeds at once whose environments are free."""
        step, total = run.state.step, dict.fromkeys(which, 0.0)
        for number in range(self.episodes):
            episode = f", in episode {number} of an evaluation"
            begun = {k: (step, evaluation_seed(run.state.key[k], step) if number == 0 else None, episode) for k in total}
            (run, seen), elapsed = self.asked(run, "reset", begun), 0
            while seen:
                observation = np.zeros_like(run.observation)
                observation[list(seen)] = list(seen.values())
                with self.clock.measure("device"):
                    action = np.asarray(steps.modes(self.config, self.env.task, run.state.agent.actor, observation))
                run, moved = self.asked(run, "step", {k: (action[k], step, elapsed, episode) for k in seen})
                for k, one in moved.items():
                    total[k] += one.reward
                seen = {k: one.observation for k, one in moved.items() if not (one.terminated or one.truncated)}
                elapsed += 1
            total = {k: value for k, value in total.items() if not run.errors[k]}
        return run, {k: value / self.episodes for k, value in total.items()}
