"""The Ray backend: jobs as tasks on an existing cluster, or on one started here.

Ray itself retries a task whose worker or node is lost. Checkpoints go to the run folder, so a retried job continues where it
was if all nodes see that folder; results are written by the driver alone.
"""

from __future__ import annotations

import functools
import logging
import os
import socket
import warnings
from collections.abc import Sequence
from typing import Any

from ubex import checks
from ubex.runs.disk import StorageError
from ubex.runs.jobs import ATTEMPTS, Failed, Job, Listener, Result, execute
from ubex.runs.processes import worker_environment
from ubex.types import InputError

POLL_SECONDS = 0.2
CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Without clusters Ray listens on the loopback address alone, so that nobody else on the network can give it work."""


def run_ray(jobs: Sequence[Job], listener: Listener, address: str | None, workers: int | None = None) -> None:
    """Jobs on a Ray cluster: by address, or (none given) on one started locally for this run."""
    ray = connect(address, workers)
    try:
        board = make_board(ray)
        task = ray.remote(num_cpus=1, max_retries=ATTEMPTS, retry_exceptions=False)(run_remotely)
        pending: dict[Any, Job] = {}
        for number, job in enumerate(jobs):
            pending[task.remote(job, number, board)] = job
        numbered = dict(enumerate(jobs))
        begun: set[int] = set()
        while pending:
            ready, _ = ray.wait(list(pending), timeout=POLL_SECONDS)
            relay(ray, board, numbered, begun, listener)
            for reference in ready:
                job = pending.pop(reference)
                listener.ended(job, outcome_of(ray, reference))
    finally:
        ray.shutdown()


def connect(address: str | None, workers: int | None) -> Any:
    """Ray, connected; its own chatter and its reports to the outside are switched off."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    if not address:
        os.environ.setdefault(CLUSTERS, "0")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import ray
    except ImportError:
        raise InputError("--backend ray needs Ray: install the extra with `pip install ubex[ray]`") from None
    if address:
        knock(address)
    settings: dict[str, Any] = {
        "log_to_driver": False,
        "logging_level": logging.ERROR,
        "runtime_env": {"env_vars": worker_environment()},
    }
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray forks to start its daemons, and JAX warns of every fork
            if address:
                ray.init(address=address, **settings)
            else:
                ray.init(address="local", num_cpus=workers, include_dashboard=False, **settings)
    except (ConnectionError, ValueError, RuntimeError) as error:
        where = f"at {address}" if address else "here"
        raise InputError(f"no Ray cluster could be reached {where}: {str(error).splitlines()[0]}") from None
    return ray


def knock(address: str) -> None:
    """Fails at once where nobody listens; Ray itself would wait for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host and address != "auto":
        raise InputError(f"--address must be HOST:PORT, ray://HOST:PORT or auto, but it is {address!r}")
    if not host:
        return
    try:
        socket.create_connection(
            (host, checks.whole("the port of --address", int(port) if port.isdigit() else port, 1)), 5
        ).close()
    except OSError as error:
        raise InputError(f"no Ray cluster could be reached at {address}: {error.strerror or error}") from None


class Board:
    """Where tasks say how far they have come; a Ray actor on the driver's node."""

    def __init__(self) -> None:
        """An empty board."""
        self.latest: dict[int, tuple[int, int, str]] = {}
        self.told = list[tuple[int, str, tuple[Any, ...]]]()

    def put(self, number: int, done: int, total: int, unit: str) -> None:
        """How far job `number` has come."""
        self.latest[number] = (done, total, unit)

    def tell(self, number: int, method: str, words: tuple[Any, ...]) -> None:
        """What else job `number` says."""
        self.told.append((number, method, words))

    def take(self) -> tuple[dict[int, tuple[int, int, str]], list[tuple[int, str, tuple[Any, ...]]]]:
        """What was said since the last call."""
        (latest, self.latest), (told, self.told) = (self.latest, {}), (self.told, [])
        return latest, told


def make_board(ray: Any) -> Any:
    """The board, on the driver's own node: that one is there as long as the run is."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(node_id=ray.get_runtime_context().get_node_id(), soft=False)
    return ray.remote(num_cpus=0, scheduling_strategy=here)(Board).remote()


def run_remotely(job: Job, number: int, board: Any) -> tuple[str, Any]:
    """What a task does. A full disk comes back as a word: Ray would wrap the exception."""
    board.put.remote(number, 0, 0, "")
    put, tell = (functools.partial(method.remote, number) for method in (board.put, board.tell))
    try:
        return "ended", execute(job, put, tell)
    except StorageError as error:
        return "storage", str(error)


def relay(ray: Any, board: Any, jobs: dict[int, Job], begun: set[int], listener: Listener) -> None:
    """Passes on what the tasks have said; a board that does not answer costs only the display."""
    try:
        latest, told = ray.get(board.take.remote(), timeout=5)
    except ray.exceptions.RayError:
        return
    for number, (done, total, unit) in latest.items():
        if number not in begun:
            begun.add(number)
            listener.started(jobs[number])
        if unit:
            listener.progressed(jobs[number], done, total, unit)
    for number, method, words in told:
        getattr(listener, method)(jobs[number], *words)


def outcome_of(ray: Any, reference: Any) -> Result:
    """The result of a task, or the failure of Ray to give it one."""
    try:
        kind, content = ray.get(reference)
    except ray.exceptions.RayError as error:
        return Failed(f"Ray could not run it: {str(error).splitlines()[0]}", str(error))
    if kind == "storage":
        raise StorageError(content)
    result: Result = content
    return result
