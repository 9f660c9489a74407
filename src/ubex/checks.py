"""Checks of what callers hand in. Each failure is one `InputError` line that names the problem and the place."""

from __future__ import annotations

import contextlib
import json
import math
import operator
import os
import resource
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped
from numpy.typing import ArrayLike

from ubex.types import MDP, InputError

TOLERANCE = {np.dtype(np.float32): 1e-4, np.dtype(np.float16): 1e-2}
"""How far a row may be from summing to 1, by the precision it was given in."""
DEFAULT_TOLERANCE = 1e-6
ROUNDING = 1e-12
"""How far the sum of a row may be from 1 by rounding in double precision alone."""
MOST = 2**53
"""The largest whole number that is taken: beyond it a float cannot count."""
LARGEST, SMALLEST = 1e100, 1e-100
"""Of rewards and of the parameters of priors: what lies beyond cannot be squared or divided by."""
MOST_STEPS = 10**6
"""Of an episode, or of a horizon: a loop over more would look as if it had hung."""
LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Where Linux says how much memory a container may take, in the second and the first version of its control groups."""
LONGEST_NAME = 255
"""Of a file or folder, in bytes."""
LONGEST = 80
"""Of a value in a message, in characters."""


def shown(value: Any) -> str:
    """The value for a message: on one line, and not long."""
    try:
        text = " ".join((str if isinstance(value, BaseException) else repr)(value).split())
    except Exception:  # of the value's own making
        text = f"a {type(value).__name__} that cannot be shown"
    return cut(text, LONGEST)


def cut(text: str, longest: int) -> str:
    """A text that is not longer than that, with dots where something was left out."""
    return text if len(text) <= longest else f"{text[:longest]}..."


def unmasked(name: str, value: Any) -> Any:
    """The value, if nothing in it is masked: NumPy would take what lies under a mask for a number."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.getmaskarray(value).any():
        raise InputError(f"{name} is masked in places, and a mask says that there is no number")
    return value


def number_array(name: str, value: ArrayLike) -> np.ndarray:
    """The value as a NumPy array of real numbers, whatever kind of array or nesting it came as."""
    unmasked(name, value)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InputError(f"{name} is not a rectangular array: {shown(error)}") from None
    except Exception as error:  # whatever the value's own conversion raises
        raise InputError(f"{name} is not an array: {shown(error)}") from error
    if array.dtype.kind == "O":  # Python numbers of mixed kinds, or something else altogether
        with contextlib.suppress(Exception):
            array = array.astype(np.float64)
    if array.dtype.kind not in "fiub":
        raise InputError(f"{name} must hold real numbers, but its type is {array.dtype}")
    return array


def rows(name: str, given: Any, size: int) -> Float[np.ndarray, "*b O"]:
    """One row of finite numbers, or a batch of them, in float32."""
    array = number_array(name, given)
    if array.ndim not in (1, 2) or array.shape[-1] != size:
        raise InputError(f"{name} must have shape ({size},) or (batch, {size}), but it has shape {array.shape}")
    with np.errstate(over="ignore"):
        found: np.ndarray = array.astype(np.float32)
    if not np.isfinite(found).all():
        raise InputError(f"{name} has {found[~np.isfinite(found)][0]} in it")
    return found


def one_of(name: str, value: str, choices: Iterable[str]) -> str:
    """The value, if it is among the choices."""
    known = list(choices)
    if not isinstance(value, str) or value not in known:
        raise InputError(f"unknown {name} {shown(value)}; choose from: {', '.join(known)}")
    return value


def whole(name: str, value: Any, at_least: int, at_most: int = MOST) -> int:
    """The value as an int, if it is a whole number within these limits; True is none."""
    try:
        number = operator.index(unmasked(name, value))
    except InputError:
        raise
    except Exception:  # of the value's own making too
        number = None
    if number is None or isinstance(value, bool):
        raise InputError(f"{name} must be a whole number, but it is {shown(value)}")
    if number < at_least:
        raise InputError(f"{name} must be at least {at_least}, but it is {shown(number)}")
    if number > at_most:
        raise InputError(f"{name} must be at most {at_most}, but it is {shown(number)}")
    return number


def steps(name: str, value: Any) -> int:
    """A number of steps that a loop can make while somebody waits."""
    return whole(name, value, 1, MOST_STEPS)


def real(name: str, value: Any, low: float = -math.inf, high: float = math.inf) -> float:
    """The value as a float, if it is a number within [low, high]; True and texts are none."""
    try:
        array = number_array(name, value)
    except InputError:
        array = np.empty(0)
    if array.ndim > 0 or array.dtype.kind == "b":
        raise InputError(f"{name} must be a number, but it is {shown(value)}")
    number = float(array)
    if math.isnan(number):  # None is one too by now
        raise InputError(f"{name} must be a number, but it is {shown(value)}")
    if not low <= number <= high:
        raise InputError(f"{name} must be in [{low:g}, {high:g}], but it is {number!r}")
    return number


def flag(name: str, value: Any) -> bool:
    """True or False."""
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{name} must be true or false, but it is {shown(value)}")
    return bool(value)


def mapping(name: str, value: Any) -> dict[str, Any]:
    """Values by name; None is none of them."""
    if value is not None and not (isinstance(value, Mapping) and all(isinstance(key, str) for key in value)):
        raise InputError(f"{name} must be a dictionary of values by name, but it is {shown(value)}")
    return {} if value is None else dict(value)


def path(name: str, value: Any) -> Path:
    """A place on disk, given as a text or a path."""
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else ""
    if not isinstance(text, str) or not text.isprintable() or not text:
        raise InputError(f"{name} must be a path, but it is {shown(value)}")
    if max(len(os.fsencode(part)) for part in text.split(os.sep)) > LONGEST_NAME:
        raise InputError(f"{name} has a part of more than {LONGEST_NAME} bytes: {shown(value)}")
    return Path(text)


def pair(name: str, value: Any) -> tuple[Any, Any]:
    """Two of something."""
    try:
        first, second = value
    except Exception:  # of the value's own making too
        raise InputError(f"{name} must be two numbers, but it is {shown(value)}") from None
    return first, second


def interval(name: str, value: Any) -> tuple[float, float]:
    """Two finite numbers, the smaller one first."""
    low, high = (real(name, one) for one in pair(name, value))
    if not -math.inf < low < high < math.inf:
        raise InputError(f"{name} must be two finite numbers, the smaller one first, but it is {shown(value)}")
    return low, high


def fits(what: str, shape: tuple[int, ...], copies: float = 1, instead: str = "") -> None:
    """Refuses arrays of floats that this machine's memory cannot hold so often, before anything tries to allocate them.

    `instead` says what would do with less.
    """
    needed, there = math.prod(shape) * 8 * copies, memory()
    if needed > there:
        message = f"{what} of shape {shape} would take {needed / 2**30:,.1f} GiB and this machine has {there / 2**30:,.1f} GiB"
        raise InputError(f"{message}; {instead}" if instead else message)


def memory() -> int:
    """Memory in bytes: the machine's, or less where a container or `ulimit -v` sets a limit."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for file in LIMITS:
        with contextlib.suppress(OSError, ValueError):  # no such limit, or the word max
            limits.append(int(file.read_text()))
    address_space = resource.getrlimit(resource.RLIMIT_AS)[0]
    return min(limits if address_space == resource.RLIM_INFINITY else [*limits, address_space])


def discount_factor(value: Any) -> float:
    """A discount in [0, 1]."""
    return real("discount", value, 0.0, 1.0)


def first_place(bad: Shaped[np.ndarray, "..."], axes: tuple[str, ...]) -> str:
    """Where the first True stands, in words: "member 2, state 0, action 1"."""
    index = np.argwhere(bad)[0]
    return ", ".join(f"{axis} {position}" for axis, position in zip(axes[-len(index) :], index, strict=True))


def mdp_arrays(mdp: MDP) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
    """The arrays of an MDP or an ensemble after every check; no copy where they are float64 already.

    Rows whose sum is off by more than the rounding of float64 are divided by it.
    """
    p, r = number_array("p", mdp.p), number_array("r", mdp.r)
    if p.ndim not in (3, 4):
        raise InputError(f"p must have shape (S, A, S) or (N, S, A, S), but it has shape {p.shape}")
    if p.ndim == 4 and p.shape[0] == 0:
        raise InputError(f"the ensemble is empty: p has shape {p.shape}")
    if p.shape[-1] != p.shape[-3]:
        raise InputError(f"p must have as many next states as states, but it has shape {p.shape}")
    if 0 in p.shape:
        raise InputError(f"p has an axis of length 0: its shape is {p.shape}")
    fits("p", p.shape)
    if r.shape not in (p.shape[:-1], p.shape[-3:-1]):
        choices = " or ".join(str(shape) for shape in dict.fromkeys((p.shape[:-1], p.shape[-3:-1])))
        raise InputError(f"r must have shape {choices} to go with p of shape {p.shape}, but it has shape {r.shape}")
    tolerance = TOLERANCE.get(p.dtype, DEFAULT_TOLERANCE)
    axes = ("member", "state", "action", "next state")
    smallest = p.min()
    if not smallest >= 0:
        bad = ~(p >= 0)
        kind = "NaN" if np.isnan(p[tuple(np.argwhere(bad)[0])]) else "negative"
        raise InputError(f"p has a {kind} probability at {first_place(bad, axes)}")
    sums = p.sum(axis=-1, dtype=np.float64)
    bad = ~(np.abs(sums - 1.0) <= tolerance)
    if bad.any():
        raise InputError(f"p sums to {sums[bad][0]:.6g} instead of 1 at {first_place(bad, axes[:-1])}")
    bad = ~(np.abs(r, dtype=np.float64) <= LARGEST)
    if bad.any():
        wanted = "a finite number" if np.isnan(r[bad][0]) else f"at most {LARGEST:g}"
        raise InputError(f"r is {r[bad][0]} at {first_place(bad, axes[:-1])}, and must be {wanted}")
    r = np.broadcast_to(r, p.shape[:-1])
    return normalised(p, sums).astype(np.float64, copy=False), r.astype(np.float64, copy=False)


def normalised(p: Shaped[np.ndarray, "*n S"], sums: Float[np.ndarray, "*n"]) -> Shaped[np.ndarray, "*n S"]:
    """Rows divided by their sums where these are not 1: near discount 1 a small error of a sum is a large one of the values."""
    off = np.abs(sums - 1.0) > ROUNDING
    found: np.ndarray = p / np.where(off, sums, 1.0)[..., None] if off.any() else p
    return found


def policy_array(policy: ArrayLike, num_states: int, num_actions: int) -> np.ndarray:
    """A policy as probabilities (S, A) in float64, or as actions (S,) where it is deterministic.

    Deterministic policies are recognised in both spellings, so that solvers gather rows instead of averaging them.
    """
    array = number_array("policy", policy)
    if array.ndim == 1 and array.dtype.kind in "iu":
        if array.shape != (num_states,):
            raise InputError(f"policy must give one action for each of {num_states} states, but its shape is {array.shape}")
        bad = (array < 0) | (array >= num_actions)
        if bad.any():
            raise InputError(
                f"policy takes action {array[bad][0]} at {first_place(bad, ('state',))}, but there are {num_actions}"
            )
        return array.astype(np.int32)
    if array.shape != (num_states, num_actions):
        raise InputError(f"policy must have shape ({num_states}, {num_actions}), but it has shape {array.shape}")
    tolerance = TOLERANCE.get(array.dtype, DEFAULT_TOLERANCE)
    array = array.astype(np.float64)
    if not array.min() >= 0:
        bad = ~(array >= 0)
        raise InputError(f"policy has the probability {array[bad][0]} at {first_place(bad, ('state', 'action'))}")
    sums = array.sum(axis=1)
    bad = ~(np.abs(sums - 1.0) <= tolerance)
    if bad.any():
        raise InputError(f"policy sums to {sums[bad][0]:.6g} instead of 1 at {first_place(bad, ('state',))}")
    plain = np.all((array == 0.0) | (array == 1.0))
    found: np.ndarray = array.argmax(axis=1).astype(np.int32) if plain else normalised(array, sums)
    return found


def json_object(name: str, text: str) -> dict[str, Any]:
    """What a text says that holds a JSON object."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise InputError(f"{name} must be a JSON object, such as '{{\"size\": 20}}', but it is {text!r}")
    return found
