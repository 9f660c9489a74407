from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deep.tiny import LINE, config
from ubex.deep import actor, loop, rollout, steps
from ubex.deep.buffer import Batch, ModelBuffer, empty, unpack
from ubex.deep.config import DeepConfig
from ubex.deep.dynamics import UNBOUNDED, Dynamics, Normaliser, Prediction, Support, predict
from ubex.deep.networks import MLP, Product, product
from ubex.envs.sparse_pendulum import sparse_pendulum
from ubex.envs.task import Task, never

KEY = jax.random.key(0)
SURE: dict[str, Any] = {"min_log_var": -60.0, "max_log_var": -50.0, "model_hidden": ()}
POLICY = actor.init(KEY, 1, 1, (4,))
EVERYWHERE = Support(jnp.full(1, -jnp.inf), jnp.full(1, jnp.inf), jnp.asarray(UNBOUNDED))


def linear_models(slopes: list[float], pushes: list[float], rewards: list[float], support: Support = EVERYWHERE) -> Dynamics:
    """Model i says x' - x = slope_i x + push_i a and reward_i, with no noise to speak of."""
    rows = [[[slope, 0.0, -100.0, -100.0], [push, 0.0, 0.0, 0.0]] for slope, push in zip(slopes, pushes, strict=True)]
    weight = jnp.asarray(rows).at[:, :, 2:].set(0.0)
    bias = jnp.asarray([[0.0, reward, -100.0, -100.0] for reward in rewards])
    return Dynamics(MLP((weight,), (bias,), jax.nn.silu), None, Normaliser(jnp.zeros(2), jnp.ones(2)), support, None)


def above(limit: float) -> Any:
    return lambda observation, action, after: after[0] > limit


def rolled(
    settings: DeepConfig, models: Dynamics, start: list[list[float]], ends: Any = never, reward: Any = None
) -> rollout.Rows:
    """Rollouts of one part from these starts, a list for each buffer; the first axis of the result is the step."""
    made = rollout.rollouts(settings, Task(1, 1, ends, reward), KEY, models, POLICY, jnp.asarray(start)[None, :, :, None])
    return jax.tree.map(lambda x: x[:, 0], made)


def test_a_consistent_rollout_is_the_closed_form_of_its_own_model() -> None:
    models = linear_models([0.5, -0.5], [0.0, 0.0], [1.0, 2.0])
    made = rolled(config(rollout_length=4, **SURE), models, [[9.0, 9.0], [1.0, 2.0], [3.0, 4.0]])
    start = np.asarray([[1.0, 2.0], [3.0, 4.0]])
    for model, factor in enumerate((1.5, 0.5)):
        for step in range(4):
            batch = Batch(*(x[step, model + 1] for x in made.batch))
            np.testing.assert_allclose(batch.observation[:, 0], start[model] * factor**step, rtol=1e-5)
            np.testing.assert_allclose(batch.next_observation[:, 0], start[model] * factor ** (step + 1), rtol=1e-5)
            np.testing.assert_allclose(batch.reward, model + 1.0, rtol=1e-5)
    assert bool(jnp.all(made.stored))


def test_a_known_reward_takes_the_place_of_the_predicted_one() -> None:
    models = linear_models([0.5, -0.5], [0.0, 0.0], [1.0, 2.0])
    known = lambda o, a, n: 10.0 * n[0] - o[0]  # noqa: E731
    made = rolled(config(rollout_length=2, **SURE), models, [[1.0], [1.0], [3.0]], reward=known)
    np.testing.assert_allclose(made.batch.reward[:, 1:, 0], [[14.0, 12.0], [21.0, 6.0]], rtol=1e-4)


def test_randomised_rollouts_use_all_models_alike_and_change_them() -> None:
    settings = config(rollout_length=6, num_models=3, **SURE)
    models = linear_models([0.0] * 3, [0.0] * 3, [1.0, 2.0, 3.0])
    for number in (300, 301):  # also where the rows do not share out evenly
        made = rolled(settings, models, [[0.0] * number])
        chosen = np.rint(np.asarray(made.batch.reward[:, 0])).astype(int)  # steps, rollouts
        for step in chosen:
            assert np.bincount(step, minlength=4)[1:].min() >= number // 3 - 1
        sequences = {tuple(column) for column in chosen.T}
        assert len(sequences) > 150  # of 729 possible ones


def test_the_action_of_a_row_reaches_its_own_prediction() -> None:
    models = linear_models([0.0] * 2, [1.0, 1.0], [0.0, 0.0])
    batch = rolled(config(rollout_length=1, num_models=2, **SURE), models, [list(np.arange(11.0))]).batch
    np.testing.assert_allclose(batch.next_observation, batch.observation + batch.action, atol=1e-5)


DOUBLING = ([1.0] * 2, [0.0] * 2, [0.0] * 2)
STARTS = [[1.0, 0.1], [0.2, 0.3], [0.2, 0.3]]


def test_alone_a_rollout_ends_where_its_model_says_so_and_the_others_go_on() -> None:
    made = rolled(
        config(rollout_length=4, num_models=2, rollout_ends="alone", **SURE), linear_models(*DOUBLING), STARTS, above(3.0)
    )
    np.testing.assert_array_equal(made.stored[:, 0, 0], [True, True, False, False])  # 1, 2, 4: the second step ended it
    np.testing.assert_array_equal(made.batch.terminated[:2, 0, 0], [0.0, 1.0])
    assert bool(jnp.all(made.stored[:, 0, 1]))
    assert float(made.batch.terminated[:, 0, 1].max()) == 0.0


def test_together_one_rollout_that_ends_is_terminal_for_all_of_its_buffer_and_for_no_other() -> None:
    settings = config(rollout_length=4, num_models=2, rollout_ends="together", **SURE)
    made = rolled(settings, linear_models(*DOUBLING), STARTS, above(3.0))
    for row in range(2):
        np.testing.assert_array_equal(made.stored[:, 0, row], [True, True, False, False])
        np.testing.assert_array_equal(made.batch.terminated[:2, 0, row], [0.0, 1.0])
    own = np.asarray(made.stored[:, 1:])  # 0.3 reaches 4.8 at the last step, which is kept
    assert own.all()
    np.testing.assert_array_equal(made.batch.terminated[:, 1:].max(axis=(1, 2)), [0.0, 0.0, 0.0, 1.0])


def test_together_counts_rollouts_of_every_part() -> None:
    """Rollouts are computed in parts; one that ends in the first part ends those of the second."""
    settings = config(rollout_length=3, num_models=2, rollout_ends="together", **SURE)
    start = jnp.asarray([[[1.0]], [[0.1]]])[..., None]  # two parts of one buffer
    made = rollout.rollouts(settings, Task(1, 1, above(3.0)), KEY, linear_models(*DOUBLING), POLICY, start)
    np.testing.assert_array_equal(made.stored[:, 1, 0, 0], [True, True, False])
    np.testing.assert_array_equal(made.batch.terminated[:2, 1, 0, 0], [0.0, 1.0])


def test_trusted_a_rollout_is_cut_before_it_leaves_the_box_and_nothing_is_terminal() -> None:
    box = Support(jnp.asarray([-5.0]), jnp.asarray([5.0]), jnp.asarray([-1.0, 2.0]))
    models = linear_models([1.0] * 2, [0.0] * 2, [100.0] * 2, box)
    made = rolled(config(rollout_length=4, num_models=2, rollout_ends="trusted", **SURE), models, STARTS)
    np.testing.assert_array_equal(made.stored[:, 0, 0], [True, True, False, False])  # 2, 4, and 8 is outside
    np.testing.assert_array_equal(made.outside[:, 0, 0], [False, False, True, False])
    assert bool(jnp.all(made.stored[:, 0, 1]))  # 0.1 only reaches 1.6
    assert float(made.batch.terminated.max()) == 0.0
    np.testing.assert_array_equal(made.batch.reward, 2.0)  # 100 is no reward that there can be
    free = rolled(config(rollout_length=4, num_models=2, rollout_ends="alone", **SURE), models, STARTS)
    assert bool(jnp.all(free.stored))
    np.testing.assert_array_equal(free.outside[:, 0, 0], [False, False, True, True])


BINARY = EVERYWHERE._replace(values=jnp.asarray([[0.0], [1.0]]))
"""Of a number that was always 0 or 1."""


def test_numbers_that_took_two_values_keep_to_them_in_rollouts() -> None:
    models = linear_models([-0.4, -0.6], [0.0] * 2, [0.0] * 2, BINARY)  # 1 becomes 0.6, nearer to 1, or 0.4, nearer to 0
    made = rolled(config(rollout_length=3, **SURE), models, [[1.0, 0.0]] * 3)
    np.testing.assert_array_equal(made.batch.next_observation[:, 1, :, 0], [[1.0, 0.0]] * 3)
    np.testing.assert_array_equal(made.batch.next_observation[:, 2, :, 0], [[0.0, 0.0]] * 3)
    assert set(np.unique(made.batch.next_observation)) == {0.0, 1.0}


def ready(settings: DeepConfig) -> ModelBuffer:
    one = empty(settings, 5)
    return jax.tree.map(lambda x: jnp.stack([x] * 3), one)


def test_where_no_prediction_can_be_trusted_an_empty_buffer_gets_what_was_observed() -> None:
    """And one that holds rows keeps them: a run neither stops nor learns from what no data are near to."""
    settings: DeepConfig = config(rollout_length=2, num_models=2, rollout_ends="trusted", **SURE)
    elsewhere = Support(jnp.asarray([100.0]), jnp.asarray([200.0]), jnp.asarray([-1.0, 2.0]))
    models = linear_models([0.0] * 2, [0.0] * 2, [1.0] * 2, elsewhere)
    data = jax.random.normal(KEY, (30, 5)).at[:, 0].set(jnp.arange(30.0))
    known = (settings, LINE, jax.random.key(3), models, POLICY)
    made, seen = rollout.refill(*known, ready(settings), data, jnp.asarray(20))
    np.testing.assert_array_equal(made.written, settings.rollouts)
    observed = {tuple(row) for row in np.asarray(data)[:20].tolist()}
    for rows in made.rows[:, : settings.rollouts]:
        assert {tuple(row) for row in np.asarray(rows).tolist()} <= observed
    np.testing.assert_allclose(seen.stored_share, 0.5)
    again, seen = rollout.refill(*known, made, data, jnp.asarray(20))
    np.testing.assert_array_equal(again.written, made.written)
    np.testing.assert_array_equal(again.rows, made.rows)


def test_buffers_are_refilled_from_observed_states() -> None:
    settings: DeepConfig = config(rollout_length=1, num_models=2, **SURE)
    models = linear_models([0.0] * 2, [0.0] * 2, [1.0, 2.0])
    data = jnp.zeros((30, 5)).at[:, 0].set(jnp.arange(30.0))
    made, seen = rollout.refill(settings, LINE, jax.random.key(3), models, POLICY, ready(settings), data, jnp.asarray(20))
    np.testing.assert_array_equal(made.written, settings.rollouts)
    batch = unpack(made.rows, 1)
    assert float(batch.observation.max()) < 20.0
    np.testing.assert_allclose(batch.reward[1:], [[1.0] * 12, [2.0] * 12], rtol=1e-5)
    assert set(np.rint(np.asarray(batch.reward[0]))) == {1.0, 2.0}
    np.testing.assert_array_equal(
        (seen.stored_share, seen.terminal_share, seen.outside_share), [[1.0] * 3, [0.0] * 3, [0.0] * 3]
    )
    np.testing.assert_allclose((seen.reward_low, seen.reward_high), [[1.0, 1.0, 2.0], [2.0, 1.0, 2.0]], rtol=1e-5)


def test_what_is_said_of_rollouts_counts_the_stored_rows_alone() -> None:
    """From 1 and 2 alike: 2, 4, 8 and 4, 8; above 3 all end, so half of the starts store one step and half two of three."""
    settings = config(rollout_length=3, num_models=2, rollout_ends="alone", retain=1, rollouts_per_step=250, **SURE)
    models = linear_models([1.0] * 2, [0.0] * 2, [1.0] * 2)
    data = jnp.asarray([[1.0, 0.0, 0.0, 1.0, 0.0], [2.0, 0.0, 0.0, 2.0, 0.0]])
    made, seen = rollout.refill(settings, Task(1, 1, above(3.0)), KEY, models, POLICY, ready(settings), data, jnp.asarray(2))
    np.testing.assert_allclose(seen.stored_share, 0.5, atol=0.02)
    np.testing.assert_allclose(seen.terminal_share, 2.0 / 3.0, atol=0.02)
    np.testing.assert_array_equal(made.written, np.rint(np.asarray(seen.stored_share) * 3000))


def test_rounding_shifts_what_is_drawn_by_far_less_than_its_noise() -> None:
    """Models of the paper's size, trained on a pendulum's first steps; their standard deviations are as small as allowed."""
    settings = DeepConfig(num_models=2, precision="split16", model_rate=1e-3, max_epochs=15, patience=15)
    env = sparse_pendulum(0.0)
    keys = jax.random.split(KEY, 1)
    seed = loop.begin(settings, env, keys, 1)
    model, _ = steps.fit(settings, env.task, keys, seed.dynamics, seed.data, jnp.asarray(0))
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
