"""Everything under test is shape-checked, and broadcasting or promoting by accident raises: our bugs would be of that kind.

Most of the tests' time is compilation, of programs that then run for milliseconds. So XLA is told not to optimise, here and in
the processes that tests start, unless XLA_FLAGS is set, be it to nothing: `make test` does that for tests that compare numbers,
or that compute for long.
And what was compiled once is kept in `build/compiled`. Only the processes of pytest write there, each file in one step: other
processes, which tests may kill, only read.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
COMPILED, MOST_BYTES = ROOT / "build" / "compiled", 2**30

FLAGS = "--xla_backend_optimization_level=1 --xla_cpu_use_fusion_emitters=false"
"""Level 0 computes NaN where it should not; the older emitters compile in half the time."""
os.environ.setdefault("XLA_FLAGS", FLAGS)  # before JAX looks
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(COMPILED))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "1e9")  # for other processes: never written

from jaxtyping import install_import_hook  # noqa: E402

install_import_hook("ubex", "typechecker.check")  # before the first import of ubex

import hypothesis  # noqa: E402
import jax  # noqa: E402
from jax._src import lru_cache  # noqa: E402

jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

hypothesis.settings.register_profile(
    "ubex",
    deadline=None,
    max_examples=200,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large],
)
hypothesis.settings.load_profile("ubex")


def put(cache: lru_cache.LRUCache, key: str, value: bytes) -> None:
    """Writes a compiled program in one step, so that nobody reads half of one; JAX's own way does not."""
    path = Path(cache.path) / f"{key}-cache"
    if not path.exists():
        part = path.with_suffix(f".{os.getpid()}")
        part.write_bytes(value)
        part.replace(path)


lru_cache.LRUCache.put = put  # type: ignore[method-assign]


def pytest_sessionstart(session: Any) -> None:
    """Throws away what was compiled before where it takes too much room."""
    first = not hasattr(session.config, "workerinput") and COMPILED.exists()
    if first and sum(file.stat().st_size for file in COMPILED.iterdir()) > MOST_BYTES:
        shutil.rmtree(COMPILED)


MAPS, MOST_MAPS, EVERY = Path("/proc/self/maps"), 30_000, 10
"""Every compiled program maps memory, and Linux allows a process 65,530 maps: beyond it the compiler crashes."""
finished = 0


def pytest_runtest_teardown(item: Any) -> None:
    """Drops compiled programs before there are too many; looked at after every few tests, since counting takes a while."""
    global finished
    finished += 1
    if finished % EVERY == 0 and MAPS.exists() and MAPS.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()
