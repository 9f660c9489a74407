"""DeepSea: how many posterior samples it takes (figures ensemble_ablation and ensemble_size)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ubex.experiments.deep_sea import DeepSea
from ubex.experiments.exploration import OPTIMISTIC_METHODS, ablation
from ubex.experiments.spec import FigureSpec


@dataclass(frozen=True)
class DeepSeaEnsemble(DeepSea):
    """Total regret on DeepSea against the number of posterior samples, N."""

    name: ClassVar[str] = "deep-sea-ensemble"
    summary: ClassVar[str] = "DeepSea: total regret against the number of posterior samples N (ablation)"
    figures: ClassVar[Sequence[FigureSpec]] = (ablation("num_models", "unsolved episodes", "size"),)

    methods: tuple[str, ...] = OPTIMISTIC_METHODS
    """Estimators; PSRL has no ensemble."""
    sizes: tuple[int, ...] = (20, 30)
    """L."""
    num_models: tuple[int, ...] = (2, 5, 10, 20)
    """N, posterior samples."""

    def smoke(self) -> DeepSeaEnsemble:
        """Two methods and two ensemble sizes, tiny."""
        return dataclasses.replace(self, seeds=1, methods=self.methods[:2], sizes=(4,), num_models=(2, 5), episodes=60)
