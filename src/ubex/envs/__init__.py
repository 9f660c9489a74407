"""One file an environment, and the table of them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from ubex.envs import deep_sea, n_room, toy


class Entry(NamedTuple):
    """A line of the table."""

    summary: str


ENVS: Mapping[str, Entry] = MappingProxyType(
    {
        "toy": Entry(toy.SUMMARY),
        "deep-sea": Entry(deep_sea.SUMMARY),
        "seven-room": Entry(n_room.SUMMARY),
    }
)
