"""The two ways to evaluate a policy under a belief agree."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from ubex.closed_form import DirichletRows
from ubex.envs.base import Trajectory, rollout
from ubex.envs.deep_sea import deep_sea
from ubex.tabular import models
from ubex.tabular.belief import mean_model, observe, prior, reward_posterior, sample_transitions, total_mass
from ubex.types import MDP, Key

LONGEST = 320
"""Steps of a walk, of which only some may count, so that all walks are of one shape."""


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


def walk(seed: int, states: int, actions: int, steps: int) -> Trajectory:
    """A walk in a deterministic world with ways back, in which a state leads to itself and a few actions end it all."""
    random = np.random.default_rng(seed)
    after = random.integers(states + 1, size=(states, actions))
    after[0, 0] = 0
    place, rows = 0, []
    for step in range(LONGEST):
        action = int(random.integers(actions))
        rows.append((place, action, float(random.normal()), int(after[place, action]), step < steps))
        place = int(after[place, action]) % states
    kinds = (jnp.int32, jnp.int32, jnp.float64, jnp.int32, jnp.bool_)
    return Trajectory(*(jnp.asarray(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)))


@pytest.mark.parametrize("first_order", [True, False])
@pytest.mark.parametrize("mass", [0.5, 8.0])
def test_traced_is_known(first_order: bool, mass: float) -> None:
    """Where the fixed point is reached and, with few data and a light prior, where it is not."""

    @jax.jit
    def both(seen: Trajectory, policy: Array) -> list[Any]:
        belief = observe(prior(10, 3, 1), seen, 2)
        reward, deviation = reward_posterior(belief, 1.0, 1.0)
        mean = mean_model(belief, reward, mass)
        rows = DirichletRows(mean, total_mass(belief, mass), deviation**2)
        made = (models.Traced(mean, rows), models.Known(mean, rows))
        setting = (policy, 0.95, first_order)
        return [(model.evaluate(*setting), model.prospect(3, *setting), model.values(reward, policy, 0.95)) for model in made]

    with jax.enable_x64(True):
        for seed in range(8):
            policy = np.random.default_rng(seed).integers(3, size=11)
            traced, known = both(walk(seed, 10, 3, LONGEST >> seed), jnp.asarray(policy, jnp.int32))
            for one, other in zip(jax.tree.leaves(traced), jax.tree.leaves(known), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-9)
