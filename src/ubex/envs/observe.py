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
LEAST_UNIT = 1e-6
"""Of an observation; whoever declares less, or more than one over it, knows no bounds."""
BRIGHTEST = 255.0
"""Of a pixel, which becomes 1."""
SUPPORTED = "deep agents support observations of Box, Discrete, MultiDiscrete and MultiBinary, and Dict and Tuple of these"
OTHERS = "gymnasium.wrappers.TransformObservation(env, function, space) makes others of them"


class Part(NamedTuple):
    """One array of an observation."""

    path: tuple[str | int, ...]
    """Keys of dictionaries and places in tuples that lead to it."""
    shape: tuple[int, ...]
    scale: float = 1.0
    """What its numbers are divided by."""
    firsts: tuple[int, ...] = ()
    """Of whole numbers that are counted out: the smallest that each can be."""
    counts: tuple[int, ...] = ()
    """How many each can be; none for plain numbers."""

    @property
    def size(self) -> int:
        """Places in the row."""
        return sum(self.counts) if self.counts else math.prod(self.shape)


Layout = tuple[Part, ...]
"""The parts of an observation in their order; empty for one that is a row already."""


def size_of(layout: Layout) -> int:
    """Places in the row."""
    return sum(part.size for part in layout)


def layout_of(name: str, space: Any) -> tuple[Layout, int]:
    """How observations of a space are made flat, and how many numbers they then have."""
    from gymnasium import spaces

    if isinstance(space, spaces.Box) and len(space.shape) == 1 and space.shape[0] > 0:
        return (), int(space.shape[0])
    parts = tuple(_parts(space, ()) or ())
    size, what = size_of(parts), f"{SUPPORTED}, but the observations of {name} are {checks.shown(space)}"
    if not 0 < size <= MOST:
        many = f"of {size:,} numbers, of which at most {MOST:,} are made flat; " if size else ""
        raise InputError(f"{what}; {many}{OTHERS}")
    return parts, size


def _parts(space: Any, path: tuple[str | int, ...]) -> list[Part] | None:
    """The parts of a space at a path; None where one of them is of another kind."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict | spaces.Tuple):
        inside = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        found = [_parts(part, (*path, key)) if isinstance(key, str | int) else None for key, part in inside]
        return None if None in found else [part for parts in found for part in parts or ()]
    if isinstance(space, spaces.Discrete):
        return [Part(path, (), 1.0, (int(space.start),), (int(space.n),))]
    if isinstance(space, spaces.MultiDiscrete):
        counted = [tuple(int(x) for x in np.ravel(numbers)) for numbers in (space.start, space.nvec)]
        return [Part(path, space.nvec.shape, 1.0, *counted)]
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        pixels = isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) > 1
        return [Part(path, tuple(int(n) for n in space.shape), BRIGHTEST if pixels else 1.0)]
    return None


def units_of(space: Any, layout: Layout) -> tuple[float, ...] | None:
    """Half the range of every number of the row, 1 where it is not bounded or not a plain number; None where all are 1."""
    from gymnasium import spaces

    units = list[float]()
    for part in layout or (None,):
        box = space if part is None else _inside(part.path, "the space", "a part", space)
        if not isinstance(box, spaces.Box) or (part is not None and part.scale != 1.0):
            units += [1.0] * (0 if part is None else part.size)
            continue
        with np.errstate(over="ignore", invalid="ignore"):
            half = 0.5 * (np.ravel(box.high).astype(np.float64) - np.ravel(box.low).astype(np.float64))
        units += np.where((half > LEAST_UNIT) & (half < 1.0 / LEAST_UNIT), half, 1.0).tolist()
    return None if all(unit == 1.0 for unit in units) else tuple(units)


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
            plain: np.ndarray = array.reshape(*lead, math.prod(part.shape)).astype(np.float32) / np.float32(part.scale)
        return plain
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
    return tuple(
        Part(tuple(path), tuple(shape), scale, tuple(firsts), tuple(counts)) for path, shape, scale, firsts, counts in saved
    )
