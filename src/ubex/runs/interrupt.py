"""What stops a run from outside: Ctrl-C, and the signal of a scheduler."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

STOPS = (signal.SIGINT, signal.SIGTERM)
"""Ctrl-C, and what a scheduler sends before it kills."""


class Interrupt:
    """Remembers an interrupt that Python lost.

    A KeyboardInterrupt that happens to be raised inside a finaliser or a garbage-collection callback (JAX has one) is printed
    and dropped. What was seen here is raised again at the next sign of life of a job.
    """

    def __init__(self) -> None:
        """Not interrupted yet."""
        self.seen = False
        self._before: dict[int, Callable[..., Any] | int | None] = {}

    def __enter__(self) -> Interrupt:
        """Takes over SIGINT and SIGTERM, which only the main thread may; one that a process was started to ignore stays so."""
        main = threading.current_thread() is threading.main_thread()
        for one in STOPS if main else ():
            if signal.getsignal(one) is not signal.SIG_IGN:
                self._before[one] = signal.signal(one, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        """Gives them back."""
        for one, handler in self._before.items():
            signal.signal(one, handler)

    def check(self) -> None:
        """Raises what was lost."""
        if self.seen:
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: object) -> None:
        self.seen = True
        raise KeyboardInterrupt


class Patience(Interrupt):
    """Puts an interrupt off until `check`, so that nothing is cut in two; another one goes to whoever had them before."""

    def _handle(self, number: int, frame: object) -> None:
        before, again, self.seen = self._before.get(number), self.seen, True
        if again and callable(before):
            before(number, frame)
