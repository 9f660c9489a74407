"""The environments of several seeds, each in a process of its own, so that they step at the same time."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from ubex.envs import adapter
from ubex.envs.resolve import by_name
from ubex.runs.processes import LEAVE_SECONDS, die_with_parent, environment, worker_environment
from ubex.types import InputError


class Maker(NamedTuple):
    """How a process makes its environment."""

    name: str
    settings: Mapping[str, Any]
    horizon: int | None
    scaled: bool
    """Whether observations are scaled to their bounds."""

    def __call__(self) -> adapter.HostedEnv:
        """The environment; what agents are told of it is not asked for here."""
        return adapter.hosted(by_name(self.name, self.settings), self.horizon, scaled=self.scaled)


class Crew:
    """Processes by the number of their seed. They end with the crew, and with the process that made it, however that ends."""

    def __init__(self, make: Maker, seeds: int) -> None:
        """Starts them; each makes its environment, and says what is wrong with it when it is first asked."""
        context, self.name = multiprocessing.get_context("spawn"), make.name
        self.connections, self.processes = list[Connection](), []
        self._asking = threading.Lock()
        with environment({**worker_environment(), "JAX_PLATFORMS": "cpu"}):
            for _ in range(seeds):
                near, far = context.Pipe()
                process = context.Process(target=serve, args=(far, make, os.getpid()), daemon=True)
                process.start()
                far.close()  # so that a dead process is seen as the end of the stream
                self.connections.append(near)
                self.processes.append(process)

    def __enter__(self) -> Crew:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends all processes. A thread that still asks gets an error for an answer."""
        if not self._asking.acquire(timeout=LEAVE_SECONDS):
            for process in self.processes:
                process.kill()
            self._asking.acquire()
        for connection in self.connections:
            connection.close()
        self._asking.release()
        for process in self.processes:
            process.join(LEAVE_SECONDS)
            process.kill()
            process.join()

    def __call__(self, method: str, words: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
        """What the environments of some seeds answer, or an InputError; all are asked before the first answer is awaited."""
        with self._asking:
            for seed, given in words.items():
                with contextlib.suppress(OSError):  # it died: the end of its stream is seen below
                    self.connections[seed].send((method, given))
            return {seed: self._answer(seed, given[1 if method == "step" else 0]) for seed, given in words.items()}

    def _answer(self, seed: int, number: int) -> Any:
        try:
            return self.connections[seed].recv()
        except (EOFError, OSError):
            self.processes[seed].join(LEAVE_SECONDS)
            code = self.processes[seed].exitcode
            return InputError(f"the process of {self.name} ended at step {number} (exit code {code})")


def serve(connection: Connection, make: Maker, parent: int) -> None:
    """What a process does: it answers, until there is nobody left to ask."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt at the terminal is for those who ask
    die_with_parent()
    env = made(make)
    with contextlib.suppress(EOFError, OSError):
        while os.getppid() == parent:
            method, words = connection.recv()
            connection.send(env if isinstance(env, InputError) else adapter.answer(env, method, words))


def made(make: Maker) -> adapter.HostedEnv | InputError:
    """An environment, or what is wrong with it."""
    try:
        return make()
    except InputError as error:
        return error
