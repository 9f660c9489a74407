"""Sparse pendulum: the ensemble size ablation of the appendix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ubex.experiments.pendulum import Pendulum
from ubex.experiments.spec import FigureSpec


@dataclass(frozen=True)
class PendulumEnsemble(Pendulum):
    """Final return on the sparse pendulum against the number of models."""

    name: ClassVar[str] = "pendulum-ensemble"
    summary: ClassVar[str] = "sparse pendulum: return against the number of models"
    figures: ClassVar[Sequence[FigureSpec]] = (
        FigureSpec("final", "Final return", "bars", "final_return", "N", "return", x="num_models", facet="noise"),
    )

    methods: tuple[str, ...] = ("exact-ube", "pombu", "ensemble-var", "ensemble-mean")
    """Deep agents with an ensemble."""
    num_models: tuple[int, ...] = (2, 5, 10)
    """N, models and critics."""
