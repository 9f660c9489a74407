"""Environments: `step` agrees with `as_mdp()` in every cell and for every action, and the facts of the paper hold."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ubex import checks
from ubex.envs import ENVS
from ubex.envs.base import TabularEnv, finite_horizon_value, rollout
from ubex.envs.chain import chain
from ubex.envs.custom import from_mdp
from ubex.envs.deep_sea import deep_sea
from ubex.envs.loop import loop
from ubex.envs.n_room import HORIZON, floor_plan, n_room, seven_room
from ubex.envs.river_swim import river_swim
from ubex.envs.toy import toy
from ubex.types import MDP

DRAWS = 3000


def random_mdp() -> MDP:
    generator = np.random.default_rng(0)
    return MDP(generator.dirichlet(np.ones(4), size=(4, 3)), generator.normal(size=(4, 3)))


TABLE = {name: entry.make() for name, entry in ENVS.items()}
MORE = [
    deep_sea(5),
    deep_sea(4, True),
    deep_sea(4, False, 1),
    deep_sea(3, True, 2),
    river_swim(4),
    chain(0.0),
    n_room(2),
    toy(0.7, 0.4),
    from_mdp(random_mdp()),
]


@pytest.mark.parametrize(
    "env",
    dict.fromkeys(env for env in (*TABLE.values(), *MORE) if isinstance(env, TabularEnv)),
    ids=lambda env: f"{env.name}-{env.num_states}",
)
def test_step_agrees_with_the_mdp(env: TabularEnv) -> None:
    p, r = (np.asarray(array) for array in env.as_mdp())
    assert np.allclose(p.sum(axis=-1), 1.0)
    draws = (DRAWS if env.num_states < 100 else DRAWS // 3) if env.branching != 1 else 3

    @jax.jit
    @jax.vmap
    def many(state: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        keys = jax.random.split(jax.random.fold_in(jax.random.key(0), state * 7 + action), draws)
        steps = jax.vmap(lambda key: env.step(key, state, action))(keys)
        return steps.state, steps.reward, steps.terminated

    states, actions = (x.reshape(-1) for x in np.mgrid[: env.num_states, : env.num_actions].astype(np.int32))
    after, reward, terminated = (np.asarray(x) for x in many(jnp.asarray(states), jnp.asarray(actions)))
    for i, (state, action) in enumerate(zip(states, actions, strict=True)):
        frequency = np.bincount(after[i], minlength=p.shape[-1])[: p.shape[-1]] / draws
        assert np.all(frequency[p[state, action] == 0.0] == 0.0)
        np.testing.assert_allclose(frequency, p[state, action], atol=6 * np.sqrt(0.25 / draws) if draws > 3 else 0.0)
        random = np.std(reward[i]) / np.sqrt(draws)
        np.testing.assert_allclose(np.mean(reward[i]), r[state, action], rtol=1e-6, atol=6 * random if random > 1e-6 else 0.0)
        assert np.array_equal(terminated[i], after[i] == env.num_states)
    assert env.branching == (p[: env.num_states] > 0).sum(axis=-1).max()


@pytest.mark.parametrize("name", TABLE)
def test_the_same_settings_give_the_same_record(name: str) -> None:
    assert ENVS[name].make() is TABLE[name], "programs would be compiled again"
    assert TABLE[name].name in (name, "seven-room")


def test_deep_sea_facts() -> None:
    env = deep_sea(10)
    p, r = (np.asarray(array) for array in env.as_mdp())
    assert (env.num_states, env.num_actions, env.horizon, env.start) == (100, 2, 10, 0)
    assert r[0, 1] == pytest.approx(-0.001)
    assert r[99, 1] == pytest.approx(0.999)
    assert r[0, 0] == 0.0
    assert p[0, 1, 11] == 1.0
    assert p[0, 0, 10] == 1.0
    assert (p[90:100, :, 100] == 1.0).all()
    seen = rollout(env, jax.random.key(0), jnp.ones(101, jnp.int32))
    assert float(seen.reward.sum()) == pytest.approx(0.99)
    assert env.best_return == pytest.approx(0.99)
    assert np.asarray(seen.valid).all()
    assert int(seen.next_state[-1]) == 100


def test_stochastic_deep_sea_facts() -> None:
    """As in bsuite: right fails once in L times, and rewards at both ends of the last row have noise of variance 1."""
    env = deep_sea(10, stochastic=True)
    p, r = (np.asarray(array) for array in env.as_mdp())
    assert (p[0, 1, 11], p[0, 1, 10]) == (0.9, pytest.approx(0.1))
    assert p[0, 0, 10] == 1.0
    np.testing.assert_allclose(r, deep_sea(10).as_mdp().r)
    keys = jax.random.split(jax.random.key(0), 4000)
    rewards = {
        place: jax.vmap(lambda key, place=place: env.step(key, jnp.asarray(place), jnp.asarray(0)).reward)(keys)
        for place in (0, 90, 95, 99)
    }
    assert [float(np.std(rewards[place])) for place in (0, 95)] == [0.0, 0.0]
    assert all(float(np.var(rewards[place])) == pytest.approx(1.0, abs=0.15) for place in (90, 99))
    assert 0.9**9 - 0.01 <= env.best_return <= 0.9**9


def test_cells_of_deep_sea_may_draw_what_right_is() -> None:
    plain, drawn = (np.asarray(deep_sea(8, action_seed=seed).as_mdp().p)[:-1] for seed in (None, 3))
    turned = (plain != drawn).any(axis=(1, 2))
    np.testing.assert_array_equal(drawn[turned], plain[turned][:, ::-1])
    assert 15 < turned.sum() < 49
    assert deep_sea(8, action_seed=3).best_return == deep_sea(8).best_return


def test_river_swim_chain_and_loop_facts() -> None:
    p, r = (np.asarray(array) for array in river_swim().as_mdp())
    np.testing.assert_allclose(p[:, 1].diagonal(), [0.4, 0.6, 0.6, 0.6, 0.6, 0.6])
    assert (r[0, 0], r[5, 1], np.count_nonzero(r)) == (0.005, 1.0, 2)
    always_on = finite_horizon_value(*chain().as_mdp(), np.zeros(5, int), 1000)[0]
    assert always_on == pytest.approx(3677, abs=20), "about 3.68 per step, as the papers have it"
    p, r = (np.asarray(array) for array in loop().as_mdp())
    easy, hard = (finite_horizon_value(p, r, np.full(9, action), 1000)[0] for action in (0, 1))
    assert (easy, hard) == (200.0, 400.0)


def test_seven_room_facts() -> None:
    env = seven_room()
    free, centers = floor_plan(7)
    cells = [tuple(cell) for cell in np.argwhere(free)]
    assert free.shape == (11, 29)
    assert (env.num_states, env.num_actions, env.horizon, env.start) == (181, 4, 40, 70)
    assert (cells[70], cells[52], cells[152]) == ((2, 20), (2, 2), (8, 20))
    p, r = (np.asarray(array) for array in env.as_mdp())
    assert (r[70, 0], r[52, 0], r[152, 0]) == (0.01, 0.1, 1.0)
    assert np.count_nonzero(r.sum(axis=1)) == 3
    assert (p[152, :, 152] == 1.0).all()
    assert p[0, 0, 0] == 1.0  # into the wall: stays
    right, below = cells.index((0, 1)), cells.index((1, 0))
    assert p[0, 1, right] == 0.95
    assert p[0, 1, below] == pytest.approx(0.05)
    assert all(free[place] for place in ((2, 5), (2, 11), (2, 17), (2, 23), (5, 26), (8, 23)))
    assert env.best_return == pytest.approx(20.2947, abs=5e-5)
    assert centers[-1] == (8, 20)


def test_value_of_a_policy_by_backups_agrees_with_rollouts() -> None:
    env = n_room(2)
    p, r = (np.asarray(array) for array in env.as_mdp())
    policy = np.random.default_rng(0).integers(4, size=env.num_states)
    exact = finite_horizon_value(p, r, policy, HORIZON)[env.start]
    keys = jax.random.split(jax.random.key(1), 4000)
    returns = jax.vmap(lambda key: rollout(env, key, jnp.asarray(policy, jnp.int32)).reward.sum())(keys)
    assert float(returns.mean()) == pytest.approx(exact, abs=5 * float(returns.std()) / np.sqrt(4000) + 1e-6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: deep_sea(1), "size must be at least 2, but it is 1"),
        (lambda: n_room(1), "rooms must be at least 2, but it is 1"),
        (lambda: checks.flag("stochastic", "yes"), "stochastic must be true or false, but it is 'yes'"),
        (lambda: deep_sea(4, action_seed=-1), "action_seed must be at least 0"),
        (lambda: river_swim(2), "size must be at least 3, but it is 2"),
        (lambda: chain(0.7), "slip must be in"),
        (lambda: loop(0), "horizon must be at least 1"),
    ],
)
def test_bad_settings(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
