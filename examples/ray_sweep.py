"""A sweep on Ray from Python: the cells of an experiment on a cluster, then its results as a table.

    python examples/ray_sweep.py --out runs/sweep                                  starts Ray on this machine
    python examples/ray_sweep.py --out /shared/sweep --address 10.0.0.5:6379       an existing cluster

The same call again continues what was stopped. Needs `pip install 'ubex[ray]'`; `--backend local` needs nothing.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

import ubex
from ubex.experiments.shrinkage import Shrinkage
from ubex.report import html
from ubex.runs import runner


def main() -> None:
    """Runs, reads, reports."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/sweep"))
    parser.add_argument("--address", help="of a running cluster; without it, Ray is started here")
    parser.add_argument("--backend", default="ray", help="ray or local")
    parser.add_argument("--sizes", type=int, nargs="+", default=[4, 6, 8])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--episodes", type=int, default=30)
    options = parser.parse_args()

    sweep = Shrinkage(
        seeds=options.seeds, sizes=tuple(options.sizes), episodes=options.episodes, methods=("exact-ube", "pombu")
    )
    how = runner.Options(backend=options.backend, address=options.address)
    summary = runner.run(sweep, options.out, Console(), how)
    print(f"{summary.finished} finished, {summary.skipped} were there before, {summary.failed} failed")

    results = ubex.load_results(options.out)
    final = results[results["metric"] == "final_variance"]
    print(final.groupby(["size", "method"])["value"].agg(["mean", "sem"]))
    print(f"report: {html.build(options.out)}")


if __name__ == "__main__":
    main()
