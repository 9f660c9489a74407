"""`ubex demo`: the main job on defaults, in about a minute: Table 1, two figures, and where to go next."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from ubex.experiments.random_mdp import RandomMDP
from ubex.experiments.toy import Toy
from ubex.report import figures, tables
from ubex.runs import runner

SEEDS = 5


def demo(out: Path, console: Console) -> list[Path]:
    """Runs the toy example and the error comparison, prints both tables and draws both figures."""
    jobs = ((Toy(), figures.toy_figure), (RandomMDP(seeds=SEEDS), figures.error_figure))
    drawn: list[Path] = []
    for step, (experiment, draw) in enumerate(jobs, start=1):
        console.print(f"\n{step}/{len(jobs)}  {experiment.summary}", style="bold", markup=False)
        results = runner.run(experiment, out / experiment.name, console)
        for table in experiment.tables(results):
            tables.show(table, console)
        drawn += figures.save(draw(results), out / f"{experiment.name}.png")
    console.print("\nfigures:")
    for path in drawn:
        console.print(f"  {path}", markup=False, soft_wrap=True)
    console.print("next: `ubex list` shows what else there is; README.md has the one-call example", markup=False)
    return drawn
