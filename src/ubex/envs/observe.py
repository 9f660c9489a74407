"""Observations of any shape as one row of numbers: boxes, counts and flags, and dictionaries and tuples of them.

The order is that of `gymnasium.spaces.utils.flatten`: a number of a Discrete space is a one in a row of zeros.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ubex import checks
from ubex.types import InputError

MOST = 1024
"""Numbers of an observation that is made flat here; a model that predicts more would need gigabytes of rollouts."""
LEAST_HALF = 1e-6
"""Of the range of a number; whoever declares less, or more than one over it, knows no bounds."""
BRIGHTEST = 255.0
"""Of a pixel, which becomes 1."""
SUPPORTED = "deep agents support observations of Box, Discrete, MultiDiscrete and MultiBinary, and Dict and Tuple of these"
OTHERS = "gymnasium.wrappers.TransformObservation(env, function, space) makes others of them"


class Part(NamedTuple):
    """One array of an observation."""

    path: tuple[str | int, ...]
    """Keys of dictionaries and places in tuples that lead to it."""
    shape: tuple[int, ...]
    scale: float | tuple[float, ...] = 1.0
    """What its numbers are divided by: one for all, or one for each."""
    firsts: tuple[int, ...] = ()
    """Of whole numbers that are counted out: the smallest that each can be."""
    counts: tuple[int, ...] = ()
    """How many each can be; none for plain numbers."""
    middle: tuple[float, ...] = ()
    """What is taken from each number before it is divided; none for nothing."""

    @property
    def size(self) -> int:
        """Places in the row."""
        return sum(self.counts) if self.counts else math.prod(self.shape)


Layout = tuple[Part, ...]
"""The parts of an observation in their order; empty for one that is a row already."""


def size_of(layout: Layout) -> int:
    """Places in the row."""
    return sum(part.size for part in layout)


def layout_of(name: str, space: Any, scaled: bool = False) -> tuple[Layout, int]:
    """How observations of a space are made flat, and how many numbers they then have.

    If they are scaled, numbers with bounds are -1 at the lower and 1 at the upper one.
    """
    from gymnasium import spaces

    parts = tuple(_parts(space, (), scaled) or ())
    if isinstance(space, spaces.Box) and len(space.shape) == 1 and space.shape[0] > 0:
        return parts if parts[0].middle else (), int(space.shape[0])
    size, what = size_of(parts), f"{SUPPORTED}, but the observations of {name} are {checks.shown(space)}"
    if not 0 < size <= MOST:
        many = f"of {size:,} numbers, of which at most {MOST:,} are made flat; " if size else ""
        raise InputError(f"{what}; {many}{OTHERS}")
    return parts, size


def _parts(space: Any, path: tuple[str | int, ...], scaled: bool) -> list[Part] | None:
    """The parts of a space at a path; None where one of them is of another kind."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict | spaces.Tuple):
        inside = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        found = [_parts(part, (*path, key), scaled) if isinstance(key, str | int) else None for key, part in inside]
        return None if None in found else [part for parts in found for part in parts or ()]
    if isinstance(space, spaces.Discrete):
        return [Part(path, (), 1.0, (int(space.start),), (int(space.n),))]
    if isinstance(space, spaces.MultiDiscrete):
        counted = [tuple(int(x) for x in np.ravel(numbers)) for numbers in (space.start, space.nvec)]
        return [Part(path, space.nvec.shape, 1.0, *counted)]
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        pixels = isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) > 1
        plain = Part(path, tuple(int(n) for n in space.shape), BRIGHTEST if pixels else 1.0)
        return [_scaled(space, plain) if scaled and isinstance(space, spaces.Box) and not pixels else plain]
    return None


def _scaled(box: Any, plain: Part) -> Part:
    """A part in units of half its range, around the middle; as it is where there are no bounds, or these are -1 and 1."""
    low, high = (np.ravel(bound).astype(np.float64) for bound in (box.low, box.high))
    with np.errstate(over="ignore", invalid="ignore"):
        half, middle = 0.5 * (high - low), 0.5 * (low + high)
    known = np.isfinite(middle) & (half > LEAST_HALF) & (half < 1.0 / LEAST_HALF)
    half, middle = np.where(known, half, 1.0), np.where(known, middle, 0.0)
    if (half == 1.0).all() and (middle == 0.0).all():
        return plain
    return plain._replace(scale=tuple(half.tolist()), middle=tuple(middle.tolist()))


def ruler(layout: Layout) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Middles and halves of all numbers of the row, 0 and 1 where they are not scaled; None where none is."""
    if not any(part.middle for part in layout):
        return None
    parts = [(part.middle, part.scale) if part.middle else ((0.0,) * part.size, (1.0,) * part.size) for part in layout]
    middles, halves = (np.concatenate([np.asarray(part[side]) for part in parts]).tolist() for side in (0, 1))
    return tuple(middles), tuple(halves)


def flat(layout: Layout, name: str, given: Any) -> Float[np.ndarray, "*b O"]:
    """An observation as one row in float32, or a batch of them, whose arrays all begin with the same axes."""
    rows = list[np.ndarray]()
    for part in layout:
        where = f"the part {''.join(f'[{key!r}]' for key in part.path)} of {name}" if part.path else name
        row = _row(part, where, _inside(part.path, name, where, given))
        if rows and row.shape[:-1] != rows[0].shape[:-1]:
            raise InputError(f"the parts of {name} must go together, but {where} has another number of rows")
        rows.append(row)
    return np.concatenate(rows, axis=-1)


def _inside(path: Sequence[str | int], name: str, where: str, given: Any) -> Any:
    """What lies at a path."""
    try:
        for key in path:
            given = given[key]
    except Exception as error:  # of whatever stands there instead of a dictionary or a tuple
        raise InputError(f"{where} is not there: {name} is {checks.shown(given)}") from error
    return given


def _row(part: Part, where: str, given: Any) -> Float[np.ndarray, "*b O"]:
    """One part as a row, or as a batch of rows."""
    array = checks.number_array(where, given)
    lead = array.shape[: array.ndim - len(part.shape)]
    if array.shape != (*lead, *part.shape):
        raise InputError(f"{where} has shape {array.shape}, not {part.shape}")
    if not part.counts:
        with np.errstate(over="ignore"):
            row = array.reshape(*lead, math.prod(part.shape))
            if part.middle:
                row = (row - np.array(part.middle)) / np.array(part.scale)
            plain: np.ndarray = row.astype(np.float32)
        return plain if part.middle else plain / np.asarray(part.scale, np.float32)
    whole = array if array.dtype.kind in "iub" else np.full(array.shape, min(part.firsts) - 1)
    places = whole.reshape(*lead, len(part.counts)).astype(np.int64) - np.array(part.firsts)
    if not ((places >= 0) & (places < np.array(part.counts))).all():
        last = [first + count - 1 for first, count in zip(part.firsts, part.counts, strict=True)]
        span = f"{part.firsts[0]} to {last[0]}" if len(last) == 1 else f"{list(part.firsts)} to {last}"
        raise InputError(f"{where} must be whole numbers from {checks.cut(span, checks.LONGEST)}, not {checks.shown(given)}")
    ones = [np.eye(count, dtype=np.float32)[places[..., i]] for i, count in enumerate(part.counts)]
    return np.concatenate(ones, axis=-1)


def read(saved: Sequence[Sequence[Any]]) -> Layout:
    """A layout as a file holds it: the fields of its parts."""
    return tuple(Part(*(tuple(field) if isinstance(field, list) else field for field in fields)) for fields in saved)
