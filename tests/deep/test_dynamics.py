from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from deep.tiny import config
from ubex.deep import dynamics
from ubex.deep.buffer import Batch, pack
from ubex.deep.networks import MLP

KEY = jax.random.key(0)


def linear_data(count: int, capacity: int) -> jax.Array:
    """x' = x + 0.5 x + a, r = 2 x - a, and rows of rubbish behind."""
    x, a = jax.random.normal(jax.random.key(1), (count, 1)), jax.random.uniform(jax.random.key(2), (count, 1), minval=-1.0)
    rows = pack(Batch(x, a, (2.0 * x - a)[:, 0], 1.5 * x + a, jnp.zeros(count)))
    return jnp.concatenate((rows, jnp.full((capacity - count, rows.shape[1]), 1e3)))


def test_the_loss_is_twice_the_gaussian_negative_log_likelihood() -> None:
    mean, log_var, target = (jax.random.normal(jax.random.key(i), (6, 3)) for i in range(3))
    weight = jnp.asarray([1.0, 1.0, 1.0, 1.0, 0.0, 0.0])
    found = dynamics.negative_log_likelihood(dynamics.Prediction(mean, log_var), target, weight)
    density = stats.norm(np.asarray(mean), np.exp(0.5 * np.asarray(log_var))).logpdf(np.asarray(target))[:4]
    assert float(found) == pytest.approx(-2.0 * density.mean() - np.log(2.0 * np.pi), abs=1e-5)


def test_log_variances_stay_between_their_bounds() -> None:
    settings = config(min_log_var=-3.0, max_log_var=1.0)
    network = MLP((jnp.zeros((2, 4)),), (jnp.asarray([0.0, 0.0, 1e4, -1e4]),), jnp.tanh)
    normaliser = dynamics.Normaliser(jnp.zeros(2), jnp.ones(2))
    said = dynamics.predict(settings, network, normaliser, jnp.zeros((1, 1)), jnp.zeros((1, 1)))
    np.testing.assert_allclose(said.log_var[0], [1.0, -3.0], atol=0.02)


def test_inputs_are_normalised_by_the_data_that_count() -> None:
    data = linear_data(50, 70)
    found = dynamics.normalise(data, jnp.asarray(50), 1)
    np.testing.assert_allclose(found.mean, np.asarray(data)[:50, :2].mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(found.std, np.asarray(data)[:50, :2].std(axis=0), rtol=1e-4)
    constant = dynamics.normalise(jnp.ones((5, 5)), jnp.asarray(5), 1)
    np.testing.assert_array_equal(constant.std, 1.0)


def test_shuffling_keeps_to_the_rows_that_count() -> None:
    order = np.asarray(dynamics.shuffled(KEY, 100, jnp.asarray(60)))
    assert sorted(order[:60]) == list(range(60))
    assert list(order[:60]) != list(range(60))
    assert sorted(order[60:]) == list(range(60, 100))


def test_training_finds_a_linear_system_and_stops() -> None:
    settings = config(model_hidden=(), model_rate=0.05, weight_decay=0.0, max_epochs=60, patience=5)
    model = dynamics.init(settings, KEY, 1, 1)
    trained, fitted = jax.jit(lambda model, data: dynamics.train(settings, KEY, model, data, jnp.asarray(190), 1))(
        model, linear_data(190, 250)
    )
    assert 5 <= int(fitted.epochs) <= 60
    assert float(jnp.max(fitted.error)) < 1e-3
    x, a = jnp.asarray([[2.0]]), jnp.asarray([[0.5]])
    np.testing.assert_allclose(dynamics.predict_all(settings, trained, x, a).mean[:, 0], [[1.5, 3.5]] * 2, atol=0.1)
    different = np.asarray(trained.networks.weights[0])
    assert np.abs(different[0] - different[1]).max() > 0.0  # each member has data and weights of its own


def test_the_weights_of_the_best_epoch_are_kept() -> None:
    """A learning rate so large that every epoch makes things worse: the first epoch's weights stay, and training ends."""
    settings = config(model_hidden=(), model_rate=1.0, max_epochs=50, patience=3)
    good = config(model_hidden=(), model_rate=0.05, weight_decay=0.0, max_epochs=60, patience=5)
    data, count = linear_data(190, 200), jnp.asarray(190)
    model, before = dynamics.train(good, KEY, dynamics.init(good, KEY, 1, 1), data, count, 1)
    model = model._replace(optimiser=dynamics.optimiser(settings).init(model.networks))
    _, after = dynamics.train(settings, KEY, model, data, count, 1)
    assert int(after.epochs) == 3
    assert float(jnp.max(before.error)) < float(jnp.max(after.error))


@pytest.mark.parametrize("few", [0, 1, 3])
def test_seeds_are_trained_together_as_they_are_alone(few: int) -> None:
    """Three seeds whose trainings take different numbers of epochs; the last batch of an epoch is not full."""
    settings = config(model_hidden=(), model_rate=0.05, weight_decay=0.0, max_epochs=12, patience=2, model_batch=32)
    count, keys = jnp.asarray(170), jax.random.split(KEY, 3)
    data = jnp.stack([linear_data(170, 250), linear_data(170, 250) * 0.1, jnp.roll(linear_data(170, 250), 1, axis=0)])
    one = dynamics.init(settings, KEY, 1, 1)
    models = jax.tree.map(lambda x: jnp.stack([x] * 3), one)
    run = jax.jit(lambda *parts: dynamics.train_together(settings, *parts, 1, few))
    together, how = run(keys, models, data, count)
    alone = [jax.jit(lambda *parts: dynamics.train(settings, *parts, 1))(keys[i], one, data[i], count) for i in range(3)]
    assert len(set(np.asarray(how.epochs).tolist())) > 1
    for i, (model, fitted) in enumerate(alone):
        assert int(how.epochs[i]) == int(fitted.epochs)
        np.testing.assert_allclose(how.error[i], fitted.error, rtol=1e-3, atol=1e-7)
        for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(model), strict=True):
            np.testing.assert_allclose(a[i], b, rtol=1e-3, atol=1e-5)


def test_an_epoch_is_as_many_steps_as_there_are_batches() -> None:
    """The last batch need not be full; Adam has counted the steps."""
    for count, batches in ((190, 6), (33, 1)):
        settings = config(model_hidden=(), max_epochs=1, model_batch=32)
        data = linear_data(count, 300)
        model, _ = dynamics.train(settings, KEY, dynamics.init(settings, KEY, 1, 1), data, jnp.asarray(count), 1)
        steps = [leaf for leaf in jax.tree.leaves(model.optimiser) if jnp.issubdtype(leaf.dtype, jnp.integer)]
        assert [int(step) for step in steps] == [batches]
        assert all(bool(jnp.all(jnp.isfinite(weight))) for weight in model.networks.weights)


def test_seeds_do_not_wait_for_each_other_at_every_batch() -> None:
    """The loop over batches has one length for all seeds: else every step would choose, for every weight, whether it counts."""
    settings = config(model_hidden=(), max_epochs=2)
    keys, model = jax.random.split(KEY, 3), dynamics.init(settings, KEY, 1, 1)
    models, data = jax.tree.map(lambda x: jnp.stack([x] * 3), model), jnp.stack([linear_data(40, 50)] * 3)
    run = jax.make_jaxpr(lambda *parts: dynamics.train_together(settings, *parts, 1, 0))(keys, models, data, jnp.asarray(40))

    def loops(jaxpr: Any) -> list[Any]:
        found = [eqn for eqn in jaxpr.eqns if eqn.primitive.name == "while"]
        inside = [value.jaxpr for eqn in jaxpr.eqns for value in eqn.params.values() if hasattr(value, "jaxpr")]
        return found + [loop for one in inside for loop in loops(one)]

    decided = [loop.params["cond_jaxpr"].out_avals[0].shape for loop in loops(run.jaxpr)]
    assert len(decided) >= 2  # epochs, and the batches of one
    assert set(decided) == {()}
