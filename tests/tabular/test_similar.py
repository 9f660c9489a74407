"""Equations of a policy from those of a similar one, against NumPy and against a factorisation in every step."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from ubex import ESTIMATORS, MDP
from ubex.tabular import planner, similar
from ubex.tabular.bellman import Values
from ubex.tabular.models import Dense
from ubex.tabular.planner import Optimism

STATES, ACTIONS, MODELS = 120, 3, 4


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def sparse_model(seed: int) -> Dense:
    """Samples around a mean in which few states follow another, one of them often itself: values are far apart."""
    generator = np.random.default_rng(seed)
    parameters = np.full((STATES, ACTIONS, STATES), 0.02)
    for action in range(ACTIONS):
        parameters[np.arange(STATES), action, generator.integers(STATES, size=STATES)] += generator.gamma(1.0, 20.0, STATES)
        parameters[np.arange(STATES), action, np.arange(STATES)] += 30.0 * (generator.random(STATES) < 0.3)
    p = generator.gamma(parameters, size=(MODELS, *parameters.shape))
    p /= p.sum(axis=-1, keepdims=True)
    r = generator.normal(size=(STATES, ACTIONS)) + 0.1 * generator.normal(size=(MODELS, STATES, ACTIONS))
    return Dense(MDP(jnp.asarray(p), jnp.asarray(r)), MDP(jnp.asarray(p.mean(axis=0)), jnp.asarray(r.mean(axis=0))))


def plain_values(p: np.ndarray, r: np.ndarray, policy: np.ndarray, discount: float) -> np.ndarray:
    """By NumPy."""
    states = np.arange(STATES)
    v: np.ndarray = np.linalg.solve(np.eye(STATES) - discount * p[states, policy], r[states, policy])
    return v


@functools.partial(jax.jit, static_argnames="discount")
def evaluated(model: Dense, reward: Array, first: Array, policy: Array, discount: float) -> tuple[Values, Values, Array]:
    """The mean's and the samples' values and the propagated reward of a policy, from the inverted equations of the first."""
    known = similar.similar_to(model, first, discount, jnp.asarray(True), True)
    variance = known.propagate(reward, policy, discount**2)
    return known.average(policy, discount), known.members(policy, discount), variance


@pytest.mark.parametrize("discount", [0.99, 0.999])
@pytest.mark.parametrize("changed", [0, 1, similar.MOST, similar.MOST + 1, STATES])
def test_values_of_a_similar_policy(changed: int, discount: float) -> None:
    """Few states differ, or more than are allowed to: then the equations are factorised."""
    for seed in range(3):
        generator, model = np.random.default_rng(seed), sparse_model(seed)
        first = generator.integers(ACTIONS, size=STATES)
        policy = first.copy()
        policy[generator.choice(STATES, changed, replace=False)] += 1
        policy %= ACTIONS
        reward = generator.random((STATES, ACTIONS))
        average, members, variance = evaluated(
            model, jnp.asarray(reward), *(jnp.asarray(x, jnp.int32) for x in (first, policy)), discount=discount
        )
        p, r, p_bar, r_bar = (np.asarray(x) for x in (*model.samples, *model.mean))
        own = np.array([plain_values(*mdp, policy, discount) for mdp in zip(p, r, strict=True)])
        mean, u = plain_values(p_bar, r_bar, policy, discount), plain_values(p_bar, reward, policy, discount**2)
        pairs = (
            (average.v, mean),
            (average.q, r_bar + discount * p_bar @ mean),
            (members.v, own),
            (members.q, r + discount * np.einsum("nsat,nt->nsa", p, own)),
            (variance, reward + discount**2 * p_bar @ u),
        )
        for found, expected in pairs:
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11 * np.abs(expected).max())


def test_nothing_is_inverted_where_it_is_not_worth_it() -> None:
    model, policy = sparse_model(0), jnp.zeros(STATES, jnp.int32)
    known = similar.similar_to(model, policy, 0.9, jnp.asarray(False), False)
    assert known.variance is None
    assert not np.any(known.mean.columns)
    assert not np.any(known.own.columns)
    assert not bool(similar.is_near(policy, known.inverted))
    expected = plain_values(np.asarray(model.mean.p), np.asarray(model.mean.r), np.asarray(policy), 0.9)
    np.testing.assert_allclose(known.average(policy, 0.9).v, expected, rtol=1e-11)


@pytest.mark.parametrize(
    ("name", "gain"), [("exact-ube", 1.0), ("pombu", 1.0), ("ensemble-var", 1.0), ("odonoghue", 0.1), ("exact-ube", 0.0)]
)
def test_policy_iteration_makes_the_same_steps(name: str, gain: float, monkeypatch: pytest.MonkeyPatch) -> None:
    how = Optimism(ESTIMATORS[name], gain, 0.99, u_min=0.0, clip_sum=False, random_ties=False)
    quick, plain = (
        jax.jit(lambda model, first: planner.policy_iteration(how, jax.random.key(0), model, first)) for _ in range(2)
    )
    for seed in range(3):
        model, first = sparse_model(seed), jnp.asarray(np.random.default_rng(seed).integers(ACTIONS, size=STATES), jnp.int32)
        assert similar.is_quicker(model) == (jax.default_backend() == "cpu")
        found = quick(model, first)
        with monkeypatch.context() as patched:
            patched.setattr(similar, "is_quicker", lambda model: False)
            expected = plain(model, first)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
        assert int(expected.steps) > 3, "no step was left for the inverse"
