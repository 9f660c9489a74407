"""A job is what a worker gets: one cell with the seeds that run together. It is executed the same way everywhere."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from ubex import checks
from ubex.runs.checkpoint import CheckpointFolder
from ubex.runs.disk import StorageError, storage, write_atomically
from ubex.runs.records import Cell, Checkpoints, Context, FigureSpec, Outcome, SeedError, Table
from ubex.runs.store import ARTIFACT_NAME
from ubex.types import InputError

ATTEMPTS = 3
"""How often a job is tried whose worker was lost."""


@runtime_checkable
class Runnable(Protocol):
    """What the engine needs of an experiment; `experiments/spec.py` has the class that people subclass."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def summary(self) -> str:
        """One line on it."""
        ...

    @property
    def mode(self) -> str:
        """How the local backend runs it."""
        ...

    @property
    def figures(self) -> Sequence[FigureSpec]:
        """What the report draws."""
        ...

    @property
    def seeds(self) -> int:
        """Number of seeds of every cell."""
        ...

    def cells(self) -> Sequence[Cell]:
        """What has to be run."""
        ...

    def run(self, cell: Cell, seeds: Sequence[int], context: Context) -> Mapping[int, Outcome | SeedError]:
        """The outcome of each seed of one cell."""
        ...

    def tables(self, results: Any) -> Sequence[Table]:
        """What the tidy results say, for people."""
        ...


@dataclass(frozen=True, eq=False)
class Job:
    """One cell and the seeds that run together."""

    experiment: Runnable
    cell: Cell
    seeds: tuple[int, ...]
    checkpoints: Path
    artifacts: Path

    @property
    def label(self) -> str:
        """A short name for people."""
        seeds = f"seed {self.seeds[0]}" if len(self.seeds) == 1 else f"seeds {self.seeds[0]} to {self.seeds[-1]}"
        return f"{self.cell.label}, {seeds}"


@dataclass(frozen=True)
class Finished:
    """A job that gave its outcomes."""

    outcomes: Mapping[int, Outcome]
    seconds: float
    errors: Mapping[int, str] = field(default_factory=dict)
    """Seeds that gave none, and why."""


@dataclass(frozen=True)
class Failed:
    """A job that raised, or whose worker was lost too often."""

    error: str
    trace: str


Result = Finished | Failed
Report = Callable[[int, int, str], None]
"""(done, total, unit): how far a job has come."""
Tell = Callable[[str, tuple[Any, ...]], None]
"""(a method of `Listener`, its arguments after the job): what else a job says."""


def nobody(method: str, words: tuple[Any, ...]) -> None:
    """Nobody is told."""


@runtime_checkable
class Listener(Protocol):
    """What a backend tells the runner, in the runner's own process."""

    def started(self, job: Job) -> None:
        """A worker has the job."""
        ...

    def progressed(self, job: Job, done: int, total: int, unit: str) -> None:
        """How far it has come."""
        ...

    def compiling(self, job: Job, begins: bool) -> None:
        """It begins to compile, or has done so: the time between says nothing about the rest."""
        ...

    def measured(self, job: Job, seed: int, place: int, unit: str, values: Mapping[str, float]) -> None:
        """Metrics of a seed at an episode or a step, while it runs."""
        ...

    def ended(self, job: Job, result: Result) -> None:
        """It finished or failed."""
        ...

    def lost(self, job: Job, attempt: int) -> None:
        """Its worker died; it is tried again."""
        ...

    def said(self, job: Job, line: str) -> None:
        """It has something to say to people."""
        ...


@dataclass(frozen=True)
class JobContext:
    """The engine as a running cell sees it."""

    checkpoints: Checkpoints
    report: Report
    artifacts: Path | None = None
    """Folder for the files that the cell leaves; without one they are dropped."""
    tell: Tell = nobody

    def progress(self, done: int, total: int, unit: str = "episode") -> None:
        """Says how far the cell has come."""
        self.report(done, total, unit)

    def compiling(self, begins: bool) -> None:
        """Says that the cell begins to compile, or has done so."""
        self.tell("compiling", (begins,))

    def measure(self, seed: int, place: int, unit: str, values: Mapping[str, float]) -> None:
        """Shows metrics of a seed at an episode or a step to the trackers, while the cell runs."""
        self.tell("measured", (seed, place, unit, dict(values)))

    def keep(self, seed: int, name: str, data: bytes) -> None:
        """Leaves a file of this seed in the run folder, in place of an earlier one of that name."""
        checks.whole("seed", seed, 0)
        if not ARTIFACT_NAME.fullmatch(name):
            raise InputError(
                "a file to keep needs a name of at most 100 letters, digits, '.', '_' and '-' that does not start "
                f"with '.', but it is {name!r}"
            )
        if self.artifacts is None:
            return
        place = self.artifacts / f"seed-{seed}"
        with storage(f"make {place}"):
            place.mkdir(parents=True, exist_ok=True)
        write_atomically(place / name, data)


def execute(job: Job, report: Report, tell: Tell = nobody) -> Result:
    """Runs a job. What the experiment raises becomes a `Failed`; a full disk and an interrupt go through."""
    start = time.monotonic()
    checkpoints = CheckpointFolder(job.checkpoints, lambda line: tell("said", (line,)))
    context = JobContext(checkpoints, report, job.artifacts, tell)
    try:
        outcomes = job.experiment.run(job.cell, job.seeds, context)
        missing = [seed for seed in job.seeds if seed not in outcomes]
        if missing:
            raise ValueError(f"{job.experiment.name} returned no outcome for seed {missing[0]}")
    except StorageError:
        raise
    except Exception as error:
        return Failed(f"{type(error).__name__}: {error}", traceback.format_exc())
    found = {seed: outcomes[seed] for seed in job.seeds}
    errors = {seed: one.error for seed, one in found.items() if isinstance(one, SeedError)}
    if len(errors) == len(found):
        return Failed("; ".join(errors.values()), "")
    good = {seed: one for seed, one in found.items() if isinstance(one, Outcome)}
    return Finished(good, time.monotonic() - start, errors)
