"""Agents: their belief is the public posterior, and their settings are checked."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ubex import DirichletNormal, Transitions
from ubex.envs.base import rollout
from ubex.envs.deep_sea import deep_sea
from ubex.tabular import agents
from ubex.tabular.agents import METHODS, AgentConfig


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def test_belief_is_the_public_posterior() -> None:
    env, config = deep_sea(4), AgentConfig(repeats=4)
    belief, posterior = agents.prior(env.num_states, env.num_actions), DirichletNormal(16, 2, terminal=True)
    for episode in range(3):
        policy = np.random.default_rng(episode).integers(2, size=17)
        seen = rollout(env, jax.random.key(episode), jnp.asarray(policy, jnp.int32))
        belief = agents.observe(config, belief, seen)
        posterior = posterior.observe(
            Transitions(*(np.asarray(x) for x in (seen.state, seen.action, seen.reward, seen.next_state))), repeats=4
        )
    np.testing.assert_allclose(agents.mean_transitions(belief), posterior.mean().p, rtol=1e-12)
    mean, deviation = agents.reward_posterior(config, belief)
    np.testing.assert_allclose(mean, posterior.mean().r, atol=1e-12)
    np.testing.assert_allclose(deviation, np.sqrt(posterior.rewards.variance()), rtol=1e-9)


def test_steps_after_the_end_do_not_count() -> None:
    env, config = deep_sea(3), AgentConfig()
    seen = rollout(env._replace(horizon=8), jax.random.key(0), jnp.ones(10, jnp.int32))
    belief = agents.observe(config, agents.prior(9, 2), seen)
    assert float(belief.counts.sum()) == 3.0
    assert float(belief.counts[-1].sum()) == 0.0


def test_fast_samples_have_the_moments_of_the_posterior() -> None:
    env, config = deep_sea(3), AgentConfig(repeats=3)
    belief = agents.prior(9, 2)
    for episode in range(4):
        policy = np.random.default_rng(episode).integers(2, size=10)
        belief = agents.observe(config, belief, rollout(env, jax.random.key(episode), jnp.asarray(policy, jnp.int32)))
    mean = np.asarray(agents.mean_transitions(belief))
    total = np.asarray(belief.counts.sum(axis=-1)) + 10 * belief.concentration
    for branching in (1, None):
        p = np.asarray(agents.sample_transitions(jax.random.key(5), belief, 20_000, branching))
        np.testing.assert_allclose(p.sum(axis=-1), 1.0, atol=1e-12)
        assert (p[:, -1, :, -1] == 1.0).all()
        np.testing.assert_allclose(p.mean(axis=0), mean, atol=0.01)
        expected = (mean * (1 - mean) / (total[..., None] + 1))[:-1]
        np.testing.assert_allclose(p.var(axis=0)[:-1], expected, atol=0.006)


@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_plans(method: str) -> None:
    config = AgentConfig(method=method)
    plan = jax.jit(agents.update, static_argnums=0)(config, jax.random.key(0), agents.prior(9, 2))
    assert plan.policy.shape == (10,)
    assert set(np.unique(plan.policy)) <= {0, 1}
    assert 1 <= int(plan.steps) <= 40


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "magic"}, "unknown method 'magic'; choose from: .*psrl"),
        ({"num_models": 1}, "num_models must be at least 2"),
        ({"gain": -1.0}, "gain must be in"),
        ({"discount": 1.5}, "discount must be in"),
        ({"ties": "coin"}, "unknown ties 'coin'; choose from: first, random"),
        ({"repeats": 0}, "repeats must be at least 1"),
    ],
)
def test_bad_settings(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AgentConfig(**settings)
