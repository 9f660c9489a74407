"""The learner of all seeds together: the compiled loop by hand, and the same when it is killed in between."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest
from deep.tiny import config, drifting

from ubex.deep import loop
from ubex.deep.loop import Segment
from ubex.learn import driver
from ubex.learn.deep import SegmentLearner, SegmentState
from ubex.runs.checkpoint import CheckpointFolder
from ubex.runs.jobs import JobContext

KEYS = jax.random.split(jax.random.key(0), 2)
SEGMENTS = 3


class Killed(Exception):
    """Stands for a kill."""


def test_it_is_the_compiled_loop_also_when_it_is_killed(tmp_path: Path) -> None:
    settings, env, returns = config(method="ensemble-mean", retain=2), drifting(), []
    seeds, buffers = loop.begin(settings, env, KEYS, SEGMENTS), loop.begin_buffers(settings, env, len(KEYS))
    for index in range(SEGMENTS):
        seeds, buffers, segment = loop.advance(settings, env, KEYS, seeds, buffers, index)
        returns.append(np.asarray(segment.evaluation.returns))

    def record(state: SegmentState, segment: Segment) -> tuple[driver.Rows, bool]:
        return {"return": segment.evaluation.returns[None]}, True

    def kill(done: int, total: int, unit: str) -> None:
        if done == 3:
            raise Killed

    learner = SegmentLearner(settings, env, KEYS, SEGMENTS)
    with pytest.raises(Killed):
        driver.run(learner, SEGMENTS, JobContext(CheckpointFolder(tmp_path), kill), record)
    run = driver.run(learner, SEGMENTS, JobContext(CheckpointFolder(tmp_path), lambda *_: None), record)
    np.testing.assert_array_equal(run.history["return"], returns)
    jax.tree.map(np.testing.assert_array_equal, (run.state.seeds, run.state.buffers), (seeds, buffers))
    assert (run.state.bad.tolist(), len(run.state.refills)) == ([-1, -1], 2)
