"""Runs an experiment: plans its jobs, hands them to a backend, keeps what comes back, and can be killed at any moment."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax
from rich.console import Console

from ubex import __version__, checks
from ubex.runs import cluster, pool
from ubex.runs.disk import write_atomically
from ubex.runs.folder import TABLES, load_results
from ubex.runs.interrupt import Interrupt
from ubex.runs.jobs import Failed, Job, Result, Runnable
from ubex.runs.progress import Display
from ubex.runs.records import Cell, Table, settings_of
from ubex.runs.schema import FORMAT
from ubex.runs.store import Store
from ubex.runs.tracking import TRACKERS, Tracker

TABLE_SECONDS = 1.0
"""While it runs, the tidy tables are made anew at most this often."""
VERSIONS = ("jax", "jaxlib", "numpy", "scipy", "pandas")


@dataclass(frozen=True)
class Options:
    """How to run an experiment, not what to run."""

    backend: str = "local"
    """Where the cells are run: local or ray."""
    address: str | None = None
    """The address of a Ray cluster. Without one, Ray is started on this machine."""
    workers: int | None = None
    """The number of worker processes, or of CPUs for a Ray that is started here. By default all cores are used.
    On a GPU, where the deep agents of a cell are one program in one process, they are divided among so many processes."""
    track: tuple[str, ...] = ()
    """Also write the metrics to these trackers: tensorboard, wandb."""

    def __post_init__(self) -> None:
        """Refuses values that make no sense."""
        checks.one_of("backend", self.backend, BACKENDS)
        for name in self.track:
            checks.one_of("tracker", name, TRACKERS)
        if self.workers is not None:
            checks.whole("workers", self.workers, 1)


@dataclass(frozen=True)
class Summary:
    """How a run went."""

    finished: int
    failed: int
    skipped: int
    interrupted: bool
    tables: Sequence[Table]

    @property
    def exit_code(self) -> int:
        """0 when everything is done, 1 when cells failed, 130 when interrupted."""
        return 130 if self.interrupted else int(self.failed > 0)


class Recorder:
    """Listens to the backend: keeps results, shows progress, feeds the trackers."""

    def __init__(self, store: Store, display: Display, trackers: Sequence[Tracker], interrupt: Interrupt) -> None:
        """Tables are written now and then, and once more at the end by the runner."""
        self.store, self.display, self.trackers, self.interrupt = store, display, trackers, interrupt
        self._next_tables = time.monotonic() + TABLE_SECONDS

    def started(self, job: Job) -> None:
        """A worker has the job."""
        self.interrupt.check()
        self.display.started(job)

    def progressed(self, job: Job, done: int, total: int, unit: str) -> None:
        """How far it has come."""
        self.interrupt.check()
        self.display.progressed(job, done, total, unit)

    def compiling(self, job: Job, begins: bool) -> None:
        """It begins to compile, or has done so."""
        self.display.compiling(job, begins)

    def measured(self, job: Job, seed: int, place: int, unit: str, values: Mapping[str, float]) -> None:
        """Metrics, while it runs."""
        for tracker in self.trackers:
            tracker.point(job.cell, seed, place, unit, values)

    def lost(self, job: Job, attempt: int) -> None:
        """Its worker died; it is tried again."""
        self.display.lost(job, attempt)

    def said(self, job: Job, line: str) -> None:
        """A line of its own."""
        self.display.say(f"{job.label}: {line}")

    def ended(self, job: Job, result: Result) -> None:
        """Keeps the outcomes or the reason of the failure."""
        if isinstance(result, Failed):
            self.store.fail(job.cell, job.seeds, result.error, result.trace)
        else:
            self.store.finish(job.cell, result.outcomes, result.seconds)
            for seed, error in result.errors.items():
                self.store.fail(job.cell, (seed,), error, "")
            for tracker in self.trackers:
                for seed, outcome in result.outcomes.items():
                    tracker.log(job.cell, seed, outcome)
        self.display.ended(job, result)
        if time.monotonic() >= self._next_tables:
            start = time.monotonic()
            self.store.write_tables()
            self._next_tables = time.monotonic() + max(TABLE_SECONDS, 20 * (time.monotonic() - start))


def run(experiment: Runnable, out: Path, console: Console, options: Options | None = None) -> Summary:
    """Runs what is not finished yet in the folder and returns how it went; results are in `out/results.csv`."""
    options = options or Options()
    started, start = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    store = Store.open(out.absolute(), describe(experiment, started))
    try:
        trackers = [TRACKERS[name](out.absolute(), experiment.name) for name in options.track]
        jobs = plan(experiment, store, options.workers)
        skipped = len(store.cells) * store.seeds - sum(len(job.seeds) for job in jobs)
        for line in store.damaged:
            console.print(f"{line}: it is run again", markup=False, soft_wrap=True)
        begun = store.spec.get("versions", {}).get("ubex", __version__)
        if jobs and begun != __version__:
            line = f"{out} was begun with ubex {begun} and goes on with ubex {__version__}, whose numbers may be others"
            console.print(f"{experiment.name}: {line}", markup=False, soft_wrap=True)
        if skipped:
            console.print(f"{experiment.name}: {skipped} finished before in {out}: skipped", markup=False, soft_wrap=True)
        display, interrupted = Display(console, experiment.name, len(jobs)), False
        status = "stopped"
        try:
            with Interrupt() as interrupt, display:
                if jobs:
                    BACKENDS[options.backend](jobs, Recorder(store, display, trackers, interrupt), options)
            status = "failed" if display.failed else "complete"
        except KeyboardInterrupt:
            interrupted, status = True, "interrupted"
            console.print("interrupted: what is finished is kept, and the same command continues", markup=False)
        finally:
            store.write_tables()
            store.note(
                {
                    "started": started,
                    "command": sys.argv,
                    "versions": versions(),
                    "machine": machine(),
                    "git": git_state(),
                    "seconds": time.monotonic() - start,
                    "finished": display.done,
                    "failed": display.failed,
                    "status": status,
                }
            )
        tables = write_people_tables(experiment, out) if status == "complete" else []
        return Summary(display.done, display.failed, skipped, interrupted, tables)
    finally:
        store.close()


def plan(experiment: Runnable, store: Store, workers: int | None = None) -> list[Job]:
    """What is left to do: one job per seed, or, where seeds run together, one per cell, and more for several workers."""
    jobs = []
    unfinished = [tuple(seed for seed in range(store.seeds) if not store.finished(cell, seed)) for cell in store.cells]
    number = sum(map(len, unfinished))
    most = max(-(-number // (workers or 1)), 1)
    for cell, left in zip(store.cells, unfinished, strict=True):
        groups = together(store, cell, left, most) if experiment.mode == "batched" else [(seed,) for seed in left]
        artifacts = store.artifact_folder(cell)
        jobs += [Job(experiment, cell, seeds, store.checkpoint_folder(cell, seeds), artifacts) for seeds in groups]
    return jobs


def together(store: Store, cell: Cell, left: tuple[int, ...], most: int) -> list[tuple[int, ...]]:
    """The seeds that are left, in groups: those that were under way together go on together, of the others `most` at once."""
    groups: list[tuple[int, ...]] = []
    for seeds in store.begun(cell):
        if seeds and set(seeds) <= set(left):
            groups.append(seeds)
            left = tuple(seed for seed in left if seed not in seeds)
    return [*groups, *(left[first : first + most] for first in range(0, len(left), most))]


def run_local(jobs: Sequence[Job], recorder: Recorder, options: Options) -> None:
    """In this process, or in worker processes (even for a single job) where the experiment or, on a GPU, the user wants it."""
    if jobs[0].experiment.mode == "processes" or (jobs[0].experiment.mode == "batched" and options.workers):
        pool.run_pool(jobs, recorder, options.workers or os.cpu_count() or 1)
    else:
        pool.run_inline(jobs, recorder)


def run_on_ray(jobs: Sequence[Job], recorder: Recorder, options: Options) -> None:
    """On a Ray cluster."""
    cluster.run_ray(jobs, recorder, options.address, options.workers)


BACKENDS: Mapping[str, Callable[[Sequence[Job], Recorder, Options], None]] = {"local": run_local, "ray": run_on_ray}


def write_people_tables(experiment: Runnable, out: Path) -> Sequence[Table]:
    """The experiment's own tables, also kept for the report, which reads the disk alone."""
    tables = experiment.tables(load_results(out))
    write_atomically(out / TABLES, json.dumps([dataclasses.asdict(table) for table in tables]))
    return tables


def describe(experiment: Runnable, created: str) -> dict[str, Any]:
    """What `spec.json` holds."""
    cells = [
        {"id": c.id, "environment": c.environment, "method": c.method, "settings": dict(c.settings)} for c in experiment.cells()
    ]
    return {
        "format": FORMAT,
        "experiment": experiment.name,
        "summary": experiment.summary,
        "settings": settings_of(experiment),
        "figures": [dataclasses.asdict(figure) for figure in experiment.figures],
        "cells": cells,
        "seeds": experiment.seeds,
        "versions": versions(),
        "machine": machine(),
        "git": git_state(),
        "created": created,
        "command": sys.argv,
    }


def versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    found = {"python": platform.python_version(), "ubex": __version__}
    return found | {name: importlib.metadata.version(name) for name in VERSIONS}


def machine() -> dict[str, Any]:
    """What the run was made on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    devices = [device.device_kind for device in jax.devices()]
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "memory_gib": round(memory, 1),
        "devices": devices,
    }


def git_state() -> dict[str, Any]:
    """Commit of the source, if it is run from a checkout."""
    here = Path(__file__).parent

    def ask(*words: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(here), *words], capture_output=True, text=True, timeout=10, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = ask("rev-parse", "HEAD")
    return {"commit": commit, "dirty": bool(ask("status", "--porcelain", "--untracked-files=no")) if commit else None}
