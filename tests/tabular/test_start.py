"""Planning for the start: what it promises is never lowered, and is more than policy iteration finds."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ubex
from ubex import ESTIMATORS, value_variance
from ubex.closed_form import DirichletRows
from ubex.envs.base import Trajectory
from ubex.tabular import start
from ubex.tabular.belief import LearnedBelief, mean_model, observe, prior, reward_posterior, total_mass
from ubex.tabular.models import Known
from ubex.tabular.planner import Optimism, policy_iteration

DISCOUNT, STATES, ACTIONS, MASS = 0.9, 7, 3, 2.0


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def seen(seed: int, steps: int) -> Trajectory:
    """A walk in which an action may lead to two states."""
    random = np.random.default_rng(seed)
    place, rows = 0, []
    for _ in range(steps):
        action = int(random.integers(ACTIONS))
        after = (3 * place + 2 * action + int(random.integers(2))) % STATES
        rows.append((place, action, float(random.normal()), after, True))
        place = after
    kinds = (jnp.int32, jnp.int32, jnp.float64, jnp.int32, jnp.bool_)
    return Trajectory(*(jnp.asarray(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)))


def known(seed: int, steps: int = 30) -> tuple[Known, LearnedBelief]:
    belief = observe(prior(STATES, ACTIONS, 2), seen(seed, steps), 1)
    reward, deviation = reward_posterior(belief, 1.0, 1.0)
    mean = mean_model(belief, reward, MASS)
    rows = DirichletRows(mean, total_mass(belief, MASS), deviation**2)
    return Known(mean, rows), LearnedBelief.of(belief, MASS, 1.0, 1.0)


def optimism(name: str = "closed-form", gain: float = 1.0) -> Optimism:
    return Optimism(ESTIMATORS[name], gain, DISCOUNT, 0.0, True, False)


outlook = jax.jit(start.outlook, static_argnames=("how", "start"))
improved = jax.jit(start.improved, static_argnames=("how", "start"))
plan = jax.jit(start.plan_for_start, static_argnames=("how", "start"))
best = jax.jit(start.best_policy, static_argnames="how")
everywhere = jax.jit(policy_iteration, static_argnames="how")


def policies(seed: int, number: int) -> list[jax.Array]:
    random = np.random.default_rng(seed)
    return [jnp.asarray(random.integers(ACTIONS, size=STATES + 1), jnp.int32) for _ in range(number)]


@pytest.mark.filterwarnings("ignore::ubex.UbexWarning")
@pytest.mark.parametrize("name", ["closed-form", "first-order"])
def test_the_outlook_is_the_mean_and_deviation_at_the_start(name: str) -> None:
    model, belief = known(0)
    (policy,) = policies(0, 1)
    found = value_variance(belief, np.asarray(policy), DISCOUNT, estimator=name)
    here = outlook(optimism(name, 2.0), model, 3, policy)
    np.testing.assert_allclose(here.value, found.v_mean[3] + 2.0 * np.sqrt(found.v[3]), rtol=1e-10)


def adds_up(here: start.Outlook, policy: jax.Array, plain: start.Outlook) -> bool:
    """The visits' sum of the bonus is gain * sd: y is the direction in which x sigma is longest."""
    taken = jnp.take_along_axis(here.bonus, policy[:, None], axis=1)[:, 0]
    return bool(jnp.isclose(here.visits @ taken, here.value - plain.value, rtol=1e-10))


def test_the_bonus_adds_up_to_the_deviation() -> None:
    model, _ = known(1)
    (policy,) = policies(1, 1)
    assert adds_up(outlook(optimism(gain=2.0), model, 0, policy), policy, outlook(optimism(gain=0.0), model, 0, policy))


@pytest.mark.parametrize("name", ["no y", "y without sigma", "y without visits"])
def test_a_planted_error_in_the_direction_is_caught(name: str) -> None:
    model, _ = known(1)
    (policy,) = policies(1, 1)
    here, plain = (outlook(optimism(gain=gain), model, 0, policy) for gain in (2.0, 0.0))
    sigma = jnp.take_along_axis(here.bonus, policy[:, None], axis=1)[:, 0]
    wrong = {"no y": jnp.ones_like(sigma), "y without sigma": here.visits, "y without visits": jnp.sqrt(sigma)}[name]
    ratio = jnp.where(sigma > 0, wrong / jnp.linalg.norm(wrong), 0.0)
    assert not adds_up(here._replace(bonus=here.bonus * ratio[:, None]), policy, plain)


@pytest.mark.parametrize("gain", [0.3, 3.0])
def test_no_step_lowers_what_is_promised(gain: float) -> None:
    how, rose = optimism(gain=gain), 0
    for seed in range(8):
        model, _ = known(seed, 10 + 5 * seed)
        for policy in policies(seed, 3):
            here = outlook(how, model, 0, policy)
            for _ in range(6):
                policy, there, rises = improved(how, model, 0, policy, here)
                assert there.value >= here.value
                assert bool(rises) == bool(there.value > here.value)
                here, rose = there, rose + int(rises)
    assert rose >= 24


def test_the_target_is_best_for_the_frozen_uncertainty() -> None:
    """With l of first order and no reward to go with, l does not depend on the policy: the first target never falls."""
    how = optimism("first-order", 1.0)
    for seed in range(10):
        model, _ = known(seed)
        (policy,) = policies(seed, 1)
        here = outlook(how, model, 0, policy)
        target, gains = best(how, model, model.mean.r + here.bonus, policy)
        values = model.values(model.mean.r + here.bonus, target, DISCOUNT)
        np.testing.assert_allclose(values.v, jnp.max(values.q, axis=1), rtol=1e-9)
        assert (np.asarray(gains) >= 0).all()
        assert values.v[0] >= here.value - 1e-9


def test_it_promises_more_than_policy_iteration() -> None:
    how, more = optimism(gain=3.0), []
    for seed in range(12):
        model, _ = known(seed, 15)
        (policy,) = policies(seed, 1)
        found, other = plan(how, model, 0, policy), everywhere(how, jax.random.key(0), model, policy)
        assert bool(found.converged)
        values = [float(outlook(how, model, 0, x.policy).value) for x in (found, other)]
        more.append(values[0] - values[1])
    assert np.mean(more) > 0
    assert np.mean(np.array(more) >= -1e-9) > 0.7


def test_nothing_uncertain_is_plain_planning() -> None:
    model, _ = known(2)
    nothing = jnp.zeros((STATES + 1, ACTIONS))
    certain = Known(model.mean, DirichletRows(model.mean, nothing + 1e15, nothing))
    (policy,) = policies(2, 1)
    found = plan(optimism(gain=1.0), certain, 0, policy).policy
    expected, _ = best(optimism(), certain, certain.mean.r, policy)
    np.testing.assert_array_equal(found, expected)


def test_what_an_action_costs_that_nobody_takes_does_not_count() -> None:
    """Some forbid an action with a large cost: next to it the rewards of the others must not be taken for rounding."""
    p, r = np.zeros((4, 3, 4)), np.zeros((4, 3))
    p[:, 0, 0] = p[np.arange(4), 1, [1, 2, 3, 3]] = p[np.arange(4), 2, np.arange(4)] = 1.0
    r[0, 0], r[3, 1], r[:, 2] = 0.001, 0.01, -1e10
    found = ubex.train((p, r), "closed-form", episodes=30, horizon=12, planner="start", prior_mass=2.0)
    assert found.policy.tolist() == [1, 1, 1, 1]
