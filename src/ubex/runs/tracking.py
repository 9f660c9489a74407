"""The same metrics, written where people already look: TensorBoard and Weights & Biases."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from ubex.runs.records import Cell, Outcome
from ubex.types import InputError


@runtime_checkable
class Tracker(Protocol):
    """Takes metrics of every cell and seed while it runs, and its outcome when it is finished."""

    def point(self, cell: Cell, seed: int, place: int, unit: str, values: Mapping[str, float]) -> None:
        """Writes metrics at an episode or a step, where people can see them at once."""
        ...

    def log(self, cell: Cell, seed: int, outcome: Outcome) -> None:
        """Writes one outcome: its scalars, and the curves that were not written while it ran."""
        ...


class TensorBoard:
    """Event files under DIR/tensorboard, with one folder per cell and seed."""

    def __init__(self, out: Path, name: str) -> None:
        """Needs the extra `tensorboard`."""
        del name
        self.root = out / "tensorboard"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                from tensorboard.compat.proto import event_pb2, summary_pb2
                from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError:
            raise InputError("--track tensorboard needs the extra: `pip install ubex[tensorboard]`") from None
        self._event: Any = event_pb2.Event
        self._summary: Any = summary_pb2.Summary
        self._writer: Callable[[str], Any] = EventFileWriter
        self._open: dict[tuple[str, int], tuple[Any, set[str]]] = {}

    def point(self, cell: Cell, seed: int, place: int, unit: str, values: Mapping[str, float]) -> None:
        """Against the episode or the step; written out at once."""
        del unit
        writer, written = self._of(cell, seed)
        written.update(values)
        for metric, value in values.items():
            self._add(writer, metric, value, place)
        writer.flush()

    def log(self, cell: Cell, seed: int, outcome: Outcome) -> None:
        """Curves against their index, scalars at step 0."""
        writer, written = self._of(cell, seed)
        for metric, value in outcome.scalars.items():
            self._add(writer, metric, value, 0)
        for metric, curve in outcome.curves.items():
            if metric in written:
                continue
            for index, value in zip(curve.index, curve.values, strict=True):
                self._add(writer, metric, value, index)
        writer.close()
        del self._open[cell.id, seed]

    def _of(self, cell: Cell, seed: int) -> tuple[Any, set[str]]:
        """What writes a seed, and the metrics that it has written."""
        if (cell.id, seed) not in self._open:
            folder = self.root / f"{cell.method}-{cell.id}" / f"seed-{seed}"
            self._open[cell.id, seed] = self._writer(str(folder)), set()
        return self._open[cell.id, seed]

    def _add(self, writer: Any, metric: str, value: float, step: int) -> None:
        summary = self._summary(value=[self._summary.Value(tag=metric, simple_value=value)])
        writer.add_event(self._event(step=step, summary=summary))


class WandB:
    """One W&B run per cell and seed, grouped by cell. Without an API key it stays offline, under DIR/wandb."""

    def __init__(self, out: Path, name: str) -> None:
        """Needs the extra `wandb`."""
        self.out, self.name = out, name
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                import wandb
        except ImportError:
            raise InputError("--track wandb needs the extra: `pip install ubex[wandb]`") from None
        self._wandb: Any = wandb
        self._mode = os.environ.get("WANDB_MODE") or ("online" if os.environ.get("WANDB_API_KEY") else "offline")
        self._open: dict[tuple[str, int], tuple[Any, set[str]]] = {}

    def point(self, cell: Cell, seed: int, place: int, unit: str, values: Mapping[str, float]) -> None:
        """Against the episode or the step, which are metrics themselves."""
        run, written = self._of(cell, seed)
        for metric in values.keys() - written:
            run.define_metric(metric, step_metric=unit)
        written.update(values)
        run.log({unit: place, **values})

    def log(self, cell: Cell, seed: int, outcome: Outcome) -> None:
        """Curves against their index, scalars in the summary."""
        run, written = self._of(cell, seed)
        rows: dict[tuple[int, str], dict[str, float]] = {}
        for metric, curve in outcome.curves.items():
            if metric in written:
                continue
            for index, value in zip(curve.index, curve.values, strict=True):
                rows.setdefault((index, curve.unit), {})[metric] = value
        for (index, unit), values in sorted(rows.items()):
            self.point(cell, seed, index, unit, values)
        run.summary.update(dict(outcome.scalars))
        run.finish()
        del self._open[cell.id, seed]

    def _of(self, cell: Cell, seed: int) -> tuple[Any, set[str]]:
        """The run of a seed, and the metrics that were written to it."""
        if (cell.id, seed) not in self._open:
            run = self._wandb.init(
                project="ubex",
                group=f"{self.name}-{cell.id}",
                name=f"{cell.label}, seed {seed}",
                dir=str(self.out),
                mode=self._mode,
                config={"environment": cell.environment, "method": cell.method, "seed": seed, **cell.settings},
                settings=self._wandb.Settings(silent=True, console="off"),
                reinit="create_new",  # seeds run side by side
            )
            self._open[cell.id, seed] = run, set()
        return self._open[cell.id, seed]


TRACKERS: Mapping[str, Callable[[Path, str], Tracker]] = MappingProxyType({"tensorboard": TensorBoard, "wandb": WandB})
