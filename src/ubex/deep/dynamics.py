"""The posterior: an ensemble of probabilistic networks that predict change of observation and reward (Chua et al., 2018)."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from ubex.deep.buffer import Batch, unpack
from ubex.deep.config import DeepConfig
from ubex.deep.networks import MLP, Product, descend, product, truncated_ensemble
from ubex.keys import named
from ubex.types import Key


class Normaliser(NamedTuple):
    """Mean and standard deviation of the inputs; an input that never changes has 1."""

    mean: Float[Array, " I"]
    std: Float[Array, " I"]


class Dynamics(NamedTuple):
    """N models, and what their training carries on."""

    networks: MLP
    normaliser: Normaliser
    optimiser: Any


class Prediction(NamedTuple):
    """Gaussians over (next observation - observation, reward)."""

    mean: Float[Array, "*b Y"]
    log_var: Float[Array, "*b Y"]


class Fitted(NamedTuple):
    """How a training went."""

    epochs: Int[Array, ""]
    error: Float[Array, " N"]
    """Validation error (mean squared) of every member, with the weights that were kept."""


def init(config: DeepConfig, key: Key, observation_size: int, action_size: int) -> Dynamics:
    """Untrained models."""
    inputs, outputs = observation_size + action_size, observation_size + 1
    networks = truncated_ensemble(
        key, config.num_models, inputs, config.model_hidden, 2 * outputs, jax.nn.silu, config.model_scale
    )
    nothing = Normaliser(jnp.zeros(inputs, jnp.float32), jnp.ones(inputs, jnp.float32))
    return Dynamics(networks, nothing, optimiser(config).init(networks))


def optimiser(config: DeepConfig) -> optax.GradientTransformation:
    """Adam with the L2 penalty added to the gradient."""
    return optax.chain(optax.add_decayed_weights(config.weight_decay), optax.adam(config.model_rate))


def predict(
    config: DeepConfig,
    network: MLP,
    normaliser: Normaliser,
    observation: Float[Array, "B O"],
    action: Float[Array, "B A"],
    multiply: Product = product,
) -> Prediction:
    """What one model says."""
    inputs = jnp.concatenate((observation, action), axis=-1)
    mean, log_var = jnp.split(network((inputs - normaliser.mean[None]) / normaliser.std[None], multiply), 2, axis=-1)
    log_var = config.max_log_var - jax.nn.softplus(config.max_log_var - log_var)
    return Prediction(mean, config.min_log_var + jax.nn.softplus(log_var - config.min_log_var))


def predict_all(
    config: DeepConfig, dynamics: Dynamics, observation: Float[Array, "B O"], action: Float[Array, "B A"]
) -> Prediction:
    """What all models say of the same inputs, on a leading axis N."""
    return jax.vmap(lambda one: predict(config, one, dynamics.normaliser, observation, action))(dynamics.networks)


def targets(batch: Batch) -> Float[Array, "*b Y"]:
    """What the models learn to predict."""
    return jnp.concatenate((batch.next_observation - batch.observation, batch.reward[..., None]), axis=-1)


def negative_log_likelihood(said: Prediction, target: Float[Array, "B Y"], weight: Float[Array, " B"]) -> Float[Array, ""]:
    """Twice the Gaussian negative log-likelihood without its constant, averaged over the rows that count and the outputs."""
    loss = (said.mean - target) ** 2 * jnp.exp(-said.log_var) + said.log_var
    return jnp.sum(jnp.mean(loss, axis=-1) * weight) / jnp.sum(weight)


class _Epochs(NamedTuple):
    networks: MLP
    optimiser: Any
    kept: MLP
    error: Float[Array, " N"]
    """The smallest validation error so far."""
    epoch: Int[Array, ""]
    since: Int[Array, ""]
    """Epochs since the last improvement."""


def train(
    config: DeepConfig, key: Key, dynamics: Dynamics, data: Float[Array, "C D"], count: Int[Array, ""], observation_size: int
) -> tuple[Dynamics, Fitted]:
    """Maximum likelihood with early stopping, on from the current weights, on the first `count` rows of the data.

    Every member has a bootstrap resample of its own, drawn once. Training stops after `patience` epochs in which no member's
    validation error fell by more than `improvement`; the weights of the last improvement are kept, or those of the last epoch
    where there was none, so that new data always has an effect.
    """
    capacity = data.shape[0]
    num_validation = (count.astype(jnp.float32) * config.validation_share).astype(jnp.int32)
    num_training = count - num_validation
    order = shuffled(named(key, "split"), capacity, count)
    training, rest = order, jnp.roll(order, -num_training)[: int(capacity * config.validation_share) + 1]
    validation = unpack(data[rest], observation_size)
    validated = (jnp.arange(rest.shape[0]) < num_validation).astype(jnp.float32)
    draws = jax.random.randint(named(key, "bootstrap"), (config.num_models, capacity), 0, num_training, jnp.int32)
    resampled = training[draws]
    batch_size = config.model_batch
    num_batches = (num_training + batch_size - 1) // batch_size
    normaliser = normalise(data, count, observation_size)
    method = optimiser(config)

    def loss(networks: MLP, rows: Float[Array, "N B D"], weight: Float[Array, " B"]) -> Float[Array, ""]:
        def one(network: MLP, rows: Float[Array, "B D"]) -> Float[Array, ""]:
            batch = unpack(rows, observation_size)
            said = predict(config, network, normaliser, batch.observation, batch.action)
            return negative_log_likelihood(said, targets(batch), weight)

        return jnp.sum(jax.vmap(one)(networks, rows))

    def error(networks: MLP) -> Float[Array, " N"]:
        said = jax.vmap(lambda one: predict(config, one, normaliser, validation.observation, validation.action))(networks)
        squares = jnp.mean((said.mean - targets(validation)[None]) ** 2, axis=-1)
        return jnp.sum(squares * validated[None], axis=-1) / jnp.sum(validated)

    def epoch(state: _Epochs) -> _Epochs:
        here = jax.random.fold_in(named(key, "epoch"), state.epoch)
        shuffle = jax.vmap(lambda one: shuffled(one, capacity, num_training))(jax.random.split(here, config.num_models))
        rows_of = jnp.take_along_axis(resampled, shuffle, axis=1)
        rows_of = jnp.pad(rows_of, ((0, 0), (0, batch_size)))

        def step(index: Int[Array, ""], carry: tuple[MLP, Any]) -> tuple[MLP, Any]:
            networks, moments = carry
            chosen = jax.lax.dynamic_slice_in_dim(rows_of, index * batch_size, batch_size, axis=1)
            weight = (index * batch_size + jnp.arange(batch_size, dtype=jnp.int32) < num_training).astype(jnp.float32)
            gradient = jax.grad(loss)(networks, data[chosen], weight)
            return descend(method, gradient, moments, networks)

        networks, moments = jax.lax.fori_loop(0, num_batches, step, (state.networks, state.optimiser))
        now = error(networks)
        better = jnp.any((state.error - now) / jnp.abs(state.error) > config.improvement)
        kept = _choose(better | (state.epoch < 1), networks, state.kept)
        least = jnp.where(better, jnp.minimum(state.error, now), state.error)
        return _Epochs(networks, moments, kept, least, state.epoch + 1, jnp.where(better, 0, state.since + 1))

    def go_on(state: _Epochs) -> Bool[Array, ""]:
        more = state.since < config.patience
        return more if config.max_epochs is None else more & (state.epoch < config.max_epochs)

    zero = jnp.asarray(0, jnp.int32)
    first = _Epochs(dynamics.networks, dynamics.optimiser, dynamics.networks, error(dynamics.networks), zero, zero)
    last = jax.lax.while_loop(go_on, epoch, first)
    return Dynamics(last.kept, normaliser, last.optimiser), Fitted(last.epoch, error(last.kept))


def _choose(condition: Bool[Array, ""], new: MLP, old: MLP) -> MLP:
    chosen: MLP = jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)
    return chosen


def shuffled(key: Key, capacity: int, count: Int[Array, ""]) -> Int[Array, " C"]:
    """The numbers below `count` in random order, then the others."""
    draws = jax.random.uniform(key, (capacity,), jnp.float32)
    behind = jnp.arange(capacity, dtype=jnp.int32) >= count
    return jnp.argsort(draws + 2.0 * behind.astype(jnp.float32)).astype(jnp.int32)


def normalise(data: Float[Array, "C D"], count: Int[Array, ""], observation_size: int) -> Normaliser:
    """Mean and standard deviation of the inputs in the first `count` rows."""
    batch = unpack(data, observation_size)
    inputs = jnp.concatenate((batch.observation, batch.action), axis=-1)
    held = (jnp.arange(data.shape[0]) < count).astype(jnp.float32)[:, None]
    number = count.astype(jnp.float32)
    mean = jnp.sum(inputs * held, axis=0) / number
    std = jnp.sqrt(jnp.sum((inputs - mean[None]) ** 2 * held, axis=0) / number)
    return Normaliser(mean, jnp.where(std > 1e-6, std, 1.0))
