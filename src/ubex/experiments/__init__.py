"""The paper's tables and figures, and ours: one file an experiment, and the table of them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ubex.experiments.calibration import Calibration
from ubex.experiments.deep_sea import DeepSea
from ubex.experiments.deep_sea_curves import DeepSeaCurves
from ubex.experiments.deep_sea_ensemble import DeepSeaEnsemble
from ubex.experiments.deep_sea_forms import DeepSeaForms
from ubex.experiments.deep_sea_gain import DeepSeaGain
from ubex.experiments.locomotion import Locomotion, LocomotionMujoco
from ubex.experiments.pendulum import Pendulum
from ubex.experiments.pendulum_ensemble import PendulumEnsemble
from ubex.experiments.pendulum_values import PendulumValues
from ubex.experiments.random_mdp import RandomMDP
from ubex.experiments.seven_room import SevenRoom
from ubex.experiments.seven_room_ensemble import SevenRoomEnsemble
from ubex.experiments.seven_room_gain import SevenRoomGain
from ubex.experiments.shrinkage import Shrinkage
from ubex.experiments.spec import Cell, Experiment
from ubex.experiments.toy import Toy

ALL: tuple[type[Experiment], ...] = (
    Toy,
    RandomMDP,
    Shrinkage,
    Calibration,
    DeepSea,
    DeepSeaCurves,
    DeepSeaForms,
    DeepSeaEnsemble,
    DeepSeaGain,
    SevenRoom,
    SevenRoomEnsemble,
    SevenRoomGain,
    Pendulum,
    PendulumEnsemble,
    PendulumValues,
    Locomotion,
    LocomotionMujoco,
)
EXPERIMENTS: Mapping[str, type[Experiment]] = MappingProxyType({entry.name: entry for entry in ALL})

__all__ = ["EXPERIMENTS", "Cell", "Experiment"]
