"""Maps and animations: what is in them, that they are small, and that the same input gives the same bytes."""

from __future__ import annotations

import io
import math

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image, ImageSequence

from ubex.envs.sparse_pendulum import render
from ubex.runs import pictures
from ubex.types import InputError

X, Y = np.linspace(-3.0, 3.0, 5), np.linspace(-8.0, 8.0, 4)
LAYER = np.arange(20.0).reshape(4, 5)


def swing(count: int, every: int = 1) -> list[np.ndarray]:
    """A pendulum that swings ever higher, under a torque."""
    places = range(0, count, every)
    return [render((math.pi + i / 150 * math.sin(i / 30), 0.0), math.sin(i / 17)) for i in places]


def opened(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data))
    assert image.format == "GIF"
    return image


def durations(data: bytes) -> list[int]:
    return [frame.info["duration"] for frame in ImageSequence.Iterator(opened(data))]


def test_maps_hold_what_was_given() -> None:
    data = pictures.maps_file(X, Y, "angle", "velocity", {"mean": LAYER, "spread": jnp.full((4, 5), 2.0)}, 12)
    with np.load(io.BytesIO(data), allow_pickle=False) as found:
        assert set(found) == {"x", "y", "xlabel", "ylabel", "names", "maps", "episode"}
        np.testing.assert_array_equal(found["x"], X)
        np.testing.assert_array_equal(found["y"], Y)
        assert (str(found["xlabel"]), str(found["ylabel"]), int(found["episode"])) == ("angle", "velocity", 12)
        assert found["names"].tolist() == ["mean", "spread"]
        np.testing.assert_array_equal(found["maps"], [LAYER, np.full((4, 5), 2.0)])
    assert data == pictures.maps_file(X, Y, "angle", "velocity", {"mean": LAYER, "spread": np.full((4, 5), 2.0)}, 12)


def test_maps_keep_the_precision_they_came_in() -> None:
    single = pictures.maps_file(X, Y, "a", "b", {"m": LAYER.astype(np.float32)}, 0)
    whole = pictures.maps_file(X, Y, "a", "b", {"m": LAYER.astype(int)}, 0)
    assert np.load(io.BytesIO(single))["maps"].dtype == np.float32
    assert np.load(io.BytesIO(whole))["maps"].dtype == np.float64


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"maps": {}}, "there are no maps"),
        ({"maps": {"mean": LAYER.T}}, r"'mean' must have shape \(4, 5\), but it has shape \(5, 4\)"),
        ({"x": X[::-1]}, "x must be finite and rising"),
        ({"y": [1.0]}, r"y must have shape \(n,\)"),
        ({"x": [0.0, 1.0, 2.0, 3.0, math.nan]}, "x must be finite"),
        ({"episode": -1}, "episode must be at least 0"),
    ],
)
def test_bad_maps_are_named(changes: dict[str, object], message: str) -> None:
    arguments = {"x": X, "y": Y, "xlabel": "a", "ylabel": "b", "maps": {"mean": LAYER}, "episode": 1} | changes
    with pytest.raises(InputError, match=message):
        pictures.maps_file(**arguments)


def test_an_episode_of_the_pendulum_is_small_and_keeps_its_speed() -> None:
    frames = [frame for frame in swing(400, every=4) for _ in range(4)]
    data = pictures.animation(frames, 80.0)
    print(f"{len(data)} bytes")
    assert len(data) < 600_000
    assert 98 <= opened(data).n_frames <= 102
    assert opened(data).info["loop"] == 0
    assert sum(durations(data)) == pytest.approx(5000, abs=20)
    assert data == pictures.animation(frames, 80.0)


def test_frames_look_as_they_were_drawn() -> None:
    frames = swing(60, every=3)
    found = [np.asarray(frame.convert("RGB")) for frame in ImageSequence.Iterator(opened(pictures.animation(frames, 20.0)))]
    assert len(found) == len(frames)
    for drawn, shown in zip(frames, found, strict=True):
        away = np.abs(drawn.astype(int) - shown)
        assert away.max() < 40
        assert away.mean() < 2


def test_the_last_frame_is_in_and_equal_frames_are_one() -> None:
    frames = [np.full((8, 8, 3), 10, np.uint8)] * 9 + [np.full((8, 8, 3), 200, np.uint8)]
    data = pictures.animation(frames, 80.0)
    *_, last = (np.asarray(frame.convert("RGB")) for frame in ImageSequence.Iterator(opened(data)))
    assert last.mean() == pytest.approx(200, abs=2)
    assert opened(data).n_frames == 2


@pytest.mark.parametrize(("count", "fps", "most"), [(1, 80.0, 1), (1000, 1000.0, 25), (2000, 20.0, 151), (30, 10.0, 30)])
def test_thinning(count: int, fps: float, most: int) -> None:
    frames = [np.full((4, 4, 3), 255 * (i % 2), np.uint8) for i in range(count)]
    for i, frame in enumerate(frames):
        frame[i % 4, (i // 4) % 4] = i % 251
    data = pictures.animation(frames, fps)
    assert opened(data).n_frames <= most
    if count > 1:
        assert sum(durations(data)) == pytest.approx(1000 * count / fps, rel=0.05, abs=30)
        assert min(durations(data)) >= pictures.SHORTEST


@pytest.mark.parametrize(
    ("frames", "fps", "message"),
    [
        ([], 20.0, "at least one frame"),
        ([np.zeros((4, 4, 3), np.uint8), np.zeros((4, 5, 3), np.uint8)], 20.0, "one size"),
        ([np.zeros((4, 4, 3), np.uint8)], 0.0, "fps must be in"),
    ],
)
def test_bad_frames_are_named(frames: list[np.ndarray], fps: float, message: str) -> None:
    with pytest.raises(InputError, match=message):
        pictures.animation(frames, fps)
