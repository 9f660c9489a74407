"""Wall-clock time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def seconds(function: Callable[[], Any]) -> float:
    """Wall-clock time of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start
