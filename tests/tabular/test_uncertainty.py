"""The uncertainty Bellman equation is solved."""

from __future__ import annotations

import numpy as np
from worlds import cyclic_variance, random_ensemble, random_policy


def test_solution_satisfies_the_uncertainty_bellman_equation() -> None:
    ensemble = random_ensemble(seed=9, num_models=4, num_states=5, num_actions=2)
    policy = random_policy(seed=10, num_states=5, num_actions=2)
    result = cyclic_variance(ensemble, policy, 0.8, estimator="pombu")
    p_bar = np.asarray(ensemble.p).mean(axis=0)
    next_variance = p_bar @ (policy * result.q).sum(axis=1)
    np.testing.assert_allclose(result.q, result.local + 0.64 * next_variance, rtol=1e-12)
