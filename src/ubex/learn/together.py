"""Several seeds of one deep agent beside their Gymnasium environments, step by step together, with evaluations.

Where evaluations have processes of their own, training goes on meanwhile. What they say is shown when it has come, with the
step at which it was asked for. A checkpoint holds the actors that are still being evaluated, so that a run that goes on can ask
again.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeVar

import jax
import numpy as np
from jaxtyping import Bool, Float, PRNGKeyArray, Shaped

from ubex.deep import seeds, steps
from ubex.deep.host import Ask, HostLoop, here
from ubex.deep.networks import MLP
from ubex.deep.seeds import HostRun, HostState
from ubex.envs.adapter import Episode, HostedEnv
from ubex.learn.agent import evaluation_seed
from ubex.learn.deep_agent import LEARNED, DeepBackend
from ubex.learn.driver import Learner
from ubex.types import InputError

T = TypeVar("T")
LONGEST = 500
"""Letters of an error that a checkpoint keeps."""


class Asked(NamedTuple):
    """An evaluation that was asked for and has not come."""

    step: int
    """When it was asked for."""
    seeds: Bool[np.ndarray, " K"]
    """Those that are evaluated."""
    actors: MLP
    """As they were then, of all seeds."""
    inside: Float[np.ndarray, "K I"]
    """What the last gradient rounds looked like then, and the models: `seeds.INSIDE`."""


class Kept(NamedTuple):
    """What a checkpoint holds."""

    state: HostState
    errors: Shaped[np.ndarray, " K"]
    """Why a seed is out; empty for those that go on."""
    inside: Float[np.ndarray, "K I"]
    """What is shown of the seeds: `seeds.INSIDE`."""
    asked: Asked | None


class Evaluation(NamedTuple):
    """Episodes of one seed with the mean action."""

    step: int
    """When it was asked for."""
    value: float
    """Their mean return."""
    inside: Mapping[str, float]
    """What the last gradient rounds looked like then, and the models."""


class Shown(NamedTuple):
    """What ended, by seed."""

    episodes: Mapping[int, Episode]
    evaluations: Mapping[int, Evaluation]


Answers = Mapping[int, Evaluation | InputError]
"""What became of the evaluation of some seeds."""


class Beside(NamedTuple):
    """An evaluation beside a run."""

    asked: Asked
    answers: Future[Answers] | None = None
    """None before it is begun."""


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
    apart: HostedEnv | None = field(default=None, kw_only=True)
    """Of a single seed: an environment for evaluations alone; without one it is evaluated when its next episode ends."""
    ask_apart: Ask | None = field(default=None, kw_only=True)
    """The same of several seeds; their evaluations run beside the training."""

    @classmethod
    def of(
        cls,
        agent: DeepBackend,
        keys: Shaped[PRNGKeyArray, " K"],
        every: int,
        episodes: int,
        names: Sequence[int] = (),
        *,
        ask: Ask | None = None,
        ask_apart: Ask | None = None,
        other: HostedEnv | None = None,
    ) -> SeedsLearner:
        """Seeds of an agent; without `ask` there is one, in the agent's own environment, with the `other` for evaluations.

        Where the other one is the agent's own again, environments of this name are not made anew.
        """
        apart = other if other is not None and other.env is not agent.env.env else None
        known: dict[str, Any] = {"names": names, "clock": agent.clock, "ask": ask, "ask_apart": ask_apart, "apart": apart}
        return cls(agent.config, agent.env, keys, agent.termination == LEARNED, every, episodes, **known)

    def blank(self, notes: Mapping[str, Any]) -> Kept:
        """Untrained seeds with as many transitions as the notes say."""
        rows, known = int(notes.get("rows", 0)), notes.get("refills", ())
        each = [seeds.begin(self.config, self.env.task, key, rows, self.learn_ends, known) for key in self.keys]
        state, number = seeds.together(each), len(each)
        inside, nobody = seeds.unknown(number), np.zeros(number, bool)
        asked = Asked(0, nobody, on_host(state.agent.deployed), inside) if notes.get("asked") else None
        return Kept(state, np.full(number, "", f"U{LONGEST}"), inside, asked)

    def restore(self, kept: Kept) -> HostRun:
        """A run that goes on."""
        run = self.resumed(kept.state, [str(error) for error in kept.errors], kept.inside)
        return run if kept.asked is None else run._replace(beside=Beside(kept.asked))

    def kept(self, state: HostRun) -> Kept:
        """Everything but what is made again."""
        return Kept(self.saved(state), np.array(state.errors, f"U{LONGEST}"), self.inside(state), self._asked(state))

    def notes(self, state: HostRun) -> dict[str, Any]:
        """Also why seeds are out, and whether an evaluation has not come."""
        return {**super().notes(state), "errors": list(state.errors), "asked": self._asked(state) is not None}

    def _asked(self, run: HostRun) -> Asked | None:
        """The evaluation that has not come, unless the run goes back to before it was asked for."""
        beside: Beside | None = run.beside
        return beside.asked if beside is not None and beside.asked.step <= self.whole(run).state.step else None

    def advance(self, state: HostRun, goal: int) -> tuple[HostRun, Shown | Exception | None]:
        """Resets, the choice of actions, or a step; between two steps also an evaluation, if it has come or must not wait.

        An evaluation is over before another one is asked for, and before the goal.
        """
        run, before = state, state.state.step
        if run.beside is not None and run.action is None:
            run = self._sent(run)
            if run.beside.answers.done() or (before + 1) % self.every == 0 or before + 1 >= goal:
                return self._come(run)
        run, ended = self.piece(run, goal)
        if isinstance(ended, Exception):
            return run._replace(beside=run.beside if self._asked(run) else None), ended
        due = self._due(run, ended or {}, before, goal)
        if due:
            run, error = self._without(run, self._losses(run, run.last))
            if error is not None:
                return run, error
            run = self._owing(run, due)
        return run, Shown(ended, {}) if ended else None

    def _due(self, run: HostRun, ended: Mapping[int, Episode], before: int, goal: int) -> list[int]:
        """The seeds that are evaluated after a piece that began at step `before`; there is another evaluation at the goal."""
        step = run.state.step
        if self.ask_apart is None and self.apart is None:
            passed = [k for k, one in ended.items() if step // self.every > (step - one.length) // self.every]
            return passed if step < goal else []
        return run.living if before < step < goal and step % self.every == 0 else []

    def evaluate(self, run: HostRun, which: Sequence[int]) -> tuple[HostRun, Mapping[int, Evaluation]]:
        """Whole episodes with the mean action, of some seeds at once."""
        run, shown = self._come(self._sent(self._owing(run, which)))
        if isinstance(shown, Exception):
            raise shown
        return run, shown.evaluations

    def _owing(self, run: HostRun, which: Sequence[int]) -> HostRun:
        """The run that owes an evaluation of some seeds as they are now."""
        chosen = np.isin(np.arange(len(run.errors)), which)
        return run._replace(beside=Beside(Asked(run.state.step, chosen, on_host(run.state.agent.deployed), self.inside(run))))

    def _sent(self, run: HostRun) -> HostRun:
        """The run with its evaluation under way; where nobody else can make it, it is over at once."""
        asked, answers = run.beside.asked, Future[Answers]()
        if run.beside.answers is not None:
            return run
        begun = {k: evaluation_seed(run.state.key[k], asked.step) for k in run.living if asked.seeds[k]}

        def make() -> None:
            try:
                answers.set_result(self._played(asked, begun))
            except Exception as error:
                answers.set_exception(error)

        if self.ask_apart is not None:
            threading.Thread(target=make, daemon=True).start()
        else:
            with self.clock.measure("environment"):
                make()
        return run._replace(beside=Beside(asked, answers))

    def _come(self, run: HostRun) -> tuple[HostRun, Shown | FloatingPointError]:
        """What the evaluation says, for which the run waits if it has to; seeds whose environments failed in it are out.

        There may be a checkpoint next, so nothing that is not finite goes on from here.
        """
        run, error = self._without(run, self._losses(run, run.last))
        if error is not None:
            return run._replace(beside=run.beside if self._asked(run) else None), error
        with self.clock.measure("environment"):
            answers = run.beside.answers.result()
        run, seen = self.told(run._replace(beside=None), answers)
        return run, Shown({}, seen)

    def _played(self, asked: Asked, begun: Mapping[int, int]) -> Answers:
        """The episodes of an evaluation, of all seeds side by side; they begin with these numbers."""
        ask = self.ask_apart or self.ask or here(self.apart or self.env)
        step, actors = asked.step, steps.on_processor(asked.actors)
        total, wrong = dict.fromkeys(begun, 0.0), dict[int, InputError]()

        def heard(method: str, words: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
            answers = ask(method, words)
            wrong.update({k: said for k, said in answers.items() if isinstance(said, InputError)})
            return {k: said for k, said in answers.items() if k not in wrong}

        for number in range(self.episodes):
            episode, elapsed = f", in episode {number} of an evaluation", 0
            first = {k: (step, seed if number == 0 else None, episode) for k, seed in begun.items() if k not in wrong}
            seen = heard("reset", first)
            while seen:
                observation = np.zeros((len(self.keys), self.env.task.observation_size), np.float32)
                observation[list(seen)] = list(seen.values())
                action = np.asarray(steps.modes(self.config, self.env.task, actors, observation))
                moved = heard("step", {k: (action[k], step, elapsed, episode) for k in seen})
                for k, one in moved.items():
                    total[k] += one.reward
                seen = {k: one.observation for k, one in moved.items() if not (one.terminated or one.truncated)}
                elapsed += 1
        return {k: wrong.get(k) or Evaluation(step, total[k] / self.episodes, seeds.shown(asked.inside[k])) for k in begun}


def on_host(tree: T) -> T:
    """A copy of the arrays: gradient rounds use an agent up."""
    same: T = jax.tree.map(np.array, tree)
    return same
