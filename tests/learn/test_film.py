"""Films: frames are thinned, kept at their own speed, and what cannot be drawn says so."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ubex.learn.film import MOST_FRAMES, Film, drawing
from ubex.types import InputError


class Screen:
    """Draws a grey picture whose shade tells the time."""

    metadata = {"render_fps": 10}  # noqa: RUF012

    def __init__(self, broken: Any = None) -> None:
        self.shade, self.broken = 0, broken

    def render(self) -> Any:
        if self.broken is not None:
            return self.broken()
        return np.full((4, 4, 3), 40 * self.shade % 256, np.uint8)


def test_a_film_is_the_first_episode_at_its_own_speed() -> None:
    film, screen = Film(), Screen()
    for number in (0, 0, 0, 1, 1):
        screen.shade += 1
        film.see(screen, number)
    with Image.open(io.BytesIO(film.gif())) as found:
        assert (found.format, found.n_frames, found.info["duration"]) == ("GIF", 3, 100)


def test_long_episodes_are_thinned() -> None:
    film, screen = Film(), Screen()
    for _ in range(4 * MOST_FRAMES):
        screen.shade += 1
        film.see(screen, 0)
    assert MOST_FRAMES / 2 <= len(film.frames) <= MOST_FRAMES
    gaps = {(int(b[0, 0, 0]) - int(a[0, 0, 0])) % 256 for a, b in zip(film.frames[:-1], film.frames[1:], strict=True)}
    assert gaps == {40 * film._stride % 256}, "evenly"


def fail() -> None:
    raise RuntimeError("no display\nat all")


@pytest.mark.parametrize(
    ("broken", "message"),
    [(fail, "^Screen cannot draw: RuntimeError: no display at all$"), (lambda: None, "draws no pictures")],
)
def test_what_cannot_be_drawn_says_so(broken: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Film().see(Screen(broken), 0)


def test_environments_by_name_draw_themselves() -> None:
    env = drawing("sparse-pendulum", {"noise": 0.1})
    env.reset(seed=0)
    assert env.render().shape[-1] == 3
    with pytest.raises(InputError, match="deep-sea draws no pictures"):
        drawing("deep-sea", {})
