"""The belief of an agent is the public posterior, without its tables."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ubex import DirichletNormal, Transitions
from ubex.envs.base import TabularEnv, Trajectory, rollout
from ubex.envs.deep_sea import deep_sea
from ubex.envs.n_room import seven_room
from ubex.tabular.belief import Belief, mean_model, observe, prior, reward_posterior, sample_transitions, total_mass


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def episodes(env: TabularEnv, number: int) -> Iterator[Trajectory]:
    for episode in range(number):
        policy = np.random.default_rng(episode).integers(env.num_actions, size=env.num_states + 1)
        yield rollout(env, jax.random.key(episode), jnp.asarray(policy, jnp.int32))


def steps(*rows: tuple[int, int, float, int]) -> Trajectory:
    state, action, reward, after = (np.array(column) for column in zip(*rows, strict=True))
    whole = [jnp.asarray(x, jnp.int32) for x in (state, action, after)]
    return Trajectory(whole[0], whole[1], jnp.asarray(reward, jnp.float32), whole[2], jnp.ones(len(rows), bool))


@pytest.mark.parametrize("make", [lambda: deep_sea(4), seven_room])
def test_it_is_the_public_posterior(make: object) -> None:
    env = make()  # type: ignore[operator]
    belief = prior(env.num_states, env.num_actions, env.branching)
    posterior = DirichletNormal(env.num_states, env.num_actions, terminal=True)
    for seen in episodes(env, 3):
        belief = observe(belief, seen, 4)
        posterior = posterior.observe(
            Transitions(*(np.asarray(x) for x in (seen.state, seen.action, seen.reward, seen.next_state))), repeats=4
        )
    mean, deviation = reward_posterior(belief, 1.0, 1e6)
    model = mean_model(belief, mean)
    np.testing.assert_allclose(model.p, posterior.mean().p, rtol=1e-12)
    np.testing.assert_allclose(mean, posterior.mean().r, atol=1e-12)
    np.testing.assert_allclose(deviation, np.sqrt(posterior.rewards.variance()), rtol=1e-9)
    x = np.random.default_rng(0).normal(size=env.num_states + 1)
    np.testing.assert_allclose(model.expect(jnp.asarray(x)), np.asarray(posterior.mean().p) @ x, rtol=1e-9, atol=1e-12)


def test_next_states_are_found_again() -> None:
    belief = observe(prior(3, 1, 2), steps((0, 0, 1.0, 2), (0, 0, 0.0, 1), (0, 0, 2.0, 2), (1, 0, 5.0, 3)), 2)
    np.testing.assert_array_equal(belief.successors[0, 0], [2, 1])
    np.testing.assert_array_equal(belief.counts[0, 0], [4.0, 2.0])
    np.testing.assert_array_equal(belief.counts[1, 0], [2.0, 0.0])
    np.testing.assert_array_equal(belief.rewards[:, 0], [6.0, 10.0, 0.0, 0.0])


def test_more_next_states_than_said_are_no_secret() -> None:
    belief = observe(prior(3, 1, 1), steps((0, 0, 0.0, 2), (0, 0, 0.0, 1)), 1)
    assert np.isnan(belief.counts[0, 0, 0])
    for mass in (None, 1.0):
        assert np.isnan(sample_transitions(jax.random.key(0), belief, 2, mass)[:, 0]).all()


def test_steps_after_the_end_do_not_count() -> None:
    seen = rollout(deep_sea(3)._replace(horizon=8), jax.random.key(0), jnp.ones(10, jnp.int32))
    for branching in (1, None):
        belief = observe(prior(9, 2, branching), seen, 1)
        assert float(belief.counts.sum()) == 3.0
        assert float(belief.counts[-1].sum()) == 0.0


@pytest.mark.parametrize(("branching", "mass"), [(1, None), (3, None), (None, None), (1, 4.0), (3, 1.0), (None, 1e-3)])
def test_samples_have_the_moments_of_the_posterior(branching: int | None, mass: float | None) -> None:
    belief = prior(9, 2, branching)
    for seen in episodes(deep_sea(3), 4):
        belief = observe(belief, seen, 3)
    mean = np.asarray(mean_model(belief, jnp.zeros((10, 2)), mass).p)
    total = np.asarray(belief.counts.sum(axis=-1)) + (10 / 3 if mass is None else mass)
    np.testing.assert_allclose(total_mass(belief, mass), total, rtol=1e-12)
    p = np.asarray(sample_transitions(jax.random.key(5), belief, 20_000, mass))
    np.testing.assert_allclose(p.sum(axis=-1), 1.0, atol=1e-12)
    assert (p[:, -1, :, -1] == 1.0).all()
    np.testing.assert_allclose(p.mean(axis=0), mean, atol=0.01)
    np.testing.assert_allclose(p.var(axis=0)[:-1], (mean * (1 - mean) / (total[..., None] + 1))[:-1], atol=0.006)


def test_memory_of_a_belief_grows_with_the_states_alone() -> None:
    belief = prior(10_000, 2, 1)
    assert sum(x.nbytes for x in belief) < 500_000
    assert isinstance(belief, Belief)
