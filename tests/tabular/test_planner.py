"""Optimistic policy iteration against a plain NumPy version that makes every step."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import cyclic_variance, random_ensemble

from ubex import ESTIMATORS, MDP
from ubex.tabular import bellman, planner
from ubex.tabular.models import Dense
from ubex.tabular.planner import MAX_IMPROVEMENTS, Optimism

DISCOUNT = 0.9


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def optimism(name: str, **settings: object) -> Optimism:
    plain = {"gain": 1.0, "discount": DISCOUNT, "u_min": 0.0, "clip_sum": False, "random_ties": False}
    return Optimism(ESTIMATORS[name], **{**plain, **settings})


def plain_iteration(name: str, gain: float, samples: MDP, policy: np.ndarray, most: int) -> tuple[np.ndarray, bool]:
    """All steps, by the public call, and whether the policy stayed in the end."""
    for _ in range(most):
        result = cyclic_variance(samples, policy, DISCOUNT, estimator=name)
        better = np.argmax(result.q_mean + gain * np.sqrt(np.maximum(result.q, 0.0)), axis=1)
        if np.array_equal(better, policy):
            return policy, True
        policy = better
    return policy, False


@pytest.mark.parametrize("most", [MAX_IMPROVEMENTS, 2])
@pytest.mark.parametrize("name", sorted(name for name in ESTIMATORS if ESTIMATORS[name].closed is None))
def test_agrees_with_all_steps_made(name: str, most: int) -> None:
    run = jax.jit(planner.policy_iteration, static_argnames="how")
    short = 0
    for seed in range(12):
        samples = random_ensemble(seed, 3, 6, 3)
        first = np.random.default_rng(seed).integers(3, size=6)
        gain = 2.0
        expected, stays = plain_iteration(name, gain, samples, first, most)
        mean = bellman.mean_mdp([samples])
        how = optimism(name, gain=gain, max_improvements=most)
        plan = run(how, jax.random.key(seed), Dense(samples, mean), jnp.asarray(first, jnp.int32))
        np.testing.assert_array_equal(plan.policy, expected)
        assert int(plan.steps) <= most
        assert bool(plan.converged) == stays
        short += not stays and int(plan.steps) < most
    if name == "ensemble-var" and most == MAX_IMPROVEMENTS:
        assert short > 0, "no case cycled: the test shows nothing about cycles"


def test_clip_of_the_sum_and_of_u_alone_differ() -> None:
    samples = random_ensemble(1, 4, 5, 2)
    mean = bellman.mean_mdp([samples])
    policy = jnp.zeros(5, jnp.int32)
    average, members = (bellman.solve(mdp, policy, DISCOUNT) for mdp in (mean, MDP(*map(jnp.asarray, samples))))
    device = MDP(*map(jnp.asarray, samples))
    alone = planner.q_variance(optimism("exact-ube"), Dense(device, mean), members, average, policy)
    both = planner.q_variance(optimism("exact-ube", clip_sum=True), Dense(device, mean), members, average, policy)
    expected = cyclic_variance(samples, np.zeros(5, int), DISCOUNT, estimator="exact-ube")
    np.testing.assert_allclose(alone, expected.q, rtol=1e-10)
    assert np.all(np.asarray(both) <= np.asarray(alone) + 1e-12)
    assert not np.allclose(both, alone)


def test_ties_are_broken_at_random_on_request() -> None:
    """Two actions that do the same: the first is always taken, or each about half of the time."""
    samples = random_ensemble(2, 2, 40, 1)
    twin = MDP(np.repeat(samples.p, 2, axis=2), np.repeat(samples.r, 2, axis=2))
    mean = bellman.mean_mdp([twin])
    first = jnp.ones(40, jnp.int32)
    plain = planner.policy_iteration(optimism("pombu"), jax.random.key(0), Dense(twin, mean), first)
    assert (np.asarray(plain.policy) == 0).all()
    random = planner.policy_iteration(optimism("pombu", random_ties=True), jax.random.key(0), Dense(twin, mean), first)
    assert 8 < int(np.asarray(random.policy).sum()) < 32
