"""Environments in processes of their own: they answer as one in this process does, fail alone, and never outlive who asks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from ubex.learn.crew import Crew, Maker
from ubex.types import InputError

PENDULUM = Maker("Pendulum-v1", {"g": 5.0}, 20, False)
SCRIPT = """
import time
from ubex.learn.crew import Crew, Maker

if __name__ == "__main__":
    crew = Crew(Maker("Pendulum-v1", {}, None, False), 2)
    crew("reset", {0: (0, 1), 1: (0, 2)})
    print(*(process.pid for process in crew.processes), flush=True)
    time.sleep(10_000.0)
"""
STUCK = """
import gymnasium, time
from gymnasium import spaces
from pathlib import Path

class Stuck(gymnasium.Env):
    observation_space = action_space = spaces.Box(-1.0, 1.0, (1,))
    def reset(self, *, seed=None, options=None):
        Path(__file__).with_name("asked").touch()
        time.sleep(10_000.0)
"""


def runs(process: int) -> bool:
    """Whether it is there, and not only its exit code."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_they_answer_as_here_and_fail_alone() -> None:
    here, action = PENDULUM(), np.full(1, 0.3, np.float32)
    with Crew(PENDULUM, 2) as crew:
        for seed, first in crew("reset", {0: (0, 4), 1: (0, 5)}).items():
            np.testing.assert_array_equal(first, here.reset(0, 4 + seed))
            there, moved = crew("step", {seed: (action, 0, 19)})[seed], here.step(action, 0, 19)
            np.testing.assert_array_equal(there.observation, moved.observation)
            assert there[1:] == moved[1:]
            assert there.truncated, "the horizon goes with it"
        crew.processes[0].kill()
        answers = crew("step", {0: (action, 7, 0), 1: (action, 7, 0)})
        assert isinstance(answers[0], InputError)
        assert str(answers[0]) == "the process of Pendulum-v1 ended at step 7 (exit code -9)"
        assert not isinstance(answers[1], InputError)
        again = crew("again", {1: (0, 5, np.zeros((1, 9), np.float32))})
        assert again == {1: None}, "another episode than these rows tell"
    assert not any(process.is_alive() for process in crew.processes)


def test_who_asks_while_they_end_gets_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of an environment that never answers."""
    monkeypatch.setattr("ubex.learn.crew.LEAVE_SECONDS", 0.1)
    (tmp_path / "stuck.py").write_text(STUCK)
    monkeypatch.syspath_prepend(str(tmp_path))
    with Crew(Maker("stuck:Stuck", {}, None, False), 1) as crew, ThreadPoolExecutor() as threads:
        late = threads.submit(crew, "reset", {0: (7, 1)})
        while not (tmp_path / "asked").exists():
            time.sleep(0.01)
        crew.__exit__()
        assert str(late.result()[0]) == "the process of stuck:Stuck ended at step 7 (exit code -9)"
        assert isinstance(crew("reset", {0: (7, 1)})[0], InputError)


def test_what_cannot_be_made_says_so_when_it_is_asked() -> None:
    with Crew(Maker("Nowhere-v7", {}, None, False), 1) as crew:
        assert "unknown environment 'Nowhere-v7'" in str(crew("reset", {0: (0, 1)})[0])


def test_killing_who_asks_leaves_no_process(tmp_path: Path) -> None:
    script = tmp_path / "asks.py"
    script.write_text(SCRIPT)
    asks = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert asks.stdout is not None
    crew = [int(word) for word in asks.stdout.readline().split()]
    assert len(crew) == 2
    assert all(runs(process) for process in crew)
    os.kill(asks.pid, signal.SIGKILL)
    asks.communicate()
    while any(runs(process) for process in crew):  # orphans would stay for hours
        time.sleep(0.1)
