"""The local backend: jobs in this process, or in a pool of worker processes that may die.

The pool is our own because a lost worker must cost one retry of one job, and an interrupt must end all workers: at once, or
after a checkpoint where a job can leave one.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import signal
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from ubex.runs.disk import StorageError
from ubex.runs.jobs import ATTEMPTS, Failed, Job, Listener, execute
from ubex.runs.processes import LEAVE_SECONDS, die_with_parent, environment, worker_environment
from ubex.runs.records import Cell

STOP_SECONDS = 20.0
"""How long a busy one may take to leave a checkpoint; schedulers kill 30 seconds after they have asked."""
SAY_SECONDS = 1.0
"""How long people wait for that without a word."""


def run_inline(jobs: Sequence[Job], listener: Listener) -> None:
    """One job after another in this process."""
    for job in jobs:
        listener.started(job)

        def tell(method: str, words: tuple[Any, ...], job: Job = job) -> None:
            getattr(listener, method)(job, *words)

        listener.ended(job, execute(job, functools.partial(listener.progressed, job), tell))


def run_pool(jobs: Sequence[Job], listener: Listener, workers: int) -> None:
    """Jobs in worker processes; one whose worker is lost is tried again."""
    queue, attempts = Queue(jobs), dict.fromkeys(jobs, 0)
    crew = [Worker() for _ in range(min(workers, len(jobs)))]
    try:
        for worker in crew:
            worker.give(queue, attempts, listener)
        while any(worker.job is not None for worker in crew):
            ready = wait([worker.connection for worker in crew if worker.job is not None])
            for index, worker in enumerate(crew):
                if worker.job is None or worker.connection not in ready:
                    continue
                try:
                    kind, content = worker.connection.recv()
                except (EOFError, OSError):
                    crew[index] = replace_lost(worker, queue, attempts, listener)
                    continue
                if kind == "progress":
                    listener.progressed(worker.job, *content)
                elif kind == "storage":
                    raise StorageError(content)
                elif kind != "ended":
                    getattr(listener, kind)(worker.job, *content)
                else:
                    job, worker.job = worker.job, None
                    listener.ended(job, content)
                    worker.give(queue, attempts, listener)
    except KeyboardInterrupt:
        let_save([worker for worker in crew if worker.job is not None], listener)
        raise
    finally:
        for worker in crew:
            worker.leave()  # so that all do at the same time
        for worker in crew:
            worker.stop()


def let_save(busy: Sequence[Worker], listener: Listener) -> None:
    """Interrupts jobs, and waits for those that leave a checkpoint; another interrupt ends the waiting."""
    for worker in busy:
        worker.process.terminate()
    for worker in at_work(busy, SAY_SECONDS):
        if worker.job is not None:
            listener.said(worker.job, "it leaves a checkpoint before it stops; interrupt again to stop it at once")
    at_work(busy, STOP_SECONDS)


def at_work(workers: Sequence[Worker], seconds: float) -> list[Worker]:
    """Those whose process has not ended after so many seconds."""
    until = time.monotonic() + seconds
    for worker in workers:
        worker.process.join(max(until - time.monotonic(), 0.0))
    return [worker for worker in workers if worker.process.is_alive()]


class Queue:
    """Jobs that wait. A program is compiled for a cell, so each worker does all seeds of a cell while there are other cells."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        """In this order."""
        self.jobs, self.begun = [(job.cell.id, job) for job in jobs], set[str]()

    def __bool__(self) -> bool:
        """Whether there is one."""
        return bool(self.jobs)

    def take(self, cell: Cell | None) -> Job:
        """The next job for a worker that did this cell last: of the same cell, of one that nobody began, or the first."""
        own = cell.id if cell else None
        places = range(len(self.jobs))
        kinds = [0 if name == own else 1 if name not in self.begun else 2 for name, _ in self.jobs]
        name, job = self.jobs.pop(min(places, key=kinds.__getitem__))
        self.begun.add(name)
        return job

    def give_back(self, job: Job) -> None:
        """It is the first again."""
        self.jobs.insert(0, (job.cell.id, job))


class Worker:
    """One worker process and what it is busy with."""

    def __init__(self) -> None:
        """Starts the process; it imports what it needs when its first job comes."""
        context = multiprocessing.get_context("spawn")
        self.connection, far_end = context.Pipe()
        # no daemon, which could not have the processes of its environments; it ends with the runner all the same
        self.process: SpawnProcess = context.Process(target=serve, args=(far_end, os.getpid()), daemon=False)
        with environment(worker_environment()):
            self.process.start()
        far_end.close()  # so that a dead worker is seen as the end of the stream
        self.job: Job | None = None
        self.cell: Cell | None = None
        """Of its last job."""

    def give(self, queue: Queue, attempts: dict[Job, int], listener: Listener) -> None:
        """Hands over the next job, if there is one."""
        if not queue:
            return
        self.job = queue.take(self.cell)
        self.cell = self.job.cell
        attempts[self.job] += 1
        listener.started(self.job)
        with contextlib.suppress(OSError):  # it died while idle: the loop sees the end of its stream and replaces it
            self.connection.send(self.job)

    def leave(self) -> None:
        """Begins to end the process: an idle one leaves as its stream ends, a busy one is killed."""
        self.connection.close()
        if self.job is not None:
            self.process.kill()

    def stop(self) -> None:
        """Ends the process; what a job had is in checkpoints."""
        self.leave()
        self.process.join(LEAVE_SECONDS)
        self.process.kill()
        self.process.join()


def replace_lost(worker: Worker, queue: Queue, attempts: dict[Job, int], listener: Listener) -> Worker:
    """A new worker for one that died, and its job back in the queue unless it died too often."""
    job = worker.job
    assert job is not None, "only busy workers are watched"
    worker.stop()
    if attempts[job] < ATTEMPTS:
        listener.lost(job, attempts[job])
        queue.give_back(job)
    else:
        code = worker.process.exitcode
        listener.ended(job, Failed(f"its worker was lost {ATTEMPTS} times (last exit code {code})", ""))
    fresh = Worker()
    fresh.give(queue, attempts, listener)
    return fresh


def serve(connection: Connection, parent: int) -> None:
    """What a worker process does: jobs, until there is nobody left to give them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt at the terminal is the runner's to handle
    die_with_parent()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # with which the runner passes it on

    def send(kind: str, content: Any) -> None:
        try:
            connection.send((kind, content))
        except OSError:
            os._exit(1)  # the runner is gone: nobody wants the rest

    while os.getppid() == parent:
        try:
            job = connection.recv()
        except (EOFError, OSError):
            break
        try:
            send("ended", execute(job, lambda *far: send("progress", far), send))
        except KeyboardInterrupt:  # its checkpoint is written
            break
        except StorageError as error:
            send("storage", str(error))
            break
