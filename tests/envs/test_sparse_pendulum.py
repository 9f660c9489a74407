"""The sparse pendulum against its definition, written once more in plain float64 NumPy."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ubex.envs.continuous import ContinuousEnv, ContinuousStep
from ubex.envs.sparse_pendulum import PendulumState, render, sparse_pendulum, tolerance
from ubex.types import InputError

KEY = jax.random.key(0)


def fade(distance: float, margin: float) -> float:
    """A Gaussian that is 1 at 0 and 0.1 at the margin, by its standard deviation."""
    deviation = margin / math.sqrt(2.0 * math.log(10.0))
    return math.exp(-0.5 * (distance / deviation) ** 2)


def numpy_reward(angle: float, velocity: float, torque: float, cost: float) -> float:
    upright = fade(max(0.95 - math.cos(angle), 0.0), 0.1)
    at_rest = fade(max(abs(velocity) - 0.5, 0.0), 0.5)
    free = fade(max(abs(torque) - 0.1, 0.0), 0.1)
    return upright * at_rest - cost * (1.0 - free)


def numpy_episode(torques: np.ndarray, cost: float) -> tuple[np.ndarray, np.ndarray]:
    """Observations after, and rewards of, every step."""
    angle, velocity, seen, rewards = math.pi, 0.0, [], []
    for given in torques:
        torque = min(max(float(given), -1.0), 1.0)
        rewards.append(numpy_reward(angle, velocity, torque, cost))
        inertia = 0.3 * 0.5 * 0.5
        acceleration = 9.81 / 0.5 * math.sin(angle) + torque / inertia - 0.005 / inertia * velocity
        angle, velocity = angle + velocity / 80.0, velocity + acceleration / 80.0
        seen.append((math.cos(angle), math.sin(angle), velocity))
    return np.array(seen), np.array(rewards)


def at(angle: float, velocity: float) -> PendulumState:
    return PendulumState(jnp.asarray(angle, jnp.float32), jnp.asarray(velocity, jnp.float32))


def push(env: ContinuousEnv, angle: float, velocity: float, torque: float) -> ContinuousStep:
    return env.step(KEY, at(angle, velocity), jnp.asarray([torque], jnp.float32))


def swing_up(observation: jax.Array) -> jax.Array:
    """Pumps energy up to that of the top, and balances near it; gains by hand."""
    cosine, sine, velocity = observation
    angle, top = jnp.arctan2(sine, cosine), 0.3 * 9.81 * 0.5
    energy = 0.5 * 0.3 * 0.5**2 * velocity**2 + top * cosine
    pump = jnp.clip(10.0 * (top - energy), -1.0, 1.0) * jnp.where(velocity >= 0.0, 1.0, -1.0)
    balance = -(2.0 * angle + 0.3 * velocity)
    return jnp.where(jnp.abs(angle) < 0.3, balance, pump)[None]


def returns(env: ContinuousEnv, seeds: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns of the swing-up, and their rewards."""

    def one(state: PendulumState, key: jax.Array) -> tuple[PendulumState, jax.Array]:
        out = env.step(key, state, swing_up(env.observe(state)))
        return out.state, out.reward

    def episode(key: jax.Array) -> jax.Array:
        return jax.lax.scan(one, env.reset(key), jax.random.split(key, env.horizon))[1]

    rewards = np.asarray(jax.jit(jax.vmap(episode))(jax.random.split(KEY, seeds)))
    return rewards.sum(axis=1), rewards


def test_facts() -> None:
    env = sparse_pendulum()
    assert (env.name, env.observation_size, env.action_size, env.horizon) == ("sparse-pendulum", 3, 1, 400)
    assert (env.action_low, env.action_high) == ((-1.0,), (1.0,))
    np.testing.assert_allclose(env.observe(env.reset(KEY)), [-1.0, 0.0, 0.0], atol=1e-6)
    assert sparse_pendulum() is sparse_pendulum(0.0) is sparse_pendulum(action_cost=0.2) is sparse_pendulum(0, np.float64(0.2))
    assert sparse_pendulum() is not sparse_pendulum(0.01)


def test_tolerance() -> None:
    def tol(x: float, bounds: tuple[float, float], margin: float) -> float:
        return float(tolerance(jnp.asarray(x, jnp.float32), bounds, margin))

    for x in (-0.5, 0.0, 0.5):
        assert tol(x, (-0.5, 0.5), 0.25) == 1.0
    for x in (-0.75, 0.75):
        assert tol(x, (-0.5, 0.5), 0.25) == pytest.approx(0.1, rel=1e-5)
    assert tol(1.0, (-0.5, 0.5), 0.25) == pytest.approx(1e-4, rel=1e-5)  # two margins: 0.1 to the fourth
    assert tol(0.625, (-0.5, 0.5), 0.25) == pytest.approx(10.0**-0.25, rel=1e-5)
    assert tol(1.0, (0.95, 1.0), 0.1) == tol(0.95, (0.95, 1.0), 0.1) == 1.0


@pytest.mark.parametrize(
    ("angle", "velocity", "torque", "expected"),
    [
        (0.0, 0.0, 0.0, 1.0),
        (0.0, 0.5, 0.1, 1.0),
        (math.pi, 0.0, 0.0, 0.0),  # hanging: 0.1 to the power 380
        (math.pi, 0.0, 1.0, -0.2),  # nine margins of torque
        (math.pi, 0.0, 7.0, -0.2),  # clipped to 1
        (math.acos(0.85), 0.0, 0.0, 0.1),  # one margin of the cosine
        (-math.acos(0.85), -1.0, 0.0, 0.01),  # and one of the velocity
        (2.0 * math.pi, 0.0, -0.2, 1.0 - 0.2 * 0.9),  # one margin of torque; the angle is not wrapped
        (0.0, 0.75, 0.0, 10.0**-0.25),  # half a margin
    ],
)
def test_rewards_by_hand(angle: float, velocity: float, torque: float, expected: float) -> None:
    assert float(push(sparse_pendulum(), angle, velocity, torque).reward) == pytest.approx(expected, abs=2e-6)
    clipped = min(max(torque, -1.0), 1.0)
    assert numpy_reward(angle, velocity, clipped, 0.2) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("cost", [0.0, 0.2, 0.5])
def test_rewards_on_a_grid(cost: float) -> None:
    env = sparse_pendulum(action_cost=cost)
    grid = np.stack(np.meshgrid(np.linspace(-1, 7, 33), np.linspace(-3, 3, 13), np.linspace(-1, 1, 21)), axis=-1).reshape(-1, 3)
    states = PendulumState(*jnp.asarray(grid[:, :2].T, jnp.float32))
    steps = jax.vmap(lambda state, torque: env.step(KEY, state, torque))(states, jnp.asarray(grid[:, 2:], jnp.float32))
    np.testing.assert_allclose(steps.reward, [numpy_reward(*row, cost) for row in grid], atol=2e-5)


def test_a_step_by_hand() -> None:
    """Horizontal, velocity 2, torque 0.5: acceleration 19.62 + 0.5 / 0.075 - 0.005 / 0.075 * 2 = 26.1533."""
    after = push(sparse_pendulum(), math.pi / 2, 2.0, 0.5).state
    assert float(after.angle) == pytest.approx(math.pi / 2 + 2.0 / 80, rel=1e-6)
    assert float(after.velocity) == pytest.approx(2.0 + 26.153333 / 80, rel=1e-6)


def test_an_episode_agrees_with_numpy() -> None:
    env = sparse_pendulum()
    beat = np.sin(np.arange(400) / 80 * 2 * math.pi / 1.2)  # near the pendulum's own period, so that it swings over the top
    torques = np.float32(1.6 * beat * np.where(np.arange(400) % 160 < 110, 1.0, 0.05))

    def one(state: PendulumState, torque: jax.Array) -> tuple[PendulumState, tuple[jax.Array, jax.Array]]:
        out = env.step(KEY, state, torque)
        return out.state, (env.observe(out.state), out.reward)

    seen, rewards = jax.lax.scan(one, env.reset(KEY), jnp.asarray(torques)[:, None])[1]
    expected, expected_rewards = numpy_episode(torques, 0.2)
    assert expected[:, 0].max() > 0.95
    assert np.abs(torques).max() > 1.0
    np.testing.assert_allclose(seen, expected, atol=2e-3)
    np.testing.assert_allclose(rewards, expected_rewards, atol=2e-3)


def test_the_angle_is_not_wrapped() -> None:
    env = sparse_pendulum()
    assert float(push(env, 100.0, 8.0, 0.0).state.angle) == pytest.approx(100.1, rel=1e-6)
    assert float(push(env, -100.0, -8.0, 0.0).state.angle) == pytest.approx(-100.1, rel=1e-6)


def test_noise_falls_on_the_angle_alone() -> None:
    env, quiet = sparse_pendulum(noise=0.02), sparse_pendulum()
    state, torque = at(1.0, -2.0), jnp.asarray([0.3], jnp.float32)
    keys = jax.random.split(KEY, 20_000)
    steps = jax.vmap(lambda key: env.step(key, state, torque))(keys)
    expected = quiet.step(KEY, state, torque)
    shift = np.asarray(steps.state.angle, np.float64) - float(expected.state.angle)
    assert shift.mean() == pytest.approx(0.0, abs=5 * 0.02 / math.sqrt(20_000))
    assert shift.std() == pytest.approx(0.02, rel=5 / math.sqrt(2 * 20_000))
    assert (shift**4).mean() / shift.var() ** 2 == pytest.approx(3.0, abs=0.2)  # a normal's
    np.testing.assert_allclose(steps.state.velocity, float(expected.state.velocity), rtol=1e-6)
    np.testing.assert_allclose(steps.reward, float(expected.reward), rtol=1e-6)


def test_energy_changes_by_the_work_done() -> None:
    """Torque and friction do all of it, up to what explicit Euler adds, which is of second order in the step."""
    generator = np.random.default_rng(0)
    angle, velocity, torque = generator.uniform([[-4], [-6], [-1]], [[4], [6], [1]], size=(3, 500))
    inertia, weight, step = 0.075, 0.3 * 9.81 * 0.5, 1.0 / 80.0
    states = PendulumState(jnp.asarray(angle, jnp.float32), jnp.asarray(velocity, jnp.float32))
    out = jax.vmap(lambda state, action: sparse_pendulum().step(KEY, state, action))(
        states, jnp.asarray(torque[:, None], jnp.float32)
    )

    def energy(angle: np.ndarray, velocity: np.ndarray) -> np.ndarray:
        return 0.5 * inertia * velocity**2 + weight * np.cos(angle)

    gained = energy(*(np.asarray(x, np.float64) for x in out.state)) - energy(angle, velocity)
    work = step * (torque * velocity - 0.005 * velocity**2)
    acceleration = 9.81 / 0.5 * np.sin(angle) + (torque - 0.005 * velocity) / inertia
    second_order = 0.5 * step**2 * (inertia * acceleration**2 + weight * velocity**2)
    assert (np.abs(gained - work) <= second_order + 1e-5).all()
    assert np.abs(work).max() > 10 * np.median(second_order)


def test_it_terminates_only_above_the_largest_speed() -> None:
    env = sparse_pendulum()
    assert not bool(push(env, 0.0, 200.0, 1.0).terminated)  # friction balances the full torque there
    assert bool(push(env, 0.0, 201.0, 1.0).terminated)
    assert bool(push(env, 0.0, -201.0, -1.0).terminated)
    fastest = (9.81 / 0.5 + 1.0 / 0.075) * 400 / 80
    assert fastest < 200.0  # so no episode ends before its horizon


def test_doing_nothing_pays_nothing_and_full_torque_costs() -> None:
    assert numpy_episode(np.zeros(400), 0.2)[1].sum() == pytest.approx(0.0, abs=1e-6)
    env, state, total = sparse_pendulum(), at(math.pi, 0.0), 0.0
    step = jax.jit(env.step)
    for _ in range(400):
        out = step(KEY, state, jnp.zeros(1, jnp.float32))
        state, total = out.state, total + float(out.reward)
    assert total == pytest.approx(0.0, abs=1e-6)
    assert float(state.angle) == pytest.approx(math.pi, abs=1e-5)


@pytest.mark.parametrize(("noise", "at_least"), [(0.0, 200.0), (0.01, 170.0), (0.02, 150.0)])
def test_it_can_be_swung_up(noise: float, at_least: float) -> None:
    totals, rewards = returns(sparse_pendulum(noise), 1 if noise == 0.0 else 20)
    assert totals.mean() > at_least
    assert rewards[:, -100:].mean() > 0.9


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"noise": -0.1}, r"noise must be in \[0, 100\], but it is -0.1"),
        ({"noise": math.nan}, "noise must be a number, but it is nan"),
        ({"noise": math.inf}, "noise must be in"),
        ({"action_cost": -1.0}, "action_cost must be in"),
        ({"action_cost": 101.0}, "action_cost must be in"),
    ],
)
def test_bad_settings(settings: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        sparse_pendulum(**settings)


def test_the_picture_shows_the_angle_and_the_torque() -> None:
    picture = render((math.pi, 0.0), 0.0)
    assert (picture.shape, picture.dtype) == ((240, 240, 3), np.uint8)
    assert np.array_equal(picture, render(at(math.pi, 3.0), 0.0))
    assert not np.array_equal(picture, render((math.pi + 0.05, 0.0), 0.0))
    assert not np.array_equal(picture, render((math.pi, 0.0), 0.2))
    assert np.array_equal(render((1.0, 0.0), 1.0), render((1.0, 0.0), 5.0))
    assert render((0.0, 0.0), 0.0, size=64).shape == (64, 64, 3)


@pytest.mark.parametrize(("angle", "row", "column"), [(0.0, 36, 120), (math.pi / 2, 120, 204), (math.pi, 204, 120)])
def test_the_bob_is_where_the_angle_says(angle: float, row: int, column: int) -> None:
    """Up, right and down for 0, a quarter and half a turn: the angle grows clockwise, as does the torque's arc."""
    dark = render((angle, 0.0), 0.0).sum(axis=-1) < 250
    around = dark[row - 8 : row + 9, column - 8 : column + 9]
    assert around.all()
    mirrored = render((-angle, 0.0), -0.7)[:, ::-1]
    np.testing.assert_allclose(mirrored.astype(int), render((angle, 0.0), 0.7).astype(int), atol=1)


def test_edges_are_soft() -> None:
    shades = np.unique(render((0.4, 0.0), 0.0)[:, :, 0])
    assert len(shades) > 20
