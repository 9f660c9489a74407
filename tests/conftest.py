"""Everything under test is shape-checked, and broadcasting or promoting by accident raises: our bugs would be of that kind.

Most of the tests' time is compilation, of programs that then run for milliseconds. So XLA is told not to optimise, here and in
the processes that tests start, unless XLA_FLAGS is set, be it to nothing: `make test` does that for tests that compare numbers,
or that compute for long.
"""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FLAGS = (
    "--xla_backend_optimization_level=1 --xla_cpu_use_fusion_emitters=false "
    "--xla_llvm_disable_expensive_passes=true --xla_cpu_parallel_codegen_split_count=1"
)
"""Level 0 computes NaN where it should not; the older emitters compile in half the time; there is one core per test process."""
os.environ.setdefault("XLA_FLAGS", FLAGS)  # before JAX looks
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy looks; on a busy machine two threads wait for each other

from jaxtyping import install_import_hook  # noqa: E402

install_import_hook("ubex", "typechecker.check")  # before the first import of ubex

import hypothesis  # noqa: E402
import jax  # noqa: E402
import jaxtyping  # noqa: E402
import pytest  # noqa: E402

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

hypothesis.settings.register_profile(
    "ubex",
    deadline=None,
    max_examples=60,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large],
)
hypothesis.settings.load_profile("ubex")


@pytest.fixture(scope="module")
def as_users_have_it() -> Iterator[None]:
    """Without the type checks, for tests of odd input: they come before ours."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


MAPS, MOST_MAPS, EVERY = Path("/proc/self/maps"), 30_000, 10
"""Every compiled program maps memory, and Linux allows a process 65,530 maps: beyond it the compiler crashes."""
PAGES, MOST_BYTES = Path("/proc/self/statm"), 2 * 10**9
"""Programs also take memory, some 5 GB in a whole suite, and there are as many processes as cores."""
finished, most_bytes = 0, MOST_BYTES


def pytest_runtest_teardown(item: Any) -> None:
    """Drops compiled programs before there are too many; looked at after every few tests, since counting takes a while."""
    global finished, most_bytes
    finished += 1
    if finished % EVERY or not MAPS.exists():
        return
    if MAPS.read_bytes().count(b"\n") > MOST_MAPS or resident_bytes() > most_bytes:
        jax.clear_caches()
        gc.collect()
        if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
            libc.malloc_trim(0)  # glibc keeps what is freed until it is told
        most_bytes = max(MOST_BYTES, resident_bytes() + MOST_BYTES // 2)


def resident_bytes() -> int:
    """Memory of this process."""
    return int(PAGES.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
