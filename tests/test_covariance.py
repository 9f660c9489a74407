"""Covariances and differences of policies, by the closed form and by members, and `value_variance` by the closed form."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from worlds import (
    World,
    brute_force_values,
    exact_values,
    exact_variance,
    nearly_certain,
    random_ensemble,
    random_policy,
    worlds,
)

import ubex
from ubex import MDP, DirichletNormal


def posterior(states: int = 6, actions: int = 2) -> DirichletNormal:
    generator = np.random.default_rng(0)
    belief = DirichletNormal(states, actions, concentration=0.5, reward_precision=4.0, terminal=True)
    seen = [generator.integers(high, size=40) for high in (states, actions, states + 1)]
    return belief.observe(ubex.Transitions(seen[0], seen[1], generator.normal(size=40), seen[2]))


@pytest.mark.parametrize("estimator", ["closed-form", "ensemble-var"])
@settings(max_examples=40, deadline=None)
@given(world=worlds(random_rewards=True))
def test_acyclic_worlds_are_exact(estimator: str, world: World) -> None:
    """Variance, covariance, and the difference from another policy, against every member evaluated by recursion."""
    v, q = brute_force_values(world)
    scale = max(1.0, float(np.abs(q).max()) ** 2)
    variance = ubex.value_variance(world.samples, world.policy, world.discount, estimator=estimator)
    np.testing.assert_allclose(variance.v, v.var(axis=0), atol=1e-9 * scale)
    np.testing.assert_allclose(variance.q[:-1], q.var(axis=0)[:-1], atol=1e-9 * scale)
    found = ubex.value_covariance(world.samples, world.policy, world.discount, estimator=estimator)
    assert (found.converged, found.estimator) == (True, estimator)
    np.testing.assert_allclose(found.covariance, np.cov(v.T, ddof=0), atol=1e-9 * scale)
    other = np.zeros_like(world.policy)
    other[:, 0] = 1.0
    v_other, _ = brute_force_values(world._replace(policy=other))
    difference = ubex.policy_difference(world.samples, world.policy, other, world.discount, estimator=estimator)
    np.testing.assert_allclose(difference.mean, (v - v_other).mean(axis=0), atol=1e-9 * scale)
    np.testing.assert_allclose(difference.variance, (v - v_other).var(axis=0), atol=1e-8 * scale)


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("random_rewards", [False, True])
@pytest.mark.parametrize("horizon", [None, 400])
@pytest.mark.parametrize("estimator", ["closed-form", "ensemble-var"])
def test_difference_of_policies_keeps_its_digits(
    estimator: str, offset: float, random_rewards: bool, horizon: int | None
) -> None:
    """Policies that differ in one state, against rational numbers; values are 1e7 and differ by as little as 1e-6."""
    for seed in range(3):
        world = nearly_certain(seed, random_rewards, offset)
        other = world._replace(policy=world.policy[[0, 2, 2, 3]])
        apart = exact_values(world)[0] - exact_values(other)[0]
        found = ubex.policy_difference(
            world.samples, world.policy, other.policy, world.discount, estimator=estimator, horizon=horizon
        )
        np.testing.assert_allclose(found.variance, exact_variance(apart), rtol=1e-9, atol=1e-30)
        np.testing.assert_allclose(found.mean, (apart.sum(axis=0) / len(apart)).astype(float), rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("horizon", [None, 7])
@pytest.mark.parametrize("ddof", [0, 1])
def test_members_that_depend_on_each_other_in_any_way(ddof: int, horizon: int | None) -> None:
    """With cycles, rows that depend on each other, and policies of both kinds: what the members themselves say."""
    samples, policy, other = random_ensemble(0, 6, 4, 2), random_policy(1, 4, 2), np.array([0, 1, 1, 0])
    p, r = np.asarray(samples.p), np.asarray(samples.r)
    v = []
    for choice in (policy, np.eye(2)[other]):
        rows, rewards = np.einsum("sa,nsat->nst", choice, p), (choice * r).sum(axis=-1)[..., None]
        if horizon is None:
            v.append(np.linalg.solve(np.eye(4) - 0.9 * rows, rewards)[..., 0])
        else:
            steps = np.zeros_like(rewards)
            for _ in range(horizon):
                steps = rewards + 0.9 * rows @ steps
            v.append(steps[..., 0])
    settings = {"ddof": ddof, "horizon": horizon}
    covariance = ubex.value_covariance(samples, policy, 0.9, **settings)  # type: ignore[arg-type]
    np.testing.assert_allclose(covariance.covariance, np.cov(v[0].T, ddof=ddof), rtol=1e-9)
    variance = ubex.value_variance(samples, policy, 0.9, **settings)  # type: ignore[arg-type]
    np.testing.assert_allclose(np.diag(covariance.covariance), variance.v, rtol=1e-9)
    np.testing.assert_allclose(covariance.mean, variance.v_mean, rtol=1e-12)
    difference = ubex.policy_difference(samples, policy, other, 0.9, **settings)  # type: ignore[arg-type]
    np.testing.assert_allclose(difference.variance, (v[0] - v[1]).var(axis=0, ddof=ddof), rtol=1e-9)
    np.testing.assert_allclose(difference.mean, (v[0] - v[1]).mean(axis=0), rtol=1e-9)
    assert covariance.estimator == difference.estimator == variance.estimator == "ensemble-var"


@pytest.mark.parametrize("estimator", ["closed-form", "ensemble-var"])
def test_policies_that_end_in_different_states(estimator: str) -> None:
    """Discount 1: the first policy stays where it is, for nothing; the second goes to the end, for 1 or 3."""
    p = np.broadcast_to(np.eye(2)[np.array([[0, 1], [1, 1]])], (2, 2, 2, 2))
    r = np.array([[[0.0, 1.0], [0.0, 0.0]], [[0.0, 3.0], [0.0, 0.0]]])
    found = ubex.policy_difference(MDP(p, r), [0, 0], [1, 0], 1.0, estimator=estimator)
    np.testing.assert_allclose(found.mean, [-2.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(found.variance, [1.0, 0.0], atol=1e-12)


@pytest.mark.filterwarnings("ignore::ubex.UbexWarning")
def test_covariance_is_symmetric_and_positive() -> None:
    belief = posterior()
    found = ubex.value_covariance(belief, random_policy(3, 7, 2), 0.95)
    assert found.converged
    np.testing.assert_allclose(found.covariance, found.covariance.T, rtol=1e-12)
    assert np.linalg.eigvalsh(found.covariance).min() > -1e-12
    variance = ubex.value_variance(belief, random_policy(3, 7, 2), 0.95, estimator="closed-form")
    np.testing.assert_allclose(np.diag(found.covariance), variance.v, rtol=1e-12)


def test_a_policy_does_not_differ_from_itself() -> None:
    for policy in (np.zeros(7, int), random_policy(1, 7, 2)):
        found = ubex.policy_difference(posterior(), policy, policy, 0.9)
        assert (found.variance == 0.0).all()
        assert (found.mean == 0.0).all()


def test_few_data_are_warned_of() -> None:
    """As by `value_variance`; of two policies those rows count that make the difference."""
    unknown = DirichletNormal(3, 2, terminal=True)
    known, choice, other = (
        unknown.observe(ubex.Transitions([0, 1, 2], [0, 0, 0], [0.0, 1.0, 2.0], [1, 2, 3]), 100),
        [0, 0, 0],
        [1, 0, 0],
    )
    for source, first, second, warned in ((unknown, choice, other, 2), (known, choice, other, 1), (known, choice, choice, 0)):
        with warnings.catch_warnings(record=True, action="always") as said:
            ubex.value_covariance(source, first, 0.9)
            ubex.policy_difference(source, first, second, 0.9)
        assert [str(one.message).startswith("closed-form can be far off here") for one in said] == [True] * warned
    with pytest.warns(ubex.UbexWarning, match="did not converge"):
        ubex.value_covariance(DirichletNormal(1, 1, terminal=True, concentration=[[[0.5, 0.001]]], reward_mean=1.0), [0], 0.999)


@pytest.mark.filterwarnings("ignore::ubex.UbexWarning")
def test_difference_of_policies_against_samples() -> None:
    """Policies that agree in most states: their values are correlated, and the variance of the difference is smaller."""
    belief = posterior()
    first, second = np.zeros(7, int), np.array([1, 0, 0, 0, 0, 0, 0])
    found = ubex.policy_difference(belief, first, second, 0.8)
    samples = belief.sample(0, 20_000)
    p, r = np.asarray(samples.p), np.asarray(samples.r)
    values = []
    for policy in (first, second):
        rows, rewards = p[:, np.arange(7), policy], r[:, np.arange(7), policy]
        values.append(np.linalg.solve(np.eye(7) - 0.8 * rows, rewards[..., None])[..., 0])
    truth = (values[0] - values[1])[:, :6]
    np.testing.assert_allclose(found.variance[:6], truth.var(axis=0), rtol=0.15)
    apart = values[0].var(axis=0) + values[1].var(axis=0)
    assert (found.variance[:6] < apart[:6]).all()


@pytest.mark.filterwarnings("ignore::ubex.UbexWarning")
def test_moments_of_many_samples_are_those_of_the_posterior() -> None:
    belief, policy = posterior(), random_policy(2, 7, 2)
    exact = ubex.value_variance(belief, policy, 0.9, estimator="closed-form")
    drawn = ubex.value_variance(belief.sample(1, 20_000), policy, 0.9, estimator="closed-form")
    np.testing.assert_allclose(drawn.v, exact.v, rtol=0.05, atol=1e-12)
    np.testing.assert_allclose(drawn.q, exact.q, rtol=0.05, atol=1e-12)
    lower = ubex.value_variance(belief, policy, 0.9, estimator="first-order")
    assert (lower.v <= exact.v + 1e-15).all()


@pytest.mark.filterwarnings("ignore::ubex.UbexWarning")
def test_no_key_is_needed_where_nothing_is_sampled() -> None:
    class Other:
        """A posterior that only knows how to sample."""

        def sample(self, key: object, num_models: int) -> MDP:
            return posterior().sample(key, num_models)  # type: ignore[arg-type]

        def mean(self) -> MDP:
            return posterior().mean()

    policy = np.zeros(7, int)
    exact = ubex.value_covariance(posterior(), policy, 0.9)
    with pytest.raises(ubex.InputError, match="give key="):
        ubex.value_covariance(Other(), policy, 0.9)
    near = ubex.value_covariance(Other(), policy, 0.9, estimator="closed-form", key=0, num_models=5000)
    np.testing.assert_allclose(np.diag(near.covariance), np.diag(exact.covariance), rtol=0.2, atol=1e-9)


def test_a_posterior_of_your_own_gets_a_jax_key_from_every_call() -> None:
    class Drawn:
        """Draws with NumPy, as docs/first-variance.md says."""

        def sample(self, key: Any, num_models: int) -> MDP:
            keys.append(key)
            generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
            return MDP(p=generator.dirichlet(np.ones(3), (num_models, 3, 1)), r=np.ones((3, 1)))

        def mean(self) -> MDP:
            return MDP(p=np.full((3, 1, 3), 1.0 / 3.0), r=np.ones((3, 1)))

    keys: list[Any] = []
    policy = np.zeros(3, int)
    for seed in (7, jax.random.key(7)):
        ubex.value_variance(Drawn(), policy, 0.9, key=seed)
        ubex.value_covariance(Drawn(), policy, 0.9, key=seed)
    assert len(keys) == 4
    assert all(bool(key == jax.random.key(7)) for key in keys)


def test_ddof() -> None:
    samples = random_ensemble(1, 4, 5, 2)
    policy = np.zeros(5, int)
    plain, other = (ubex.value_variance(samples, policy, 0.9, estimator="first-order", ddof=d) for d in (0, 1))
    np.testing.assert_allclose(other.v, plain.v * 4 / 3, rtol=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ubex.value_covariance(posterior(), np.zeros(3, int), 0.9), "policy must give one action for each of 7"),
        (lambda: ubex.value_covariance(DirichletNormal(3, 1), np.zeros(3, int), 1.0), "discount 1 needs"),
        (lambda: ubex.value_covariance(random_ensemble(0, 1, 3, 2), np.zeros(3, int), 0.9), "at least 2, but it is 1"),
        (lambda: ubex.policy_difference(posterior(), np.zeros(7, int), np.full(7, 5), 0.9), "policy takes action 5"),
    ],
)
def test_bad_input(call: object, message: str) -> None:
    with pytest.raises(ubex.InputError, match=message):
        call()  # type: ignore[operator]


@pytest.mark.parametrize("estimator", ["closed-form", "ensemble-var"])
@pytest.mark.parametrize("horizon", [None, 30])
def test_rounding_makes_no_policy_better(estimator: str, horizon: int | None) -> None:
    """States 0 to 2 never reach state 3, in which alone the policies differ; then two that are equally good, in a known MDP."""
    generator = np.random.default_rng(0)
    settings: Any = {"estimator": estimator, "horizon": horizon}
    for _ in range(5):
        p = np.zeros((20, 5, 2, 5))
        p[:, :3, :, :3] = generator.dirichlet(np.ones(3), (20, 3, 2))
        p[:, 3:] = generator.dirichlet(np.ones(5), (20, 2, 2))
        samples = MDP(p, generator.normal(size=(20, 5, 2)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ubex.UbexWarning)
            found = ubex.policy_difference(samples, [0, 0, 0, 0, 0], [0, 0, 0, 1, 0], 0.9, **settings)
        np.testing.assert_array_equal([found.mean[:3], found.variance[:3], found.probability[:3] - 0.5], 0.0)
        assert (found.variance[3:] > 1e-3).all()
    p, r = np.zeros((4, 2, 4)), np.zeros((4, 2))
    p[0], p[1:, :, 3] = [[0.0, 0.3, 0.6, 0.1], [0.0, 0.6, 0.3, 0.1]], 1.0
    r[:3] = [[0.1, 0.1], [0.7, 0.7], [0.7, 0.7]]
    known = MDP(np.stack([p, p]), np.stack([r, r]))
    found = ubex.policy_difference(known, [0, 0, 0, 0], [1, 0, 0, 0], 0.9, **settings)
    assert found.probability.tolist() == [0.5] * 4
    r[0, 1] = 0.1 + 1e-9
    found = ubex.policy_difference(MDP(known.p, np.stack([r, r])), [0, 0, 0, 0], [1, 0, 0, 0], 0.9, **settings)
    assert found.probability.tolist() == [0.0, 0.5, 0.5, 0.5]


@pytest.mark.parametrize("call", [ubex.value_variance, ubex.value_covariance])
def test_discount_1_ends_only_where_nothing_more_is_paid(call: Any) -> None:
    """An absorbing state is no end if its reward is 0 in the mean alone, or if all rewards are 5."""
    to_the_end = [[[False, True]], [[False, True]]]
    unknown = DirichletNormal(2, 1, support=np.array(to_the_end), concentration=5.0)
    with pytest.raises(ubex.InputError, match="absorbing state with reward 0"):
        call(unknown, [0, 0], 1.0)
    moves = np.stack([to_the_end, to_the_end]).astype(float)
    for estimator in ("ensemble-var", "closed-form"):
        with pytest.raises(ubex.InputError, match="absorbing state with reward 0"):
            call(MDP(moves, np.full((2, 2, 1), 5.0)), [0, 0], 1.0, estimator=estimator)
    sparse = ubex.SparsePosterior([[[1]], [[1]]], [[[1.0]], [[1.0]]], reward_mean=5.0)
    with pytest.raises(ubex.InputError, match="absorbing state whose reward is 0"):
        ubex.value_variance(sparse, [0, 0], 1.0)


def unpaid() -> ubex.DirichletNormalGamma:
    """Two states whose rewards have an unknown noise, and nobody has tried action 1 in state 1: its variance is infinite."""
    prior = ubex.DirichletNormalGamma(2, 2, prior_mass=50.0, noise_shape=1.0)
    tried: list[list[Any]] = [[0] * 6 + [1] * 6, [0] * 3 + [1] * 3 + [0] * 6, [0.0] * 3 + [5.0] * 3 + [0.0] * 6, [0, 1] * 6]
    return prior.observe(ubex.Transitions(*tried))


@pytest.mark.parametrize("horizon", [None, 6])
def test_a_reward_without_a_variance_matters_where_it_is_earned_and_nowhere_else(horizon: int | None) -> None:
    posterior = unpaid()
    settings: dict[str, Any] = {"estimator": "closed-form", "horizon": horizon}
    found = ubex.policy_difference(posterior, [1, 0], [0, 0], 0.9, **settings)
    values = [ubex.value_variance(posterior, policy, 0.9, **settings) for policy in ([1, 0], [0, 0])]
    np.testing.assert_allclose(found.mean, values[0].v_mean - values[1].v_mean, rtol=1e-9)
    if horizon is None:
        brute = ubex.policy_difference(posterior, [1, 0], [0, 0], 0.9, estimator="ensemble-var", key=0, num_models=4000)
        np.testing.assert_allclose(found.variance, brute.variance, rtol=0.15)
    for one in values:
        assert np.isfinite(one.v).all()
        assert np.isinf(one.q).tolist() == [[False, False], [False, True]]
        assert np.isinf(one.local).tolist() == [[False, False], [False, True]]
    covariance = ubex.value_covariance(posterior, [1, 0], 0.9, **settings).covariance
    np.testing.assert_allclose(np.diag(covariance), values[0].v, rtol=1e-9)
    assert np.isinf(ubex.policy_difference(posterior, [1, 1], [1, 0], 0.9, **settings).variance).all()
    assert np.isinf(ubex.value_covariance(posterior, [1, 1], 0.9, **settings).covariance).all()
    alike = ubex.policy_difference(posterior, [1, 1], [1, 1], 0.9, **settings)
    assert not alike.mean.any()
    assert not alike.variance.any(), "the same reward under both"


def test_over_one_step_a_reward_without_a_variance_is_that_of_its_state_alone() -> None:
    settings: dict[str, Any] = {"estimator": "closed-form", "horizon": 1}
    assert np.isinf(ubex.value_variance(unpaid(), [1, 1], 0.9, **settings).v).tolist() == [False, True]
    assert np.isinf(ubex.value_covariance(unpaid(), [1, 1], 0.9, **settings).covariance).tolist() == [
        [False] * 2,
        [False, True],
    ]
    assert np.isinf(ubex.policy_difference(unpaid(), [1, 1], [1, 0], 0.9, **settings).variance).tolist() == [False, True]


@pytest.mark.parametrize("horizon", [None, 20])
def test_what_an_action_costs_that_nobody_takes_is_no_rounding(horizon: int | None) -> None:
    """Some forbid an action with a reward such as the least float32."""
    rewards = np.array([[1.2, 1.0, -3.4e38], [0.0, 0.3, -3.4e38], [0.5, 0.2, -3.4e38]])
    posterior = ubex.DirichletNormal(3, 3, concentration=1e9, reward_mean=rewards, reward_precision=1e20)
    settings: dict[str, Any] = {"estimator": "closed-form", "horizon": horizon}
    first, second = (ubex.value_variance(posterior, policy, 0.99, **settings).v_mean for policy in ([0, 1, 0], [1, 1, 0]))
    found = ubex.policy_difference(posterior, [0, 1, 0], [1, 1, 0], 0.99, **settings)
    np.testing.assert_allclose(found.mean, first - second, rtol=1e-6)
    assert found.mean.min() > 1.0


def test_the_mean_of_a_difference_is_that_of_the_members() -> None:
    """In the mean MDP staying looks worse than leaving, and in the mean over MDPs it is better."""
    support = np.zeros((1, 2, 2), bool)
    support[0, 0] = support[0, 1, 1] = True
    given: dict[str, Any] = {"reward_mean": [[1.0, 5.0]], "reward_precision": 1e8, "support": support, "concentration": 0.5}
    posterior = ubex.DirichletNormal(1, 2, terminal=True, **given)
    found = ubex.policy_difference(posterior, [0], [1], 0.99, estimator="ensemble-var", key=0, num_models=20_000)
    np.testing.assert_allclose(found.mean[0], 1.0 / np.sqrt(1.0 - 0.99) - 5.0, rtol=0.1)  # E[1 / (1 - g p)], p Beta(1/2, 1/2)
