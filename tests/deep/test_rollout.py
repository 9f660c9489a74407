from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deep.tiny import config, never
from ubex.deep import actor, loop, rollout
from ubex.deep.buffer import ModelBuffer, empty, unpack
from ubex.deep.config import DeepConfig
from ubex.deep.dynamics import Dynamics, Normaliser, Prediction, predict
from ubex.deep.networks import MLP, Product, product
from ubex.envs.sparse_pendulum import sparse_pendulum

KEY = jax.random.key(0)
SURE: dict[str, Any] = {"min_log_var": -60.0, "max_log_var": -50.0, "model_hidden": ()}
POLICY = actor.init(KEY, 1, 1, (4,))


def linear_models(slopes: list[float], pushes: list[float], rewards: list[float]) -> Dynamics:
    """Model i says x' - x = slope_i x + push_i a and reward_i, with no noise to speak of."""
    rows = [[[slope, 0.0, -100.0, -100.0], [push, 0.0, 0.0, 0.0]] for slope, push in zip(slopes, pushes, strict=True)]
    weight = jnp.asarray(rows).at[:, :, 2:].set(0.0)
    bias = jnp.asarray([[0.0, reward, -100.0, -100.0] for reward in rewards])
    return Dynamics(MLP((weight,), (bias,), jax.nn.silu), Normaliser(jnp.zeros(2), jnp.ones(2)), None)


def test_a_consistent_rollout_is_the_closed_form_of_its_own_model() -> None:
    settings = config(rollout_length=4, **SURE)
    models = linear_models([0.5, -0.5], [0.0, 0.0], [1.0, 2.0])
    start = jnp.asarray([[[1.0], [2.0]], [[3.0], [4.0]]])
    made = rollout.consistent(settings, KEY, models, POLICY, start, never)
    batch = unpack(made.rows, 1)  # models, steps, rollouts
    for model, factor in enumerate((1.5, 0.5)):
        for step in range(4):
            np.testing.assert_allclose(batch.observation[model, step, :, 0], start[model, :, 0] * factor**step, rtol=1e-5)
            np.testing.assert_allclose(batch.next_observation[model, step], start[model] * factor ** (step + 1), rtol=1e-5)
        np.testing.assert_allclose(batch.reward[model], model + 1.0, rtol=1e-5)
    assert bool(jnp.all(made.valid))


def test_a_known_reward_takes_the_place_of_the_predicted_one() -> None:
    settings = config(rollout_length=2, **SURE)
    models = linear_models([0.5, -0.5], [0.0, 0.0], [1.0, 2.0])
    start = jnp.asarray([[[1.0]], [[3.0]]])
    made = rollout.consistent(settings, KEY, models, POLICY, start, never, lambda o, a, n: 10.0 * n[0] - o[0])
    batch = unpack(made.rows, 1)
    np.testing.assert_allclose(batch.reward[:, :, 0], [[14.0, 21.0], [12.0, 6.0]], rtol=1e-4)


def test_randomised_rollouts_use_all_models_alike_and_change_them() -> None:
    settings = config(rollout_length=6, num_models=3, **SURE)
    models = linear_models([0.0] * 3, [0.0] * 3, [1.0, 2.0, 3.0])
    for number in (300, 301):  # also where the rows do not share out evenly
        batch = unpack(rollout.randomised(settings, KEY, models, POLICY, jnp.zeros((number, 1)), never).rows, 1)
        chosen = np.rint(np.asarray(batch.reward)).astype(int)  # steps, rollouts
        for step in chosen:
            assert np.bincount(step, minlength=4)[1:].min() >= number // 3 - 1
        sequences = {tuple(column) for column in chosen.T}
        assert len(sequences) > 150  # of 729 possible ones


def test_the_action_of_a_row_reaches_its_own_prediction() -> None:
    settings = config(rollout_length=1, num_models=2, **SURE)
    models = linear_models([0.0] * 2, [1.0, 1.0], [0.0, 0.0])
    batch = unpack(rollout.randomised(settings, KEY, models, POLICY, jnp.arange(11.0)[:, None], never).rows, 1)
    np.testing.assert_allclose(batch.next_observation, batch.observation + batch.action, atol=1e-5)


def test_a_rollout_ends_where_its_model_says_so_and_the_others_go_on() -> None:
    settings = config(rollout_length=4, num_models=2, **SURE)
    models = linear_models([1.0] * 2, [0.0] * 2, [0.0] * 2)

    def large(observation: Any, action: Any, after: Any) -> Any:
        return after[0] > 3.0

    made = rollout.randomised(settings, KEY, models, POLICY, jnp.asarray([[1.0], [0.1]]), large)
    np.testing.assert_array_equal(made.valid[:, 0], [True, True, False, False])  # 1, 2, 4: the second step ended it
    np.testing.assert_array_equal(unpack(made.rows, 1).terminated[:2, 0], [0.0, 1.0])
    assert bool(jnp.all(made.valid[:, 1]))


def test_buffers_are_refilled_from_observed_states() -> None:
    settings: DeepConfig = config(rollout_length=1, num_models=2, **SURE)
    models = linear_models([0.0] * 2, [0.0] * 2, [1.0, 2.0])
    one = empty(settings, 5)
    buffers = ModelBuffer(jnp.stack([one.rows] * 3), jnp.stack([one.counts] * 3))
    data = jnp.zeros((30, 5)).at[:, 0].set(jnp.arange(30.0))
    key, count, slot = jax.random.key(3), jnp.asarray(20), jnp.asarray(0)
    made = rollout.refill(settings, key, models, POLICY, buffers, data, count, slot, 1, never)
    np.testing.assert_array_equal(made.counts, settings.rollouts)
    batch = unpack(made.rows[:, 0], 1)
    assert float(batch.observation.max()) < 20.0
    np.testing.assert_allclose(batch.reward[1:], [[1.0] * 12, [2.0] * 12], rtol=1e-5)
    assert set(np.rint(np.asarray(batch.reward[0]))) == {1.0, 2.0}


def test_rounding_shifts_what_is_drawn_by_far_less_than_its_noise() -> None:
    """Models of the paper's size, trained on a pendulum's first steps; their standard deviations are as small as allowed."""
    settings = DeepConfig(num_models=2, precision="halves", model_rate=1e-3, max_epochs=15, patience=15)
    env = sparse_pendulum(0.0)
    keys = jax.random.split(KEY, 1)
    seed = loop.begin(settings, env, keys, 1)
    model, _ = loop.fit(settings, env, keys, seed, jnp.asarray(0))
    one = Dynamics(*jax.tree.map(lambda x: x[0], tuple(model)))
    rows = unpack(seed.data[0, : settings.initial_steps], env.observation_size)

    def said(multiply: Product) -> Prediction:
        run = jax.vmap(lambda net: predict(settings, net, one.normaliser, rows.observation, rows.action, multiply))
        return run(one.networks)

    full, rounded = said(product), said(rollout.multiplication(settings))
    noise = np.exp(0.5 * np.asarray(full.log_var))
    assert noise.min() < 0.02
    shift = (np.asarray(rounded.mean) - np.asarray(full.mean)) / noise
    assert 0.0 < np.sqrt(np.mean(shift**2)) < 0.01
    assert np.abs(np.asarray(rounded.log_var) - np.asarray(full.log_var)).max() < 0.05


def test_the_box_is_the_observed_range_and_a_share_of_it() -> None:
    rows = jnp.asarray([[0.0, 0.0, 1.0, 2.0, 0.0], [0.0, 0.0, 3.0, 6.0, 0.0], [0.0, 0.0, 99.0, 99.0, 0.0]])
    box = rollout.around(rows, jnp.asarray(2), 1, 0.5)  # next observations 2 and 6, rewards 1 and 3; the last row is not held
    np.testing.assert_allclose((box.low, box.high), [[0.0, 0.0], [8.0, 4.0]])


def test_rollouts_with_a_margin_stay_near_the_data() -> None:
    """Models that double the observation at each step and pay 100: without a margin they run away, with one they do not."""
    models = linear_models([1.0] * 2, [0.0] * 2, [100.0] * 2)
    one = empty(config(rollout_length=6, num_models=2, **SURE), 5)
    buffers = ModelBuffer(jnp.stack([one.rows] * 3), jnp.stack([one.counts] * 3))
    data = jnp.asarray([[1.0, 0.0, 0.0, 1.0, 0.0], [2.0, 0.0, 1.0, 3.0, 0.0]])

    def made(margin: float | None) -> Any:
        settings = config(rollout_length=6, num_models=2, rollout_margin=margin, **SURE)
        filled = rollout.refill(settings, KEY, models, POLICY, buffers, data, jnp.asarray(2), jnp.asarray(0), 1, never)
        return unpack(filled.rows[:, 0], 1)

    free, near = made(None), made(1.0)
    assert float(free.next_observation.max()) == pytest.approx(128.0, rel=1e-3)
    np.testing.assert_allclose(free.reward, 100.0, rtol=1e-5)
    assert float(near.next_observation.max()) == 5.0  # observed are 1 to 3
    np.testing.assert_array_equal(near.reward, 2.0)  # observed are 0 to 1
    np.testing.assert_array_equal(near.observation[..., 0] <= 5.0, True)


def test_a_known_reward_and_an_end_are_those_of_the_clipped_observation() -> None:
    said = Prediction(jnp.asarray([[10.0, 7.0]]), jnp.full((1, 2), -60.0))
    box = rollout.Box(jnp.asarray([-1.0, -1.0]), jnp.asarray([4.0, 1.0]))
    known = (lambda o, a, n: n[0] > 4.0, lambda o, a, n: 10.0 * n[0])
    batch = rollout.transition(KEY, said, jnp.zeros((1, 1)), jnp.zeros((1, 1)), *known, box)
    assert (float(batch.next_observation[0, 0]), float(batch.reward[0]), float(batch.terminated[0])) == (4.0, 40.0, 0.0)
