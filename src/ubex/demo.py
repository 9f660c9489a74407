"""`ubex demo`: the main job, in minutes: Table 1, estimators against the truth, agents on DeepSea, a page, where to go next."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from ubex.experiments.calibration import Calibration
from ubex.experiments.deep_sea import DeepSea
from ubex.experiments.exploration import PAPER_METHODS
from ubex.experiments.spec import Experiment
from ubex.experiments.toy import Toy
from ubex.report import html, tables
from ubex.runs import runner

ESTIMATORS = ("closed-form", "exact-ube", "pombu", "ensemble-var")
AGENTS = ("closed-form", "first-order", *PAPER_METHODS)


def experiments() -> tuple[Experiment, ...]:
    """What is run, in this order; as much of it as two cores do in about three minutes."""
    return (
        Toy(),
        Calibration.of("small", methods=ESTIMATORS),
        DeepSea.of("maps"),
        DeepSea(sizes=(5, 10), methods=AGENTS, seeds=2),
    )


def demo(out: Path, console: Console) -> Path:
    """Runs the experiments, prints their tables and ends with the report page."""
    jobs = experiments()
    for step, experiment in enumerate(jobs, start=1):
        console.print(f"\n{step}/{len(jobs)}  {experiment.summary}", style="bold", markup=False)
        for table in runner.run(experiment, out / experiment.name, console).tables:
            tables.show(table, console)
    page = html.build(out)
    console.print(f"\nreport: {page}", markup=False, soft_wrap=True)
    console.print(
        "next: `ubex train --env FrozenLake-v1` puts an agent on an environment of your choice; `ubex list` shows the rest",
        markup=False,
    )
    return page
