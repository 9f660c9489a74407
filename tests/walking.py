"""What the tests of locomotion share, in either physics."""

from __future__ import annotations

import os
from collections.abc import Callable
from ctypes import util
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ubex.experiments.locomotion import FILM
from ubex.runs.checkpoint import CheckpointFolder
from ubex.runs.jobs import JobContext
from ubex.runs.records import Outcome


class Stop(Exception):
    """Ends a run from outside."""


def endings(env: Any, steps: int, disturb: Callable[[int], None]) -> tuple[np.ndarray, np.ndarray]:
    """Random episodes: what `terminates` says of every step, and the environment's own flag. `disturb` comes before a step."""
    actions, before, rows = np.random.default_rng(0), env.reset(seed=0)[0], []
    for step in range(steps):
        disturb(step)
        action = actions.uniform(-1.0, 1.0, env.action_space.shape).astype(np.float32)
        after, _, terminated, truncated, _ = env.step(action)
        rows.append((before, action, after, terminated))
        before = env.reset()[0] if terminated or truncated else after
    env.close()
    parts = [jnp.asarray(np.stack(part), jnp.float32) for part in zip(*rows, strict=True)]
    return np.asarray(jax.vmap(env.terminates)(*parts[:3])), np.asarray(parts[3]) > 0.0


def stopped_and_continued(experiment: Any, folder: Path, draws: bool = True) -> Outcome:
    """The outcome of the only cell of an experiment of 60 steps that was stopped half-way; a film is left where it draws."""
    (cell,) = experiment.cells()

    def stop(done: int, total: int, unit: str) -> None:
        if done >= 30:
            raise Stop

    with pytest.raises(Stop):
        experiment.run(cell, [0], JobContext(CheckpointFolder(folder / "c"), stop))
    assert CheckpointFolder(folder / "c").notes(), "there is nothing to go on from"
    found = experiment.run(cell, [0], JobContext(CheckpointFolder(folder / "c"), lambda *_: None, folder))[0]
    assert isinstance(found, Outcome)
    film = folder / "seed-0" / FILM
    assert film.exists() == draws
    assert not draws or film.read_bytes()[:6] == b"GIF89a"
    return found


def mujoco_draws() -> bool:
    """Whether MuJoCo has something to draw with here."""
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or util.find_library("EGL"))
