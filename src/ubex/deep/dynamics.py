"""The posterior: an ensemble of probabilistic networks that predict change of observation and reward (Chua et al., 2018)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from ubex.deep.buffer import Batch, unpack
from ubex.deep.config import DeepConfig
from ubex.deep.networks import MLP, Product, descend, product, truncated_ensemble
from ubex.envs.task import Task
from ubex.keys import host_generator, named
from ubex.types import Key

T = TypeVar("T")

WAVES = 64
"""Random features of a prior."""
UNBOUNDED = (-math.inf, math.inf)
LEAST_WIDENING = 1.0
"""Where nobody says which rewards there can be, those seen so far are widened on each side by their range, or by this if it is
more: rewards are commonly scaled to be of that size, and where all were alike so far, others must stay possible."""
LEAST_WIDTH = 1e-6
"""Numbers of an observation that vary by less than this are taken for one that never changes."""


class Normaliser(NamedTuple):
    """Mean and standard deviation of the inputs; an input that never changes has 1."""

    mean: Float[Array, " I"]
    std: Float[Array, " I"]


class Support(NamedTuple):
    """Where models can be trusted, by the data that they were trained on."""

    low: Float[Array, " O"]
    high: Float[Array, " O"]
    """The box of all observations, widened on each side by its own width; a number that never changed has no bounds, because
    every prediction of it is a little off."""
    rewards: Float[Array, "2"]
    """The lowest and the highest reward that there can be; infinite where nothing is bounded by it."""
    values: Float[Array, "2 O"] | None = None
    """The two values, or the one, that a number of an observation took; NaN where it took more. None without rounding."""

    def possible(self, observation: Float[Array, "*b O"]) -> Float[Array, "*b O"]:
        """A predicted observation, of which the numbers that took two values so far have the nearer one."""
        if self.values is None:
            return observation
        low, high = (x.reshape((1,) * (observation.ndim - 1) + x.shape) for x in self.values)
        return jnp.where(jnp.isnan(low), observation, jnp.where(observation - low > high - observation, high, low))

    def outside(self, observation: Float[Array, "*b O"]) -> Bool[Array, "*b"]:
        """Whether an observation leaves the box."""
        low, high = (x.reshape((1,) * (observation.ndim - 1) + x.shape) for x in (self.low, self.high))
        return jnp.any((observation < low) | (observation > high), axis=-1)

    def bounded(self, reward: Float[Array, "*b"]) -> Float[Array, "*b"]:
        """A predicted reward, clipped to those that there can be."""
        return jnp.clip(reward, self.rewards[0], self.rewards[1])


class Prior(NamedTuple):
    """A fixed random function for every member: a draw of a Gaussian process of length scale 1 in the normalised inputs."""

    frequencies: Float[Array, "*n I M"]
    phases: Float[Array, "*n M"]
    weights: Float[Array, "*n M"]

    def __call__(self, inputs: Float[Array, "B I"]) -> Float[Array, " B"]:
        """The function of one member."""
        waves = jnp.cos(product(inputs, self.frequencies) + self.phases[None])
        return jnp.sum(waves * self.weights[None], axis=-1)


class Dynamics(NamedTuple):
    """N models, and what their training carries on."""

    networks: MLP
    prior: Prior | None
    """What is added to their predicted rewards; None where nothing is."""
    normaliser: Normaliser
    support: Support
    optimiser: Any
    """None where the models are only asked."""


class Prediction(NamedTuple):
    """Gaussians over (next observation - observation, reward)."""

    mean: Float[Array, "*b Y"]
    log_var: Float[Array, "*b Y"]


class Fitted(NamedTuple):
    """How a training went."""

    epochs: Int[Array, ""]
    error: Float[Array, " N"]
    """Validation error (mean squared) of every member, with the weights that were kept."""


def init(config: DeepConfig, key: Key, task: Task) -> Dynamics:
    """Untrained models."""
    inputs, outputs = task.observation_size + task.action_size, task.observation_size + 1
    networks = truncated_ensemble(
        key, config.num_models, inputs, config.model_hidden, 2 * outputs, jax.nn.silu, config.model_scale
    )
    nothing = Normaliser(jnp.zeros(inputs, jnp.float32), jnp.ones(inputs, jnp.float32))
    wide = jnp.full(task.observation_size, jnp.inf, jnp.float32)
    anything = jnp.full((2, task.observation_size), jnp.nan, jnp.float32) if config.rounded_observations else None
    everywhere = Support(-wide, wide, jnp.asarray(UNBOUNDED, jnp.float32), anything)
    return Dynamics(networks, _prior(config, key, inputs), nothing, everywhere, optimiser(config).init(networks))


def _prior(config: DeepConfig, key: Key, inputs: int) -> Prior | None:
    """Random Fourier features (Rahimi and Recht, 2007), of the standard deviation that is asked for."""
    if config.reward_prior == 0.0:
        return None
    generator, shape = host_generator(named(key, "prior")), (config.num_models, WAVES)
    frequencies = generator.standard_normal((config.num_models, inputs, WAVES))
    weights = config.reward_prior * math.sqrt(2.0 / WAVES) * generator.standard_normal(shape)
    phases = generator.uniform(0.0, 2.0 * math.pi, shape)
    return Prior(*(jnp.asarray(x, jnp.float32) for x in (frequencies, phases, weights)))


def optimiser(config: DeepConfig) -> optax.GradientTransformation:
    """Adam with the L2 penalty added to the gradient of the members' mean loss, as in the published runs.

    So the penalty weighs N times as much against a member's likelihood as it would with the losses added up.
    """
    return optax.chain(optax.add_decayed_weights(config.weight_decay), optax.adam(config.model_rate))


def predict(
    config: DeepConfig,
    network: MLP,
    normaliser: Normaliser,
    observation: Float[Array, "B O"],
    action: Float[Array, "B A"],
    multiply: Product = product,
    prior: Prior | None = None,
) -> Prediction:
    """What one model says."""
    inputs = jnp.concatenate((observation, action), axis=-1)
    inputs = (inputs - normaliser.mean[None]) / normaliser.std[None]
    mean, log_var = jnp.split(network(inputs, multiply), 2, axis=-1)
    if prior is not None:
        mean = mean.at[:, -1].add(prior(inputs))
    log_var = config.max_log_var - jax.nn.softplus(config.max_log_var - log_var)
    return Prediction(mean, config.min_log_var + jax.nn.softplus(log_var - config.min_log_var))


def predict_all(
    config: DeepConfig,
    dynamics: Dynamics,
    observation: Float[Array, "B O"],
    action: Float[Array, "B A"],
    multiply: Product = product,
) -> Prediction:
    """What all models say of the same inputs, on a leading axis N."""
    known = (dynamics.normaliser, observation, action, multiply)
    return jax.vmap(lambda one, prior: predict(config, one, *known, prior))(dynamics.networks, dynamics.prior)


def targets(batch: Batch) -> Float[Array, "*b Y"]:
    """What the models learn to predict."""
    return jnp.concatenate((batch.next_observation - batch.observation, batch.reward[..., None]), axis=-1)


def negative_log_likelihood(
    said: Prediction, target: Float[Array, "B Y"], weight: Float[Array, " B"], beta: float = 0.0
) -> Float[Array, ""]:
    """Twice the Gaussian negative log-likelihood without its constant, averaged over the rows that count and the outputs.

    Every output's part is weighed by its predicted variance to the power of `beta`, through which nothing is differentiated.
    """
    loss = (said.mean - target) ** 2 * jnp.exp(-said.log_var) + said.log_var
    if beta > 0.0:
        loss = loss * jax.lax.stop_gradient(jnp.exp(beta * said.log_var))
    return jnp.sum(jnp.mean(loss, axis=-1) * weight) / jnp.sum(weight)


class Lesson(NamedTuple):
    """The data of one training, dealt out to the members."""

    key: Key
    data: Float[Array, "C D"]
    resampled: Int[Array, "N C"]
    """Every member's bootstrap resample, drawn once: rows of the data, of which the first to train on count."""
    validation: Float[Array, "V D"]
    """Rows for validation first, then others."""
    normaliser: Normaliser
    support: Support
    prior: Prior | None


class Counts(NamedTuple):
    """Rows of the data that count, the same for all seeds: a loop over batches must not wait for some of them."""

    training: Int[Array, ""]
    validation: Int[Array, ""]


def counts(config: DeepConfig, count: Int[Array, ""]) -> Counts:
    """How many of `count` rows are for training and for validation."""
    validation = (count.astype(jnp.float32) * config.validation_share).astype(jnp.int32)
    return Counts(count - validation, validation)


class Progress(NamedTuple):
    """What a training carries from epoch to epoch."""

    networks: MLP
    optimiser: Any
    kept: MLP
    error: Float[Array, " N"]
    """The smallest validation error so far."""
    epoch: Int[Array, ""]
    since: Int[Array, ""]
    """Epochs since the last improvement."""


def train(
    config: DeepConfig,
    keys: Shaped[PRNGKeyArray, " K"],
    dynamics: Dynamics,
    data: Float[Array, "K C D"],
    count: Int[Array, ""],
    task: Task,
    few: int,
) -> tuple[Dynamics, Fitted]:
    """Maximum likelihood with early stopping, on from the current weights, on the first `count` rows of the data.

    Training stops after `patience` epochs, and at least `patience_steps` gradient steps, in which no member's validation error
    fell by more than `improvement`. The weights of the last improvement are kept, or those of the first epoch where there was
    none, so that new data always has an effect.

    All seeds are trained at once while more than `few` of them go on, then the others one after the other: most stop after a
    few epochs and one in ten goes on for many, and a GPU takes several times as long for all as for one.
    """
    split = counts(config, count)
    lessons = jax.vmap(lambda key, prior, rows: deal(config, key, prior, rows, count, task))(keys, dynamics.prior, data)
    states = jax.vmap(lambda lesson, model: _begin(config, lesson, split, model, task))(lessons, dynamics)
    going: Callable[[Progress], Bool[Array, " K"]] = jax.vmap(lambda state: _goes_on(config, split, state))
    keep: Callable[[Bool[Array, " K"], Progress, Progress], Progress] = jax.vmap(_choose)

    def together(states: Progress) -> Progress:
        after = jax.vmap(lambda lesson, state: _epoch(config, lesson, split, state, task))(lessons, states)
        return keep(going(states), after, states)

    if few < len(keys):
        states = jax.lax.while_loop(lambda states: jnp.sum(going(states).astype(jnp.int32)) > few, together, states)
    if few > 0:
        states = jax.lax.map(lambda both: _rest(config, both[0], split, both[1], task), (lessons, states))
    return jax.vmap(lambda lesson, state: _end(config, lesson, split, state, task))(lessons, states)


def deal(
    config: DeepConfig,
    key: Key,
    prior: Prior | None,
    data: Float[Array, "C D"],
    count: Int[Array, ""],
    task: Task,
) -> Lesson:
    """Splits the first `count` rows into training and validation, and resamples those for training for every member."""
    capacity = data.shape[0]
    number = counts(config, count).training
    training = shuffled(named(key, "split"), capacity, count)
    rest = jnp.roll(training, -number)[: int(capacity * config.validation_share) + 1]
    draws = jax.random.randint(named(key, "bootstrap"), (config.num_models, capacity), 0, number, jnp.int32)
    known = (normalise(data, count, task), support(config, data, count, task))
    return Lesson(key, data, training[draws], data[rest], *known, prior)


def _begin(config: DeepConfig, lesson: Lesson, split: Counts, dynamics: Dynamics, task: Task) -> Progress:
    zero = jnp.asarray(0, jnp.int32)
    error = _error(config, lesson, split, dynamics.networks, task)
    return Progress(dynamics.networks, dynamics.optimiser, dynamics.networks, error, zero, zero)


def _rest(config: DeepConfig, lesson: Lesson, split: Counts, state: Progress, task: Task) -> Progress:
    """All epochs that are left."""
    last: Progress = jax.lax.while_loop(
        lambda state: _goes_on(config, split, state), lambda state: _epoch(config, lesson, split, state, task), state
    )
    return last


def _end(config: DeepConfig, lesson: Lesson, split: Counts, last: Progress, task: Task) -> tuple[Dynamics, Fitted]:
    error = _error(config, lesson, split, last.kept, task)
    return Dynamics(last.kept, lesson.prior, lesson.normaliser, lesson.support, last.optimiser), Fitted(last.epoch, error)


def _batches(config: DeepConfig, split: Counts) -> Int[Array, ""]:
    """Gradient steps of one epoch."""
    return (split.training + config.model_batch - 1) // config.model_batch


def _goes_on(config: DeepConfig, split: Counts, state: Progress) -> Bool[Array, ""]:
    more = (state.since < config.patience) | (state.since * _batches(config, split) < config.patience_steps)
    return more if config.max_epochs is None else more & (state.epoch < config.max_epochs)


def _error(config: DeepConfig, lesson: Lesson, split: Counts, networks: MLP, task: Task) -> Float[Array, " N"]:
    """Validation error of every member."""
    rows = unpack(lesson.validation, task.observation_size)
    known = (lesson.normaliser, rows.observation, rows.action, product)
    said = jax.vmap(lambda one, prior: predict(config, one, *known, prior))(networks, lesson.prior)
    squares = jnp.mean((said.mean - targets(rows)[None]) ** 2, axis=-1)
    held = (jnp.arange(squares.shape[-1]) < split.validation).astype(jnp.float32)
    return jnp.sum(squares * held[None], axis=-1) / jnp.sum(held)


def _epoch(config: DeepConfig, lesson: Lesson, split: Counts, state: Progress, task: Task) -> Progress:
    """All members once through their resamples, in an order of their own, and what validation says of it."""
    capacity, batch_size = lesson.data.shape[0], config.model_batch
    here = jax.random.fold_in(named(lesson.key, "epoch"), state.epoch)
    shuffle = jax.vmap(lambda one: shuffled(one, capacity, split.training))(jax.random.split(here, config.num_models))
    order = jnp.take_along_axis(lesson.resampled, shuffle, axis=1)
    order = jnp.pad(order, ((0, 0), (0, batch_size)))
    method = optimiser(config)

    def loss(networks: MLP, rows: Float[Array, "N B D"], weight: Float[Array, " B"]) -> Float[Array, ""]:
        def one(network: MLP, prior: Prior | None, rows: Float[Array, "B D"]) -> Float[Array, ""]:
            batch = unpack(rows, task.observation_size)
            said = predict(config, network, lesson.normaliser, batch.observation, batch.action, product, prior)
            return negative_log_likelihood(said, targets(batch), weight, config.likelihood_beta)

        return jnp.mean(jax.vmap(one)(networks, lesson.prior, rows))

    def step(index: Int[Array, ""], carry: tuple[MLP, Any]) -> tuple[MLP, Any]:
        networks, moments = carry
        chosen = jax.lax.dynamic_slice_in_dim(order, index * batch_size, batch_size, axis=1)
        weight = (index * batch_size + jnp.arange(batch_size, dtype=jnp.int32) < split.training).astype(jnp.float32)
        gradient = jax.grad(loss)(networks, lesson.data[chosen], weight)
        return descend(method, gradient, moments, networks)

    networks, moments = jax.lax.fori_loop(0, _batches(config, split), step, (state.networks, state.optimiser))
    now = _error(config, lesson, split, networks, task)
    better = jnp.any((state.error - now) / jnp.abs(state.error) > config.improvement)
    kept = _choose(better | (state.epoch < 1), networks, state.kept)
    least = jnp.where(better, jnp.minimum(state.error, now), state.error)
    return Progress(networks, moments, kept, least, state.epoch + 1, jnp.where(better, 0, state.since + 1))


def _choose(condition: Bool[Array, ""], new: T, old: T) -> T:
    chosen: T = jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)
    return chosen


def shuffled(key: Key, capacity: int, count: Int[Array, ""]) -> Int[Array, " C"]:
    """The numbers below `count` in random order, then the others."""
    draws = jax.random.uniform(key, (capacity,), jnp.float32)
    behind = jnp.arange(capacity, dtype=jnp.int32) >= count
    return jnp.argsort(draws + 2.0 * behind.astype(jnp.float32)).astype(jnp.int32)


def normalise(data: Float[Array, "C D"], count: Int[Array, ""], task: Task) -> Normaliser:
    """Mean and standard deviation of the inputs in the first `count` rows."""
    batch = unpack(data, task.observation_size)
    inputs = jnp.concatenate((batch.observation, batch.action), axis=-1)
    held = (jnp.arange(data.shape[0]) < count).astype(jnp.float32)[:, None]
    number = count.astype(jnp.float32)
    mean = jnp.sum(inputs * held, axis=0) / number
    std = jnp.sqrt(jnp.sum((inputs - mean[None]) ** 2 * held, axis=0) / number)
    return Normaliser(mean, jnp.where(std > LEAST_WIDTH, std, 1.0))


def support(config: DeepConfig, data: Float[Array, "C D"], count: Int[Array, ""], task: Task) -> Support:
    """Where the first `count` rows of the data lie, and which rewards there can be."""
    batch = unpack(data, task.observation_size)
    rows = (jnp.arange(data.shape[0]) < count)[:, None]
    seen, held = jnp.concatenate((batch.observation, batch.next_observation)), jnp.concatenate((rows, rows))
    low, high = _range(seen, held)
    width = high - low
    declared = config.reward_range or (task.reward_range if config.rollout_ends == "trusted" else None)
    rewards = jnp.asarray(UNBOUNDED if declared is None else declared, jnp.float32)
    if config.rollout_ends == "trusted" and declared is None:
        least, most = _range(batch.reward[:, None], rows)
        more = jnp.maximum(most - least, LEAST_WIDENING)
        rewards = jnp.concatenate((least - more, most + more))
    margin = jnp.where(width > LEAST_WIDTH, width, jnp.inf)
    values = None
    if config.rounded_observations:
        between = jnp.any(held & (seen > low[None]) & (seen < high[None]), axis=0)
        values = jnp.where(between[None], jnp.nan, jnp.stack((low, high)))
    return Support(low - margin, high + margin, rewards, values)


def _range(x: Float[Array, "C I"], held: Bool[Array, "C 1"]) -> tuple[Float[Array, " I"], Float[Array, " I"]]:
    """The least and the largest of each column in the rows that count."""
    return jnp.min(jnp.where(held, x, jnp.inf), axis=0), jnp.max(jnp.where(held, x, -jnp.inf), axis=0)
