"""Every continuous environment of the table keeps the record's promises: shapes, types, purity, bounds; also in Gymnasium."""

from __future__ import annotations

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import ubex
from ubex.envs import ENVS
from ubex.envs import gymnasium as gym
from ubex.envs.base import TabularEnv
from ubex.envs.continuous import ContinuousEnv, ContinuousStep, State
from ubex.learn import tabular

SETTINGS: dict[str, list[dict[str, Any]]] = {"sparse-pendulum": [{}, {"noise": 0.02, "action_cost": 0.1}]}
"""Settings to try besides those by default, by name."""
MADE = {name: entry.make() for name, entry in ENVS.items()}
NAMES = [name for name, env in MADE.items() if isinstance(env, ContinuousEnv)]
CASES = [(name, settings) for name in NAMES for settings in SETTINGS.get(name, [{}])]
IDS = {"sparse-pendulum": "ubex/SparsePendulum-v0"}


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def env(request: pytest.FixtureRequest) -> ContinuousEnv:
    name, settings = request.param
    made = ENVS[name].make(**settings)
    assert isinstance(made, ContinuousEnv)
    return made


def actions(env: ContinuousEnv, count: int, stretch: float = 1.0) -> jax.Array:
    low, high = (np.array(bounds, np.float32) for bounds in (env.action_low, env.action_high))
    draws = np.random.default_rng(0).uniform(stretch * low, stretch * high, size=(count, env.action_size))
    return jnp.asarray(draws, jnp.float32)


def episode(env: ContinuousEnv, key: jax.Array, moves: jax.Array) -> tuple[State, ContinuousStep]:
    """All states before the steps, and all steps, of one run through these actions."""

    def one(state: State, inputs: tuple[jax.Array, jax.Array]) -> tuple[State, tuple[State, ContinuousStep]]:
        out = env.step(inputs[0], state, inputs[1])
        return out.state, (state, out)

    return jax.lax.scan(one, env.reset(key), (jax.random.split(key, len(moves)), moves))[1]


def test_the_table_holds_both_kinds() -> None:
    assert list(IDS) == NAMES
    assert all(isinstance(env, TabularEnv) for name, env in MADE.items() if name not in NAMES)


def test_the_record(env: ContinuousEnv) -> None:
    assert env.name in NAMES
    assert len(env.action_low) == len(env.action_high) == env.action_size > 0
    assert all(low < high for low, high in zip(env.action_low, env.action_high, strict=True))
    assert env.horizon > 0
    assert isinstance(hash(env), int)


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_the_same_settings_give_the_same_record(name: str, settings: dict[str, Any]) -> None:
    assert ENVS[name].make(**settings) is ENVS[name].make(**dict(reversed(settings.items())))


def test_shapes_and_types(env: ContinuousEnv) -> None:
    key, action = jax.random.key(0), actions(env, 1)[0]
    state = env.reset(key)
    out = env.step(key, state, action)
    observation = env.observe(state)
    assert (observation.shape, observation.dtype) == ((env.observation_size,), jnp.float32)
    assert (out.reward.shape, out.reward.dtype) == ((), jnp.float32)
    assert (out.terminated.shape, out.terminated.dtype) == ((), jnp.bool_)
    over = env.terminates(observation, action, env.observe(out.state))
    assert (over.shape, over.dtype) == ((), jnp.bool_)
    assert {leaf.dtype for leaf in jax.tree.leaves(state)} == {jnp.dtype(jnp.float32)}


@pytest.mark.parametrize("x64", [False, True])
def test_a_step_leaves_the_type_of_the_state_alone(env: ContinuousEnv, x64: bool) -> None:
    def types(state: State) -> list[tuple[Any, ...]]:
        leaves = jax.tree.leaves(state)
        return [(leaf.shape, leaf.dtype, leaf.weak_type) for leaf in leaves]

    with jax.enable_x64(x64):
        key, action = jax.random.key(0), actions(env, 1)[0]
        state = env.reset(key)
        out = env.step(key, state, action)
        assert types(state) == types(out.state) == types(jax.jit(env.step)(key, state, action).state)
        assert jax.tree.structure(state) == jax.tree.structure(out.state)
        assert not any(weak for _, _, weak in types(state))
        assert types((env.observe(state), out.reward)) == [
            ((env.observation_size,), jnp.float32, False),
            ((), jnp.float32, False),
        ]


def test_one_compilation_for_many_steps(env: ContinuousEnv) -> None:
    traces = []

    @jax.jit
    def step(key: jax.Array, state: State, action: jax.Array) -> ContinuousStep:
        traces.append(None)
        return env.step(key, state, action)

    state = jax.jit(env.reset)(jax.random.key(0))
    for action in actions(env, 5):
        state = step(jax.random.key(1), state, action).state
    step(jax.random.key(1), env.reset(jax.random.key(0)), action)
    assert len(traces) == 1


def test_a_record_may_be_a_static_argument() -> None:
    traces = []

    def start(env: ContinuousEnv, key: jax.Array) -> jax.Array:
        traces.append(env.name)
        return env.observe(env.reset(key))

    compiled = jax.jit(start, static_argnums=0)
    for name in NAMES * 2:
        compiled(ENVS[name].make(), jax.random.key(0))
    assert traces == NAMES


def test_the_key_decides(env: ContinuousEnv) -> None:
    moves = actions(env, 50)
    run = jax.jit(lambda key: episode(env, key, moves)[1])
    for one, again in zip(jax.tree.leaves(run(jax.random.key(3))), jax.tree.leaves(run(jax.random.key(3))), strict=True):
        assert np.array_equal(one, again)


def test_batches_agree_with_single_runs(env: ContinuousEnv) -> None:
    moves, keys = actions(env, 20), jax.random.split(jax.random.key(4), 3)
    together = jax.jit(jax.vmap(lambda key: episode(env, key, moves)[1]))(keys)
    for i, key in enumerate(keys):
        alone = episode(env, key, moves)[1]
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x[i], y, rtol=1e-4, atol=1e-5), together, alone)  # noqa: B023


def test_actions_are_clipped_to_the_bounds(env: ContinuousEnv) -> None:
    key, moves = jax.random.key(5), actions(env, 30, stretch=3.0)
    inside = jnp.clip(moves, jnp.asarray(env.action_low)[None], jnp.asarray(env.action_high)[None])
    assert not np.array_equal(moves, inside)
    jax.tree.map(np.testing.assert_array_equal, episode(env, key, moves), episode(env, key, inside))


def test_terminates_agrees_with_step(env: ContinuousEnv) -> None:
    """Also far from where episodes go, so that both answers come up."""
    start = env.reset(jax.random.key(0))
    scales = jnp.logspace(-1, 3, 400, dtype=jnp.float32)

    def both(scale: jax.Array, key: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array]:
        noise = jax.random.split(key, len(jax.tree.leaves(start)))
        leaves = [
            x + scale * jax.random.normal(k, x.shape, x.dtype) for x, k in zip(jax.tree.leaves(start), noise, strict=True)
        ]
        state = jax.tree.unflatten(jax.tree.structure(start), leaves)
        out = env.step(key, state, action)
        return out.terminated, env.terminates(env.observe(state), action, env.observe(out.state))

    terminated, by_observation = jax.vmap(both)(scales, jax.random.split(jax.random.key(1), 400), actions(env, 400))
    assert np.array_equal(terminated, by_observation)
    assert set(np.asarray(terminated).tolist()) == {False, True}


def test_random_episodes_are_finite(env: ContinuousEnv) -> None:
    moves = actions(env, env.horizon)
    states, steps = jax.vmap(lambda key: episode(env, key, moves))(jax.random.split(jax.random.key(6), 8))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((states, steps.state, steps.reward)))
    assert not np.asarray(steps.terminated).any()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("render_mode", [None, "rgb_array"])
def test_gymnasium_is_content(name: str, render_mode: str | None) -> None:
    check_env(gymnasium.make(IDS[name], render_mode=render_mode).unwrapped)


@pytest.mark.parametrize("name", NAMES)
def test_gymnasium_sees_the_same_episode(name: str) -> None:
    """The trajectory is that of the record under the keys that the seed gives; its end is a cut-off, not termination."""
    settings = SETTINGS[name][-1]
    world = gymnasium.make(IDS[name], **settings)
    env = ENVS[name].make(**settings)
    assert isinstance(env, ContinuousEnv)
    moves = np.asarray(actions(env, env.horizon))
    first, _ = world.reset(seed=11)
    seen = [world.step(move) for move in moves]
    root = jax.random.key(world.unwrapped.episode)  # type: ignore[attr-defined]
    keys = jnp.stack([jax.random.fold_in(root, count) for count in range(1, env.horizon + 1)])

    def one(state: State, inputs: tuple[jax.Array, jax.Array]) -> tuple[State, tuple[jax.Array, jax.Array]]:
        out = env.step(inputs[0], state, inputs[1])
        return out.state, (env.observe(out.state), out.reward)

    observations, rewards = jax.lax.scan(one, env.reset(root), (keys, jnp.asarray(moves)))[1]
    np.testing.assert_array_equal(first, env.observe(env.reset(root)))
    np.testing.assert_allclose([step[0] for step in seen], observations, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose([step[1] for step in seen], rewards, atol=1e-3)
    assert not any(step[2] for step in seen)
    assert [step[3] for step in seen] == [False] * (env.horizon - 1) + [True]
    assert all(world.observation_space.contains(step[0]) for step in seen)


@pytest.mark.parametrize("name", NAMES)
def test_gymnasium_follows_the_seed(name: str) -> None:
    world = gymnasium.make(IDS[name], **SETTINGS[name][-1])
    move = np.zeros(world.action_space.shape, np.float32)

    def after(seed: int | None) -> np.ndarray:
        world.reset(seed=seed)
        return np.asarray(world.step(move)[0])

    one, then = after(1), after(None)
    assert np.array_equal(after(1), one)
    assert np.array_equal(after(None), then)
    assert not np.array_equal(one, then)
    assert not np.array_equal(after(2), one)


@pytest.mark.parametrize("name", NAMES)
def test_gymnasium_renders(name: str) -> None:
    world = gymnasium.make(IDS[name], render_mode="rgb_array")
    world.reset(seed=0)
    before = world.render()
    for _ in range(20):
        world.step(world.action_space.high)
    after = world.render()
    assert isinstance(before, np.ndarray)
    assert isinstance(after, np.ndarray)
    assert before.shape == after.shape
    assert before.dtype == after.dtype == np.uint8
    assert (before != after).any()
    assert gymnasium.make(IDS[name]).unwrapped.render() is None


@pytest.mark.parametrize("name", NAMES)
def test_gymnasium_refuses_actions_and_modes_that_make_no_sense(name: str) -> None:
    world = gymnasium.make(IDS[name]).unwrapped
    world.reset(seed=0)
    for action in ([np.nan], [0.0, 0.0, 0.0, 0.0], "up", 0.5):
        with pytest.raises(ubex.InputError, match="action must"):
            world.step(action)
    with pytest.raises(ubex.InputError, match="unknown render_mode 'human'; choose from: rgb_array"):
        gymnasium.make(IDS[name], render_mode="human")


def test_termination_ends_an_episode_and_is_no_cut_off() -> None:
    def step(key: jax.Array, state: jax.Array, action: jax.Array) -> ContinuousStep:
        after = state + jnp.clip(action, -1.0, 1.0)
        return ContinuousStep(after, after[0], after[0] > 1.5)

    walk = ContinuousEnv(
        name="walk",
        observation_size=1,
        action_size=1,
        horizon=2,
        action_low=(-1.0,),
        action_high=(1.0,),
        reset=lambda key: jnp.zeros(1, jnp.float32),
        step=step,
        observe=lambda state: state,
        terminates=lambda before, action, after: after[0] > 1.5,
    )
    world = gym.GymContinuous(walk._replace(observation_high=(9.0,)))
    for move, ending in ((1.0, (True, False)), (0.5, (False, True))):  # both reach the horizon
        world.reset(seed=0)
        assert world.step(np.array([move]))[2:4] == (False, False)
        assert world.step(np.array([move]))[2:4] == ending


@pytest.mark.parametrize("name", NAMES)
def test_tabular_agents_refuse_them_with_one_line(name: str) -> None:
    with pytest.raises(ubex.InputError, match=rf"^tabular agents need .*{name} is continuous; choose from: toy, deep-sea"):
        tabular.environment(name)
    with pytest.raises(ubex.InputError, match="is continuous"):
        tabular.environment(MADE[name])
