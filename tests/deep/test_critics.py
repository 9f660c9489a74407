from __future__ import annotations

import jax
import numpy as np

from deep.tiny import config
from ubex.deep import critics
from ubex.envs.task import Task


def test_own_values_are_the_diagonal_of_all_values() -> None:
    networks = critics.init(config(num_models=3), jax.random.key(0), Task(2, 1))
    observation, action = jax.random.normal(jax.random.key(1), (3, 5, 2)), jax.random.normal(jax.random.key(2), (3, 5, 1))
    own = critics.own_values(networks, observation, action)
    for i in range(3):
        np.testing.assert_allclose(own[i], critics.values(networks, observation[i], action[i])[i], rtol=1e-6)
