"""A run that is killed with SIGKILL at random moments and continued each time ends with the numbers of one that was not."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

RUN = [
    *("run", "shrinkage", "--no-report", "--seeds", "2", "--methods", "exact-ube", "pombu"),
    *("--sizes", "4", "--episodes", "400", "--workers", "2"),
]
KILLS = int(os.environ.get("UBEX_KILLS", "1"))
"""How often it is killed; UBEX_KILLS=20 takes minutes and is the stricter test."""


def command(out: Path) -> list[str]:
    return [sys.executable, "-m", "ubex", *RUN, "--out", str(out)]


def finish(out: Path) -> None:
    subprocess.run(command(out), check=True, stdout=subprocess.DEVNULL)


def kill_until_finished(out: Path, kills: int, whole: float, moments: random.Random) -> int:
    """Kills and continues one run until it finishes or there were enough kills; returns how many there were."""
    for done in range(kills):
        process = subprocess.Popen(command(out), stdout=subprocess.DEVNULL)
        try:
            process.wait(timeout=moments.uniform(0.3, whole * 0.9))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            continue
        assert process.returncode == 0
        return done
    return kills


def test_killed_at_random_moments_gives_identical_results(tmp_path: Path) -> None:
    begin = time.monotonic()
    finish(tmp_path / "whole")
    whole, moments, done, rounds = time.monotonic() - begin, random.Random(1), 0, 0
    while done < KILLS:  # a run that finishes before the last kill is compared, and another begins
        rounds += 1
        out = tmp_path / f"killed-{rounds}"
        done += kill_until_finished(out, KILLS - done, whole, moments)
        finish(out)
        for name in ("results.csv", "curves.csv"):
            assert (tmp_path / "whole" / name).read_bytes() == (out / name).read_bytes(), f"after {done} kills"
