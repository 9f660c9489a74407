"""Files that a running cell leaves for the report: value maps and animations. The same input gives the same bytes."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import UInt8
from numpy.typing import ArrayLike
from PIL import Image

from ubex import checks
from ubex.types import InputError

FRAMES_PER_SECOND = 20.0
"""Smooth enough to follow; browsers slow down animations that are much faster."""
MOST_FRAMES = 150
COLOURS = 255
"""One less than a GIF has: the free one marks pixels that stay as they are, which makes the file small."""
PALETTE_PIXELS = 400_000
"""The palette is chosen from about so many pixels, evenly taken from all frames."""
TICK, SHORTEST = 10, 20
"""Milliseconds: a GIF counts time in hundredths of a second, and browsers show frames below 20 ms much longer."""


def maps_file(x: ArrayLike, y: ArrayLike, xlabel: str, ylabel: str, maps: Mapping[str, ArrayLike], episode: int) -> bytes:
    """Maps over two axes as a NumPy archive that the report draws; keep it as `maps-EPISODE.npz`.

    Args:
        x: Places on the horizontal axis, shape (I,), rising.
        y: Places on the vertical axis, shape (J,), rising.
        xlabel: What `x` is.
        ylabel: What `y` is.
        maps: By name, values of shape (J, I); what is not finite is left blank.
        episode: After which episode this was.

    Example:
        >>> data = maps_file([0, 1, 2], [0, 1], "angle", "velocity", {"mean": np.zeros((2, 3))}, episode=10)
        >>> np.load(io.BytesIO(data))["maps"].shape
        (1, 2, 3)
    """
    across, up = axis("x", x), axis("y", y)
    if not maps:
        raise InputError("there are no maps to keep")
    layers = [checks.number_array(f"the map {name!r}", values) for name, values in maps.items()]
    for name, layer in zip(maps, layers, strict=True):
        if layer.shape != (up.size, across.size):
            raise InputError(f"the map {name!r} must have shape {(up.size, across.size)}, but it has shape {layer.shape}")
    stacked = np.stack(layers)
    buffer = io.BytesIO()
    np.savez(
        buffer,
        allow_pickle=False,
        x=across,
        y=up,
        xlabel=np.array(xlabel),
        ylabel=np.array(ylabel),
        names=np.array(list(maps)),
        maps=stacked if stacked.dtype.kind == "f" else stacked.astype(np.float64),
        episode=np.array(checks.whole("episode", episode, 0)),
    )
    return buffer.getvalue()


def axis(name: str, values: ArrayLike) -> np.ndarray:
    """Places on an axis, shape (n,): at least two, finite and rising.

    Example:
        >>> axis("x", [0, 1]).tolist()
        [0.0, 1.0]
    """
    places = checks.number_array(name, values).astype(np.float64)
    if places.ndim != 1 or places.size < 2:
        raise InputError(f"{name} must have shape (n,) with n at least 2, but it has shape {places.shape}")
    if not (np.isfinite(places).all() and (np.diff(places) > 0).all()):
        raise InputError(f"{name} must be finite and rising, but it is {places}")
    return places


def animation(frames: Sequence[UInt8[np.ndarray, "H W 3"]], fps: float) -> bytes:
    """Frames as a looped GIF at their own speed, thinned to about 20 per second and at most 150; the last one is always in.

    Args:
        frames: Pictures of one size.
        fps: Frames per second as they were taken.

    Example:
        >>> animation([np.zeros((4, 4, 3), np.uint8)] * 2, fps=20.0)[:3]
        b'GIF'
    """
    if not frames:
        raise InputError("an animation needs at least one frame")
    rate = checks.real("fps", fps, 0.01, 1e6)
    sizes = {frame.shape for frame in frames}
    if len(sizes) > 1:
        raise InputError(f"all frames must have one size, but there are {sorted(sizes)}")
    every = max(1, round(rate / FRAMES_PER_SECOND), math.ceil(len(frames) / MOST_FRAMES))
    chosen = sorted({*range(0, len(frames), every), len(frames) - 1})
    pictures = [Image.fromarray(np.ascontiguousarray(frames[place])) for place in chosen]
    colours = palette([np.asarray(picture) for picture in pictures])
    drawn = [picture.quantize(palette=colours, dither=Image.Dither.NONE) for picture in pictures]
    # rounded from the start of the animation on, so that the errors of single frames do not add up
    ends = np.rint(np.array([*chosen[1:], len(frames)]) * 1000.0 / (rate * TICK)) * TICK
    durations = np.maximum(np.diff(ends, prepend=0.0), SHORTEST)
    buffer = io.BytesIO()
    drawn[0].save(
        buffer,
        format="GIF",
        save_all=True,
        append_images=drawn[1:],
        duration=[int(duration) for duration in durations],
        loop=0,
        optimize=False,
    )
    return buffer.getvalue()


def palette(frames: Sequence[UInt8[np.ndarray, "H W 3"]]) -> Image.Image:
    """One palette for all frames: colours would flicker if each had its own.

    Example:
        >>> palette([np.zeros((2, 2, 3), np.uint8)]).mode
        'P'
    """
    pixels = np.concatenate([frame.reshape(-1, 3) for frame in frames])
    sample = pixels[:: max(1, len(pixels) // PALETTE_PIXELS)]
    return Image.fromarray(sample[None]).quantize(COLOURS, method=Image.Quantize.FASTOCTREE)
