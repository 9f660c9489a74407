"""One file per environment, and the table of them. A new environment is one file and one line in `ENVS`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from importlib import util
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from ubex import lazy

if TYPE_CHECKING:
    from ubex.envs.base import TabularEnv
    from ubex.envs.continuous import ContinuousEnv

lazy.install(__name__)


class Entry(NamedTuple):
    """A line of the table."""

    summary: str
    place: str
    """The file in this folder and the function in it, `file:function`; imported when one is made."""

    @property
    def make(self) -> Callable[..., TabularEnv | ContinuousEnv]:
        """Makes it; what it takes are the settings that people may give."""
        file, name = self.place.split(":")
        function: Callable[..., TabularEnv | ContinuousEnv] = getattr(importlib.import_module(f"{__name__}.{file}"), name)
        return function


ENVS: Mapping[str, Entry] = MappingProxyType(
    {
        "toy": Entry("the paper's five-state toy example with uncertain delta and beta", "toy:toy"),
        "deep-sea": Entry("DeepSea: a grid in which only going right all the way down pays", "deep_sea:deep_sea"),
        "n-room": Entry("any number of connected rooms with slippery moves", "n_room:n_room"),
        "seven-room": Entry("the paper's seven connected rooms with slippery moves", "n_room:seven_room"),
        "river-swim": Entry("RiverSwim: a small reward downstream, a large one against the current", "river_swim:river_swim"),
        "chain": Entry("Chain: a large reward at the end of five states, and a tempting way back", "chain:chain"),
        "loop": Entry("Loop: two loops from one state; the one that is harder to learn pays twice as much", "loop:loop"),
        "sparse-pendulum": Entry(
            "the paper's pendulum swing-up that pays only near the top", "sparse_pendulum:sparse_pendulum"
        ),
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
