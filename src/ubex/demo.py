"""`ubex demo`: the main job on defaults, in about a minute: Table 1, figures in a report page, and where to go next."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from ubex.experiments.random_mdp import RandomMDP
from ubex.experiments.toy import Toy
from ubex.report import html, tables
from ubex.runs import runner

SEEDS = 5


def demo(out: Path, console: Console) -> Path:
    """Runs the toy example and the error comparison, prints their tables and ends with the report page."""
    jobs = (Toy(), RandomMDP(seeds=SEEDS))
    for step, experiment in enumerate(jobs, start=1):
        console.print(f"\n{step}/{len(jobs)}  {experiment.summary}", style="bold", markup=False)
        for table in runner.run(experiment, out / experiment.name, console).tables:
            tables.show(table, console)
    page = html.build(out)
    console.print(f"\nreport: {page}", markup=False, soft_wrap=True)
    console.print("next: `ubex list` shows what else there is; README.md has the one-call example", markup=False)
    return page
