"""A run that is killed with SIGKILL at random moments and continued each time ends with the numbers of one that was not."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

EPISODES, JOBS = 400, 4
RUN = [
    *("run", "shrinkage", "--no-report", "--seeds", "2", "--methods", "exact-ube", "pombu"),
    *("--sizes", "4", "--episodes", str(EPISODES), "--workers", "2"),
]
KILLS = int(os.environ.get("UBEX_KILLS", "1"))
"""How often it is killed; UBEX_KILLS=20 takes minutes and is the stricter test."""


def command(out: Path) -> list[str]:
    return [sys.executable, "-m", "ubex", *RUN, "--out", str(out)]


def finish(out: Path) -> None:
    subprocess.run(command(out), check=True, stdout=subprocess.DEVNULL)


def episodes_on_disk(out: Path) -> int:
    """Of all jobs: those of the newest checkpoint, or all where a job is done."""
    steps = ((int(file.stem) for file in folder.glob("*.ckpt")) for folder in out.glob("cells/*/checkpoints-*"))
    return sum(max(found, default=0) for found in steps) + EPISODES * len(list(out.glob("cells/*/seed-*/done.json")))


def kill_at(out: Path, episodes: int) -> bool:
    """Kills the run when it has come that far; False if it finished before."""
    process = subprocess.Popen(command(out), stdout=subprocess.DEVNULL)
    while process.poll() is None:
        if (out / "spec.json").exists() and episodes_on_disk(out) >= episodes:
            process.kill()
            process.wait()
            return True
        time.sleep(0.002)
    assert process.returncode == 0
    return False


def test_killed_at_random_moments_gives_identical_results(tmp_path: Path) -> None:
    finish(tmp_path / "whole")
    moments, done, rounds = random.Random(1), 0, 0
    while done < KILLS:  # a run that finishes before the last kill is compared, and another begins
        rounds += 1
        out = tmp_path / f"killed-{rounds}"
        goals = sorted(moments.randrange(EPISODES * JOBS) for _ in range(KILLS - done))
        done += sum(kill_at(out, goal) for goal in goals)
        finish(out)
        for name in ("results.csv", "curves.csv"):
            assert (tmp_path / "whole" / name).read_bytes() == (out / name).read_bytes(), f"after {done} kills"
