"""7-room: how many posterior samples it takes (figure ensemble_ablation)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ubex.experiments.exploration import OPTIMISTIC_METHODS, ablation
from ubex.experiments.seven_room import SevenRoom
from ubex.experiments.spec import FigureSpec


@dataclass(frozen=True)
class SevenRoomEnsemble(SevenRoom):
    """Regret on the 7-room environment against the number of posterior samples, N."""

    name: ClassVar[str] = "seven-room-ensemble"
    summary: ClassVar[str] = "7-room: total regret against the number of posterior samples N (ablation)"
    figures: ClassVar[Sequence[FigureSpec]] = (ablation("num_models", "regret against 19.0", "episodes"),)

    methods: tuple[str, ...] = OPTIMISTIC_METHODS
    """Estimators; PSRL has no ensemble."""
    num_models: tuple[int, ...] = (2, 5, 10, 20)
    """N, posterior samples."""
