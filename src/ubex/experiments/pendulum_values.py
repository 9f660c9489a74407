"""Sparse pendulum: pictures of the values and of their variance while exact-ube learns (figure pendulum_viz)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ubex.experiments.pendulum import Pendulum
from ubex.experiments.spec import FigureSpec


@dataclass(frozen=True)
class PendulumValues(Pendulum):
    """Maps of mean value and standard deviation over angle and velocity, at several episodes of one run."""

    name: ClassVar[str] = "pendulum-values"
    summary: ClassVar[str] = "sparse pendulum: maps of the values and of their variance while it learns"
    figures: ClassVar[Sequence[FigureSpec]] = (
        FigureSpec("returns", "Evaluation return", "curves", "return", "episode", "return", x="episode", facet="noise"),
        FigureSpec("variance", "Output of the U-net", "curves", "variance", "episode", "variance", x="episode", log=True),
    )

    methods: tuple[str, ...] = ("exact-ube",)
    """Deep agents."""
    noises: tuple[float, ...] = (0.0,)
    """Standard deviations of the noise on the angle."""
    pictures: tuple[int, ...] = (1, 5, 10, 20, 40, 75)
    """Episodes after which there is a picture."""
    seeds: int = 1
    """Number of seeds."""
