"""Where episodes end inside the models, learned from the data.

Most tasks end where a single number passes a limit: a height, an angle, a position. A limit can be seen in a handful of ends,
where a network would need hundreds, so limits are looked for first. What no limit explains is left to a small classifier of
(observation, action, next observation).

Differs from the paper, which is given the environments' own termination functions: this is for those that have none to give.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from ubex.deep.buffer import Batch, below, unpack
from ubex.deep.dynamics import LEAST_WIDTH
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
MOST_LIMITS = 16
"""Limits that are looked for."""


class Limits(NamedTuple):
    """An episode ends where a number of the next observation is below or above these; infinite where there is no limit."""

    low: Float[Array, " O"]
    high: Float[Array, " O"]

    def passed(self, after: Float[Array, "*b O"]) -> Bool[Array, "*b"]:
        """Whether a next observation is beyond one of them."""
        low, high = (x.reshape((1,) * (after.ndim - 1) + x.shape) for x in self)
        return jnp.any((after < low) | (after > high), axis=-1)


class Termination(NamedTuple):
    """The limits, the classifier, and what its training carries on."""

    limits: Limits
    network: MLP
    mean: Float[Array, " I"]
    std: Float[Array, " I"]
    threshold: Float[Array, ""]
    """Output above which an episode ends; infinite where limits explain all ends that were seen."""
    optimiser: Any


def init(key: Key, task: Task) -> Termination:
    """Nothing is learned, and no episode ends."""
    inputs = 2 * task.observation_size + task.action_size
    network = mlp(key, inputs, HIDDEN, 1, jnp.tanh)
    nothing, one = jnp.zeros(inputs, jnp.float32), jnp.ones(inputs, jnp.float32)
    far = jnp.full(task.observation_size, jnp.inf, jnp.float32)
    never = jnp.asarray(jnp.inf, jnp.float32)
    return Termination(Limits(-far, far), network, nothing, one, never, optax.adam(RATE).init(network))


def ends_anything(termination: Termination) -> bool:
    """Whether there is anything that ends, of any seed."""
    low, high, threshold = (np.asarray(x) for x in (*termination.limits, termination.threshold))
    return bool((low > -np.inf).any() or (high < np.inf).any() or (threshold < np.inf).any())


def _inputs(batch: Batch) -> Float[Array, "*b I"]:
    return jnp.concatenate((batch.observation, batch.action, batch.next_observation), axis=-1)


def train(task: Task, key: Key, termination: Termination, data: Float[Array, "C D"], count: Int[Array, ""]) -> Termination:
    """Trains on the first `count` rows of the data.

    Batches hold as many terminations as other transitions, so that a rare end is learned at all. The threshold puts the true
    shares back: it is the one that errs least on the data.
    """
    held = jnp.arange(data.shape[0], dtype=jnp.int32) < count
    batch = unpack(data, task.observation_size)
    limits = find_limits(batch.next_observation, held & (batch.terminated > 0.5), held)
    held = held & ~limits.passed(batch.next_observation)  # the classifier has the rest
    over = held & (batch.terminated > 0.5)
    ends = jnp.sum(over.astype(jnp.int32))
    others = jnp.sum(held.astype(jnp.int32)) - ends
    order = jnp.argsort(jnp.where(over, 0, jnp.where(held, 1, 2)))  # terminations, the other rows, free places
    weight, inputs = held.astype(jnp.float32)[:, None], _inputs(batch)
    number = jnp.maximum((ends + others).astype(jnp.float32), 1.0)
    mean = jnp.sum(inputs * weight, axis=0) / number
    std = jnp.sqrt(jnp.sum((inputs - mean[None]) ** 2 * weight, axis=0) / number)
    std = jnp.where(std > LEAST_WIDTH, std, 1.0)
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

    number_of_steps = jnp.where(ends > 0, STEPS, 0)  # none where limits explain all ends
    network, moments = jax.lax.fori_loop(0, number_of_steps, step, (termination.network, termination.optimiser))
    said = network((inputs - mean[None]) / std[None])[:, 0]
    return Termination(limits, network, mean, std, least_errors(said, over, held), moments)


def find_limits(after: Float[Array, "C O"], over: Bool[Array, " C"], held: Bool[Array, " C"]) -> Limits:
    """A few limits that explain as many ends as limits can: beyond each there are ends, and nothing that goes on.

    The one with the most ends comes first; of several with as many, the one that these pass by most, measured in what was seen
    to go on. One end alone is no limit where there are others. A limit lies in the middle between its last observation that
    goes on and its first end.
    """
    size, alive = after.shape[1], held & ~over
    least = jnp.minimum(jnp.sum(over.astype(jnp.float32)), 2.0)
    signed = jnp.concatenate((after, -after), axis=1)
    top = jnp.max(jnp.where(alive[:, None], signed, -jnp.inf), axis=0)
    beyond = over[:, None] & (signed > top[None])
    width = jnp.tile(top[:size] + top[size:], 2)
    far = jnp.where(beyond, (signed - top[None]) / jnp.maximum(width, LEAST_WIDTH)[None], 0.0)

    def choose(_: Int[Array, ""], carry: tuple[Bool[Array, " D"], Bool[Array, " C"]]) -> tuple[Array, Array]:
        chosen, left = carry
        ends = beyond & left[:, None]
        number = jnp.sum(ends.astype(jnp.float32), axis=0)
        mean = jnp.sum(jnp.where(ends, far, 0.0), axis=0) / jnp.maximum(number, 1.0)
        best = jnp.argmax(number + 1.0 - 1.0 / (1.0 + mean))
        enough = (number[best] >= least) & (least > 0.0)
        return chosen.at[best].set(chosen[best] | enough), left & ~(beyond[:, best] & enough)

    chosen, _ = jax.lax.fori_loop(0, min(2 * size, MOST_LIMITS), choose, (jnp.zeros(2 * size, bool), over))
    first = jnp.min(jnp.where(beyond, signed, jnp.inf), axis=0)
    limit = jnp.where(chosen, jnp.where(jnp.isfinite(top), 0.5 * (top + first), -jnp.inf), jnp.inf)
    return Limits(-limit[size:], limit[:size])


def least_errors(said: Float[Array, " C"], over: Bool[Array, " C"], held: Bool[Array, " C"]) -> Float[Array, ""]:
    """The threshold with the fewest errors on the rows that count, in the middle between two of them.

    A sharp edge is put where the data have it, however rare ends are; and where ends are a matter of luck, nothing ends.
    """
    order = jnp.argsort(jnp.where(held, -said, jnp.inf))
    ranked = jnp.where(held, said, -jnp.inf)[order]
    right = jnp.where(over, 1, jnp.where(held, -1, 0))[order]  # what an end there adds to the rows that are right
    gain = jnp.concatenate((jnp.zeros(1, right.dtype), jnp.cumsum(right)))
    number = jnp.argmax(gain)  # of ends
    last = jnp.concatenate((jnp.full(1, jnp.inf, said.dtype), ranked))[number]
    other = jnp.concatenate((ranked, jnp.full(1, -jnp.inf, said.dtype)))[number]
    apart = jnp.where(jnp.isfinite(other), 0.5 * (last + other), last - 1.0)
    return jnp.where(number > 0, apart, jnp.inf)


def bound(termination: Termination) -> Terminates:
    """What was learned as a function of one transition, for models."""

    def terminates(observation: Float[Array, " O"], action: Float[Array, " A"], after: Float[Array, " O"]) -> Bool[Array, ""]:
        inputs = jnp.concatenate((observation, action, after))
        logit = termination.network((inputs - termination.mean) / termination.std)[0]
        return (logit > termination.threshold) | termination.limits.passed(after)

    return terminates
