"""What an experiment is: data. A frozen dataclass whose fields are its flags and whose cells are what has to be run."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar

import jax
import pandas as pd
import tyro

from ubex import checks, fields
from ubex.runs.records import UNRECORDED, Cell, Context, Curve, FigureSpec, Outcome, SeedError, Table, grid
from ubex.types import InputError

__all__ = [
    "Cell",
    "Context",
    "Curve",
    "Experiment",
    "FigureSpec",
    "Mode",
    "Outcome",
    "Preset",
    "SeedError",
    "Table",
    "grid",
    "mode_of_device",
]

E = TypeVar("E", bound="Experiment")
Mode = Literal["inline", "processes", "batched"]


def mode_of_device() -> Mode:
    """For compiled training: a GPU takes all seeds of a cell at once; on a CPU a batch is no faster than its parts.

    Example:
        >>> mode_of_device() in ("processes", "batched")
        True
    """
    return "processes" if jax.default_backend() == "cpu" else "batched"


class Preset(NamedTuple):
    """Other defaults of an experiment, by name: `ubex run EXPERIMENT --preset NAME`."""

    summary: str
    fields: Mapping[str, Any]
    """What it changes."""
    name: str = ""
    """For a study, which asks another question: the name of its runs, from which their random keys and folders follow."""
    figures: Sequence[FigureSpec] = ()
    """What the report of a study draws; the same as of the experiment if empty."""


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
    presets: ClassVar[Mapping[str, Preset]] = {}
    """Values of `--preset`."""

    seeds: int = 5
    """The number of seeds per cell."""
    study: Annotated[str, tyro.conf.Suppress] = field(default="", metadata=UNRECORDED)
    """The preset that gives its runs their name; none if empty."""

    def __post_init__(self) -> None:
        """Refuses fields that make no sense. A study has its own name, summary and figures."""
        fields.check(self)
        checks.whole("seeds", self.seeds, 1)
        for axis in dataclasses.fields(self):
            if getattr(self, axis.name) == () != axis.default:
                raise InputError(f"{axis.name} must have at least one value: without one there is nothing to run")
        if self.study:
            preset = self.presets[checks.one_of("study", self.study, self.presets)]
            for name in ("name", "summary", "figures"):
                object.__setattr__(self, name, getattr(preset, name) or getattr(self, name))

    @classmethod
    def of(cls: type[E], *presets: str, **fields: Any) -> E:
        """The experiment with the defaults of some presets, of which the later ones count, and with fields of one's own."""
        changed: dict[str, Any] = {}
        for name in presets:
            preset = cls.presets[checks.one_of("preset", name, cls.presets)]
            if preset.name and "study" in changed:
                raise InputError(f"the presets {changed['study']} and {name} are two studies: choose one of them")
            changed |= {**preset.fields, **({"study": name} if preset.name else {})}
        return cls(**{**changed, **fields})

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
