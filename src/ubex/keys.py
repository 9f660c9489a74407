"""Random keys: explicit, and split by name, so that adding a consumer never changes the numbers of another."""

from __future__ import annotations

import operator
import zlib
from typing import Any

import jax
import jax.numpy as jnp

from ubex.types import InputError, Key

SEED_LIMIT = 2**63


def as_key(key: Any) -> Key:
    """A JAX key from a key of either style or from an integer seed."""
    if isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        return key
    if getattr(key, "shape", None) == (2,) and getattr(key, "dtype", None) == jnp.uint32:
        return jax.random.wrap_key_data(jnp.asarray(key))
    try:
        seed = operator.index(key)
    except TypeError:
        raise InputError(f"key must be a JAX key or a whole number, but it is {key!r}") from None
    if not 0 <= seed < SEED_LIMIT:
        raise InputError(f"key as a seed must be in [0, 2^63), but it is {seed}")
    high, low = divmod(seed, 2**32)  # the two halves, so that a seed means the same with and without 64-bit types
    return jax.random.fold_in(jax.random.key(low & 0x7FFFFFFF), (high << 1) | (low >> 31)) if seed >= 2**31 else jax.random.key(seed)


def named(key: Key, name: str) -> Key:
    """The key's child of that name."""
    return jax.random.fold_in(key, zlib.crc32(name.encode()))
