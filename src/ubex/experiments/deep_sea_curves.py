"""DeepSea: the regret so far, every 50 episodes (figure full_results_deep_sea)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ubex.experiments.deep_sea import CURVE, DeepSea
from ubex.experiments.spec import FigureSpec


@dataclass(frozen=True)
class DeepSeaCurves(DeepSea):
    """Regret so far on DeepSea every 50 episodes, for every method and size."""

    name: ClassVar[str] = "deep-sea-curves"
    summary: ClassVar[str] = "DeepSea: regret every 50 episodes, one panel a size, for every method"
    figures: ClassVar[Sequence[FigureSpec]] = (CURVE,)
