"""Runs the cells of an experiment, one after another, with a progress bar."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ubex.runs import store

if TYPE_CHECKING:
    from ubex.experiments.spec import Experiment


def run(experiment: Experiment, out: Path, console: Console) -> pd.DataFrame:
    """Runs every cell and seed and writes the tidy table."""
    store.folder(out)
    cells = experiment.cells()
    rows: list[dict[str, Any]] = []
    columns = (TextColumn("{task.description:<34}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(experiment.name, total=len(cells) * experiment.seeds)
        for cell in cells:
            progress.update(task, description=f"{experiment.name}: {cell.method}")
            for seed in range(experiment.seeds):
                head = {
                    "experiment": cell.experiment,
                    "environment": cell.environment,
                    "method": cell.method,
                    "seed": seed,
                }
                for metric, value in experiment.run(cell, seed).items():
                    rows.append({**head, "metric": metric, "value": value, **cell.settings})
                progress.advance(task)
    store.write_results(out, rows)
    return pd.DataFrame(rows)
