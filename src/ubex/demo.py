"""`ubex demo`: the main job on defaults, in minutes: Table 1, every agent on DeepSea, a report page, and where to go next."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from ubex.experiments.deep_sea import DeepSea
from ubex.experiments.toy import Toy
from ubex.report import html, tables
from ubex.runs import runner

SIZE, EPISODES, SEEDS = 10, 1000, 2


def demo(out: Path, console: Console) -> Path:
    """Runs the toy example and every agent on DeepSea, prints their tables and ends with the report page."""
    jobs = (Toy(), DeepSea(sizes=(SIZE,), episodes=EPISODES, seeds=SEEDS))
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
