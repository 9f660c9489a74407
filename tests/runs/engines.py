"""Small experiments that the engine's tests run: quick ones, failing ones, ones whose worker dies, ones that keep state."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np
import pandas as pd

from ubex.experiments.spec import Cell, Context, Curve, Experiment, Mode, Outcome, Table, grid
from ubex.learn import driver
from ubex.learn.crew import Crew, Maker
from ubex.learn.driver import Learner


@dataclass(frozen=True)
class Quick(Experiment):
    """Cells that cost nothing: one random number each."""

    name: ClassVar[str] = "quick"
    summary: ClassVar[str] = "cells that cost nothing"
    mode: ClassVar[Mode] = "inline"

    sizes: tuple[int, ...] = (1, 2, 3)
    seeds: int = 2

    def cells(self) -> Sequence[Cell]:
        return [Cell(self.name, "nowhere", "nothing", setting) for setting in grid(size=self.sizes)]

    def run(self, cell: Cell, seeds: Sequence[int], context: Context) -> Mapping[int, Outcome]:
        return {seed: self.outcome(cell, seed) for seed in seeds}

    def outcome(self, cell: Cell, seed: int) -> Outcome:
        draws = np.asarray(jax.random.uniform(cell.key(seed), (3,))).astype(float)
        return Outcome({"number": float(draws[0]), "never": float("nan")}, {"path": Curve("step", [1, 2, 3], draws.tolist())})

    def smoke(self) -> Quick:
        return self

    def tables(self, results: pd.DataFrame) -> Sequence[Table]:
        return [Table("numbers", ["rows"], [[str(len(results))]])]


@dataclass(frozen=True)
class Telling(Quick):
    """The same numbers, whose paths are shown while they are made."""

    sizes: tuple[int, ...] = (1,)

    def run(self, cell: Cell, seeds: Sequence[int], context: Context) -> Mapping[int, Outcome]:
        found = super().run(cell, seeds, context)
        for seed, outcome in found.items():
            for step, value in zip(outcome.curves["path"].index, outcome.curves["path"].values, strict=True):
                context.measure(seed, step, "step", {"path": value, "loss": 10.0 * step})
        return found


@dataclass(frozen=True)
class TellingPool(Telling):
    """In worker processes."""

    mode: ClassVar[Mode] = "processes"


@dataclass(frozen=True)
class Batched(Quick):
    """The same numbers, all seeds of a cell in one call."""

    mode: ClassVar[Mode] = "batched"


@dataclass(frozen=True)
class WithProcesses(Batched):
    """Each call of it has a process beside it, in a process that is not the runner's."""

    def run(self, cell: Cell, seeds: Sequence[int], context: Context) -> Mapping[int, Outcome]:
        """The same numbers."""
        assert multiprocessing.parent_process() is not None, "a worker"
        with Crew(Maker("Pendulum-v1", {}, None, False), 1) as crew:
            assert crew("reset", {0: (0, 1)})[0].shape == (3,)
        return super().run(cell, seeds, context)


@dataclass(frozen=True)
class Pooled(Quick):
    """The same numbers, in worker processes."""

    mode: ClassVar[Mode] = "processes"


@dataclass(frozen=True)
class Failing(Pooled):
    """Size 2 raises."""

    def run(self, cell: Cell, seeds: Sequence[int], context: Context) -> Mapping[int, Outcome]:
        if cell.settings["size"] == 2:
            raise RuntimeError("no luck\nwith this one")
        return super().run(cell, seeds, context)


@dataclass(frozen=True)
class Mortal(Pooled):
    """The worker of size 2 is killed; on the second attempt it lives, unless it is cursed."""

    flag: str = ""
    cursed: bool = False

    def run(self, cell: Cell, seeds: Sequence[int], context: Context) -> Mapping[int, Outcome]:
        if cell.settings["size"] == 2 and (self.cursed or not Path(self.flag).exists()):
            Path(self.flag).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().run(cell, seeds, context)


@dataclass(frozen=True)
class Resumable(Quick):
    """Adds up random numbers step by step and keeps the sum; dies once at `die_at`."""

    flag: str = ""
    die_at: int = 7
    steps: int = 10

    def run(self, cell: Cell, seeds: Sequence[int], context: Context) -> Mapping[int, Outcome]:
        (seed,) = seeds
        state = {"sum": np.zeros(()), "key": cell.key(seed)}
        start, saved = 0, context.checkpoints.load(state)
        if saved is not None:
            start, state, _ = saved
        with open(self.flag, "a") as log:
            log.write(f"{start}\n")
        for step in range(start, self.steps):
            context.progress(step, self.steps, "step")
            if step == self.die_at and start == 0:
                raise RuntimeError("died on the way")
            draw = float(jax.random.uniform(jax.random.fold_in(state["key"], step)))
            state = {"sum": state["sum"] + draw, "key": state["key"]}
            context.checkpoints.save(step + 1, state, {"seed": seed})
        return {seed: Outcome({"sum": float(state["sum"])})}


@dataclass(frozen=True)
class ResumableInProcesses(Resumable):
    """The same in worker processes."""

    mode: ClassVar[Mode] = "processes"


@dataclass(frozen=True)
class ResumableInABatch(Resumable):
    """The same numbers, all seeds in one call; the log says which, and where they start."""

    mode: ClassVar[Mode] = "batched"

    def run(self, cell: Cell, seeds: Sequence[int], context: Context) -> Mapping[int, Outcome]:
        state = {"sum": np.zeros(len(seeds))}
        start, saved = 0, context.checkpoints.load(state)
        if saved is not None:
            start, state, _ = saved
        with open(self.flag, "a") as log:
            log.write(f"{list(seeds)} from {start}\n")
        for step in range(start, self.steps):
            if step == self.die_at and start == 0:
                raise RuntimeError("died on the way")
            draws = [float(jax.random.uniform(jax.random.fold_in(cell.key(seed), step))) for seed in seeds]
            state = {"sum": state["sum"] + np.asarray(draws)}
            context.checkpoints.save(step + 1, state, {})
        return {seed: Outcome({"sum": float(total)}) for seed, total in zip(seeds, state["sum"], strict=True)}


@dataclass(frozen=True)
class Sleepy(Quick):
    """A cell that takes as long as anybody may need, for interrupts and locks."""

    mode: ClassVar[Mode] = "inline"

    def run(self, cell: Cell, seeds: Sequence[int], context: Context) -> Mapping[int, Outcome]:
        for step in range(10_000):
            context.progress(step, 10_000)
            time.sleep(0.1)
        return super().run(cell, seeds, context)


@dataclass(frozen=True)
class Dozing(Sleepy):
    """The same in worker processes, which leave their process ids in the run folder."""

    mode: ClassVar[Mode] = "processes"

    def run(self, cell: Cell, seeds: Sequence[int], context: Context) -> Mapping[int, Outcome]:
        folder = context.checkpoints.root.parent.parent.parent
        with open(folder / "pids", "a") as file:
            file.write(f"{os.getpid()}\n")
        return super().run(cell, seeds, context)


class Adder(Learner[tuple[int, int], int]):
    """Adds up numbers, two pieces each. While there is no file, a piece takes a while."""

    def __init__(self, flag: Path) -> None:
        self.flag = flag

    def blank(self, notes: Mapping[str, Any]) -> Any:
        return np.zeros(2, np.int64)

    def restore(self, kept: Any) -> tuple[int, int]:
        return int(kept[0]), int(kept[1])

    def kept(self, state: tuple[int, int]) -> Any:
        return np.array(state)

    def done(self, state: tuple[int, int]) -> int:
        return state[0]

    def advance(self, state: tuple[int, int], goal: int) -> tuple[tuple[int, int], int]:
        if not self.flag.exists():
            time.sleep(0.05)
        return (state[0] + 1, state[1] + state[0]), state[0]


@dataclass(frozen=True)
class Rescued(Pooled):
    """A sum in a worker process, which leaves a checkpoint when it is interrupted, and hardly any otherwise."""

    flag: str = ""
    sizes: tuple[int, ...] = (1,)
    seeds: int = 1

    def run(self, cell: Cell, seeds: Sequence[int], context: Context) -> Mapping[int, Outcome]:
        def record(state: tuple[int, int], shown: int) -> tuple[driver.Rows, bool]:
            return {"seen": [shown]}, True

        done = driver.run(Adder(Path(self.flag)), 2000, context, record, seconds=1000.0, rescue=True)
        return {seed: Outcome({"sum": float(done.state[1]), "seen": float(done.history["seen"].sum())}) for seed in seeds}


@dataclass(frozen=True)
class Keeping(Quick):
    """Leaves two files a seed, one of them twice; fails after that where it is asked to."""

    file: str = "picture.png"
    fail: bool = False

    def run(self, cell: Cell, seeds: Sequence[int], context: Context) -> Mapping[int, Outcome]:
        context.checkpoints.save(1, {"x": np.zeros(1)}, {})
        for seed in seeds:
            context.keep(seed, self.file, b"first")
            context.keep(seed, self.file, f"size {cell.settings['size']}, seed {seed}".encode())
            context.keep(seed, "maps-1.npz", bytes(range(256)))
        if self.fail:
            raise RuntimeError("after its files")
        return super().run(cell, seeds, context)


@dataclass(frozen=True)
class KeepingInABatch(Keeping):
    """The same, all seeds of a cell in one call."""

    mode: ClassVar[Mode] = "batched"


@dataclass(frozen=True)
class KeepingInProcesses(Keeping):
    """The same in worker processes."""

    mode: ClassVar[Mode] = "processes"


@dataclass(frozen=True)
class Environment(Pooled):
    """What a worker sees of its environment."""

    def run(self, cell: Cell, seeds: Sequence[int], context: Context) -> Mapping[int, Outcome]:
        threads = float(os.environ["OPENBLAS_NUM_THREADS"])
        single = float("--xla_cpu_multi_thread_eigen=false" in os.environ["XLA_FLAGS"])
        return dict.fromkeys(seeds, Outcome({"threads": threads, "single": single}))
