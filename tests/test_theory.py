"""The theorems, as properties of random worlds in which the assumptions hold; and planted errors that each must catch."""

from __future__ import annotations

import itertools
import warnings

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from worlds import World, brute_force_values, exact_values, exact_variance, nearly_certain, worlds

import ubex
from ubex import MDP, Estimator, ube, value_variance
from ubex.estimators import ESTIMATORS
from ubex.tabular import assumptions, bellman

TOLERANCE = 1e-9
DIGITS = 1e-6
"""Of a variance, where probabilities are within 1e-6 of 0 or 1 and values are 1e7."""
EXACT = [name for name, estimator in ESTIMATORS.items() if estimator.claim == "exact"]
BOUNDS = [name for name, estimator in ESTIMATORS.items() if estimator.claim == "upper bound"]


def close(found: np.ndarray, expected: np.ndarray, scale: float) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE * max(scale, 1.0))


def scale_of(values: np.ndarray) -> float:
    return float(np.max(values**2, initial=0.0))


def check_equals_brute_force(world: World, estimator: str | Estimator) -> None:
    v, q = brute_force_values(world)
    result = value_variance(world.samples, world.policy, world.discount, estimator=estimator, u_min=-np.inf)
    close(result.v, v.var(axis=0), scale_of(v))
    close(result.q, q.var(axis=0), scale_of(q))
    close(result.v_mean, v.mean(axis=0), scale_of(v))
    close(result.q_mean, q.mean(axis=0), scale_of(q))


def check_bounds(world: World, exact: str | Estimator, bound: str | Estimator) -> None:
    unclipped = value_variance(world.samples, world.policy, world.discount, estimator=exact, u_min=-np.inf)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ubex.UbexWarning)  # that it is clipped
        clipped = value_variance(world.samples, world.policy, world.discount, estimator=exact, u_min=0.0)
    upper = value_variance(world.samples, world.policy, world.discount, estimator=bound)
    v, q = brute_force_values(world)
    for field, values in (("v", v), ("q", q)):
        slack = TOLERANCE * max(scale_of(values), 1.0)
        assert np.all(getattr(upper, field) >= getattr(clipped, field) - slack)
        assert np.all(getattr(clipped, field) >= getattr(unclipped, field) - slack)
        assert np.all(getattr(unclipped, field) >= -slack)
        assert np.all(getattr(upper, field) >= values.var(axis=0) - slack)


@jax.jit
def moments_on_device(samples: MDP, policy: jax.Array, discount: float, terminal: jax.Array) -> bellman.Moments:
    mean = bellman.mean_mdp([samples])
    members = bellman.solve(samples, policy, discount, terminal)
    mean_values = bellman.solve(mean, policy, discount, terminal)
    return bellman.next_values(samples, members, jnp.asarray(mean.p), mean_values, policy)


def moments_of(world: World) -> bellman.Moments:
    with jax.enable_x64(True):
        terminal = np.arange(len(world.policy)) == len(world.policy) - 1
        return moments_on_device(world.samples, world.policy, world.discount, terminal)


def check_decomposition(moments: bellman.Moments) -> None:
    with jax.enable_x64(True):
        for form in moments:
            scale = float(jnp.max(form.value_bound) ** 2)
            close(np.asarray(ube.total(form)), np.asarray(ube.epistemic(form) + ube.aleatoric(form)), scale)
            close(np.asarray(ube.gap(form)), np.asarray(ube.gap_difference(form)), scale)
            assert np.all(np.asarray(ube.gap(form)) >= 0.0)
            assert np.all(np.asarray(ube.epistemic(form)) >= 0.0)


@pytest.mark.parametrize("estimator", EXACT)
@given(world=worlds(random_rewards=False))
def test_known_rewards_what_claims_to_be_exact_equals_brute_force(world: World, estimator: str) -> None:
    check_equals_brute_force(world, estimator)


@pytest.mark.parametrize("estimator", EXACT)
@given(world=worlds(random_rewards=True))
def test_unknown_rewards_what_claims_to_be_exact_equals_brute_force(world: World, estimator: str) -> None:
    check_equals_brute_force(world, estimator)


@pytest.mark.parametrize("estimator", ["exact-ube", "exact-ube-1", "exact-ube-2"])
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_the_three_forms_keep_their_digits_where_rows_are_nearly_certain(
    estimator: str, deterministic: bool, offset: float
) -> None:
    """Against rational numbers, relative to each variance itself: as small as 1e-14 next to values of 1e7.

    Where the deviations of a row nearly cancel, what remains of them is known to fewer digits: hence the tolerance.
    """
    for seed, random_rewards in itertools.product(range(6), (False, True)):
        world = nearly_certain(seed, random_rewards, offset)
        if deterministic:
            world = world._replace(policy=np.eye(2)[[0, 1, 0, 1]])
        found = value_variance(world.samples, world.policy, world.discount, estimator=estimator, u_min=-np.inf)
        for field, values in zip(("v", "q"), exact_values(world), strict=True):
            true = exact_variance(values)
            np.testing.assert_allclose(getattr(found, field), true, rtol=DIGITS, atol=1e-15 * true.max())
            mean = (values.sum(axis=0) / len(values)).astype(float)
            np.testing.assert_allclose(getattr(found, f"{field}_mean"), mean, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("estimator", BOUNDS)
@given(world=worlds(random_rewards=True))
def test_what_claims_to_be_an_upper_bound_is_one(world: World, estimator: str) -> None:
    check_bounds(world, "exact-ube", estimator)


@given(world=worlds(random_rewards=True))
def test_odonoghue_is_an_upper_bound_of_pombu(world: World) -> None:
    check_bounds(world, "pombu", "odonoghue")


@given(world=worlds(random_rewards=True))
def test_total_is_epistemic_plus_aleatoric_and_the_gap_is_never_negative(world: World) -> None:
    check_decomposition(moments_of(world))


@given(world=worlds(random_rewards=False))
def test_lemmas_hold(world: World) -> None:
    v, _ = brute_force_values(world)
    p = np.asarray(world.samples.p)
    assert assumptions.visits_no_state_twice(p)
    with jax.enable_x64(True):
        arguments = jnp.asarray(p), jnp.asarray(v)
        covariance = assumptions.transition_value_covariance(*arguments)
        residual = assumptions.uncorrelated_residual(*arguments, jnp.asarray(world.policy))
        variance = assumptions.variance_decomposition(*arguments, jnp.asarray(world.policy), world.discount)
    close(np.asarray(covariance), np.zeros(covariance.shape), scale_of(v))
    close(np.asarray(residual), np.zeros(residual.shape), scale_of(v))
    close(np.asarray(variance), v.var(axis=0), scale_of(v))


# Planted errors. Each property above must notice each of these somewhere in its cases.

PLANTED_LOCAL = {
    "gap forgotten": lambda moments, ddof: ube.epistemic(moments, ddof),
    "gap one per cent off": lambda moments, ddof: ube.epistemic(moments, ddof) - 0.99 * ube.gap(moments),
    "sample variance": lambda moments, ddof: ube.epistemic(moments, 1) - ube.gap(moments),
    "aleatoric of the mean values": lambda moments, ddof: ube.total(moments) - ube.aleatoric(moments),
}


def caught(check: object, strategy: object) -> bool:
    """Whether a property check fails for some case of the strategy."""

    @hypothesis.settings(database=None, print_blob=False, phases=[hypothesis.Phase.generate])
    @given(case=strategy)
    def search(case: World) -> None:
        check(case)

    try:
        search()
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("name", PLANTED_LOCAL)
@pytest.mark.parametrize("random_rewards", [False, True])
def test_planted_error_in_u_is_caught(name: str, random_rewards: bool) -> None:
    wrong = Estimator(summary=name, local=PLANTED_LOCAL[name])
    assert caught(lambda world: check_equals_brute_force(world, wrong), worlds(random_rewards))


def test_forgotten_reward_variance_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ube, "uncertainty_reward", lambda u, variance, discount: discount**2 * u)
    wrong = Estimator(summary="compiled anew under the patch", local=lambda moments, ddof: ube.exact_3(moments, ddof))
    assert caught(lambda world: check_equals_brute_force(world, wrong), worlds(random_rewards=True))


@pytest.mark.parametrize(
    ("exact", "bound"),
    [
        (Estimator("negated", local=lambda m, ddof: -ube.exact_3(m, ddof)), "pombu"),
        ("exact-ube", Estimator("too small a bound", local=lambda m, ddof: 0.9 * ube.epistemic(m, ddof))),
        ("exact-ube", Estimator("gap subtracted twice", local=lambda m, ddof: ube.exact_3(m) - ube.gap(m))),
    ],
)
def test_planted_error_in_a_bound_is_caught(exact: str | Estimator, bound: str | Estimator) -> None:
    assert caught(lambda world: check_bounds(world, exact, bound), worlds(random_rewards=True))


def test_too_small_a_2018_bound_is_caught() -> None:
    wrong = Estimator("half the value bound", local=lambda m, ddof: 0.01 * ube.transition_bound(m))
    assert caught(lambda world: check_bounds(world, "pombu", wrong), worlds(random_rewards=True))


@pytest.mark.parametrize("field", ["var_bar", "var_member", "var_gap", "mean_bar", "total"])
def test_planted_error_in_a_moment_is_caught(field: str) -> None:
    def check(world: World) -> None:
        moments = moments_of(world)
        with jax.enable_x64(True):
            wrong = moments.q._replace(**{field: 1.01 * getattr(moments.q, field)})
        check_decomposition(moments._replace(q=wrong))

    assert caught(check, worlds(random_rewards=True))


def test_the_paper_has_its_claims() -> None:
    """Without them the tests above would go over nothing."""
    assert {"exact-ube", "exact-ube-1", "exact-ube-2", "ensemble-var", "closed-form"} <= set(EXACT)
    assert {"pombu", "odonoghue"} <= set(BOUNDS)
