"""In which order workers get jobs, and what does not end the processes of their environments."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
from engines import Quick

from ubex.learn.crew import Crew, Maker
from ubex.runs.jobs import Job
from ubex.runs.pool import Queue
from ubex.types import InputError

CELLS = Quick().cells()


def queue() -> Queue:
    return Queue([Job(Quick(), cell, (seed,), Path(), Path()) for cell in CELLS for seed in range(3)])


def place(job: Job) -> tuple[int, int]:
    return CELLS.index(job.cell), job.seeds[0]


def test_a_worker_keeps_to_its_cell_and_then_takes_one_that_nobody_began() -> None:
    jobs = queue()
    first, second = jobs.take(None), jobs.take(None)
    assert (place(first), place(second)) == ((0, 0), (1, 0))
    assert [place(jobs.take(CELLS[0])) for _ in range(3)] == [(0, 1), (0, 2), (2, 0)]


def test_the_last_cell_is_shared() -> None:
    jobs = queue()
    taken = [place(jobs.take(None if turn == 0 else CELLS[0])) for turn in range(4)]
    assert taken == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert [place(jobs.take(CELLS[1])) for _ in range(2)] == [(1, 1), (1, 2)]
    assert place(jobs.take(CELLS[1])) == (2, 0)
    assert place(jobs.take(CELLS[0])) == (2, 1), "nothing else is left"


def test_a_job_that_comes_back_is_the_first_of_its_kind() -> None:
    jobs = queue()
    lost = jobs.take(None)
    jobs.give_back(lost)
    assert place(jobs.take(CELLS[0])) == (0, 0)
    for _ in range(8):
        assert jobs
        jobs.take(None)
    assert not jobs


def test_an_environment_is_there_until_its_runner_ends_it() -> None:
    """A scheduler sends SIGTERM to all processes of a job, and the runner still needs this one to come to the end of a step."""
    with Crew(Maker("Pendulum-v1", {}, None, False), 1) as crew:
        crew("reset", {0: (0, 1)})
        os.kill(crew.processes[0].pid or 0, signal.SIGTERM)
        assert not isinstance(crew("step", {0: (np.zeros(1, np.float32), 0, 0)})[0], InputError)
