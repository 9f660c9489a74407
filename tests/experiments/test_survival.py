"""Deep runs on the host meet what goes wrong, in real processes: a line that names the seed, the others go on, nothing is lost.

They take minutes, so they run with UBEX_LONG=1; the parts that they are made of have quick tests of their own.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

pytestmark = pytest.mark.skipif(not os.environ.get("UBEX_LONG"), reason="takes minutes: set UBEX_LONG=1")
ENV = """
import os, sys, time
from pathlib import Path
import gymnasium, numpy as np
from gymnasium import spaces

class Odd(gymnasium.Env):
    observation_space = spaces.Box(-9.0, 9.0, (3,), np.float32)
    action_space = spaces.Box(-2.0, 2.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.unlucky = seed % 3 == 0
        self.steps = 0
        return self.np_random.normal(size=3).astype(np.float32), {}

    def step(self, action):
        self.steps += 1
        seen, reward = self.np_random.normal(size=3).astype(np.float32), 0.1
        if self.unlucky and self.steps >= 18 and not Path("mended").exists():
            HAPPENS
        return seen, reward, False, self.steps == 25, {}
"""
SMALL = {"initial_steps": 20, "batch_size": 4, "updates_per_step": 1, "critic_hidden": [4], "actor_hidden": [4]}
SEEDS, STEPS = 5, 75
BREAKS = {
    "an observation is NaN": "seen[1] = np.nan",
    "an observation is infinite": "seen[1] = np.inf",
    "a reward is NaN": "reward = float('nan')",
    "a loss is not finite": "reward = 1e30",
    "out of memory": "os.kill(os.getpid(), 9)",
}


def start(place: Path, happens: str, steps: int = STEPS, largest: int = resource.RLIM_INFINITY) -> subprocess.Popen[str]:
    """The command, in a folder with that environment, where no file can be larger than that."""
    (place / "odd_env.py").write_text(ENV.replace("HAPPENS", happens))
    words = [
        "--env",
        "odd_env:Odd",
        "--agent",
        "sac",
        "--steps",
        str(steps),
        "--seeds",
        str(SEEDS),
        "--settings",
        json.dumps(SMALL),
    ]
    command = [sys.executable, "-m", "ubex", "train", *words, "--evaluation-episodes", "1", "--no-report", "--out", "run"]
    limits = (largest, resource.RLIM_INFINITY)
    return subprocess.Popen(
        command,
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limits),
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code and all words."""
    said, _ = process.communicate()
    return process.returncode, " ".join(said.split())


def seeds_in(place: Path) -> set[int]:
    """Seeds that finished."""
    return set(pd.read_csv(place / "run" / "results.csv")["seed"]) if (place / "run" / "results.csv").exists() else set()


@pytest.mark.parametrize("name", BREAKS)
def test_one_seed_fails_the_others_finish_and_the_same_command_continues(name: str, tmp_path: Path) -> None:
    code, said = ended(start(tmp_path, BREAKS[name]))
    assert code == 1, said
    assert "Traceback" not in said
    finished = seeds_in(tmp_path)
    assert 0 < len(finished) < SEEDS, said
    for seed in set(range(SEEDS)) - finished:
        assert f"seed {seed}" in said
    (tmp_path / "mended").touch()
    code, said = ended(start(tmp_path, BREAKS[name]))
    assert code == 0, said
    assert seeds_in(tmp_path) == set(range(SEEDS))


def test_a_checkpoint_that_cannot_be_written_stops_the_run_and_the_same_command_continues(tmp_path: Path) -> None:
    code, said = ended(start(tmp_path, "pass", steps=3000, largest=20_000))
    assert code == 1, said
    assert "ubex: cannot write " in said
    assert "everything finished before is kept, and the same command continues once this is mended" in said
    assert "Traceback" not in said
    code, said = ended(start(tmp_path, "pass", steps=3000))
    assert code == 0, said


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_run_and_the_same_command_continues(stop: signal.Signals, tmp_path: Path) -> None:
    process = start(tmp_path, "pass", steps=100_000)
    while not list((tmp_path / "run").glob("cells/*/checkpoints-*/*.ckpt")):  # in the middle of compiled work
        assert process.poll() is None, ended(process)
        time.sleep(0.05)
    process.send_signal(stop)
    code, said = ended(process)
    assert code == 130, said
    assert "interrupted; to continue: ubex train" in said
    assert "Traceback" not in said
