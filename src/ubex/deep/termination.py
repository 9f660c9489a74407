"""Where episodes end inside the models, learned from the data: a small classifier of (observation, action, next observation).

Differs from the paper, which is given the environments' own termination functions: this is for those that have none to give.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from ubex.deep.buffer import Batch, below, unpack
from ubex.deep.networks import MLP, descend, mlp
from ubex.envs.task import Task, Terminates
from ubex.keys import named
from ubex.types import Key

HIDDEN = (64, 64)
"""Hidden layers of the classifier, tanh."""
RATE = 3e-3
"""Learning rate (Adam)."""
STEPS = 500
"""Gradient steps of one training, on from the weights of the one before."""
BATCH = 256
"""Transitions of one gradient step, half of them terminations."""


class Termination(NamedTuple):
    """The classifier, and what its training carries on."""

    network: MLP
    mean: Float[Array, " I"]
    std: Float[Array, " I"]
    threshold: Float[Array, ""]
    """Output above which an episode ends; infinite before the first end was seen, and then nothing ends."""
    optimiser: Any


def init(key: Key, task: Task) -> Termination:
    """An untrained classifier, for which no episode ends."""
    inputs = 2 * task.observation_size + task.action_size
    network = mlp(key, inputs, HIDDEN, 1, jnp.tanh)
    nothing, one = jnp.zeros(inputs, jnp.float32), jnp.ones(inputs, jnp.float32)
    return Termination(network, nothing, one, jnp.asarray(jnp.inf, jnp.float32), optax.adam(RATE).init(network))


def _inputs(batch: Batch) -> Float[Array, "*b I"]:
    return jnp.concatenate((batch.observation, batch.action, batch.next_observation), axis=-1)


def train(task: Task, key: Key, termination: Termination, data: Float[Array, "C D"], count: Int[Array, ""]) -> Termination:
    """Trains on the first `count` rows of the data.

    Batches hold as many terminations as other transitions, so that a rare end is learned at all. The threshold puts the true
    shares back: it is the one that errs least on the data.
    """
    held = jnp.arange(data.shape[0], dtype=jnp.int32) < count
    batch = unpack(data, task.observation_size)
    over = held & (batch.terminated > 0.5)
    ends = jnp.sum(over.astype(jnp.int32))
    others = count - ends
    order = jnp.argsort(jnp.where(over, 0, jnp.where(held, 1, 2)))  # terminations, the other rows, free places
    weight, inputs = held.astype(jnp.float32)[:, None], _inputs(batch)
    number = count.astype(jnp.float32)
    mean = jnp.sum(inputs * weight, axis=0) / number
    std = jnp.sqrt(jnp.sum((inputs - mean[None]) ** 2 * weight, axis=0) / number)
    std = jnp.where(std > 1e-6, std, 1.0)
    half = BATCH // 2
    label = jnp.concatenate((jnp.ones(half, jnp.float32), jnp.zeros(half, jnp.float32)))
    counts = jnp.where(label > 0.5, jnp.where(ends > 0, 1.0, 0.0), jnp.where(others > 0, 1.0, 0.0))
    method = optax.adam(RATE)

    def loss(network: MLP, x: Float[Array, "B I"]) -> Float[Array, ""]:
        logit = network((x - mean[None]) / std[None])[:, 0]
        return jnp.sum(counts * (jax.nn.softplus(logit) - label * logit)) / jnp.maximum(jnp.sum(counts), 1.0)

    def step(index: Int[Array, ""], carry: tuple[MLP, Any]) -> tuple[MLP, Any]:
        network, moments = carry
        bits = jax.random.bits(jax.random.fold_in(named(key, "batch"), index), (2, half), jnp.uint32)
        chosen = jnp.concatenate((below(bits[0], jnp.maximum(ends, 1)), ends + below(bits[1], jnp.maximum(others, 1))))
        gradient = jax.grad(loss)(network, inputs[order[chosen]])
        return descend(method, gradient, moments, network)

    network, moments = jax.lax.fori_loop(0, STEPS, step, (termination.network, termination.optimiser))
    said = network((inputs - mean[None]) / std[None])[:, 0]
    return Termination(network, mean, std, least_errors(said, over, held), moments)


def least_errors(said: Float[Array, " C"], over: Bool[Array, " C"], held: Bool[Array, " C"]) -> Float[Array, ""]:
    """The threshold with the fewest errors on the rows that count, in the middle between two of them.

    A sharp edge is put where the data have it, however rare ends are; and where ends are a matter of luck, nothing ends.
    """
    order = jnp.argsort(jnp.where(held, -said, jnp.inf))
    ranked = jnp.where(held, said, -jnp.inf)[order]
    right = jnp.where(over, 1, jnp.where(held, -1, 0))[order]  # what an end there adds to the rows that are right
    gain = jnp.concatenate((jnp.zeros(1, right.dtype), jnp.cumsum(right)))
    number = jnp.argmax(gain)  # of ends
    above = jnp.concatenate((jnp.full(1, jnp.inf, said.dtype), ranked))[number]
    below = jnp.concatenate((ranked, jnp.full(1, -jnp.inf, said.dtype)))[number]
    apart = jnp.where(jnp.isfinite(below), 0.5 * (above + below), above - 1.0)
    return jnp.where(number > 0, apart, jnp.inf)


def bound(termination: Termination) -> Terminates:
    """The classifier as a function of one transition, for models."""

    def terminates(observation: Float[Array, " O"], action: Float[Array, " A"], after: Float[Array, " O"]) -> Bool[Array, ""]:
        inputs = jnp.concatenate((observation, action, after))
        logit = termination.network((inputs - termination.mean) / termination.std)[0]
        return logit > termination.threshold

    return terminates
