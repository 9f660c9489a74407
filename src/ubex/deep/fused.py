"""All critics at many state-action pairs, as one program on the GPU that writes no hidden layer to memory.

Weights of the hidden layer are rounded to float16, 11 bits: such a critic is another one, as smooth as before, whose values
differ by as little everywhere. Rounding an activation makes values jump from state to state instead. So where values at states
that lie close together are compared, as for w, an activation enters the product as the sum of two float16 numbers, good to 22
bits. Where values at different actions are compared, as for the gap, one float16 number and the chip's own tanh do.
"""

from __future__ import annotations

import functools
import importlib
import warnings
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float16, Int

from ubex.deep.networks import MLP, product

ROWS = 128
"""States of one block, which takes all of their actions one after the other: the weights are loaded once."""
INNER = 64
"""Hidden units that are multiplied at a time; the fastest of the sizes that were tried, with eight warps."""
FEW = 8
"""Inputs up to which a block computes its first layer itself, instead of reading the state's part of it."""
WARPS = 8


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


def split16(x: Float[Array, "*b"]) -> tuple[Float16[Array, "*b"], Float16[Array, "*b"]]:
    """Two float16 numbers that add up to x, |x| <= 1, but for what is below 1e-7."""
    high = x.astype(jnp.float16)
    return high, (x - high.astype(jnp.float32)).astype(jnp.float16)


def squashed(x: Float[Array, "*b"]) -> Float[Array, "*b"]:
    """tanh(x), to 2e-7, by one exponential."""
    return 1.0 - 2.0 / (jnp.exp(2.0 * x) + 1.0)


def _tanh(split: bool, interpret: bool) -> Any:
    """The chip's own tanh errs by as much as a float16 number does."""
    if split:
        return squashed
    return jnp.tanh if interpret else importlib.import_module("jax.experimental.pallas.triton").approx_tanh


def _block(
    inputs: Any, before: Any, first: Any, weight: Any, bias: Any, last: Any, out: Any, *, split: bool, interpret: bool
) -> None:
    """Values of one critic at all actions of `ROWS` states; `before` is the rest of the first layer, of each row or of all."""
    from jax.experimental import pallas as pl

    width, tanh = weight.shape[1], _tanh(split, interpret)
    parts, actions = width // INNER, inputs.shape[0]

    def add(k: Any, part: Any, rows_of_weight: Any, total: Float[Array, "R H"]) -> Float[Array, "R H"]:
        at = pl.ds(part * INNER, INNER)
        x = jnp.broadcast_to(before[:, at], (ROWS, INNER))
        for i in range(inputs.shape[1]):
            x = x + inputs[k, i, :][:, None] * first[i, at][None, :]
        high, low = split16(tanh(x))
        for half in (high, low) if split else (high,):
            total = total + jnp.dot(half, rows_of_weight, preferred_element_type=jnp.float32)
        return total

    def keep(k: Any, total: Float[Array, "R H"]) -> None:
        out[k, :] = jnp.sum(tanh(total + bias[:][None, :]) * last[:][None, :], axis=1)

    nothing = jnp.zeros((ROWS, width), jnp.float32)

    def read_again(k: Any) -> None:
        keep(
            k,
            jax.lax.fori_loop(
                0, parts, lambda part, total: add(k, part, weight[pl.ds(part * INNER, INNER), :], total), nothing
            ),
        )

    if actions == 1:  # holding all weights would leave room for one block at a time
        read_again(0)
        return
    if before.shape[0] > 1:  # and none where the rows of the first layer are held too
        jax.lax.fori_loop(0, actions, lambda k, carry: read_again(k), None)
        return
    weights = [weight[pl.ds(part * INNER, INNER), :] for part in range(parts)]

    def values(k: Int[Array, ""], carry: None) -> None:
        total = nothing
        for part, rows_of_weight in enumerate(weights):
            total = add(k, part, rows_of_weight, total)
        keep(k, total)

    jax.lax.fori_loop(0, actions, values, None)


def at_actions(
    critics: MLP, state: Float[Array, "R O"], action: Float[Array, "R K A"], split: bool = True, interpret: bool = False
) -> Float[Array, "C R K"]:
    """What every critic says at several actions for each state; activations have 22 bits where they are `split`, else 11."""
    from jax.experimental import pallas as pl  # only a GPU has a use for it, and it takes long to import

    rows, actions, size = action.shape
    first, weight, last = critics.weights
    number, all_inputs, width = first.shape
    tiles = -(-rows // ROWS)
    inputs, known, before = action, all_inputs - size, critics.biases[0][:, None]
    if all_inputs <= FEW:
        wide = jnp.broadcast_to(state[:, None], (rows, actions, known))
        inputs, known = jnp.concatenate((wide, action), axis=-1), 0
    else:
        before = jax.vmap(lambda w: product(state, w))(first[:, :known]) + before
        before = jnp.pad(before, ((0, 0), (0, tiles * ROWS - rows), (0, 0)))
    dealt = jnp.pad(jnp.transpose(inputs, (1, 2, 0)), ((0, 0), (0, 0), (0, tiles * ROWS - rows)))
    per_critic = [first[:, known:], weight.astype(jnp.float16), critics.biases[1], last[..., 0]]

    def whole(x: Array) -> pl.BlockSpec:
        return pl.BlockSpec((None, *x.shape[1:]), lambda critic, tile: (critic,) + (0,) * (x.ndim - 1))

    options: dict[str, Any] = {"interpret": True}
    if not interpret:
        triton: Any = importlib.import_module("jax.experimental.pallas.triton")
        options = {"compiler_params": triton.CompilerParams(num_warps=WARPS, num_stages=2)}
    call = pl.pallas_call(
        functools.partial(_block, split=split, interpret=interpret),
        out_shape=jax.ShapeDtypeStruct((number, actions, tiles * ROWS), jnp.float32),  # type: ignore[no-untyped-call]
        grid=(number, tiles),
        in_specs=[
            pl.BlockSpec((*dealt.shape[:2], ROWS), lambda critic, tile: (0, 0, tile)),
            whole(before) if known == 0 else pl.BlockSpec((None, ROWS, width), lambda critic, tile: (critic, tile, 0)),
            *(whole(x) for x in per_critic),
        ],
        out_specs=pl.BlockSpec((None, actions, ROWS), lambda critic, tile: (critic, 0, tile)),
        **options,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # JAX means to drop this compiler; `available` will then say no
        said = call(dealt, before, *per_critic)[..., :rows]
    return jnp.swapaxes(said, 1, 2) + critics.biases[2][:, :, None]
