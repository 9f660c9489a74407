"""Float64 inside the tabular entry points and nowhere else: no global JAX setting is touched."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax
import numpy as np

P = ParamSpec("P")
R = TypeVar("R")


def float64(function: Callable[P, R]) -> Callable[P, R]:
    """Runs an entry point with 64-bit types and returns its arrays as NumPy.

    NumPy, because a float64 JAX array outside the 64-bit context warns and is cut to 32 bits by the next operation on it.
    """

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        with jax.enable_x64(True):
            result = function(*args, **kwargs)
            host: R = jax.tree.map(lambda leaf: np.asarray(leaf) if isinstance(leaf, jax.Array) else leaf, result)
            return host

    return wrapped
