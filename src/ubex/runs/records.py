"""What passes between an experiment, the engine that runs it, the disk and the report: plain records."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Protocol, runtime_checkable

import jax

from ubex.fields import Within
from ubex.keys import named
from ubex.types import Key

Setting = str | int | float | bool
DRAWABLE = 1e100
"""The largest number that figures show: squares of larger ones are none."""
SO_FAR = "so-far.json"
"""The file beside checkpoints that says what seeds had shown at the newest one."""
UNRECORDED: Mapping[str, bool] = MappingProxyType({"recorded": False})
"""Metadata of fields that are no settings: `spec.json` says what they say in another way."""
IF_GIVEN: Mapping[str, bool] = MappingProxyType({"if_given": True})
"""Metadata of fields that came later: where they are None, runs have the folders and specs that they had before."""


@dataclass(frozen=True)
class Cell:
    """One point of an experiment's grid. Its seeds are not part of it: they are run together where that is faster."""

    experiment: str
    environment: str
    method: str
    settings: Mapping[str, Setting]
    """Everything else that the numbers depend on."""

    @property
    def id(self) -> str:
        """A hash of the settings, the same on every machine."""
        text = json.dumps([self.experiment, self.environment, self.method, dict(self.settings)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def label(self) -> str:
        """A short name for people."""
        details = " ".join(f"{name}={value}" for name, value in self.settings.items())
        return f"{self.environment} {self.method} {details}".strip()

    def key(self, seed: int) -> Key:
        """The random key of one seed: it depends on the cell and the seed alone, not on what else runs."""
        return jax.random.fold_in(named(jax.random.key(0), self.id), seed)


def settings_of(experiment: Any) -> dict[str, Any]:
    """The fields of an experiment, as `spec.json` records them."""
    found = {one: getattr(experiment, one.name) for one in fields(experiment) if one.metadata.get("recorded", True)}
    return {one.name: value for one, value in found.items() if value is not None or not one.metadata.get("if_given")}


def grid(**axes: Sequence[Setting]) -> list[dict[str, Setting]]:
    """All combinations of the axes, the last one running fastest.

    Example:
        >>> grid(size=(10, 20), gain=(1.0,))
        [{'size': 10, 'gain': 1.0}, {'size': 20, 'gain': 1.0}]
    """
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


@dataclass(frozen=True)
class Curve:
    """A metric along a run."""

    unit: str
    """What the index counts: episode or step."""
    index: Sequence[int]
    values: Sequence[float]


@dataclass(frozen=True)
class Outcome:
    """What one cell and seed gives."""

    scalars: Mapping[str, float]
    curves: Mapping[str, Curve] = field(default_factory=dict)
    earlier: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    """Scalars as they were after fewer episodes, by that number: rows of their own with it as `episodes`."""
    earlier_unit: str = "episodes"
    """The column that `earlier` is counted in: episodes or steps."""

    def until(self, number: int, unit: str) -> Outcome:
        """What a seed gives that has come this far and goes on: its scalars count as earlier ones."""
        return Outcome({}, self.curves, {**self.earlier, number: self.scalars}, unit)


def to_json(outcome: Outcome) -> dict[str, Any]:
    """An outcome as JSON can hold it; floats keep every digit."""
    curves = {
        metric: {"unit": c.unit, "index": [int(i) for i in c.index], "values": [float(v) for v in c.values]}
        for metric, c in outcome.curves.items()
    }
    earlier = {str(number): numbers(scalars) for number, scalars in outcome.earlier.items()}
    more = {"earlier": earlier, "earlier_unit": outcome.earlier_unit} if earlier else {}
    return {"scalars": numbers(outcome.scalars), "curves": curves} | more


def numbers(scalars: Mapping[str, float]) -> dict[str, float]:
    """Scalars as plain floats."""
    return {metric: float(value) for metric, value in scalars.items()}


def from_json(data: Mapping[str, Any]) -> Outcome:
    """The inverse of `to_json`."""
    curves = {metric: Curve(**curve) for metric, curve in data["curves"].items()}
    earlier = {int(number): dict(scalars) for number, scalars in data.get("earlier", {}).items()}
    return Outcome(dict(data["scalars"]), curves, earlier, data.get("earlier_unit", "episodes"))


def as_text(outcomes: Mapping[int, Outcome]) -> str:
    """What is in `SO_FAR`."""
    return json.dumps({seed: to_json(one) for seed, one in outcomes.items()})


@dataclass(frozen=True)
class SeedError:
    """In place of an outcome: why one seed gave none, while the others of its cell did."""

    error: str


@dataclass(frozen=True)
class Table:
    """A table for people: printed by the command line, shown by the report."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True)
class FigureSpec:
    """A figure as data, so that a report needs nothing but what is on disk."""

    name: str
    """File name without ending."""
    title: str
    kind: str
    """`bars` (a metric by x, in groups), `lines` (a metric against x), `curves` (a metric along a run) or `scatter` (a metric
    against another one of the same cell and seed)."""
    metric: str
    xlabel: str
    ylabel: str
    x: str = ""
    """Column on the horizontal axis; for `curves` the unit, episode or step; for `scatter` a column or a metric."""
    series: str = "method"
    """Column that distinguishes bars or lines."""
    facet: str = ""
    """Column that makes one panel each; none if empty."""
    log: bool = False
    """Logarithmic vertical axis."""
    cap: Annotated[float, Within(-DRAWABLE, DRAWABLE)] | None = None
    """Bars and lines end here; the numbers on them do not."""


@runtime_checkable
class Checkpoints(Protocol):
    """Where a running cell keeps its state; see `runs/checkpoint.py`."""

    def save(self, step: int, state: Any, notes: Mapping[str, Any]) -> Path:
        """Keeps a state: a tree of arrays, and notes that JSON can hold."""
        ...

    def load(self, like: Any) -> tuple[int, Any, dict[str, Any]] | None:
        """The newest sound state as (step, state, notes), in the structure of `like`, or nothing."""
        ...

    def notes(self) -> dict[str, Any] | None:
        """The notes of the newest sound state, for states whose shapes depend on what happened before."""
        ...

    def leave(self, name: str, text: str) -> None:
        """Leaves a file beside the states, in place of an earlier one of that name; it goes with them."""
        ...


@runtime_checkable
class Context(Protocol):
    """What a running cell may use of the engine."""

    @property
    def checkpoints(self) -> Checkpoints:
        """Where this cell and its seeds keep their state."""
        ...

    def progress(self, done: int, total: int, unit: str = "episode") -> None:
        """Says how far the cell has come."""
        ...

    def compiling(self, begins: bool) -> None:
        """Says that the cell begins to compile, or has done so: the time between says nothing about the rest."""
        ...

    def measure(self, seed: int, place: int, unit: str, values: Mapping[str, float]) -> None:
        """Shows metrics of a seed at an episode or a step to the trackers, while the cell runs."""
        ...

    def keep(self, seed: int, name: str, data: bytes) -> None:
        """Leaves a file of this seed in the run folder, in place of an earlier one of that name."""
        ...
