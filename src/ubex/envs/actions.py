"""The actions of an environment, and the vectors that agents have for them: numbers in [-1, 1], or one-hot ones."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ubex import checks
from ubex.types import InputError

Known: TypeAlias = Callable[..., Array]
"""A JAX function of (observation, action, next observation)."""


class Bounded(NamedTuple):
    """A bounded Box: vectors are scaled to its bounds."""

    low: Float[np.ndarray, " A"]
    high: Float[np.ndarray, " A"]
    dtype: np.dtype[Any]
    """Of the environment's actions."""

    @property
    def size(self) -> int:
        """Numbers in a vector."""
        return len(self.low)

    @property
    def range(self) -> str:
        """For people."""
        return f"{self.low.tolist()} to {self.high.tolist()}"

    def outward(self, vector: Float[np.ndarray, "*b A"]) -> np.ndarray:
        """The environment's action, in its bounds and type."""
        inside = self.low + np.float32(0.5) * (vector + np.float32(1.0)) * (self.high - self.low)
        bounded: np.ndarray = np.clip(inside, self.low, self.high).astype(self.dtype)
        return bounded

    def inward(self, name: str, action: Any) -> Float[np.ndarray, "*b A"]:
        """The vectors of one action that somebody gave, or of a batch of them."""
        given = checks.rows(name, action, self.size)
        inside: np.ndarray = (2.0 * (given - self.low) / (self.high - self.low) - 1.0).astype(np.float32)
        return inside

    def seen_by(self, function: Known) -> Known:
        """A function of the environment's actions as one of vectors."""
        return in_bounds(function, tuple(self.low.tolist()), tuple(self.high.tolist()))

    def described(self) -> dict[str, Any]:
        """What a file holds of it."""
        return {"low": self.low.tolist(), "high": self.high.tolist(), "dtype": str(self.dtype)}


class Numbered(NamedTuple):
    """A Discrete space: a vector is 1 at the number of the action, counted from 0, and 0 elsewhere."""

    number: int
    """Of actions."""
    first: int
    """The environment's own number of the first one."""

    @property
    def size(self) -> int:
        """Numbers in a vector."""
        return self.number

    @property
    def range(self) -> str:
        """For people."""
        return f"{self.first} to {self.first + self.number - 1} in whole numbers"

    def outward(self, vector: Float[np.ndarray, "*b A"]) -> np.ndarray | int:
        """The environment's number of the action, as a whole number, or of a batch of them."""
        chosen = np.argmax(vector, axis=-1) + self.first
        return chosen if np.ndim(chosen) else int(chosen)

    def inward(self, name: str, action: Any) -> Float[np.ndarray, "*b A"]:
        """The vectors of one action that somebody gave, or of a batch of them."""
        given = checks.number_array(name, action)
        whole = given.dtype.kind in "iu" and given.ndim <= 1
        if not whole or not ((given >= self.first) & (given < self.first + self.number)).all():
            raise InputError(f"{name} must be {self.range}, one or a row of them, but it is {checks.shown(action)}")
        vectors: np.ndarray = np.eye(self.number, dtype=np.float32)[given - self.first]
        return vectors

    def seen_by(self, function: Known) -> Known:
        """A function of the environment's actions as one of vectors."""
        return as_number(function, self.first)

    def described(self) -> dict[str, Any]:
        """What a file holds of it."""
        return self._asdict()


Actions: TypeAlias = Bounded | Numbered


def from_file(known: Mapping[str, Any]) -> Actions:
    """What `described` wrote."""
    if "number" in known:
        return Numbered(known["number"], known["first"])
    low, high = (np.asarray(known[name], np.float32) for name in ("low", "high"))
    return Bounded(low, high, np.dtype(known["dtype"]))


@functools.lru_cache(maxsize=32)
def in_bounds(function: Known, low: tuple[float, ...], high: tuple[float, ...]) -> Known:
    """The same for actions in [-1, 1]; the same function for the same settings, so that programs are compiled once."""

    def inside(observation: Float[Array, " O"], action: Float[Array, " A"], after: Float[Array, " O"]) -> Array:
        bottom, top = jnp.asarray(low, jnp.float32), jnp.asarray(high, jnp.float32)
        return function(observation, bottom + 0.5 * (action + 1.0) * (top - bottom), after)

    return inside


@functools.lru_cache(maxsize=32)
def as_number(function: Known, first: int) -> Known:
    """The same for one-hot actions."""

    def inside(observation: Float[Array, " O"], action: Float[Array, " A"], after: Float[Array, " O"]) -> Array:
        return function(observation, jnp.argmax(action).astype(jnp.int32) + first, after)

    return inside
