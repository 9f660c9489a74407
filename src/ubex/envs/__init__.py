"""One file per environment, and the table of them. A new environment is one file, its import and one line in `ENVS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import util
from types import MappingProxyType
from typing import NamedTuple

from ubex.envs import chain, deep_sea, loop, n_room, river_swim, sparse_pendulum, toy
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
        "river-swim": Entry(river_swim.SUMMARY, river_swim.river_swim),
        "chain": Entry(chain.SUMMARY, chain.chain),
        "loop": Entry(loop.SUMMARY, loop.loop),
        "sparse-pendulum": Entry(sparse_pendulum.SUMMARY, sparse_pendulum.sparse_pendulum),
    }
)


def gymnasium_id(name: str) -> str:
    """The id of one of our environments in Gymnasium's registry: `ubex/DeepSea-v0` for `deep-sea`."""
    return f"ubex/{name.title().replace('-', '')}-v0"


def register() -> None:
    """Makes `gymnasium.make("ubex/DeepSea-v0", size=10)` and its like work; only names, nothing is made or imported yet."""
    import gymnasium

    for name in ENVS:
        gymnasium.register(id=gymnasium_id(name), entry_point="ubex.envs.gymnasium:made", kwargs={"name": name})


if util.find_spec("gymnasium") is not None:
    register()
