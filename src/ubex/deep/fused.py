"""All critics at many state-action pairs, as one program on the GPU that writes no hidden layer to memory.

A hidden activation enters the product of the hidden layers as the sum of two float16 numbers, good to 22 bits; the weights are
rounded to one, 11 bits. Rounding an activation would make values jump from state to state, and the local uncertainties are
differences of values at states that lie close together. Rounded weights are merely those of another critic, a smooth one, whose
values differ by as little everywhere: measured, such differences keep three digits.
"""

from __future__ import annotations

import functools
import importlib
import warnings
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jaxtyping import Array, Float, Float16, Int

from ubex.deep.networks import MLP, product

ROWS = 128
"""State-action pairs of one block."""
INNER = 32
"""Hidden units that are multiplied at a time."""
WARPS = 8
STAGES = 2


def fits(critics: MLP) -> bool:
    """Whether these critics are of the kind that the program is written for: two equal hidden layers and tanh."""
    shapes = [weight.shape[-2:] for weight in critics.weights]
    width = shapes[0][1]
    whole = width >= INNER and width & (width - 1) == 0  # blocks have powers of two
    return critics.activation is jnp.tanh and [s[1] for s in shapes] == [width, width, 1] and whole


@functools.cache
def available() -> bool:
    """Whether there is a GPU whose compiler takes the program."""
    if jax.default_backend() != "gpu":
        return False
    try:
        importlib.import_module("jax.experimental.pallas.triton")
    except ImportError:
        return False
    return True


def halves(x: Float[Array, "*b"]) -> tuple[Float16[Array, "*b"], Float16[Array, "*b"]]:
    """Two float16 numbers that add up to x, |x| <= 1, but for what is below 1e-7."""
    high = x.astype(jnp.float16)
    return high, (x - high.astype(jnp.float32)).astype(jnp.float16)


def squashed(x: Float[Array, "*b"]) -> Float[Array, "*b"]:
    """tanh(x), to 2e-7, by one exponential."""
    return 1.0 - 2.0 / (jnp.exp(2.0 * x) + 1.0)


def _block(state: Any, action: Any, first: Any, weight: Any, bias: Any, last: Any, out: Any) -> None:
    """Values of one critic at one action of each of `ROWS` states."""

    def add(part: Int[Array, ""], total: Float[Array, "R H"]) -> Float[Array, "R H"]:
        at = pl.ds(part * INNER, INNER)
        x = state[:, at]
        for i in range(action.shape[0]):
            x = x + action[i, :][:, None] * first[i, at][None, :]
        high, low = halves(squashed(x))
        for half in (high, low):
            total = total + jnp.dot(half, weight[at, :], preferred_element_type=jnp.float32)
        return total

    width = weight.shape[1]
    total = jax.lax.fori_loop(0, width // INNER, add, jnp.zeros((ROWS, width), jnp.float32))
    out[:] = jnp.sum(squashed(total + bias[:][None, :]) * last[:][None, :], axis=1)


def at_actions(
    critics: MLP, state: Float[Array, "R O"], action: Float[Array, "R K A"], interpret: bool = False
) -> Float[Array, "C R K"]:
    """What every critic says at several actions for each state."""
    rows, actions, size = action.shape
    first, weight, last = critics.weights
    number, _, width = first.shape
    tiles = -(-rows // ROWS)
    empty = tiles * ROWS - rows
    known = first.shape[1] - size
    before = jax.vmap(lambda w, b: product(state, w) + b[None])(first[:, :known], critics.biases[0])
    before = jnp.pad(before, ((0, 0), (0, empty), (0, 0)))
    dealt = jnp.pad(jnp.transpose(action, (1, 2, 0)), ((0, 0), (0, 0), (0, empty)))
    per_critic = [first[:, known:], weight.astype(jnp.float16), critics.biases[1], last[..., 0]]

    def whole(x: Array) -> pl.BlockSpec:
        return pl.BlockSpec((None, *x.shape[1:]), lambda critic, tile: (critic,) + (0,) * (x.ndim - 1))

    options: dict[str, Any] = {"interpret": True}
    if not interpret:
        triton: Any = importlib.import_module("jax.experimental.pallas.triton")
        options = {"compiler_params": triton.CompilerParams(num_warps=WARPS, num_stages=STAGES)}
    call = pl.pallas_call(
        _block,
        out_shape=jax.ShapeDtypeStruct((number, actions, tiles * ROWS), jnp.float32),  # type: ignore[no-untyped-call]
        grid=(number, actions * tiles),
        in_specs=[
            pl.BlockSpec((None, ROWS, width), lambda critic, tile: (critic, tile % tiles, 0)),
            pl.BlockSpec((None, size, ROWS), lambda critic, tile: (tile // tiles, 0, tile % tiles)),
            *(whole(x) for x in per_critic),
        ],
        out_specs=pl.BlockSpec((None, None, ROWS), lambda critic, tile: (critic, tile // tiles, tile % tiles)),
        **options,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # JAX means to drop this compiler; `available` will then say no
        said = call(before, dealt, *per_critic)[..., :rows]
    return jnp.swapaxes(said, 1, 2) + critics.biases[2][:, :, None]
