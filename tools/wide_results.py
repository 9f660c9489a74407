"""Keeps the results of a run as one small table: a line a cell and seed, a column a metric, four digits.

python tools/wide_results.py runs/calibration results/calibration.csv
"""

from __future__ import annotations

import sys
from pathlib import Path

from ubex import load_results


def keep(run: Path, target: Path) -> None:
    """Writes the table; settings that never vary are left out."""
    results = load_results(run)
    settings = [column for column in results.columns if column not in ("experiment", "metric", "value")]
    varied = [column for column in settings if column == "method" or results[column].nunique(dropna=False) > 1]
    wide = results.pivot(index=varied, columns="metric", values="value").reset_index()
    order = list(dict.fromkeys(results["metric"]))
    wide[[*varied, *order]].to_csv(target, index=False, float_format="%.4g")


if __name__ == "__main__":
    keep(Path(sys.argv[1]), Path(sys.argv[2]))
