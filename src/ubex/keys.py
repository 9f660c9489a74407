"""Random keys: explicit, and split by name, so that adding a consumer never changes the numbers of another."""

from __future__ import annotations

import functools
import operator
import zlib
from collections.abc import Hashable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, UInt, UInt32

from ubex import checks
from ubex.types import InputError, Key

SEED_LIMIT = 2**63


def as_key(key: Any) -> Key:
    """A JAX key from a key of either style or from an integer seed.

    Example:
        >>> bool(as_key(7) == jax.random.key(7))
        True
    """
    if is_typed_key(key) and key.shape == ():
        typed: Key = key
        return typed
    if isinstance(key, np.ndarray | jax.Array) and key.shape == (2,) and key.dtype == jnp.uint32:
        wrapped: Key = jax.random.wrap_key_data(jnp.asarray(key))
        return wrapped
    if is_typed_key(key):
        raise InputError(f"key must be one JAX key, but it is an array of keys of shape {key.shape}")
    try:
        seed = None if isinstance(key, bool) else operator.index(key)
    except Exception:  # of the value's own making too
        seed = None
    if seed is None:
        raise InputError(f"key must be a JAX key or a whole number, but it is {checks.shown(key)}")
    if not 0 <= seed < SEED_LIMIT:
        raise InputError(f"key as a seed must be in [0, 2^63), but it is {checks.shown(seed)}")
    high, low = divmod(seed, 2**31)  # in two parts, so that a seed means the same with and without 64-bit types
    root = jax.random.key(low)
    return jax.random.fold_in(root, high) if high else root


def is_typed_key(key: object) -> bool:
    """Whether this is a JAX key of the new style.

    Example:
        >>> is_typed_key(jax.random.key(0)), is_typed_key(0)
        (True, False)
    """
    return isinstance(key, jax.Array) and bool(jnp.issubdtype(key.dtype, jax.dtypes.prng_key))


def named(key: Key, name: str) -> Key:
    """The key's child of that name.

    Example:
        >>> key = jax.random.key(0)
        >>> bool(named(key, "rewards") == named(key, "transitions"))
        False
    """
    return jax.random.fold_in(key, zlib.crc32(name.encode()))


def plain_seed(key: Key) -> int:
    """A seed in [0, 2^31) that the key determines, for what is not JAX.

    Example:
        >>> 0 <= plain_seed(jax.random.key(0)) < 2**31
        True
    """
    return int(jax.random.bits(key, dtype=jnp.uint32)) % 2**31


def host_generator(key: Key) -> np.random.Generator:
    """A NumPy generator that the key determines, for what is drawn once on the host.

    Example:
        >>> host_generator(jax.random.key(0)).random(3).shape
        (3,)
    """
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel().tolist())


def can_skip(key: Key) -> bool:
    """Whether `skipping` knows the numbers of this key: those of JAX's default generator, each made from its place alone.

    Example:
        >>> can_skip(jax.random.key(0)), can_skip(jax.random.key(0, impl="rbg"))
        (True, False)
    """
    return str(jax.random.key_impl(key)) == "threefry2x32" and bool(jax.config.jax_threefry_partitionable)  # type: ignore[attr-defined]


def skipping(key: Key, places: Int[Array, ""] | int) -> Key:
    """The same key and its children without the first 64-bit numbers, so that a long array can be drawn in parts.

    Example:
        >>> with jax.enable_x64(True):
        ...     whole = jax.random.uniform(jax.random.key(0), 5, jnp.float64)
        ...     bool((whole[2:] == jax.random.uniform(skipping(jax.random.key(0), 2), 3, jnp.float64)).all())
        True
    """
    place = jnp.asarray(places, jnp.uint64)
    words = jnp.stack([place >> 32, place & 0xFFFFFFFF]).astype(jnp.uint32)
    found: Key = jax.random.wrap_key_data(jnp.concatenate([jax.random.key_data(key), words]), impl=_skipping_impl())
    return found


def _skipping_bits(data: UInt32[Array, " 4"], width: int, shape: tuple[int, ...]) -> UInt[Array, "*n"]:
    """What JAX's default generator draws in these places."""
    from jax.extend.random import threefry_2x32

    if width != 64:
        raise TypeError("only 64-bit numbers are drawn in parts")
    first = (data[2].astype(jnp.uint64) << 32) | data[3].astype(jnp.uint64)
    place = first + jnp.arange(np.prod(shape, dtype=int), dtype=jnp.uint64)
    counts = jnp.concatenate([place >> 32, place & 0xFFFFFFFF]).astype(jnp.uint32)
    high, low = jnp.split(threefry_2x32((data[0], data[1]), counts).astype(jnp.uint64), 2)
    return ((high << 32) | low).reshape(shape)


def _skipping_fold_in(data: UInt32[Array, " 4"], number: Any) -> UInt32[Array, " 4"]:
    child = jax.random.fold_in(jax.random.wrap_key_data(data[:2], impl="threefry2x32"), number)
    return jnp.concatenate([jax.random.key_data(child), data[2:]])


def _not_for_this(*_: Any) -> Array:
    raise TypeError("a key that skips places comes from another key, and only has children by number")


@functools.cache
def _skipping_impl() -> Hashable:
    from jax.extend.random import define_prng_impl  # not with ubex: it loads Pallas, which adds a setting of JAX

    return define_prng_impl(
        key_shape=(4,),
        seed=_not_for_this,
        split=_not_for_this,
        random_bits=_skipping_bits,
        fold_in=_skipping_fold_in,
        name="threefry2x32_skipping",
        tag="skip",
    )
