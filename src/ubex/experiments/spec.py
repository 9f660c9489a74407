"""What an experiment is: data. A frozen dataclass whose fields are its flags and whose cells are what has to be run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax
import pandas as pd

from ubex import checks
from ubex.runs.records import Cell, Context, Curve, FigureSpec, Outcome, SeedError, Table, grid

__all__ = [
    "Cell",
    "Context",
    "Curve",
    "Experiment",
    "FigureSpec",
    "Mode",
    "Outcome",
    "SeedError",
    "Table",
    "grid",
    "mode_of_device",
]

Mode = Literal["inline", "processes", "batched"]


def mode_of_device() -> Mode:
    """For compiled training: a GPU takes all seeds of a cell at once; on a CPU a batch is no faster than its parts.

    Example:
        >>> mode_of_device() in ("processes", "batched")
        True
    """
    return "processes" if jax.default_backend() == "cpu" else "batched"


@dataclass(frozen=True)
class Experiment(ABC):
    """One table or figure. Subclasses add fields, each of which is a flag, and say what their cells are and how one is run."""

    name: ClassVar[str]
    summary: ClassVar[str]
    mode: ClassVar[Mode] = "processes"
    """How the local backend runs it: `inline` (one after another in this process, for quick cells), `processes` (a pool, one
    seed a job) or `batched` (in this process, all seeds of a cell in one call of `run`)."""
    figures: ClassVar[Sequence[FigureSpec]] = ()
    """What the report draws."""
    needs: ClassVar[str] = ""
    """A module of an extra that it cannot run without; none if empty."""
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Values of `--preset`, for experiments with a field of that name, and the fields that each changes by default."""

    seeds: int = 5
    """Number of seeds of every cell."""

    def __post_init__(self) -> None:
        """Refuses fields that make no sense."""
        checks.whole("seeds", self.seeds, 1)

    def ready(self) -> None:  # noqa: B027  (most experiments need nothing)
        """Refuses to begin, before anything is written, where something is missing on this machine."""

    @abstractmethod
    def cells(self) -> Sequence[Cell]:
        """What has to be run."""

    @abstractmethod
    def run(self, cell: Cell, seeds: Sequence[int], context: Context) -> Mapping[int, Outcome | SeedError]:
        """The outcome of each seed of one cell, or why it has none. Randomness comes from `cell.key(seed)` alone."""

    @abstractmethod
    def smoke(self) -> Experiment:
        """The same experiment, tiny."""

    @abstractmethod
    def tables(self, results: pd.DataFrame) -> Sequence[Table]:
        """What the tidy results say, for people."""
