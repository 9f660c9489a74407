"""Pictures of episodes: a film is a GIF, taken without a screen."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from ubex import imports
from ubex.envs import ENVS, foreign
from ubex.envs.resolve import by_name
from ubex.runs.pictures import animation
from ubex.types import InputError

MOST_FRAMES = 300
"""Frames that are held; of longer episodes every second one is dropped, again and again."""
FRAMES_PER_SECOND = 30.0
"""Of environments that do not say."""
MODE = "rgb_array"


class Film:
    """Frames of the first episode that it is shown."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.frames: list[np.ndarray] = []
        self._stride, self._seen, self._fps = 1, 0, FRAMES_PER_SECOND

    def see(self, env: Any, episode: int) -> None:
        """Takes a picture."""
        if episode > 0:
            return
        self._seen += 1
        if (self._seen - 1) % self._stride:
            return
        name = foreign.name_of(env)
        with imports.foreign(f"{name} cannot draw"):
            if not self.frames:
                self._fps = float(getattr(env, "metadata", {}).get("render_fps") or FRAMES_PER_SECOND)
            frame = env.render()
        if not isinstance(frame, np.ndarray) or frame.ndim != 3 or frame.shape[-1] != 3:
            raise InputError(f"{name} draws no pictures: an environment needs render_mode={MODE!r} for a video")
        if frame.size == 0 or frame.dtype.kind not in "buif" or not np.isfinite(frame).all():
            raise InputError(f"{name} draws pictures that cannot be shown: shape {frame.shape}, type {frame.dtype}")
        self.frames.append(frame.astype(np.uint8))
        if len(self.frames) > MOST_FRAMES:
            self.frames, self._stride = self.frames[::2], 2 * self._stride

    def gif(self) -> bytes:
        """The film as a file."""
        return animation(self.frames, self._fps / self._stride)


def drawing(name: str, settings: Mapping[str, Any]) -> Any:
    """An environment by name that draws itself, on a machine without a screen too."""
    from ubex.envs.locomotion import draw_without_screen

    if not os.environ.get("DISPLAY"):
        draw_without_screen()
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    given = {**settings, "render_mode": MODE}
    if name in ENVS:
        from ubex.envs import gymnasium

        return gymnasium.made(name, **given)
    return by_name(name, given)
