"""Multilayer perceptrons, alone or as an ensemble on a leading axis, and their initialisations.

Weights are drawn on the host, by a generator that the key seeds: compiling as many small draws takes longer than they do.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Float16

from ubex.keys import host_generator
from ubex.types import Key

TRUNCATION = 2.0
"""Standard deviations at which the truncated normal weights end."""

FEW = 4
"""Inputs up to which a product is written out."""
LARGE = 64
"""Both sides of a product that is worth a matrix unit have at least this size."""
HALF_MAX = 65504.0
"""The largest float16."""

Activation = Callable[[Array], Array]
Product = Callable[[Array, Array], Array]


class MLP(eqx.Module):
    """Weights and biases; an ensemble has a leading axis on every array and is applied with `jax.vmap`."""

    weights: tuple[Float[Array, "..."], ...]
    """(inputs, outputs) of each layer; large ones may be in halves, see `with_split_weights`."""
    biases: tuple[Float[Array, "..."], ...]
    activation: Activation = eqx.field(static=True)

    def __call__(self, x: Float[Array, "*b I"], multiply: Product | None = None) -> Float[Array, "*b O"]:
        """The outputs of one network; `multiply` is the product of the layers after the first."""
        return self.tail(product(x, self.weights[0]) + _like(self.biases[0], x), multiply)

    def tail(self, x: Float[Array, "*b H"], multiply: Product | None = None) -> Float[Array, "*b O"]:
        """The outputs, from what enters the first hidden layer's activation."""
        for weight, bias in zip(self.weights[1:], self.biases[1:], strict=True):
            x = (multiply or product)(self.activation(x), weight) + _like(bias, x)
        return x

    def at_actions(
        self, state: Float[Array, "*b O"], action: Float[Array, "*b K A"], multiply: Product | None = None
    ) -> Float[Array, "*b K Y"]:
        """The outputs at several actions for each state; the state's part of the first layer is computed once."""
        size = state.shape[-1]
        first = product(state, self.weights[0][:size]) + _like(self.biases[0], state)
        return self.tail(first[..., None, :] + product(action, self.weights[0][size:]), multiply)


def product(x: Float[Array, "*b I"], weight: Float[Array, "I O"]) -> Float[Array, "*b O"]:
    """x times weight. Only large products have the precision that was asked for, and need a matrix unit.

    Few inputs or one output are sums of elementwise products, which a compiler joins with what is around them, not writing
    them to memory; what is left with a small side has full precision.
    """
    inputs, outputs = weight.shape
    if inputs <= FEW:
        parts = [x[..., i : i + 1] * _like(weight[i], x) for i in range(inputs)]
        return functools.reduce(operator.add, parts)
    if outputs == 1:
        return jnp.sum(x * _like(weight[:, 0], x), axis=-1, keepdims=True)
    if min(inputs, outputs) < LARGE:
        return matrix_product(x, weight, jax.lax.Precision.HIGHEST)
    return _large.get()(x, weight)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def matrix_product(
    x: Float[Array, "*b I"], weight: Float[Array, "I O"], precision: jax.lax.Precision | None = None
) -> Float[Array, "*b O"]:
    """x times weight, with the precision that is asked for here or around it.

    The slope of the weight comes in the weight's own order. JAX would transpose it, and on a GPU an optimiser would then copy
    all that it changes, in every step.
    """
    return jnp.matmul(x, weight, precision=precision)


def _matrix_forward(x: Array, weight: Array, precision: jax.lax.Precision | None) -> tuple[Array, tuple[Array, Array]]:
    return jnp.matmul(x, weight, precision=precision), (x, weight)


def _matrix_backward(precision: jax.lax.Precision | None, factors: tuple[Array, Array], slope: Array) -> tuple[Array, Array]:
    return _slopes(functools.partial(jnp.matmul, precision=precision), *factors, slope)


def _slopes(multiply: Product, x: Array, weight: Array, slope: Array) -> tuple[Array, Array]:
    """Those of both factors, from that of their product."""
    return multiply(slope, weight.T), multiply(x.reshape(-1, x.shape[-1]).T, slope.reshape(-1, slope.shape[-1]))


matrix_product.defvjp(_matrix_forward, _matrix_backward)

_large: contextvars.ContextVar[Product] = contextvars.ContextVar("large products", default=matrix_product)


@contextlib.contextmanager
def sixteen_bits() -> Iterator[None]:
    """Large products that are traced inside have float16 factors and float32 sums, those of their derivatives too.

    A float16 number has as many bits as one of TF32, and a GPU multiplies it twice as fast; it only has a smaller range.
    """
    before = _large.set(sixteen_bit_product)
    try:
        yield
    finally:
        _large.reset(before)


@jax.custom_vjp
def sixteen_bit_product(x: Float[Array, "*b I"], weight: Float[Array, "I O"]) -> Float[Array, "*b O"]:
    """x times weight with float16 factors and float32 sums."""
    return _rounded_matmul(_half(x), _half(weight))


def _half(x: Float[Array, "*b"]) -> Float16[Array, "*b"]:
    return jnp.clip(x, -HALF_MAX, HALF_MAX).astype(jnp.float16)


def _rounded_matmul(left: Float16[Array, "*b I"], right: Float16[Array, "I O"]) -> Float[Array, "*b O"]:
    return jnp.matmul(left, right, preferred_element_type=jnp.float32)


def _forward(x: Array, weight: Array) -> tuple[Array, tuple[Array, Array]]:
    left, right = _half(x), _half(weight)
    return _rounded_matmul(left, right), (left, right)


def _backward(factors: tuple[Array, Array], slope: Array) -> tuple[Array, Array]:
    return _slopes(_rounded_matmul, *factors, _half(slope))


sixteen_bit_product.defvjp(_forward, _backward)


def with_split_weights(network: MLP) -> MLP:
    """A network, or an ensemble, with its large weights stacked as `split16_product` needs them: for those who ask it often."""
    first, *others = network.weights
    stacked = (weight if min(weight.shape[-2:]) < LARGE else _stacked(weight) for weight in others)
    return MLP((first, *stacked), network.biases, network.activation)


def _stacked(weight: Float[Array, "*n I O"]) -> Float16[Array, "*n J O"]:
    high, low = split16(weight)
    return jnp.concatenate((high, low, high), axis=-2)


def split16_product(x: Float[Array, "*b I"], weight: Float[Array, "J O"]) -> Float[Array, "*b O"]:
    """x times weight as one float16 product with float32 sums, three times as long: about 22 bits of each factor count.

    A factor is the sum of two float16 halves; the product of the two small halves is left out. A weight in float16 is one that
    `with_split_weights` has stacked. Not meant to be differentiated.
    """
    if weight.dtype != jnp.float16:
        if min(weight.shape) < LARGE:
            return product(x, weight)
        weight = _stacked(weight)
    high, low = split16(x)
    return jnp.matmul(jnp.concatenate((high, high, low), axis=-1), weight, preferred_element_type=jnp.float32)


def rounded_product(x: Float[Array, "*b I"], weight: Float[Array, "I O"]) -> Float[Array, "*b O"]:
    """x times weight with float32 sums, all three rounded to float16, eleven bits; a result of few numbers is not rounded.

    Not meant to be differentiated.
    """
    inputs, outputs = weight.shape
    if inputs <= FEW:
        return product(x, weight)
    left, right = (jnp.clip(part, -HALF_MAX, HALF_MAX).astype(jnp.float16) for part in (x, weight))
    kind = jnp.float16 if outputs >= LARGE else jnp.float32  # a GPU writes and reads results for longer than it multiplies
    result = jnp.matmul(left, right, preferred_element_type=kind).astype(jnp.float32)
    return jnp.clip(result, -HALF_MAX, HALF_MAX)


def split16(x: Float[Array, "*b"]) -> tuple[Float16[Array, "*b"], Float16[Array, "*b"]]:
    """Two float16 numbers that add up to x, |x| <= 65,504, but for its last two bits and for what is below 1e-7."""
    inside = jnp.clip(x, -HALF_MAX, HALF_MAX)
    high = jax.lax.reduce_precision(inside, 5, 10)  # a conversion there and back would be taken for nothing by the compiler
    return high.astype(jnp.float16), (inside - high).astype(jnp.float16)


def _like(bias: Float[Array, " O"], x: Array) -> Array:
    """The bias with as many axes as x."""
    return bias.reshape((1,) * (x.ndim - 1) + bias.shape)


def sizes(inputs: int, hidden: Sequence[int], outputs: int) -> list[tuple[int, int]]:
    """Inputs and outputs of every layer."""
    widths = [inputs, *hidden, outputs]
    return list(itertools.pairwise(widths))


def orthogonal(generator: np.random.Generator, rows: int, columns: int, gain: float) -> np.ndarray:
    """A matrix with orthonormal rows, or columns where there are fewer of them, times the gain; uniform among these."""
    normal = generator.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(normal)
    q = q * np.sign(np.diag(r))[None]
    return gain * (q if rows >= columns else q.T)


def _network(weights: Sequence[np.ndarray], activation: Activation) -> MLP:
    """A network, or an ensemble, with these weights and biases 0."""
    biases = tuple(jnp.zeros((*w.shape[:-2], w.shape[-1]), jnp.float32) for w in weights)
    return MLP(tuple(jnp.asarray(w, jnp.float32) for w in weights), biases, activation)


def mlp(key: Key, inputs: int, hidden: Sequence[int], outputs: int, activation: Activation, gain: float = 1.0) -> MLP:
    """A network with orthogonal weights."""
    generator = host_generator(key)
    return _network([orthogonal(generator, *size, gain) for size in sizes(inputs, hidden, outputs)], activation)


def orthogonal_ensemble(
    key: Key, number: int, inputs: int, hidden: Sequence[int], outputs: int, activation: Activation, gain: float
) -> MLP:
    """Networks whose flattened weights are orthogonal to each other, layer by layer, each of norm `gain`."""
    generator = host_generator(key)
    layers = sizes(inputs, hidden, outputs)
    flat = [orthogonal(generator, number, rows * columns, gain) for rows, columns in layers]
    return _network([w.reshape(number, *size) for w, size in zip(flat, layers, strict=True)], activation)


def truncated_ensemble(
    key: Key, number: int, inputs: int, hidden: Sequence[int], outputs: int, activation: Activation, scale: float
) -> MLP:
    """Networks with normal weights of standard deviation scale / (2 sqrt(fan-in)) before they are cut at two of them."""
    from scipy import special

    generator, (low, high) = host_generator(key), special.ndtr((-TRUNCATION, TRUNCATION))
    return _network(
        [
            scale / (2.0 * math.sqrt(rows)) * special.ndtri(low + (high - low) * generator.random((number, rows, columns)))
            for rows, columns in sizes(inputs, hidden, outputs)
        ],
        activation,
    )


def descend(optimiser: optax.GradientTransformation, gradient: Any, state: Any, weights: Any) -> tuple[Any, Any]:
    """Weights and the optimiser's state after one step down the gradient."""
    with jax.numpy_dtype_promotion("standard"):  # Optax raises floats to whole powers, which strict promotion refuses
        change, state = optimiser.update(gradient, state, weights)
    return optax.apply_updates(weights, change), state
