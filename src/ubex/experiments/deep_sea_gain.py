"""DeepSea: how much a standard deviation should be worth (figure exploration_gain)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pandas as pd

from ubex.experiments.deep_sea import DeepSea
from ubex.experiments.exploration import OPTIMISTIC_METHODS, ablation, best_gains
from ubex.experiments.spec import FigureSpec, Table


@dataclass(frozen=True)
class DeepSeaGain(DeepSea):
    """Total regret on DeepSea against the exploration gain, lambda."""

    name: ClassVar[str] = "deep-sea-gain"
    summary: ClassVar[str] = "DeepSea: total regret against the exploration gain (ablation)"
    figures: ClassVar[Sequence[FigureSpec]] = (ablation("gain", "unsolved episodes", "size"),)

    methods: tuple[str, ...] = OPTIMISTIC_METHODS
    """Estimators; PSRL has no gain."""
    sizes: tuple[int, ...] = (20, 30)
    """L."""
    gains: tuple[float, ...] = (1.0, 2.0, 3.0)
    """lambda, exploration gains."""

    def smoke(self) -> DeepSeaGain:
        """Two methods and two gains, tiny."""
        return dataclasses.replace(self, seeds=1, methods=self.methods[:2], sizes=(4,), gains=(1.0, 2.0), episodes=60)

    def tables(self, results: pd.DataFrame) -> Sequence[Table]:
        """The gain with the least regret of every method, then all of them."""
        return [best_gains(results, ("size", "num_models")), *super().tables(results)]
