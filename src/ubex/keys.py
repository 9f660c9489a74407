"""Random keys: explicit, and split by name, so that adding a consumer never changes the numbers of another."""

from __future__ import annotations

import operator
import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

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
