"""One file an environment, and the table of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import util
from types import MappingProxyType
from typing import NamedTuple

from ubex.envs import deep_sea, n_room, sparse_pendulum, toy
from ubex.envs.base import TabularEnv
from ubex.envs.continuous import ContinuousEnv


class Entry(NamedTuple):
    """A line of the table."""

    summary: str
    make: Callable[..., TabularEnv | ContinuousEnv]
    """Makes it; what it takes are the settings that people may give."""


ENVS: Mapping[str, Entry] = MappingProxyType(
    {
        "toy": Entry(toy.SUMMARY, toy.toy),
        "deep-sea": Entry(deep_sea.SUMMARY, deep_sea.deep_sea),
        "n-room": Entry("any number of connected rooms with slippery moves", n_room.n_room),
        "seven-room": Entry(n_room.SUMMARY, n_room.seven_room),
        "sparse-pendulum": Entry(sparse_pendulum.SUMMARY, sparse_pendulum.sparse_pendulum),
    }
)

GYMNASIUM = (
    ("DeepSea", "deep_sea"),
    ("SevenRoom", "seven_room"),
    ("NRoom", "n_room"),
    ("Toy", "toy"),
    ("SparsePendulum", "sparse_pendulum"),
)
"""Names in Gymnasium's registry, and the functions of `envs/gymnasium.py` that make them."""


def register() -> None:
    """Makes `gymnasium.make("ubex/DeepSea-v0", size=10)` and its like work; only names, nothing is made or imported yet."""
    import gymnasium

    for name, maker in GYMNASIUM:
        gymnasium.register(id=f"ubex/{name}-v0", entry_point=f"ubex.envs.gymnasium:{maker}")


if util.find_spec("gymnasium") is not None:
    register()
