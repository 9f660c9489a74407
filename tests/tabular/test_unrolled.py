"""A finite horizon against brute force with fresh rows at each step, against the time-expanded MDP, and against the limit."""

from __future__ import annotations

import warnings
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from worlds import World, brute_force_values, cyclic_variance, random_ensemble, random_policy, worlds

import ubex
from ubex import MDP, DirichletNormal
from ubex.estimators import ESTIMATORS

SAMPLED = tuple(name for name, estimator in ESTIMATORS.items() if estimator.closed is None)
ARRAYS = ("v", "q", "v_mean", "q_mean", "local")
OWN_BOUND = tuple(name for name in SAMPLED if name != "odonoghue")
"""The bound of `odonoghue` is over the values of one time, not over all of them."""
STATES, ACTIONS, STEPS = 3, 2, 3


def options(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two equally likely (rows, rewards) for each state, with cycles: p (2, S, A, S) and r (2, S, A)."""
    generator = np.random.default_rng(seed)
    return generator.dirichlet(np.ones(STATES), size=(2, STATES, ACTIONS)), generator.normal(size=(2, STATES, ACTIONS))


def product_posterior(seed: int) -> MDP:
    """Every member of the posterior in which the rows of different states are independent."""
    p, r = options(seed)
    choices = list(product(range(2), repeat=STATES))
    states = np.arange(STATES)
    return MDP(*(np.stack([x[list(choice), states] for choice in choices]) for x in (p, r)))


def enumerated(seed: int, policy: np.ndarray, discount: float, horizon: int) -> tuple[np.ndarray, np.ndarray]:
    """V and Q at time 0 of every outcome in which each state draws its option anew at each step."""
    p, r = options(seed)
    states = np.arange(STATES)
    v, q = np.zeros((1, STATES)), np.zeros((1, STATES, ACTIONS))
    for _ in range(horizon):
        later, v_parts, q_parts = v, [], []
        for choice in product(range(2), repeat=STATES):
            rows, rewards = p[list(choice), states], r[list(choice), states]
            q = np.array([[[rewards[s, a] + discount * rows[s, a] @ x for a in range(ACTIONS)] for s in states] for x in later])
            q_parts.append(q)
            v_parts.append(np.array([[policy[s] @ row[s] for s in states] for row in q]))
        v, q = np.concatenate(v_parts), np.concatenate(q_parts)
    return v, q


@pytest.mark.parametrize("discount", [0.7, 1.0])
@pytest.mark.parametrize("horizon", [1, 2, STEPS])
def test_closed_form_equals_every_outcome_of_fresh_rows(discount: float, horizon: int) -> None:
    policy, other = random_policy(2, STATES, ACTIONS), random_policy(3, STATES, ACTIONS)
    v, q = enumerated(5, policy, discount, horizon)
    samples = product_posterior(5)
    found = ubex.value_variance(samples, policy, discount, estimator="closed-form", horizon=horizon)
    np.testing.assert_allclose(found.v, v.var(axis=0), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.q, q.var(axis=0), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.v_mean, v.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(found.q_mean, q.mean(axis=0), rtol=1e-9)
    covariance = ubex.value_covariance(samples, policy, discount, estimator="closed-form", horizon=horizon)
    assert covariance.converged
    np.testing.assert_allclose(covariance.covariance, np.cov(v.T, ddof=0), rtol=1e-9, atol=1e-12)
    v_other, _ = enumerated(5, other, discount, horizon)  # outcomes in the same order
    difference = ubex.policy_difference(samples, policy, other, discount, estimator="closed-form", horizon=horizon)
    np.testing.assert_allclose(difference.mean, (v - v_other).mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(difference.variance, (v - v_other).var(axis=0), rtol=1e-9, atol=1e-12)


def expanded(posterior: DirichletNormal, horizon: int) -> DirichletNormal:
    """The posterior unrolled by hand: a state for each state and time, with rows of its own, and an end."""
    states, actions = posterior.num_states, posterior.num_actions
    size = states * horizon
    alpha = np.zeros((size, actions, size + 1))
    for time in range(horizon):
        here = slice(time * states, (time + 1) * states)
        if time + 1 < horizon:
            alpha[here, :, (time + 1) * states : (time + 2) * states] = posterior.transitions.alpha
        else:
            alpha[here, :, -1] = 1.0
    mean, precision = (np.tile(x, (horizon, 1)) for x in (posterior.rewards.mean(), 1.0 / posterior.rewards.variance()))
    return DirichletNormal(
        size,
        actions,
        concentration=np.where(alpha > 0, alpha, 1.0),
        support=alpha > 0,
        terminal=True,
        reward_mean=mean,
        reward_precision=precision,
    )


def dense_posterior(states: int = 4) -> DirichletNormal:
    generator = np.random.default_rng(1)
    return DirichletNormal(
        states,
        2,
        concentration=generator.gamma(1.0, size=(states, 2, states)),
        reward_mean=generator.normal(size=(states, 2)),
        reward_precision=generator.gamma(2.0, size=(states, 2)),
    )


@pytest.mark.parametrize("estimator", ["closed-form", "first-order"])
@pytest.mark.parametrize("discount", [0.9, 1.0])
def test_closed_form_equals_the_stationary_one_of_the_time_expanded_posterior(estimator: str, discount: float) -> None:
    posterior, horizon, policy = dense_posterior(), 6, random_policy(4, 4, 2)
    unrolled = expanded(posterior, horizon)
    everywhere = np.concatenate([np.tile(policy, (horizon, 1)), [[1.0, 0.0]]])
    long = ubex.value_variance(unrolled, everywhere, discount, estimator=estimator)
    found = ubex.value_variance(posterior, policy, discount, estimator=estimator, horizon=horizon)
    for field in ARRAYS:
        np.testing.assert_allclose(getattr(found, field), getattr(long, field)[:4], rtol=1e-9, atol=1e-12)
    square = ubex.value_covariance(unrolled, everywhere, discount, estimator=estimator).covariance[:4, :4]
    covariance = ubex.value_covariance(posterior, policy, discount, estimator=estimator, horizon=horizon)
    np.testing.assert_allclose(covariance.covariance, square, rtol=1e-9, atol=1e-12)
    other = np.array([0, 1, 1, 0])
    apart = ubex.policy_difference(unrolled, everywhere, np.append(np.tile(other, horizon), 0), discount, estimator=estimator)
    difference = ubex.policy_difference(posterior, policy, other, discount, estimator=estimator, horizon=horizon)
    np.testing.assert_allclose(difference.mean, apart.mean[:4], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(difference.variance, apart.variance[:4], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("estimator", OWN_BOUND)
@settings(max_examples=25)
@given(world=worlds(random_rewards=True))
def test_sampled_estimators_without_cycles_are_the_stationary_ones(estimator: str, world: World) -> None:
    """With as many steps as the world is deep, also where paths of different lengths meet."""
    common = {"estimator": estimator, "u_min": -np.inf}
    depth = len(world.policy)
    found = ubex.value_variance(world.samples, world.policy, world.discount, horizon=depth, **common)
    expected = ubex.value_variance(world.samples, world.policy, world.discount, **common)
    scale = max(1.0, float(np.abs(brute_force_values(world)[1]).max()) ** 2)
    for field in ARRAYS:
        np.testing.assert_allclose(getattr(found, field), getattr(expected, field), atol=1e-9 * scale)


@pytest.mark.parametrize("estimator", OWN_BOUND)
def test_sampled_estimators_are_the_time_expanded_ones_with_cycles(estimator: str) -> None:
    """Each member written out in time with its own rows at every step: the stationary solver must give the same."""
    samples, horizon, policy = random_ensemble(3, 4, 3, 2), 4, random_policy(1, 3, 2)
    p, r = (np.asarray(x) for x in samples)
    size = 3 * horizon
    long_p, long_r = np.zeros((4, size + 1, 2, size + 1)), np.zeros((4, size + 1, 2))
    for time in range(horizon):
        here = slice(3 * time, 3 * time + 3)
        long_r[:, here] = r
        if time + 1 < horizon:
            long_p[:, here, :, 3 * time + 3 : 3 * time + 6] = p
        else:
            long_p[:, here, :, -1] = 1.0
    long_p[:, -1, :, -1] = 1.0
    everywhere = np.concatenate([np.tile(policy, (horizon, 1)), [[1.0, 0.0]]])
    for discount, ddof, u_min in ((0.8, 0, -np.inf), (1.0, 1, 0.0)):
        common = {"estimator": estimator, "u_min": u_min, "ddof": ddof}
        with warnings.catch_warnings(action="ignore", category=ubex.UbexWarning):  # that u is clipped
            long = ubex.value_variance(MDP(long_p, long_r), everywhere, discount, **common)
        found = cyclic_variance(samples, policy, discount, horizon=horizon, **common)
        for field in ARRAYS:
            np.testing.assert_allclose(getattr(found, field), getattr(long, field)[:3], rtol=1e-9, atol=1e-12)


def test_the_2018_bound_takes_the_largest_value_that_can_still_come() -> None:
    samples, horizon = random_ensemble(3, 4, 3, 1), 3
    p, r = (np.asarray(x)[:, :, 0] for x in samples)
    p_bar, v, expected = p.mean(axis=0), np.zeros((4, 3)), np.zeros(3)
    spread = ((p - p_bar) ** 2 / p_bar).sum(axis=-1).mean(axis=0)
    for _ in range(horizon):
        expected = r.var(axis=0) + 0.81 * (np.abs(v).max() ** 2 * spread + p_bar @ expected)
        v = r + 0.9 * np.einsum("nst,nt->ns", p, v)
    found = cyclic_variance(samples, np.zeros(3, int), 0.9, estimator="odonoghue", horizon=horizon)
    np.testing.assert_allclose(found.v, expected, rtol=1e-12)
    np.testing.assert_allclose(found.q[:, 0], expected, rtol=1e-12)


def test_many_steps_are_the_stationary_values() -> None:
    samples, policy = random_ensemble(0, 5, 6, 2), random_policy(0, 6, 2)
    for estimator in ("exact-ube", "pombu", "ensemble-var", "closed-form"):
        long = cyclic_variance(samples, policy, 0.8, estimator=estimator, horizon=200)
        expected = cyclic_variance(samples, policy, 0.8, estimator=estimator)
        np.testing.assert_allclose(long.v_mean, expected.v_mean, rtol=1e-12)
        np.testing.assert_allclose(long.q_mean, expected.q_mean, rtol=1e-12)
        if estimator != "closed-form":
            np.testing.assert_allclose(long.v, expected.v, rtol=1e-9)
            np.testing.assert_allclose(long.q, expected.q, rtol=1e-9)


@pytest.mark.filterwarnings("ignore::ubex.UbexWarning")
def test_fresh_rows_are_less_uncertain_than_one_that_is_met_again() -> None:
    """One state that stays with an unknown probability and pays 1: the errors of one row add up, those of many cancel."""
    posterior = DirichletNormal(1, 1, terminal=True, concentration=[[[30.0, 3.0]]], reward_mean=1.0, reward_precision=1e12)
    fresh = ubex.value_variance(posterior, [0, 0], 0.95, estimator="closed-form", horizon=400).v[0]
    same = ubex.value_variance(posterior, [0, 0], 0.95, estimator="closed-form").v[0]
    stay = posterior.sample(0, 20_000).p[:, 0, 0, 0]
    assert 2.0 * fresh < same
    np.testing.assert_allclose(same, (1.0 / (1.0 - 0.95 * stay)).var(), rtol=0.2)


@pytest.mark.parametrize("estimator", ["closed-form", "ensemble-var"])
def test_a_policy_does_not_differ_from_itself(estimator: str) -> None:
    for policy in (np.zeros(4, int), random_policy(1, 4, 2)):
        found = ubex.policy_difference(
            dense_posterior(), policy, policy, 0.9, estimator=estimator, key=0, num_models=9, horizon=30
        )
        assert (found.variance == 0.0).all()
        assert (found.mean == 0.0).all()


def test_identical_members_know_everything() -> None:
    samples = random_ensemble(2, 1, 4, 2)
    same = MDP(np.repeat(np.asarray(samples.p), 5, axis=0), np.repeat(np.asarray(samples.r), 5, axis=0))
    for estimator in ESTIMATORS:
        found = cyclic_variance(same, random_policy(0, 4, 2), 0.9, estimator=estimator, horizon=12)
        tolerance = 1e-14 if estimator in ("exact-ube-1", "exact-ube-2") else 0.0  # these are differences of averages
        np.testing.assert_allclose(found.v, 0.0, atol=tolerance, err_msg=estimator)
        np.testing.assert_allclose(found.q, 0.0, atol=tolerance, err_msg=estimator)
    assert (ubex.value_covariance(same, random_policy(0, 4, 2), 0.9, horizon=12).covariance == 0.0).all()


@pytest.mark.parametrize("estimator", ["exact-ube", "ensemble-var", "closed-form"])
@pytest.mark.parametrize(("horizon", "message"), [(0, "at least 1, but it is 0"), (-3, "at least 1, but it is -3")])
def test_bad_horizon(estimator: str, horizon: int, message: str) -> None:
    policy = np.zeros(4, int)
    with pytest.raises(ubex.InputError, match=f"horizon must be .*{message}"):
        ubex.value_variance(dense_posterior(), policy, 0.9, estimator=estimator, key=0, horizon=horizon)
    with pytest.raises(ubex.InputError, match=f"horizon must be .*{message}"):
        ubex.value_covariance(dense_posterior(), policy, 0.9, horizon=horizon)
    with pytest.raises(ubex.InputError, match=f"horizon must be .*{message}"):
        ubex.policy_difference(dense_posterior(), policy, policy, 0.9, horizon=horizon)
