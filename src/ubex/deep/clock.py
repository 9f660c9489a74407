"""What the time of a run on the host is spent on."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import NamedTuple


class Shares(NamedTuple):
    """Seconds of a run, by what they were spent on."""

    environment: float
    models: float
    """Training them and refilling the buffers with their rollouts, compilation included; 0 for agents without a model."""
    device: float
    """Starting the other work on the device and waiting for it, compilation included; on a CPU rounds may run meanwhile."""
    rest: float


class Clock:
    """Says what the time of a run is spent on: the rest is what lies between two things that are measured."""

    def __init__(self) -> None:
        """Nothing was spent yet."""
        self.spent = Shares(0.0, 0.0, 0.0, 0.0)
        self.start()

    def start(self) -> None:
        """What came before counts for nothing."""
        self._since = time.perf_counter()

    @contextlib.contextmanager
    def measure(self, share: str) -> Iterator[None]:
        """Counts what happens inside as `environment`, `models` or `device`."""
        begun = time.perf_counter()
        self.spent = self.spent._replace(rest=self.spent.rest + begun - self._since)
        try:
            yield
        finally:
            self.start()
            self.spent = self.spent._replace(**{share: getattr(self.spent, share) + self._since - begun})
