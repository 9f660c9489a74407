"""Several seeds of one deep agent beside their Gymnasium environments, step by step together, with evaluations.

Where evaluations have processes of their own, training goes on meanwhile. What they say is shown when it has come, with the
step at which it was asked for.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray, Shaped

from ubex.deep import seeds, steps
from ubex.deep.host import Ask, HostLoop, HostRun, here
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
    models: Float[np.ndarray, "K M"]
    """How the last training of the models went: `seeds.MODELS`."""


class Evaluation(NamedTuple):
    """Episodes of one seed with the mean action."""

    step: int
    """When they were asked for."""
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
        return Kept(seeds.together(each), np.full(len(each), "", f"U{LONGEST}"), seeds.unknown(len(each)))

    def restore(self, kept: Kept) -> HostRun:
        """A run that goes on."""
        return self.resumed(kept.state, [str(error) for error in kept.errors], kept.models)

    def kept(self, state: HostRun) -> Kept:
        """Everything but what is made again."""
        return Kept(self.saved(state), np.array(state.errors, f"U{LONGEST}"), state.models)

    def notes(self, state: HostRun) -> dict[str, Any]:
        """Also why seeds are out."""
        return {**super().notes(state), "errors": list(state.errors)}

    def idle(self, state: HostRun) -> bool:
        """Unless an evaluation is under way."""
        return state.under_way is None

    def awaited(self, state: HostRun) -> Shown | None:
        """The evaluation that is under way; seeds whose environments failed in it are left out."""
        answers: Answers = {} if state.under_way is None else state.under_way.result()
        return Shown({}, {k: one for k, one in answers.items() if not isinstance(one, InputError)}) if answers else None

    def advance(self, state: HostRun, goal: int) -> tuple[HostRun, Shown | Exception | None]:
        """Resets, the choice of actions, or a step, after which seeds may be evaluated."""
        before = state.state.step
        run, ended = self.piece(state, goal)
        run = run._replace(under_way=state.under_way)
        if isinstance(ended, Exception):
            return run, ended
        episodes, seen = ended or {}, dict[int, Evaluation]()
        due = self._due(run, episodes, before, goal)
        if due:
            run, error = self._without(run, self._losses(run, run.last))
            run = run._replace(under_way=state.under_way)
            if error is not None:
                return run, error
        try:
            if run.under_way is not None and (due or run.state.step >= goal or run.under_way.done()):
                run, seen = self._come(run)
            if due:
                run = self._sent(run, [k for k in due if not run.errors[k]])
                if self.ask_apart is None:
                    run, seen = self._come(run)
        except InputError as broken:
            return run, broken
        return run, Shown(episodes, seen) if episodes or seen else None

    def _due(self, run: HostRun, ended: Mapping[int, Episode], before: int, goal: int) -> list[int]:
        """The seeds that are evaluated after a piece that began at step `before`; there is another evaluation at the goal."""
        step = run.state.step
        if self.ask_apart is None and self.apart is None:
            return [k for k, one in ended.items() if step // self.every > (step - one.length) // self.every]
        return run.living if before < step < goal and step % self.every == 0 else []

    def evaluate(self, run: HostRun, which: Sequence[int]) -> tuple[HostRun, dict[int, Evaluation]]:
        """Whole episodes with the mean action, of some seeds at once."""
        return self._come(self._sent(run, which))

    def _sent(self, run: HostRun, which: Sequence[int]) -> HostRun:
        """The run with an evaluation of some seeds under way; where nobody else can make it, it is over at once."""
        actors = steps.on_processor(jax.tree.map(np.array, run.state.agent.deployed))  # a copy: rounds use the agent up
        inside, step = {k: self.shown(run, k) for k in which}, run.state.step
        begun = {k: evaluation_seed(run.state.key[k], step) for k in which}
        answers = Future[Answers]()

        def make() -> None:
            try:
                answers.set_result(self._played(actors, step, begun, inside))
            except Exception as error:
                answers.set_exception(error)

        if self.ask_apart is not None:
            threading.Thread(target=make, daemon=True).start()
        else:
            with self.clock.measure("environment"):
                make()
        return run._replace(under_way=answers)

    def _come(self, run: HostRun) -> tuple[HostRun, dict[int, Evaluation]]:
        """What the evaluation says, for which the run waits if it has to; seeds whose environments failed in it are out."""
        assert run.under_way is not None
        with self.clock.measure("environment"):
            answers = run.under_way.result()
        return self.told(run._replace(under_way=None), answers)

    def _played(self, actors: Any, step: int, begun: Mapping[int, int], inside: Mapping[int, dict[str, float]]) -> Answers:
        """The episodes of an evaluation, of all seeds side by side."""
        ask = self.ask_apart or self.ask or here(self.apart or self.env)
        total, wrong = dict.fromkeys(begun, 0.0), dict[int, InputError]()

        def asked(method: str, words: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
            answers = ask(method, words)
            wrong.update({k: said for k, said in answers.items() if isinstance(said, InputError)})
            return {k: said for k, said in answers.items() if k not in wrong}

        for number in range(self.episodes):
            episode, elapsed = f", in episode {number} of an evaluation", 0
            first = {k: (step, seed if number == 0 else None, episode) for k, seed in begun.items() if k not in wrong}
            seen = asked("reset", first)
            while seen:
                observation = np.zeros((len(self.keys), self.env.task.observation_size), np.float32)
                observation[list(seen)] = list(seen.values())
                action = np.asarray(steps.modes(self.config, self.env.task, actors, observation))
                moved = asked("step", {k: (action[k], step, elapsed, episode) for k in seen})
                for k, one in moved.items():
                    total[k] += one.reward
                seen = {k: one.observation for k, one in moved.items() if not (one.terminated or one.truncated)}
                elapsed += 1
        return {k: wrong.get(k) or Evaluation(step, total[k] / self.episodes, inside[k]) for k in begun}
