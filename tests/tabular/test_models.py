"""The two ways to evaluate a policy under a belief agree."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from ubex.envs.base import rollout
from ubex.envs.deep_sea import deep_sea
from ubex.tabular import models
from ubex.tabular.belief import mean_model, observe, prior, reward_posterior, sample_transitions
from ubex.types import MDP, Key


@pytest.mark.parametrize(("episodes", "needs_chi_square"), [(0, True), (5, False)])
def test_flat_is_dense(episodes: int, needs_chi_square: bool) -> None:
    @jax.jit
    def both(key: Key) -> list[Any]:
        env, belief = deep_sea(5), prior(25, 2, 1)
        for episode in range(episodes):
            policy = jax.random.randint(jax.random.key(episode), (26,), 0, 2, jnp.int32)
            belief = observe(belief, rollout(env, key, policy), 5)
        reward, deviation = reward_posterior(belief, 1.0, 1e6)
        noise = jax.random.normal(key, (3, 26, 2), jnp.float64)
        samples = MDP(sample_transitions(key, belief, 3), reward[None] + deviation[None] * noise)
        mean = mean_model(belief, reward)
        flat, dense = models.Flat(samples, mean), models.Dense(samples, mean.dense())
        policy = jax.random.randint(key, (26,), 0, 2, jnp.int32)
        single = models.Single(MDP(jnp.asarray(samples.p)[:1], jnp.asarray(samples.r)[:1]), mean)
        found = [evaluated(model, policy, jnp.abs(noise[0]), needs_chi_square) for model in (flat, dense)]
        return [*found, single.average(policy, 0.99), dense.members(policy, 0.99)]

    with jax.enable_x64(True):
        for seed in range(3):
            flat, dense, single, members = both(jax.random.key(seed))
            for one, other in zip(jax.tree.leaves(flat), jax.tree.leaves(dense), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-8)
            np.testing.assert_allclose(single.q, members.q[0], atol=1e-8)


def evaluated(model: models.Flat | models.Dense, policy: Array, reward: Array, needs_chi_square: bool) -> tuple[Any, ...]:
    average, members = model.average(policy, 0.99), model.members(policy, 0.99)
    return average, members, model.moments(members, average, policy, needs_chi_square), model.propagate(reward, policy, 0.98)
