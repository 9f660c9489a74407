"""The classifier of terminations: it learns a known region from few examples, and without any it ends nothing."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ubex.deep import termination
from ubex.deep.buffer import Batch, pack
from ubex.envs.task import Task

ROWS = 2000


def data(number: int, limit: float, seed: int = 0) -> tuple[Any, np.ndarray]:
    """Steps of a point in a plane; an episode ends where its first coordinate passes the limit. Free places hold noise."""
    generator = np.random.default_rng(seed)
    observation, action = (generator.normal(size=(ROWS, size)).astype(np.float32) for size in (2, 1))
    after = (observation + 0.3 * generator.normal(size=(ROWS, 2))).astype(np.float32)
    over = after[:, 0] > limit
    rows = np.array(pack(Batch(observation, action, after[:, 1], after, over.astype(np.float32))))
    rows[number:, -1] = 1.0  # beyond the data: what stands there must not be looked at
    return jnp.asarray(rows), over


def learned(rows: Any, number: int, times: int = 2) -> termination.Termination:
    ends = termination.init(jax.random.key(0), Task(2, 1))
    train = jax.jit(termination.train, static_argnames="task")
    for index in range(times):
        ends = train(Task(2, 1), jax.random.key(index), ends, rows, jnp.asarray(number, jnp.int32))
    return ends


def said(ends: termination.Termination, rows: Any) -> np.ndarray:
    terminates = termination.bound(ends)
    return np.asarray(jax.jit(jax.vmap(lambda row: terminates(row[:2], row[2:3], row[4:6])))(rows))


@pytest.mark.parametrize(("limit", "missed", "wrong"), [(0.5, 0.03, 0.03), (2.0, 0.2, 0.005)])
def test_it_learns_where_episodes_end(limit: float, missed: float, wrong: float) -> None:
    """A third of all steps end at 0.5, and 3% beyond 2; judged on other steps than it saw."""
    rows, _ = data(1000, limit)
    fresh, over = data(ROWS, limit, seed=1)
    found = said(learned(rows, 1000), fresh)
    assert 1.0 - found[over].mean() <= missed
    assert found[~over].mean() <= wrong


def test_a_rare_edge_is_put_where_the_data_have_it() -> None:
    """Five steps in 2,000 end, at 2.8: a threshold by their share alone would let half of those go on that pass it by 0.3."""
    rows, over = data(ROWS, 2.8)
    assert over.sum() == 5
    ends, generator = learned(rows, ROWS), np.random.default_rng(5)

    def share(place: float) -> float:
        before, action = (generator.normal(size=(500, size)).astype(np.float32) for size in (2, 1))
        before[:, 0] = place - 0.2
        after = before + np.asarray([[0.2, 0.0]], np.float32)
        return float(said(ends, pack(Batch(before, action, after[:, 1], after, np.zeros(500, np.float32)))).mean())

    assert share(2.8 + 0.3) >= 0.8
    assert share(2.8 - 0.3) <= 0.1


@pytest.mark.parametrize(
    ("outputs", "ends", "count", "threshold"),
    [
        ([4.0, 1.0, 2.0, -3.0], [1, 0, 1, 0], 4, 1.5),  # a clean edge
        ([4.0, 1.0, 2.0, 9.0], [1, 0, 1, 0], 3, 1.5),  # what stands behind the data does not count
        ([4.0, 3.0, 2.0, 1.0, 0.0], [1, 1, 0, 1, 0], 5, 2.5),  # one is missed, so that no other is wrong
        ([3.0, 2.0, 1.0], [0, 1, 0], 3, np.inf),  # luck
        ([3.0, 2.0], [1, 1], 2, 1.0),  # everything ends
    ],
)
def test_the_threshold_errs_least(outputs: list[float], ends: list[int], count: int, threshold: float) -> None:
    held = jnp.arange(len(outputs)) < count
    found = termination.least_errors(jnp.asarray(outputs), held & (jnp.asarray(ends) > 0), held)
    assert float(found) == threshold


def test_what_never_ended_does_not_end() -> None:
    rows, _ = data(1000, 100.0)
    assert not said(termination.init(jax.random.key(0), Task(2, 1)), rows).any()
    ends = learned(rows, 1000, 1)
    assert float(ends.threshold) == np.inf
    assert not said(ends, rows).any()
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(ends.network))


def test_what_always_ended_ends() -> None:
    rows, _ = data(1000, -100.0)
    assert said(learned(rows, 1000, 1), rows).all()
