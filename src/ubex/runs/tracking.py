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
    """Takes the outcome of every cell and seed as it is finished."""

    def log(self, cell: Cell, seed: int, outcome: Outcome) -> None:
        """Writes one outcome."""
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

    def log(self, cell: Cell, seed: int, outcome: Outcome) -> None:
        """Curves against their index, scalars at step 0."""
        writer = self._writer(str(self.root / f"{cell.method}-{cell.id}" / f"seed-{seed}"))
        for metric, value in outcome.scalars.items():
            self._point(writer, metric, value, 0)
        for metric, curve in outcome.curves.items():
            for index, value in zip(curve.index, curve.values, strict=True):
                self._point(writer, metric, value, index)
        writer.close()

    def _point(self, writer: Any, metric: str, value: float, step: int) -> None:
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

    def log(self, cell: Cell, seed: int, outcome: Outcome) -> None:
        """Curves against their index, scalars in the summary."""
        run = self._wandb.init(
            project="ubex",
            group=f"{self.name}-{cell.id}",
            name=f"{cell.label}, seed {seed}",
            dir=str(self.out),
            mode=self._mode,
            config={"environment": cell.environment, "method": cell.method, "seed": seed, **cell.settings},
            settings=self._wandb.Settings(silent=True, console="off"),
        )
        rows: dict[int, dict[str, float]] = {}
        for metric, curve in outcome.curves.items():
            for index, value in zip(curve.index, curve.values, strict=True):
                rows.setdefault(index, {})[metric] = value
        for index in sorted(rows):
            run.log(rows[index], step=index)
        run.summary.update(dict(outcome.scalars))
        run.finish()


TRACKERS: Mapping[str, Callable[[Path, str], Tracker]] = MappingProxyType({"tensorboard": TensorBoard, "wandb": WandB})
