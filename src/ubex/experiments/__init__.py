"""The paper's tables and figures, and ours: one file an experiment, and the table of them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ubex import lazy
from ubex.experiments.calibration import Calibration
from ubex.experiments.deep_sea import DeepSea
from ubex.experiments.locomotion import Locomotion
from ubex.experiments.pendulum import Pendulum
from ubex.experiments.seven_room import SevenRoom
from ubex.experiments.shrinkage import Shrinkage
from ubex.experiments.spec import Cell, Experiment
from ubex.experiments.toy import Toy

ALL: tuple[type[Experiment], ...] = (Toy, Shrinkage, Calibration, DeepSea, SevenRoom, Pendulum, Locomotion)
EXPERIMENTS: Mapping[str, type[Experiment]] = MappingProxyType({entry.name: entry for entry in ALL})
FORMER: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {preset.name: (entry.name, name) for entry in ALL for name, preset in entry.presets.items() if preset.name}
    | {"deep-sea-curves": ("deep-sea",), "random-mdp": ("calibration", "small")}
)
"""Names that experiments had before, which still work, and that studies have in run folders: the experiment and its preset."""

__all__ = ["EXPERIMENTS", "FORMER", "Cell", "Experiment"]

lazy.install(__name__)
