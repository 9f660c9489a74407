"""The paper's tables and figures, and ours: one file per experiment, and the table of them."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ubex import lazy

if TYPE_CHECKING:
    from ubex.experiments.spec import Cell, Experiment

__all__ = ["EXPERIMENTS", "Cell", "Experiment", "former"]

lazy.install(__name__, dict.fromkeys(("Cell", "Experiment"), f"{__name__}.spec"))


class Entries(Mapping[str, "type[Experiment]"]):
    """Experiments by name, each of which is imported when it is asked for: commands and worker processes need one of them."""

    def __init__(self, places: Mapping[str, str]) -> None:
        """By name the file in this folder and the class in it, `file:Class`."""
        self.places = places

    def __getitem__(self, name: str) -> type[Experiment]:
        """The experiment of this name."""
        file, kind = self.places[name].split(":")
        found: type[Experiment] = getattr(importlib.import_module(f"{__name__}.{file}"), kind)
        return found

    def __iter__(self) -> Iterator[str]:
        """The names."""
        return iter(self.places)

    def __len__(self) -> int:
        """How many there are."""
        return len(self.places)

    def __contains__(self, name: object) -> bool:
        """Whether there is one of this name; it is not imported."""
        return name in self.places


EXPERIMENTS: Mapping[str, type[Experiment]] = Entries(
    {
        "toy": "toy:Toy",
        "shrinkage": "shrinkage:Shrinkage",
        "calibration": "calibration:Calibration",
        "deep-sea": "deep_sea:DeepSea",
        "seven-room": "seven_room:SevenRoom",
        "pendulum": "pendulum:Pendulum",
        "locomotion": "locomotion:Locomotion",
    }
)


def former() -> dict[str, tuple[str, ...]]:
    """Names that experiments had before, which still work, and those of studies in run folders: experiment and preset."""
    return {
        preset.name: (name, one) for name, entry in EXPERIMENTS.items() for one, preset in entry.presets.items() if preset.name
    } | {"deep-sea-curves": ("deep-sea",), "random-mdp": ("calibration", "small")}
