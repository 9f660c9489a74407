"""The pure functions: the numbers of the public call, compiled, for many policies at once, and with gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import cyclic_variance, random_ensemble, random_policy

import ubex
from ubex.calls import pure
from ubex.envs import toy

N, S, A = 6, 4, 2
P, R = (np.asarray(array) for array in random_ensemble(0, N, S, A))
POLICY = random_policy(1, S, A)
POSTERIOR = ubex.DirichletNormal(S, A, reward_mean=np.arange(S * A).reshape(S, A) / 3.0, terminal=True)
ALPHA, R_MEAN, R_VARIANCE = POSTERIOR.transitions.alpha, POSTERIOR.rewards.mean(), POSTERIOR.rewards.variance()
FULL = np.concatenate([POLICY, [[0.5, 0.5]]])
"""With the terminal state."""


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def same(found: pure.Uncertainty, expected: ubex.ValueVariance) -> None:
    pairs = ((found.v, expected.v), (found.q, expected.q), (found.mean.v, expected.v_mean), (found.mean.q, expected.q_mean))
    for mine, theirs in (*pairs, (found.local_q, expected.local)):
        np.testing.assert_allclose(mine, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ubex.ESTIMATORS)
def test_compiled_it_is_the_public_call(name: str) -> None:
    settings = {"estimator": name, "u_min": -0.1, "ddof": 1}
    compiled = jax.jit(lambda p, r, policy, discount: pure.value_variance(p, r, policy, discount, **settings))
    same(compiled(P, R, POLICY, 0.9), cyclic_variance(ubex.MDP(P, R), POLICY, 0.9, **settings))


def test_known_rewards_actions_and_an_end() -> None:
    samples, actions = toy.posterior_samples(), np.zeros(5, np.int32)
    p, r = (jnp.asarray(array) for array in samples)
    terminal = jnp.arange(5) == 4
    for name in ("exact-ube", "closed-form"):
        found = pure.value_variance(p, r[0], jnp.asarray(actions), 1.0, estimator=name, u_min=-jnp.inf, terminal=terminal)
        same(found, ubex.value_variance(samples, actions, 1.0, estimator=name, u_min=-np.inf))


@pytest.mark.filterwarnings("ignore::ubex.UbexWarning")
@pytest.mark.parametrize("first_order", [False, True])
def test_the_closed_form_of_a_posterior(first_order: bool) -> None:
    compiled = jax.jit(pure.dirichlet_variance, static_argnames="first_order")
    found = compiled(ALPHA, R_MEAN, R_VARIANCE, FULL, 0.95, first_order=first_order)
    name = "first-order" if first_order else "closed-form"
    same(found, ubex.value_variance(POSTERIOR, FULL, 0.95, estimator=name))


def of_samples(name: str) -> Callable[[jax.Array, jax.Array, jax.Array], jax.Array]:
    """The variance of the first states by a sampled estimator, of policy, rewards and discount."""
    return lambda policy, r, discount: jnp.sum(
        pure.value_variance(jnp.asarray(P), r, policy, discount, estimator=name, u_min=-jnp.inf).v[:2]
    )


def of_posterior(policy: jax.Array, r: jax.Array, discount: jax.Array) -> jax.Array:
    """The same by the closed form of the posterior."""
    return jnp.sum(pure.dirichlet_variance(jnp.asarray(ALPHA), r, jnp.asarray(R_VARIANCE), policy, discount).v[:2])


CASES = {
    **{name: (of_samples(name), POLICY, R) for name in ("exact-ube", "exact-ube-1", "pombu", "ensemble-var", "closed-form")},
    "posterior": (of_posterior, FULL, R_MEAN),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_finite_differences(name: str) -> None:
    variance, policy, r = CASES[name]
    compiled = jax.jit(variance)
    arguments = [jnp.asarray(policy), jnp.asarray(r), jnp.asarray(0.9)]
    slopes = jax.jit(jax.grad(variance, argnums=(0, 1, 2)))(*arguments)
    for place, slope in enumerate(slopes):
        direction = np.random.default_rng(place).normal(size=slope.shape)
        ends = [[*arguments[:place], arguments[place] + h * direction, *arguments[place + 1 :]] for h in (1e-5, -1e-5)]
        expected = (compiled(*ends[0]) - compiled(*ends[1])) / 2e-5
        assert abs(float(expected)) > 1e-3
        np.testing.assert_allclose(jnp.sum(slope * direction), expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["exact-ube", "ensemble-var", "posterior"])
def test_many_policies_and_discounts_at_once_are_one_after_another(name: str) -> None:
    variance, policy, r = CASES[name]
    policies = jnp.asarray(np.stack([random_policy(seed, *policy.shape) for seed in range(8)]))
    discounts = jnp.linspace(0.5, 0.97, 3)
    once = jax.jit(variance)
    grid = jax.vmap(jax.vmap(variance, (None, None, 0)), (0, None, None))(policies, jnp.asarray(r), discounts)
    loop = [[once(policy, jnp.asarray(r), discount) for discount in discounts] for policy in policies]
    np.testing.assert_allclose(grid, loop, rtol=1e-10)


def test_single_precision_stays_single() -> None:
    expected = pure.dirichlet_variance(*map(jnp.asarray, (ALPHA, R_MEAN, R_VARIANCE, FULL)), 0.95)
    with jax.enable_x64(False):
        found = pure.dirichlet_variance(*(jnp.asarray(x, jnp.float32) for x in (ALPHA, R_MEAN, R_VARIANCE, FULL)), 0.95)
    assert found.v.dtype == jnp.float32
    np.testing.assert_allclose(found.v[:-1], expected.v[:-1], rtol=1e-4)
