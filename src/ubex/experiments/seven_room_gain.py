"""7-room: how much a standard deviation should be worth, for every estimator. Ours; nothing was published for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pandas as pd

from ubex.experiments.exploration import GAIN_METHODS, ablation, best_gains
from ubex.experiments.seven_room import SevenRoom
from ubex.experiments.spec import FigureSpec, Table


@dataclass(frozen=True)
class SevenRoomGain(SevenRoom):
    """Regret on the 7-room environment against the exploration gain, lambda."""

    name: ClassVar[str] = "seven-room-gain"
    summary: ClassVar[str] = "7-room: total regret against the exploration gain, for every estimator"
    figures: ClassVar[Sequence[FigureSpec]] = (
        ablation("gain", "regret against 19.0", "episodes"),
        FigureSpec(
            "regret-curve", "Regret along the run", "curves", "regret", "episode", "against 19.0", x="episode", facet="gain"
        ),
    )

    methods: tuple[str, ...] = GAIN_METHODS
    """Estimators; PSRL has no gain."""
    seeds: int = 5
    """Number of seeds of every cell."""
    episodes: int = 1001
    """Episodes of every run."""
    gains: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0, 3.0)
    """lambda, exploration gains."""

    def smoke(self) -> SevenRoomGain:
        """Two methods and two gains, very few episodes."""
        return dataclasses.replace(self, seeds=1, methods=self.methods[:2], gains=self.gains[:2], episodes=4)

    def tables(self, results: pd.DataFrame) -> Sequence[Table]:
        """The gain with the least regret of every method, then all of them."""
        return [best_gains(results, ("episodes",)), *super().tables(results)]
