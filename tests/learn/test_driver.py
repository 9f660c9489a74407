"""The driver: what it keeps, when it saves, and that a run goes on as if it had not been stopped, whatever stops it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from ubex.learn import driver
from ubex.learn.driver import Learner
from ubex.runs.checkpoint import CheckpointFolder
from ubex.runs.jobs import JobContext
from ubex.types import InputError


@dataclass(frozen=True)
class Adder(Learner[list[int], int]):
    """Adds up the numbers below the goal, two pieces a block; the checkpoint holds its state as an array."""

    unit: ClassVar[str] = "step"

    breaks: int = -1
    """The number before which it raises."""
    error: Exception | None = None
    """What it says instead of raising."""
    goals: list[int] = field(default_factory=list)

    def blank(self, notes: Mapping[str, Any]) -> Any:
        return np.zeros(notes.get("size", 2), np.int64)

    def restore(self, kept: Any) -> list[int]:
        return [int(x) for x in kept]

    def kept(self, state: list[int]) -> Any:
        return np.array(state)

    def notes(self, state: list[int]) -> dict[str, Any]:
        return {"size": len(state)}

    def ready(self, state: list[int], goal: int) -> list[int]:
        self.goals.append(goal)
        return state

    def done(self, state: list[int]) -> int:
        return state[0]

    def advance(self, state: list[int], goal: int) -> tuple[list[int], int | Exception | None]:
        number, total, *half = state
        if not half:
            return [number, total, 0], None
        if number == self.breaks and self.error is not None:
            return [0, 0], self.error
        if number == self.breaks:
            raise OSError("cable")
        return [number + 1, total + number], number


def record(state: list[int], shown: int) -> tuple[driver.Rows, bool]:
    return {"seen": [[shown, state[1]]], "even": [shown] * (shown % 2 == 0)}, shown < 7


def context(folder: Path, report: Callable[..., None] = lambda *_: None) -> JobContext:
    return JobContext(CheckpointFolder(folder), report)


def steps(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("*.ckpt"))


def test_blocks_are_recorded_told_and_saved_but_not_the_last(tmp_path: Path) -> None:
    told: list[tuple[int, int, str]] = []
    learner = Adder()
    run = driver.run(learner, 5, context(tmp_path, lambda *said: told.append(said)), record)
    assert (run.state, learner.goals) == ([5, 10], [5])
    np.testing.assert_array_equal(run.history["seen"], [[0, 0], [1, 1], [2, 3], [3, 6], [4, 10]])
    np.testing.assert_array_equal(run.history["even"], [0, 2, 4])
    assert told == [(number, 5, "step") for number in range(1, 6)]
    assert steps(tmp_path) == [3, 4], "the newest two, and none at the end"
    assert driver.run(learner, 20, context(tmp_path / "b"), record).state == [8, 28], "it is told when to stop"


def test_it_says_when_everything_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And how far it is in the middle of a block, however long that is."""
    monkeypatch.setattr(driver, "REPORT_SECONDS", 0.0)

    class Slow(Adder):
        def compiled(self, state: list[int]) -> bool:
            return state[0] >= 3

        def advance(self, state: list[int], goal: int) -> tuple[list[int], int | None]:
            return [state[0] + 1, 0], None if state[0] < 4 else 0

    told = list[Any]()
    where = JobContext(CheckpointFolder(tmp_path), lambda *far: told.append(far[0]), tell=lambda *said: told.append(said))
    driver.run(Slow(), 5, where, lambda state, shown: ({}, True))
    assert told == [("compiling", (True,)), 1, 2, 3, ("compiling", (False,)), 4, 5]
    told.clear()
    driver.run(Adder(), 2, where, record)
    assert told == [("compiling", (True,)), 1, ("compiling", (False,)), 2], "a first block compiles everything"


def test_there_is_time_between_checkpoints(tmp_path: Path) -> None:
    driver.run(Adder(), 5, context(tmp_path), record, seconds=1000.0)
    assert steps(tmp_path) == [1]


@pytest.mark.parametrize("stop", [1, 3, 4])
def test_a_run_that_was_stopped_goes_on_as_if_it_had_not(stop: int, tmp_path: Path) -> None:
    def report(done: int, *_: object) -> None:
        if done == stop:
            raise KeyboardInterrupt

    whole = driver.run(Adder(), 5, context(tmp_path / "a"), record)
    with pytest.raises(KeyboardInterrupt):
        driver.run(Adder(), 5, context(tmp_path / "b", report), record)
    assert steps(tmp_path / "b")[-1:] == ([stop - 1] if stop > 1 else []), "what was told was not saved yet"
    again = driver.run(Adder(), 5, context(tmp_path / "b"), record)
    assert again.state == whole.state
    for name, table in whole.history.items():
        np.testing.assert_array_equal(again.history[name], table)


def test_a_rescue_keeps_the_piece_before_what_was_raised(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="cable"):
        driver.run(Adder(breaks=3), 5, context(tmp_path), record, seconds=1000.0, rescue=True)
    assert steps(tmp_path) == [1, 3]
    assert (CheckpointFolder(tmp_path).notes() or {})["size"] == 3, "within a block"
    again = driver.run(Adder(), 5, context(tmp_path), record)
    assert (again.state, again.history["seen"].shape) == ([5, 10], (5, 2))


@dataclass(frozen=True)
class Stopped(Adder):
    """Gets signals in the middle of the first piece of a number, or of its second one."""

    number: int = 2
    second: bool = False
    times: int = 1

    def advance(self, state: list[int], goal: int) -> tuple[list[int], int | Exception | None]:
        for _ in range(self.times if state[0] == self.number and (len(state) > 2) == self.second else 0):
            signal.raise_signal(signal.SIGTERM)
        return super().advance(state, goal)


@pytest.mark.parametrize("second", [False, True])
def test_an_interrupt_waits_until_something_was_done(second: bool, tmp_path: Path) -> None:
    whole, before = driver.run(Adder(), 5, context(tmp_path / "a"), record), signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        driver.run(Stopped(second=second), 5, context(tmp_path / "b"), record, seconds=1000.0, rescue=True)
    assert signal.getsignal(signal.SIGTERM) is before
    assert steps(tmp_path / "b") == [1, 3]
    assert (CheckpointFolder(tmp_path / "b").notes() or {})["size"] == 2, "nothing of the next number was begun"
    again = driver.run(Adder(), 5, context(tmp_path / "b"), record)
    assert again.state == whole.state
    for name, table in whole.history.items():
        np.testing.assert_array_equal(again.history[name], table)


def test_an_interrupt_comes_before_an_error_and_another_one_does_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyboardInterrupt):
        driver.run(Stopped(breaks=2), 5, context(tmp_path / "a"), record, seconds=1000.0, rescue=True)
    assert steps(tmp_path / "a") == [1, 2], "the environment may have been interrupted too"

    def raise_it(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, raise_it)
    try:
        with pytest.raises(KeyboardInterrupt):
            driver.run(Stopped(times=2), 5, context(tmp_path / "b"), record, seconds=1000.0, rescue=True)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert steps(tmp_path / "b") == [1], "the state may be half used up"


def test_an_error_that_is_shown_is_raised_with_the_state_it_came_with(tmp_path: Path) -> None:
    seen: list[list[int]] = []
    broken = Adder(breaks=3, error=FloatingPointError("loss"))
    with pytest.raises(FloatingPointError, match="loss"):
        driver.advance(broken, [0, 0], 5, lambda state, shown: seen.append(state) is None)
    assert seen[-1] == [0, 0]
    with pytest.raises(FloatingPointError, match="loss"):
        driver.run(broken, 5, context(tmp_path), record, seconds=1000.0, rescue=True)
    assert steps(tmp_path) == [0, 1]


def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path) -> None:
    CheckpointFolder(tmp_path).save(3, {"belief": np.zeros(2)}, {"seed": 0})
    with pytest.raises(InputError, match="was made with other settings"):
        driver.run(Adder(), 5, context(tmp_path), record)


def test_where_saving_is_slow_it_is_done_less_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks take one second and saving takes `spent`: checkpoints are at least 3 s apart, and 20 times what one takes."""

    def saved(spent: float) -> list[int]:
        now, at = 0.0, list[int]()

        def save(step: int, state: Any, notes: Any) -> None:
            nonlocal now
            at.append(step)
            now += spent

        def report(done: int, goal: int, unit: str) -> None:
            nonlocal now
            now += 1.0

        monkeypatch.setattr(driver.time, "monotonic", lambda: now)
        here = context(tmp_path / str(spent), report)
        monkeypatch.setattr(here.checkpoints, "save", save)
        driver.run(Adder(), 30, here, lambda state, shown: ({}, True), seconds=3.0)
        return at

    assert saved(0.0) == [1, 4, 7, 10, 13, 16, 19, 22, 25, 28]
    assert saved(0.5) == [1, 11, 21]
