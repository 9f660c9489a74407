"""Odd values for the campaigns: what people, files and other libraries hand in, on purpose or by accident."""

from __future__ import annotations

import datetime
import decimal
import fractions
import math
import os
from collections.abc import Callable
from typing import Any, TypeAlias

import hypothesis
import jax
import numpy as np
from hypothesis import strategies as st

from ubex import InputError
from ubex.runs.disk import StorageError

EXAMPLES = int(os.environ.get("UBEX_FUZZ", "300"))
"""Inputs of all campaigns together; `make fuzz` tries 10,000."""


Calls: TypeAlias = dict[str, tuple[Callable[..., Any], dict[str, Any]]]
"""Functions by name, with arguments that they take."""


class Loud:
    """Whatever one wants to make of it, it raises."""

    def fail(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("of its own\nmaking")

    __array__ = __index__ = __int__ = __float__ = __len__ = __iter__ = __bool__ = __eq__ = __repr__ = fail
    __hash__ = object.__hash__


def words() -> list[Any]:
    """Texts."""
    return [
        "",
        "x",
        "0",
        "nan",
        "a\nb",
        "../..",
        "<script>alert(1)</script>",
        "os:system",
        "os.path:nothing",
        "no.module:x",
        "ü" * 300,
        "\x00",
    ]


def things() -> list[Any]:
    """What is neither a number nor a text."""
    simple: list[Any] = [
        None,
        True,
        False,
        (),
        [],
        {},
        {1, 2},
        {"a": 1},
        range(3),
        iter([1]),
        object(),
        print,
        lambda *_: None,
        dict,
        b"1",
    ]
    return [
        *simple,
        Loud(),
        Loud,
        np.ma.masked,
        NotImplemented,
        Ellipsis,
        slice(3),
        datetime.date(2020, 1, 1),
        jax.random.key(0),
        math,
    ]


def numbers() -> list[Any]:
    """Numbers of all kinds."""
    plain: list[Any] = [
        0,
        1,
        -1,
        2,
        7,
        2**31,
        2**53 + 1,
        2**63,
        2**64,
        -(2**63),
        10**400,
        0.5,
        -0.5,
        1.5,
        1e308,
        -1e308,
        5e-324,
    ]
    floats: list[Any] = [
        math.nan,
        math.inf,
        -math.inf,
        -0.0,
        1j,
        decimal.Decimal("0.5"),
        decimal.Decimal("NaN"),
        fractions.Fraction(1, 3),
    ]
    scalars: list[Any] = [np.float32("nan"), np.uint64(2**63), np.int8(-1), np.float16(0.5), np.bool_(True), np.complex64(1)]
    return [
        *plain,
        *floats,
        *scalars,
        np.datetime64("2020-01-01"),
        np.timedelta64(1, "D"),
        np.str_("x"),
        np.array(0.5),
        np.array("x"),
    ]


def arrays() -> list[Any]:
    """Arrays and lists of unexpected kinds and shapes."""
    nested: list[Any] = [
        [1, [2, 3]],
        [[1, 2], [3]],
        [None],
        ["x"],
        [[[]]],
        [1, 2, 3],
        [math.nan],
        [10**400],
        [[0.5, 0.5]] * 3,
        [Loud()],
    ]
    made = [
        np.zeros(0),
        np.zeros((0, 3)),
        np.zeros((3, 2)),
        np.ones((3, 2)),
        np.full((3, 2), np.nan),
        np.eye(3),
        np.zeros((2, 3, 2, 3)),
    ]
    kinds = [
        np.array([1, "x"], object),
        np.array([{}, None], object),
        np.array(["a", "b"]),
        np.array([b"a"]),
        np.array([1 + 1j, 2]),
    ]
    masked = [
        np.ma.masked_array([1, 0, 1], [True, False, False]),
        np.ma.masked_all((3, 2)),
        np.array(["2020"], "datetime64[Y]"),
    ]
    return [*nested, *made, *kinds, *masked, np.zeros(3, [("a", float)]), memoryview(b"abc"), np.zeros(3, np.longdouble)]


ODD: list[Callable[[], list[Any]]] = [words, things, numbers, arrays]


def odd() -> st.SearchStrategy[Any]:
    """One odd value, made anew: some can be used up."""
    places = [(make, place) for make in ODD for place in range(len(make()))]
    return st.sampled_from(places).map(lambda found: found[0]()[found[1]])


DAMAGE: dict[str, Callable[[np.ndarray, int], Any]] = {
    "an entry is NaN": lambda x, i: with_entry(x, i, np.nan),
    "an entry is infinite": lambda x, i: with_entry(x, i, -np.inf),
    "an entry is negative": lambda x, i: with_entry(x, i, -1.0),
    "an entry is huge": lambda x, i: with_entry(x, i, 1e308),
    "an entry is two": lambda x, i: with_entry(x, i, 2.0),
    "an entry is masked": lambda x, i: np.ma.masked_array(x, np.arange(x.size).reshape(x.shape) == i % max(x.size, 1)),
    "an entry is None": lambda x, i: with_entry(x.astype(object), i, None),
    "an entry is a text": lambda x, i: with_entry(x.astype(object), i, "x"),
    "ragged": lambda x, i: [*x.tolist(), [1.0]],
    "an axis is missing": lambda x, i: x[0],
    "an axis too many": lambda x, i: x[None],
    "transposed": lambda x, i: x.T,
    "cut short": lambda x, i: x[:-1],
    "longer": lambda x, i: np.concatenate([x, x[:1]]),
    "empty": lambda x, i: x[:0],
    "complex": lambda x, i: x.astype(complex),
    "texts": lambda x, i: x.astype(str),
    "half precision": lambda x, i: x.astype(np.float16),
    "true or false": lambda x, i: x.astype(bool),
    "integers": lambda x, i: x.astype(int),
    "twice as large": lambda x, i: x * 2,
    "a memory view": lambda x, i: memoryview(np.ascontiguousarray(x)),
    "unchanged": lambda x, i: x,
}


def with_entry(array: np.ndarray, place: int, value: Any) -> np.ndarray:
    """A copy with another entry at that place."""
    changed = array.copy() if array.dtype == object else array.astype(np.float64)
    changed.flat[place % max(array.size, 1)] = value
    return changed


def damaged(good: np.ndarray) -> st.SearchStrategy[Any]:
    """The array after one of the damages, or something else altogether."""
    return st.one_of(
        st.builds(lambda kind, place: DAMAGE[kind](good, place), st.sampled_from(list(DAMAGE)), st.integers(0, 40)), odd()
    )


@st.composite
def odd_calls(draw: st.DrawFn, calls: Calls) -> tuple[str, dict[str, Any]]:
    """A call that works, with one or two of its arguments changed."""
    name = draw(st.sampled_from(list(calls)))
    good = calls[name][1]
    changed = draw(st.lists(st.sampled_from(list(good)), min_size=1, max_size=2, unique=True))
    new = {at: draw(damaged(good[at]) if isinstance(good[at], np.ndarray) else odd()) for at in changed}
    return name, {**good, **new}


def refusal(call: Callable[[], Any]) -> tuple[Any, str]:
    """What a call gives, or the one line in which it was refused; everything else that it raises comes through."""
    try:
        return call(), ""
    except (InputError, StorageError) as error:
        line = str(error)
    assert len(line.splitlines()) == 1, line
    assert len(line) < 500, line
    return None, line


def campaign(share: float) -> hypothesis.settings:
    """Settings of a campaign that has this share of all inputs."""
    return hypothesis.settings(max_examples=max(1, round(share * EXAMPLES)))
