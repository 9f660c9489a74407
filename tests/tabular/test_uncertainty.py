"""The compiled whole agrees with the public call, which runs the same mathematics in pieces."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from worlds import random_ensemble, random_policy

from ubex import ESTIMATORS, value_variance
from ubex.tabular import bellman, uncertainty


@pytest.mark.parametrize("name", sorted(name for name in ESTIMATORS if ESTIMATORS[name].closed is None))
def test_one_program_and_pieces_agree(name: str) -> None:
    ensemble = random_ensemble(seed=7, num_models=4, num_states=5, num_actions=2)
    policy = random_policy(seed=8, num_states=5, num_actions=2)
    pieces = value_variance(ensemble, policy, 0.9, estimator=name, u_min=-0.05)
    with jax.enable_x64(True):
        whole = jax.jit(uncertainty.estimate, static_argnames=("estimator", "ddof"))(
            ESTIMATORS[name], ensemble, bellman.mean_mdp([ensemble]), policy, 0.9, u_min=-0.05
        )
    np.testing.assert_allclose(whole.v, pieces.v, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(whole.q, pieces.q, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(whole.local_q, pieces.local, rtol=1e-10, atol=1e-14)


def test_solution_satisfies_the_uncertainty_bellman_equation() -> None:
    ensemble = random_ensemble(seed=9, num_models=4, num_states=5, num_actions=2)
    policy = random_policy(seed=10, num_states=5, num_actions=2)
    result = value_variance(ensemble, policy, 0.8, estimator="pombu")
    p_bar = np.asarray(ensemble.p).mean(axis=0)
    next_variance = p_bar @ (policy * result.q).sum(axis=1)
    np.testing.assert_allclose(result.q, result.local + 0.64 * next_variance, rtol=1e-12)
