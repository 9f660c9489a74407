"""What an experiment is: data. A frozen dataclass whose fields are its flags and whose cells are what has to be run."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import jax
import pandas as pd

from ubex import checks
from ubex.keys import named
from ubex.types import Key

Scalar = str | int | float | bool


@dataclass(frozen=True)
class Cell:
    """One point of an experiment's grid. Its seeds are not part of it: they are run together where that is faster."""

    experiment: str
    environment: str
    method: str
    settings: Mapping[str, Scalar]
    """Everything else that the numbers depend on."""

    @property
    def id(self) -> str:
        """A hash of the settings, the same on every machine."""
        text = json.dumps([self.experiment, self.environment, self.method, dict(self.settings)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def key(self, seed: int) -> Key:
        """The random key of one seed: it depends on the cell and the seed alone, not on what else runs."""
        return jax.random.fold_in(named(jax.random.key(0), self.id), seed)


@dataclass(frozen=True)
class Table:
    """A table for people: printed by the command line, shown by the report."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True)
class Experiment(ABC):
    """One table or figure. Subclasses add fields (each becomes a flag) and say what their cells are and how one is run."""

    name: ClassVar[str]
    summary: ClassVar[str]

    seeds: int = 5
    """Number of seeds of every cell."""

    def __post_init__(self) -> None:
        """Refuses fields that make no sense."""
        checks.whole("seeds", self.seeds, 1)

    @abstractmethod
    def cells(self) -> Sequence[Cell]:
        """What has to be run."""

    @abstractmethod
    def run(self, cell: Cell, seed: int) -> Mapping[str, float]:
        """The scalars of one cell and seed, by metric."""

    @abstractmethod
    def smoke(self) -> Experiment:
        """The same experiment, tiny."""

    @abstractmethod
    def tables(self, results: pd.DataFrame) -> Sequence[Table]:
        """What the tidy results say, for people."""
