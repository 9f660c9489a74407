"""One gate for settings: every field of a record is checked by its annotation, once, when the record is made.

    @dataclass(frozen=True)
    class Settings:
        episodes: Annotated[int, Within(1)] = 10
        share: Annotated[float, Within(0.0, 1.0)] = 0.5
        planner: Annotated[str, OneOf(PLANNERS)] = "start"

        def __post_init__(self) -> None:
            fields.check(self)

What comes in as a NumPy number or a list is kept as a Python number or a tuple, so that records can be compared and hashed.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
import types
from collections.abc import Iterable
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from ubex import checks
from ubex.checks import MOST
from ubex.types import InputError

LARGEST = sys.float_info.max


class Within(NamedTuple):
    """A number from `low` to `high`. Infinity is allowed only where it is named."""

    low: float = -LARGEST
    high: float = LARGEST


class OneOf(NamedTuple):
    """A word of a list."""

    choices: tuple[str, ...]


def check(record: Any) -> None:
    """Checks every field of a frozen dataclass, and puts plain Python values in their place.

    Example:
        >>> @dataclasses.dataclass(frozen=True)
        ... class Settings:
        ...     episodes: Annotated[int, Within(1)] = 10
        >>> check(Settings(0))
        Traceback (most recent call last):
        ubex.types.InputError: episodes must be at least 1, but it is 0
    """
    kind: Any = type(record)
    for name, hint in _hints(kind).items():
        object.__setattr__(record, name, checked(name, getattr(record, name), hint))


@functools.lru_cache(maxsize=64)
def _hints(kind: Any) -> dict[str, Any]:
    """The annotations of the fields that are given when the record is made."""
    known = get_type_hints(kind, include_extras=True)
    return {field.name: known[field.name] for field in dataclasses.fields(kind) if field.init}


def checked(name: str, value: Any, hint: Any) -> Any:
    """The value as a plain Python value, if it fits its annotation.

    Example:
        >>> checked("sizes", [10, 20], tuple[int, ...])
        (10, 20)
    """
    rules: tuple[Any, ...] = ()
    if get_origin(hint) is Annotated:
        hint, *more = get_args(hint)
        rules = tuple(more)
    if get_origin(hint) in (Union, types.UnionType):
        if value is None and type(None) in get_args(hint):
            return None
        (hint,) = (one for one in get_args(hint) if one is not type(None))
        return checked(name, value, Annotated[hint, *rules] if rules else hint)
    if get_origin(hint) is tuple:
        return _several(name, value, get_args(hint), rules)
    bounds = next((rule for rule in rules if isinstance(rule, Within)), Within())
    if hint is bool:
        return checks.flag(name, value)
    if hint is int:
        return checks.whole(name, value, math.ceil(max(bounds.low, -MOST)), math.floor(min(bounds.high, MOST)))
    if hint is float:
        return _real(name, value, bounds)
    if hint is str:
        choices = next((rule.choices for rule in rules if isinstance(rule, OneOf)), None)
        if choices is not None:
            return checks.one_of(name, value, choices)
        if not isinstance(value, str):
            raise InputError(f"{name} must be a text, but it is {checks.shown(value)}")
    return value


def _real(name: str, value: Any, bounds: Within) -> float:
    low, high = (math.copysign(math.inf, bound) if abs(bound) == LARGEST else bound for bound in bounds)
    number = checks.real(name, value, low, high)
    if math.isinf(number) and number not in bounds:
        raise InputError(f"{name} must be finite, but it is {number!r}")
    return number


def _several(name: str, value: Any, hints: tuple[Any, ...], rules: tuple[Any, ...]) -> tuple[Any, ...]:
    """A tuple of one kind and any length, or of a kind for each place."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InputError(f"{name} must be a list, but it is {checks.shown(value)}")
    try:
        values = tuple(checks.unmasked(name, value))
    except InputError:
        raise
    except Exception:  # of the value's own making too
        raise InputError(f"{name} must be a list, but it is {checks.shown(value)}") from None
    kinds = (hints[0],) * len(values) if hints[-1] is Ellipsis else hints
    if len(values) != len(kinds):
        raise InputError(f"{name} must be {len(kinds)} values, but it is {checks.shown(value)}")
    return tuple(
        checked(name, one, Annotated[kind, *rules] if rules else kind) for one, kind in zip(values, kinds, strict=True)
    )
