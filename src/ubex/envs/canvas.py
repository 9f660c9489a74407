"""Drawing with NumPy alone: shapes as signed distances, painted with soft edges; the same pixels on every machine.

The picture is the square from (-1, -1) to (1, 1), x to the right and y up. Directions are angles clockwise from the top.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from jaxtyping import Float, UInt8

Colour: TypeAlias = tuple[int, int, int]
Point: TypeAlias = tuple[float, float]


def at(radius: float, angle: float) -> Point:
    """The point at this distance from the middle, in this direction."""
    return radius * math.sin(angle), radius * math.cos(angle)


class Canvas:
    """A square picture that shapes are painted on, one over the other."""

    def __init__(self, size: int, background: Colour) -> None:
        """An empty picture of `size` times `size` pixels."""
        middles = (np.arange(size) + 0.5) * 2.0 / size - 1.0
        self.size = size
        self.x, self.y = np.meshgrid(middles, -middles)
        self.image = np.empty((size, size, 3))
        self.image[:] = background

    def paint(self, distance: Float[np.ndarray, "H W"], colour: Colour) -> None:
        """Paints where the signed distance is negative; the edge is one pixel wide."""
        cover = np.clip(0.5 - distance * self.size / 2.0, 0.0, 1.0)[..., None]
        self.image += cover * (np.array(colour) - self.image)

    def disc(self, middle: Point, radius: float, colour: Colour) -> None:
        """A filled circle."""
        self.paint(np.hypot(self.x - middle[0], self.y - middle[1]) - radius, colour)

    def line(self, start: Point, end: Point, width: float, colour: Colour) -> None:
        """A line with round ends; `start` and `end` may be the same."""
        (x0, y0), (dx, dy) = start, (end[0] - start[0], end[1] - start[1])
        along = (self.x - x0) * dx + (self.y - y0) * dy
        share = np.clip(along / max(dx**2 + dy**2, np.finfo(float).tiny), 0.0, 1.0)
        self.paint(np.hypot(self.x - x0 - share * dx, self.y - y0 - share * dy) - width / 2.0, colour)

    def arc(self, radius: float, first: float, last: float, width: float, colour: Colour) -> None:
        """A part of a circle around the middle with round ends; from `first` to `last`, at most half a circle either way."""
        half, centre = abs(last - first) / 2.0, (first + last) / 2.0
        away = np.arctan2(self.x, self.y) - centre
        away = np.abs((away + math.pi) % (2.0 * math.pi) - math.pi)
        on_ring = np.abs(np.hypot(self.x, self.y) - radius)
        ends = [np.hypot(self.x - x, self.y - y) for x, y in (at(radius, first), at(radius, last))]
        self.paint(np.where(away <= half, on_ring, np.minimum(*ends)) - width / 2.0, colour)

    def pixels(self) -> UInt8[np.ndarray, "H W 3"]:
        """The picture as it is now."""
        return np.rint(self.image).astype(np.uint8)
