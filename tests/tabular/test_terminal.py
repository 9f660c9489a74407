"""Where a process ends, against SciPy's search through the same graphs."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from ubex.tabular.terminal import reaching


def test_states_that_reach_a_goal_are_those_at_a_finite_distance() -> None:
    rng = np.random.default_rng(0)
    lost = 0
    for _ in range(300):
        size = int(rng.integers(1, 9))
        edges, goals = rng.random((size, size)) < 0.25, rng.random(size) < 0.3
        goals[0] = True
        steps = dijkstra(csr_array(edges.T), indices=np.flatnonzero(goals), unweighted=True, min_only=True)
        np.testing.assert_array_equal(reaching(edges, goals), np.isfinite(steps))
        lost += int(np.isinf(steps).sum())
    assert lost > 100
    assert not reaching(np.ones((2, 2), dtype=bool), np.zeros(2, dtype=bool)).any()
