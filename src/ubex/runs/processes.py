"""What all our worker processes have in common, those of runs and those of environments. It imports next to nothing: a process
that steps an environment needs no more."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Iterator, Mapping

PR_SET_PDEATHSIG = 1
LEAVE_SECONDS = 5.0
"""How long an idle process may take to leave before it is killed."""


def worker_environment() -> dict[str, str]:
    """Environment of every worker process, here and on a cluster: one thread each.

    Workers share the cores between them; and the number of threads decides in which order sums are made, so that only with the
    same number everywhere are the results the same to the last bit. On a GPU they take memory as they need it, not all at once.
    """
    single = "--xla_cpu_multi_thread_eigen=false"
    flags = os.environ.get("XLA_FLAGS", "")
    return {
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "XLA_FLAGS": flags if single in flags else f"{flags} {single}".strip(),
        "XLA_PYTHON_CLIENT_PREALLOCATE": os.environ.get("XLA_PYTHON_CLIENT_PREALLOCATE", "false"),
    }


@contextlib.contextmanager
def environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Changes environment variables for a moment: a spawned process takes them as they are at its start."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def die_with_parent() -> None:
    """Leaves SIGTERM to the runner, which a scheduler sends to all processes of a job.

    On Linux, has the kernel kill this process when the runner dies, so that no orphan works on in the run folder.
    """
    signal.signal(signal.SIGTERM, lambda *_: None)  # not SIG_IGN, which the processes of an environment would inherit
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
