"""What it means to learn, and the one loop that does it: load, advance, tell, save.

A learner is functions of a state: state in, state out. A run that was stopped goes on from its last checkpoint as if it had not
been, because a state and what is made from it again are all that the next piece depends on.
"""

from __future__ import annotations

import contextlib
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from ubex.runs.interrupt import Patience
from ubex.runs.records import SO_FAR, Context, Outcome, as_text

State = TypeVar("State")
Shown = TypeVar("Shown")
MOST_SAVING = 0.05
"""Share of the time that checkpoints may take, where there is a time between two at all."""
REPORT_SECONDS = 1.0
"""Least time between two reports in the middle of a block."""
Rows = Mapping[str, Any]
"""Tables by name, with a row for whatever was seen, on the first axis."""


class Learner(ABC, Generic[State, Shown]):
    """An agent on an environment. Functions may use up the state that they are given."""

    unit: ClassVar[str] = "episode"
    """What `done` counts: episode or step."""

    @abstractmethod
    def blank(self, notes: Mapping[str, Any]) -> Any:
        """What a checkpoint with these notes holds, untrained; without notes, what a run begins with."""

    @abstractmethod
    def done(self, state: State) -> int:
        """How far it is."""

    @abstractmethod
    def advance(self, state: State, goal: int) -> tuple[State, Shown | Exception | None]:
        """One piece on the way to `goal`, and what it showed: nothing before a block ends, or an error that ends the run."""

    def notes(self, state: State) -> dict[str, Any]:
        """What the shapes of a checkpoint depend on."""
        return {}

    def kept(self, state: State) -> Any:
        """What a checkpoint holds of a state."""
        return state

    def restore(self, kept: Any) -> Any:
        """The state, with all that a checkpoint does not hold made again."""
        return kept

    def ready(self, state: State, goal: int) -> State:
        """The state before the first piece on the way to `goal`."""
        return state

    def compiled(self, state: State) -> bool:
        """Whether what is to come is as fast as what was last; asked after something was done."""
        return True


def advance(learner: Learner[State, Shown], state: State, goal: int, see: Callable[[State, Shown | None], bool]) -> State:
    """Advances until the goal, or until `see`, which is shown every state, says that it is enough."""
    state = learner.ready(state, goal)
    see(state, None)
    while learner.done(state) < goal:
        state, shown = learner.advance(state, goal)
        if isinstance(shown, Exception):
            see(state, None)
            raise shown
        if not see(state, shown):
            break
    return state


@dataclass(frozen=True)
class Run(Generic[State]):
    """A run that has ended."""

    state: State
    history: dict[str, np.ndarray]
    """What was recorded of all blocks."""


def run(
    learner: Learner[State, Shown],
    goal: int,
    context: Context,
    record: Callable[[State, Shown], tuple[Rows, bool]],
    seconds: float = 0.0,
    rescue: bool = False,
    so_far: Callable[[Rows], Mapping[int, Outcome]] | None = None,
) -> Run[State]:
    """Learns up to the goal, on from the newest sound checkpoint; `record` says what to keep of a block, and whether to go on.

    There are checkpoints between blocks, with at least so many seconds between two, and more where one takes long. With
    `rescue` there is another one when an error is raised, for learners whose state is still good then, and at an interrupt,
    which waits until something was done: in between, a state may be half used up. Another interrupt does not wait. `so_far`
    says what seeds would have given had it ended with the blocks so far; it is left beside every checkpoint.
    """
    notes = context.checkpoints.notes() or {}
    shapes = notes.get("history", {})
    kept, history = learner.blank(notes), {name: np.zeros(shape) for name, shape in shapes.items()}
    saved = context.checkpoints.load((kept, history))
    if saved is not None:
        kept, history = saved[1]
    state, following = learner.restore(kept), -math.inf
    told, first, reported, compiling = time.monotonic(), learner.done(state), learner.done(state), True
    context.compiling(True)

    def save() -> None:
        known = {"history": {name: table.shape for name, table in history.items()}}
        context.checkpoints.save(learner.done(state), (learner.kept(state), history), {**learner.notes(state), **known})
        if so_far is not None:
            context.checkpoints.leave(SO_FAR, as_text(so_far(history)))

    def report(done: int) -> None:
        nonlocal told, reported, compiling
        told, reported = time.monotonic(), done
        context.progress(done, goal, learner.unit)
        if over(done):
            compiling = False
            context.compiling(False)

    def over(done: int) -> bool:
        return compiling and done > first and learner.compiled(state)

    def see(now: State, shown: Shown | None) -> bool:
        nonlocal state, history, following
        state, done = now, learner.done(now)
        if shown is None:
            if done > reported and (over(done) or time.monotonic() - told > REPORT_SECONDS):
                report(done)
            return True
        rows, go_on = record(state, shown)
        added = {name: np.asarray(table, np.float64) for name, table in rows.items()}
        history |= {name: np.concatenate((history[name], table)) if name in history else table for name, table in added.items()}
        report(done)
        begun = time.monotonic()
        if go_on and done < goal and begun >= following:
            save()
            ended = time.monotonic()
            following = ended + max(seconds, (ended - begun) / MOST_SAVING if seconds else 0.0)
        return go_on

    def see_and_stop(now: State, shown: Shown | None) -> bool:
        before, go_on = learner.done(state), see(now, shown)
        if interrupt.seen and learner.done(now) > before:
            save()
            interrupt.check()
        return go_on

    interrupt = Patience()
    try:
        with interrupt if rescue else contextlib.nullcontext():
            advance(learner, state, goal, see_and_stop)
            interrupt.check()
    except Exception:
        if rescue:
            save()
        interrupt.check()
        raise
    return Run(state, history)
