"""Learned terminations: limits are found by few ends, a classifier learns the rest, and without any end nothing ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ubex.deep import termination
from ubex.deep.buffer import Batch, pack
from ubex.envs.task import Task

ROWS = 2000


def beyond(limit: float) -> Callable[[np.ndarray], np.ndarray]:
    """Ends where the first coordinate passes a limit."""
    return lambda after: after[:, 0] > limit


def data(number: int, ends: Callable[[np.ndarray], np.ndarray], seed: int = 0) -> tuple[Any, np.ndarray]:
    """Steps of a point in a plane, and which of them end. Free places hold noise."""
    generator = np.random.default_rng(seed)
    observation, action = (generator.normal(size=(ROWS, size)).astype(np.float32) for size in (2, 1))
    after = (observation + 0.3 * generator.normal(size=(ROWS, 2))).astype(np.float32)
    over = ends(after)
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


@pytest.mark.parametrize("limit", [0.5, 2.0, 2.8])
def test_a_limit_is_found_by_a_few_ends(limit: float) -> None:
    """A third of all steps end beyond 0.5, 3% beyond 2 and five of 2,000 beyond 2.8; judged on other steps than it saw."""
    rows, _ = data(ROWS, beyond(limit))
    ends = learned(rows, ROWS, 1)
    assert float(ends.limits.high[0]) == pytest.approx(limit, abs=0.15)
    np.testing.assert_array_equal([ends.limits.high[1], *-ends.limits.low, ends.threshold], np.inf)  # and no others
    untrained = termination.init(jax.random.key(0), Task(2, 1)).network
    np.testing.assert_array_equal(ends.network.weights[0], untrained.weights[0])  # nothing is left for the classifier
    fresh, over = data(ROWS, beyond(limit), seed=1)
    found = said(ends, fresh)
    assert 1.0 - found[over].mean() <= 0.15
    assert found[~over].mean() <= 0.001


def test_every_limit_is_found_and_no_number_that_only_goes_with_it() -> None:
    """Whoever falls over is also fast: the angle explains it, and the speed must stay free."""
    generator = np.random.default_rng(0)
    angle = generator.normal(size=(ROWS, 1))
    after = np.concatenate(
        (angle, 3.0 * angle + 0.3 * generator.normal(size=(ROWS, 1)), generator.normal(size=(ROWS, 1))), axis=1
    )
    over = (np.abs(angle[:, 0]) > 2.0) | (after[:, 2] < -2.0)
    limits = termination.find_limits(jnp.asarray(after), jnp.asarray(over), jnp.ones(ROWS, bool))
    np.testing.assert_allclose(limits.low, [-2.0, -np.inf, -2.0], atol=0.1)
    np.testing.assert_allclose(limits.high, [2.0, np.inf, np.inf], atol=0.1)


def test_one_end_is_a_limit_alone_and_none_among_others() -> None:
    after, held = jnp.asarray([[0.0], [1.0], [2.0], [3.0], [0.5], [0.6]]), jnp.arange(6) < 6
    alone = termination.find_limits(after, held & (after[:, 0] == 3.0), held)
    assert (float(alone.low[0]), float(alone.high[0])) == (-np.inf, 2.5)
    among = termination.find_limits(after, held & ((after[:, 0] == 3.0) | (after[:, 0] == 0.5) | (after[:, 0] == 0.6)), held)
    assert (float(among.low[0]), float(among.high[0])) == (-np.inf, np.inf)


def test_the_classifier_learns_what_no_limit_explains() -> None:
    """An end in the middle; judged on other steps than it saw."""

    def hole(after: np.ndarray) -> np.ndarray:
        found: np.ndarray = np.linalg.norm(after - [0.5, 0.5], axis=1) < 0.6
        return found

    rows, _ = data(1000, hole)
    fresh, over = data(ROWS, hole, seed=1)
    ends = learned(rows, 1000)
    np.testing.assert_array_equal([*ends.limits.high, *-ends.limits.low], np.inf)
    found = said(ends, fresh)
    assert 1.0 - found[over].mean() <= 0.15
    assert found[~over].mean() <= 0.03


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
    rows, _ = data(1000, beyond(100.0))
    assert not said(termination.init(jax.random.key(0), Task(2, 1)), rows).any()
    ends = learned(rows, 1000, 1)
    assert float(ends.threshold) == np.inf
    assert not said(ends, rows).any()
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(ends.network))


def test_what_always_ended_ends() -> None:
    rows, _ = data(1000, beyond(-100.0))
    assert said(learned(rows, 1000, 1), rows).all()
