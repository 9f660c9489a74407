from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from deep.tiny import LINE, config
from ubex.deep import dynamics
from ubex.deep.buffer import Batch, pack
from ubex.deep.networks import MLP
from ubex.envs.task import Task

KEY = jax.random.key(0)


def linear_data(count: int, capacity: int) -> jax.Array:
    """x' = x + 0.5 x + a, r = 2 x - a, and rows of rubbish behind."""
    x, a = jax.random.normal(jax.random.key(1), (count, 1)), jax.random.uniform(jax.random.key(2), (count, 1), minval=-1.0)
    rows = pack(Batch(x, a, (2.0 * x - a)[:, 0], 1.5 * x + a, jnp.zeros(count)))
    return jnp.concatenate((rows, jnp.full((capacity - count, rows.shape[1]), 1e3)))


def train(settings: Any, key: Any, model: Any, data: Any, count: Any, task: Any) -> tuple[Any, Any]:
    """Trains the models of one seed."""
    key, model, data = jax.tree.map(lambda x: x[None], (key, model, data))
    found: tuple[Any, Any] = jax.tree.map(lambda x: x[0], dynamics.train(settings, key, model, data, count, task, 0))
    return found


def test_with_beta_1_means_have_the_slope_of_the_squared_error_and_variances_their_optimum_at_it() -> None:
    mean, log_var = jnp.array([[0.5, -1.0]]), jnp.array([[-8.0, 2.0]])
    target, weight = jnp.array([[1.5, 1.0]]), jnp.ones(1)

    def loss(mean: jax.Array, log_var: jax.Array, beta: float) -> jax.Array:
        return dynamics.negative_log_likelihood(dynamics.Prediction(mean, log_var), target, weight, beta)

    plain, squared = (jax.grad(loss)(mean, log_var, beta) for beta in (0.0, 1.0))
    np.testing.assert_allclose(squared, (mean - target), rtol=1e-5)  # of the mean over two outputs: half of 2 (mean - target)
    np.testing.assert_allclose(plain, (mean - target) * jnp.exp(-log_var), rtol=1e-5)
    best = jnp.log((mean - target) ** 2)
    for beta in (0.0, 0.5, 1.0):
        np.testing.assert_allclose(jax.grad(loss, 1)(mean, best, beta), 0.0, atol=1e-6)


def test_numbers_that_rarely_change_are_learned_with_beta_1_and_taken_for_noise_without() -> None:
    """A ring of 40 places, one-hot: at each step two of 40 numbers change."""
    places, rows = 40, 400
    task, here, one_hot = Task(places, 1), np.tile(np.arange(40), 10), np.eye(40, dtype=np.float32)
    data = np.concatenate((one_hot[here], np.zeros((rows, 2)), one_hot[(here + 1) % places], np.zeros((rows, 1))), axis=1)
    errors = []
    for beta in (0.0, 1.0):
        settings = config(model_hidden=(32, 32), model_rate=3e-3, patience=3, max_epochs=30, likelihood_beta=beta)
        model = dynamics.init(settings, KEY, task)
        _, fitted = train(settings, KEY, model, jnp.asarray(data, jnp.float32), jnp.int32(rows), task)
        errors.append(float(fitted.error.mean()))
    nothing = 2.0 / (places + 1)  # of a model that predicts no change
    assert errors[1] < 0.2 * nothing
    assert errors[0] > 3.0 * errors[1]


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
    found = dynamics.normalise(data, jnp.asarray(50), LINE)
    np.testing.assert_allclose(found.mean, np.asarray(data)[:50, :2].mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(found.std, np.asarray(data)[:50, :2].std(axis=0), rtol=1e-4)
    constant = dynamics.normalise(jnp.ones((5, 5)), jnp.asarray(5), LINE)
    np.testing.assert_array_equal(constant.std, 1.0)


def test_shuffling_keeps_to_the_rows_that_count() -> None:
    order = np.asarray(dynamics.shuffled(KEY, 100, jnp.asarray(60)))
    assert sorted(order[:60]) == list(range(60))
    assert list(order[:60]) != list(range(60))
    assert sorted(order[60:]) == list(range(60, 100))


def test_training_finds_a_linear_system_and_stops() -> None:
    settings = config(model_hidden=(), model_rate=0.05, weight_decay=0.0, max_epochs=60, patience=5)
    model = dynamics.init(settings, KEY, LINE)
    trained, fitted = jax.jit(lambda model, data: train(settings, KEY, model, data, jnp.asarray(190), LINE))(
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
    model, before = train(good, KEY, dynamics.init(good, KEY, LINE), data, count, LINE)
    model = model._replace(optimiser=dynamics.optimiser(settings).init(model.networks))
    _, after = train(settings, KEY, model, data, count, LINE)
    assert int(after.epochs) == 3
    assert float(jnp.max(before.error)) < float(jnp.max(after.error))


@pytest.mark.parametrize(("patience", "steps", "epochs"), [(1, 0, 1), (1, 5, 3), (4, 5, 4), (1, 4, 2)])
def test_patience_is_in_epochs_and_in_gradient_steps(patience: int, steps: int, epochs: int) -> None:
    """Nothing counts as an improvement, and an epoch is two steps, of 32 rows and of 6."""
    settings = config(model_hidden=(), improvement=10.0, patience=patience, patience_steps=steps, model_batch=32, max_epochs=9)
    given = (dynamics.init(settings, KEY, LINE), linear_data(40, 50), jnp.asarray(40), LINE)
    assert int(train(settings, KEY, *given)[1].epochs) == epochs


@pytest.mark.parametrize("few", [0, 1, 3])
def test_seeds_are_trained_together_as_they_are_alone(few: int) -> None:
    """Three seeds whose trainings take different numbers of epochs; the last batch of an epoch is not full."""
    settings = config(model_hidden=(), model_rate=0.02, weight_decay=0.0, max_epochs=12, patience=2, model_batch=32)
    count, keys = jnp.asarray(170), jax.random.split(KEY, 3)
    data = jnp.stack([linear_data(170, 250), linear_data(170, 250) * 0.1, jnp.roll(linear_data(170, 250), 1, axis=0)])
    one = dynamics.init(settings, KEY, LINE)
    models = jax.tree.map(lambda x: jnp.stack([x] * 3), one)
    run = jax.jit(lambda *parts: dynamics.train(settings, *parts, LINE, few))
    together, how = run(keys, models, data, count)
    alone = [jax.jit(lambda *parts: train(settings, *parts, LINE))(keys[i], one, data[i], count) for i in range(3)]
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
        model, _ = train(settings, KEY, dynamics.init(settings, KEY, LINE), data, jnp.asarray(count), LINE)
        steps = [leaf for leaf in jax.tree.leaves(model.optimiser) if jnp.issubdtype(leaf.dtype, jnp.integer)]
        assert [int(step) for step in steps] == [batches]
        assert all(bool(jnp.all(jnp.isfinite(weight))) for weight in model.networks.weights)


def test_seeds_do_not_wait_for_each_other_at_every_batch() -> None:
    """The loop over batches has one length for all seeds: else every step would choose, for every weight, whether it counts."""
    settings = config(model_hidden=(), max_epochs=2)
    keys, model = jax.random.split(KEY, 3), dynamics.init(settings, KEY, LINE)
    models, data = jax.tree.map(lambda x: jnp.stack([x] * 3), model), jnp.stack([linear_data(40, 50)] * 3)
    run = jax.make_jaxpr(lambda *parts: dynamics.train(settings, *parts, LINE, 0))(keys, models, data, jnp.asarray(40))

    def loops(jaxpr: Any) -> list[Any]:
        found = [eqn for eqn in jaxpr.eqns if eqn.primitive.name == "while"]
        inside = [value.jaxpr for eqn in jaxpr.eqns for value in eqn.params.values() if hasattr(value, "jaxpr")]
        return found + [loop for one in inside for loop in loops(one)]

    decided = [loop.params["cond_jaxpr"].out_avals[0].shape for loop in loops(run.jaxpr)]
    assert len(decided) >= 2  # epochs, and the batches of one
    assert set(decided) == {()}


def test_the_penalty_weighs_as_against_the_mean_loss_of_the_members() -> None:
    """With the losses averaged, two members decay as much as one does with a penalty twice as strong."""
    settings = config(num_models=2, model_hidden=(), max_epochs=1, weight_decay=0.1, method="ensemble-mean")
    alone = config(num_models=1, model_hidden=(), max_epochs=1, weight_decay=0.2, method="ensemble-mean")
    data, count = linear_data(40, 60), jnp.asarray(40)

    def first_moment(used: Any) -> Any:
        same = jax.tree.map(lambda x: jnp.broadcast_to(x[:1], x.shape), dynamics.init(used, KEY, LINE).networks)
        model = dynamics.init(used, KEY, LINE)._replace(networks=same)
        trained = jax.jit(lambda model: train(used, KEY, model, data, count, LINE))(model)[0]
        return trained.optimiser[1][0].mu.weights[0][0]

    unpenalised = [
        first_moment(config(num_models=n, model_hidden=(), max_epochs=1, weight_decay=0.0, method="ensemble-mean"))
        for n in (2, 1)
    ]
    shares = [np.asarray(first_moment(used) - free) for used, free in zip((settings, alone), unpenalised, strict=True)]
    assert np.abs(shares[1]).max() > 1e-3
    np.testing.assert_allclose(2.0 * shares[0], shares[1], rtol=0.05, atol=1e-4)


def test_the_support_is_the_observed_box_and_its_width_on_both_sides() -> None:
    rows = jnp.asarray([[0.0, 0.0, 1.0, 2.0, 0.0], [0.0, 0.0, 3.0, 6.0, 0.0], [0.0, 0.0, 99.0, 99.0, 0.0]])
    given = (rows, jnp.asarray(2), LINE)  # observations 0 to 6, rewards 1 and 3; the last row is not held
    free = dynamics.support(config(), *given)
    np.testing.assert_allclose((free.low[0], free.high[0]), (-6.0, 12.0))
    np.testing.assert_array_equal(free.rewards, dynamics.UNBOUNDED)
    seen = dynamics.support(config(rollout_ends="trusted"), *given)
    np.testing.assert_allclose(seen.rewards, (-1.0, 5.0))  # widened by their range
    alike = dynamics.support(config(rollout_ends="trusted"), rows.at[:, 2].set(0.0), jnp.asarray(2), LINE)
    np.testing.assert_allclose(alike.rewards, (-1.0, 1.0))  # or by 1
    declared = dynamics.support(config(rollout_ends="trusted", reward_range=(-0.2, 1.0)), *given)
    np.testing.assert_allclose(declared.rewards, (-0.2, 1.0))
    ours = dynamics.support(config(rollout_ends="trusted"), *given[:2], LINE._replace(reward_range=(0.0, 4.0)))
    np.testing.assert_allclose(ours.rewards, (0.0, 4.0))  # the task says so
    np.testing.assert_array_equal(
        dynamics.support(config(), *given[:2], LINE._replace(reward_range=(0.0, 4.0))).rewards, dynamics.UNBOUNDED
    )
    np.testing.assert_array_equal(declared.outside(jnp.asarray([[-6.1], [-5.9], [12.1]])), [True, False, True])
    np.testing.assert_allclose(declared.bounded(jnp.asarray([-3.0, 0.5, 2.0])), (-0.2, 0.5, 1.0))
    still = dynamics.support(config(), rows.at[:, 0].set(2.0).at[:, 3].set(2.0), jnp.asarray(2), LINE)
    assert not still.outside(jnp.asarray([[2.001], [-9.0]])).any(), "a number that never changed bounds nothing"


def test_numbers_that_took_two_values_keep_to_them_in_predictions() -> None:
    observed, after = [[0.0, 7.0, 0.0], [1.0, 7.0, 0.5]], [[1.0, 7.0, 1.0], [0.0, 7.0, 0.0]]
    rows = np.concatenate((observed, np.zeros((2, 2)), after, np.zeros((2, 1))), axis=1)
    rows = jnp.asarray(np.concatenate((rows, np.full((1, 9), 0.3))), jnp.float32)  # the last row is not held
    given, predicted = (rows, jnp.asarray(2), Task(3, 1)), jnp.asarray([[[0.4, 6.0, 0.4], [0.6, 8.0, -0.6], [-3.0, 7.0, 9.0]]])
    kept = dynamics.support(config(rounded_observations=True), *given)
    np.testing.assert_array_equal(kept.possible(predicted)[0, :, :2], [[0.0, 7.0], [1.0, 7.0], [0.0, 7.0]])
    np.testing.assert_array_equal(kept.possible(predicted)[..., 2], predicted[..., 2])  # it took three
    np.testing.assert_array_equal(dynamics.support(config(), *given).possible(predicted), predicted)
    untrained = dynamics.init(config(rounded_observations=True), jax.random.key(0), Task(3, 1)).support
    np.testing.assert_array_equal(untrained.possible(predicted), predicted)


def test_a_reward_prior_is_a_random_function_that_training_takes_back_at_the_data() -> None:
    """Members disagree by its standard deviation before training, and afterwards only where there are no data."""
    used = config(num_models=5, model_hidden=(64, 64), model_rate=3e-3, max_epochs=200, patience=40, reward_prior=0.5)
    model = dynamics.init(used, KEY, LINE)
    assert model.prior is not None
    grid = jnp.linspace(-30.0, 30.0, 2001)[:, None] * jnp.ones((1, 2))
    drawn = np.asarray(jax.vmap(lambda prior: prior(grid))(model.prior))
    np.testing.assert_allclose(drawn.std(axis=1), 0.5, rtol=0.35)
    assert abs(np.corrcoef(drawn)[0, 1]) < 0.2, "every member has its own"
    near = np.corrcoef(drawn[0][:-3], drawn[0][3:])[0, 1]
    assert near > 0.9, "it is smooth at a tenth of a length scale"
    data, count = linear_data(300, 300), jnp.asarray(300)
    data = data.at[:, 2].set(0.0)  # no reward anywhere
    trained = jax.jit(lambda model: train(used, KEY, model, data, count, LINE))(model)[0]

    def disagreement(x: float) -> float:
        at = jnp.full((50, 1), x), jnp.linspace(-0.9, 0.9, 50)[:, None]
        return float(jnp.std(dynamics.predict_all(used, trained, *at).mean[..., -1], axis=0).mean())

    assert disagreement(0.0) < 0.1
    assert disagreement(12.0) > 0.3


def test_without_a_prior_there_is_nothing_to_add() -> None:
    assert dynamics.init(config(), KEY, LINE).prior is None
