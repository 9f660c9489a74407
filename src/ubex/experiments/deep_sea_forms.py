"""DeepSea: the three equivalent forms of the uncertainty reward as estimators (figure exact_ube_ablation)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ubex.experiments.deep_sea import DeepSea
from ubex.experiments.spec import FigureSpec


@dataclass(frozen=True)
class DeepSeaForms(DeepSea):
    """Total regret on DeepSea with each of the three forms of the uncertainty reward, which samples tell apart."""

    name: ClassVar[str] = "deep-sea-forms"
    summary: ClassVar[str] = "DeepSea: the three forms of the uncertainty reward (ablation)"
    figures: ClassVar[Sequence[FigureSpec]] = (
        FigureSpec("regret", "Total regret by form of u", "bars", "total_regret", "size L", "unsolved episodes", x="size"),
    )

    methods: tuple[str, ...] = ("exact-ube-1", "exact-ube-2", "exact-ube")
    """Forms 1, 2 and 3."""
