"""`ubex demo`: the main job, in minutes: Table 1, estimators against the truth, agents on DeepSea, a page, where to go next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd
from rich.console import Console

from ubex.experiments.calibration import Calibration
from ubex.experiments.deep_sea import DeepSea
from ubex.experiments.exploration import PAPER_METHODS
from ubex.experiments.spec import Experiment
from ubex.experiments.toy import Toy
from ubex.report import html, tables
from ubex.runs import runner
from ubex.runs.folder import load_results

TITLE = "How sure is an agent of its values, and where should it look next?"
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


def explored(results: pd.DataFrame) -> str:
    """What the maps of DeepSea show."""
    rows = results[results["metric"] == "total_regret"]
    return (
        "The maps show where an agent went while it explored DeepSea, what it expected there, and how unsure it was. "
        f"It goes where it is unsure. {left_unsolved(rows)}"
    )


def regretted(results: pd.DataFrame) -> str:
    """How the agents compare on the largest DeepSea."""
    return left_unsolved(results[(results["metric"] == "total_regret") & (results["size"] == results["size"].max())])


def left_unsolved(regrets: pd.DataFrame) -> str:
    """How many episodes each agent does not solve, the best agent first."""
    means = regrets.groupby("method")["value"].mean().sort_values()
    counts = ", ".join(f"{value:g} by {name}" for name, value in means.items())
    return f"Of {regrets['episodes'].max():,} episodes with L = {regrets['size'].max()} these were not solved: {counts}."


def measured(results: pd.DataFrame) -> str:
    """How far two estimators are from the truth, without and with cycles."""
    errors = results[results["metric"] == "median_relative_error"]
    most = errors["num_models"].max()

    def error(method: str, kind: str) -> str:
        held = errors[(errors["method"] == method) & (errors["environment"] == kind)]
        held = held[held["num_models"].isin((0, most))]  # 0 where nothing is sampled
        return f"{held['value'].median():.0%}"

    ours, paper = ([error(method, f"{kind}-observed") for kind in ("acyclic", "cyclic")] for method in ESTIMATORS[:2])
    return (
        f"Against {results['truth_samples'].max():,} sampled MDPs, the variance of the closed form is off by {ours[0]} where "
        f"no state is met twice, and that of exact-ube by {paper[0]} with {most} samples. Where states are met again, which "
        f"exact-ube assumes away, the closed form is off by {ours[1]} and exact-ube by {paper[1]}."
    )


def reproduced(results: pd.DataFrame) -> str:
    """Table 1 of the paper."""
    found = results[results["metric"] == "variance_s0"].set_index("method")["value"]
    return (
        f"Table 1 of the paper: the true variance of the value of s0 is {found['brute-force']:.2f}. "
        f"exact-ube finds {found['exact-ube']:.2f}, and the bound of pombu is {found['pombu']:.2f}."
    )


FINDINGS: Mapping[str, Callable[[pd.DataFrame], str]] = {
    "deep-sea-maps": explored,
    "deep-sea": regretted,
    "calibration": measured,
    "toy": reproduced,
}
"""What an experiment's results say in a sentence or two, in the order of the page: the pictures first."""


def demo(out: Path, console: Console) -> Path:
    """Runs the experiments, prints their tables and what they say, and ends with the report page."""
    jobs = experiments()
    for step, experiment in enumerate(jobs, start=1):
        console.print(f"\n{step}/{len(jobs)}  {experiment.summary}", style="bold", markup=False)
        for table in runner.run(experiment, out / experiment.name, console).tables:
            tables.show(table, console)
    said = {out / name: say(load_results(out / name)) for name, say in FINDINGS.items() if name in {one.name for one in jobs}}
    console.print("\nWhat came out", style="bold", markup=False)
    for sentence in said.values():
        console.print(f"* {sentence}", markup=False, highlight=False)
    page = html.build(*said, out=out / "report", title=TITLE, findings=said)
    console.print(f"\nreport: {page}", markup=False, soft_wrap=True)
    console.print(
        "next: `ubex train --env FrozenLake-v1` puts an agent on an environment of your choice; `ubex list` shows the rest",
        markup=False,
    )
    return page
