"""Observations of any shape as rows of numbers: the order of Gymnasium's own flatten, one line for what does not fit."""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from ubex.envs import adapter, observe
from ubex.types import InputError

NESTED = spaces.Dict(
    {
        "wheel": spaces.Box(-1.0, 1.0, (2, 2), np.float64),
        "alarm": spaces.Tuple((spaces.MultiBinary(3), spaces.Discrete(4, start=-1))),
        "gear": spaces.MultiDiscrete([3, 2], start=[5, 0]),
        "time": spaces.Box(0.0, 1.0, (), np.float32),
    }
)
PLAIN = [
    NESTED,
    spaces.Tuple((spaces.Discrete(3), spaces.Box(-np.inf, np.inf, (2,)))),
    spaces.Box(0, 9, (2, 3), np.int64),
    spaces.MultiBinary((2, 2)),
    spaces.Discrete(5, start=2),
    spaces.MultiDiscrete([[2, 3], [4, 1]]),
]


@pytest.mark.parametrize("space", PLAIN, ids=str)
def test_rows_are_those_of_gymnasium(space: spaces.Space[Any]) -> None:
    layout, size = observe.layout_of("World", space)
    assert size == spaces.utils.flatdim(space)
    space.seed(1)
    for _ in range(5):
        seen = space.sample()
        row = observe.flat(layout, "observation", seen)
        assert row.dtype == np.float32
        np.testing.assert_array_equal(row, spaces.utils.flatten(space, seen).astype(np.float32))


@pytest.mark.parametrize("space", PLAIN, ids=str)
def test_a_batch_is_its_rows(space: spaces.Space[Any]) -> None:
    layout, _ = observe.layout_of("World", space)
    space.seed(2)
    seen = [space.sample() for _ in range(3)]
    together = gymnasium.vector.utils.concatenate(space, seen, gymnasium.vector.utils.create_empty_array(space, 3))
    rows = [observe.flat(layout, "observation", one) for one in seen]
    np.testing.assert_array_equal(observe.flat(layout, "observation", together), rows)


def test_a_row_of_numbers_is_left_alone() -> None:
    for space in (spaces.Box(-1.0, 1.0, (3,)), spaces.Box(0, 255, (4,), np.uint8), spaces.Box(-1.0, 1.0, (5000,))):
        assert observe.layout_of("World", space) == ((), space.shape[0])


def test_small_images_are_between_0_and_1() -> None:
    image = spaces.Box(0, 255, (4, 4, 3), np.uint8)
    layout, size = observe.layout_of("World", spaces.Dict({"eye": image, "count": spaces.Box(0, 255, (2,), np.uint8)}))
    seen = {"eye": np.full((4, 4, 3), 51, np.uint8), "count": np.array([7, 255], np.uint8)}
    np.testing.assert_array_equal(observe.flat(layout, "observation", seen), [7.0, 255.0, *[np.float32(0.2)] * 48])
    assert size == 50
    assert observe.layout_of("World", spaces.Box(0, 255, (32, 32), np.uint8))[1] == observe.MOST


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (spaces.Box(0, 255, (96, 96, 3), np.uint8), "of 27,648 numbers, of which at most 1,024 are made flat; "),
        (spaces.Discrete(10**12), "of 1,000,000,000,000 numbers"),
        (spaces.Sequence(spaces.Discrete(2)), "Sequence"),
        (spaces.Dict({"words": spaces.Text(5), "place": spaces.Box(-1.0, 1.0, (2,))}), "'words': Text"),
        (spaces.Dict({}), "are Dict()"),
        (spaces.Box(-1.0, 1.0, (2, 0)), "are Box"),
        (spaces.Dict({(1, 2): spaces.Discrete(2)}), "(1, 2)"),  # type: ignore[dict-item]
    ],
)
def test_what_cannot_be_a_row_is_one_line(space: Any, words: str) -> None:
    with pytest.raises(InputError) as caught:
        observe.layout_of("World", space)
    line = str(caught.value)
    assert "\n" not in line
    assert "but the observations of World are " in line
    assert words in line
    assert line.endswith("; gymnasium.wrappers.TransformObservation(env, function, space) makes others of them")


class Camera(gymnasium.Env[Any, Any]):
    """An image that is too large."""

    observation_space = spaces.Box(0, 255, (96, 96, 3), np.uint8)
    action_space = spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.full((96, 96, 3), 255, np.uint8), {}


def test_the_wrapper_that_is_named_makes_it_fit() -> None:
    with pytest.raises(InputError, match=r"gymnasium\.wrappers\.TransformObservation\(env, function, space\)"):
        adapter.hosted(Camera())
    small = spaces.Box(0, 255, (12, 12, 3), np.uint8)
    env = gymnasium.wrappers.TransformObservation(Camera(), lambda image: image[::8, ::8], small)
    np.testing.assert_array_equal(adapter.hosted(env).reset(0), np.ones(12 * 12 * 3))


GOOD = {"wheel": np.zeros((2, 2)), "alarm": ([0, 1, 0], 2), "gear": [5, 1], "time": 0.5}


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"wheel": np.zeros(3)}, "the part ['wheel'] of seen has shape (3,), not (2, 2)"),
        ({"wheel": "here"}, "the part ['wheel'] of seen must hold real numbers, but its type is <U4"),
        ({"alarm": ([0, 1, 0], 3)}, "the part ['alarm'][1] of seen must be whole numbers from -1 to 2, not 3"),
        ({"alarm": ([0, 1, 0], -2)}, "the part ['alarm'][1] of seen must be whole numbers from -1 to 2, not -2"),
        ({"alarm": ([0, 1, 0], np.nan)}, "the part ['alarm'][1] of seen must be whole numbers from -1 to 2, not nan"),
        ({"alarm": ([0, 1, 0],)}, "the part ['alarm'][1] of seen is not there: seen is ([0, 1, 0],)"),
        ({"gear": [7, 2]}, "the part ['gear'] of seen must be whole numbers from [5, 0] to [7, 1], not [7, 2]"),
        ({"time": [0.5, 0.5]}, "the parts of seen must go together, but the part ['time'] of seen has another number of rows"),
    ],
)
def test_what_does_not_fit_is_one_line(change: dict[str, Any], line: str) -> None:
    layout, size = observe.layout_of("World", NESTED)
    assert observe.flat(layout, "seen", GOOD).shape == (size,)
    with pytest.raises(InputError) as caught:
        observe.flat(layout, "seen", {**GOOD, **change})
    assert str(caught.value) == line
    for nothing in (None, 3, {"wheel": np.zeros((2, 2))}):
        with pytest.raises(InputError, match="is not there: seen is "):
            observe.flat(layout, "seen", nothing)


def test_a_layout_survives_a_file() -> None:
    import json

    for space, scaled in itertools.product(PLAIN, (False, True)):
        layout, _ = observe.layout_of("World", space, scaled)
        assert observe.read(json.loads(json.dumps(layout))) == layout


CAR = spaces.Box(np.array([-1.2, -0.07]), np.array([0.6, 0.07]), dtype=np.float64)
OPEN = spaces.Box(np.array([-4.8, -np.inf, 0.0]), np.array([4.8, np.inf, np.inf]), dtype=np.float64)


@pytest.mark.parametrize(
    ("space", "ruler"),
    [
        (CAR, ((-0.3, 0.0), (0.9, 0.07))),
        (OPEN, ((0.0, 0.0, 0.0), (4.8, 1.0, 1.0))),
        (spaces.Box(-3e38, 3e38, (2,), np.float32), None),  # no bounds in truth
        (spaces.Box(-1.0, 1.0, (3,)), None),
        (spaces.Box(5.0, 5.0, (1,)), None),
        (
            spaces.Dict({"a": spaces.Box(0.0, 20.0, (2,)), "b": spaces.Discrete(3)}),
            ((10.0,) * 2 + (0.0,) * 3, (10.0,) * 2 + (1.0,) * 3),
        ),
        (spaces.Box(0, 255, (2, 2), np.uint8), None),  # pixels are divided by 255 already
        (spaces.MultiBinary(2), None),
    ],
)
def test_numbers_are_scaled_to_their_bounds(space: Any, ruler: tuple[tuple[float, ...], tuple[float, ...]] | None) -> None:
    layout, size = observe.layout_of("World", space, scaled=True)
    found = observe.ruler(layout)
    assert observe.ruler(observe.layout_of("World", space)[0]) is None, "only where it is asked for"
    if ruler is None:
        assert found is None
        return
    assert found is not None
    for side, wanted in zip(found, ruler, strict=True):
        assert side == pytest.approx(wanted)
        assert len(side) == size


def test_scaled_rows_are_minus_one_and_one_at_the_bounds() -> None:
    layout, _ = observe.layout_of("World", CAR, scaled=True)
    np.testing.assert_allclose(
        observe.flat(layout, "it", [CAR.low, CAR.high, [-0.3, 0.035]]), [[-1, -1], [1, 1], [0, 0.5]], atol=1e-6
    )
    both = spaces.Dict({"a": CAR, "b": spaces.Discrete(2)})
    layout, _ = observe.layout_of("World", both, scaled=True)
    np.testing.assert_allclose(observe.flat(layout, "it", {"a": CAR.high, "b": 1}), [1, 1, 0, 1], atol=1e-6)
