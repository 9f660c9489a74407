"""Table 1 of the paper: local uncertainties and both variances on the toy example, next to brute force."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from ubex.calls import value_variance
from ubex.envs import toy
from ubex.experiments.spec import Cell, Context, Experiment, FigureSpec, Mode, Outcome, Table

BRUTE_FORCE = "brute-force"
METHODS = ("exact-ube", "exact-ube-1", "exact-ube-2", "pombu", "odonoghue", BRUTE_FORCE)
SHOWN = ("s0", "s2")
"""The paper leaves out the states whose values are certain."""


@dataclass(frozen=True)
class Toy(Experiment):
    """Table 1: u, w, W and U on the toy example, next to the brute-force variance."""

    name: ClassVar[str] = "toy"
    summary: ClassVar[str] = "Table 1: u, w, W and U on the toy example, next to brute force"
    mode: ClassVar[Mode] = "inline"
    figures: ClassVar[Sequence[FigureSpec]] = (
        FigureSpec(
            "variance-s0", "Variance of the value of s0", "bars", "variance_s0", "", "variance", x="environment", cap=40.0
        ),
        FigureSpec(
            "local-s0", "Local uncertainty of s0", "bars", "local_s0", "", "local uncertainty", x="environment", cap=10.0
        ),
    )

    seeds: int = 1
    """The posterior is enumerated, so every seed gives the same numbers."""
    correlated: bool = False
    """Let delta and beta rise and fall together. This violates the assumption of independent transitions."""

    def cells(self) -> Sequence[Cell]:
        """One cell per method."""
        return [Cell(self.name, "toy", method, {"correlated": self.correlated}) for method in METHODS]

    def run(self, cell: Cell, seeds: Sequence[int], context: Context) -> Mapping[int, Outcome]:
        """Local uncertainty and variance at every state. Nothing is clipped: the paper's table shows a negative u."""
        samples = toy.posterior_samples(bool(cell.settings["correlated"]))
        estimator = "ensemble-var" if cell.method == BRUTE_FORCE else cell.method
        policy = np.zeros(len(toy.STATES), dtype=int)
        result = value_variance(samples, policy, toy.DISCOUNT, estimator=estimator, u_min=-np.inf)
        metrics = {f"variance_{state}": float(result.v[i]) for i, state in enumerate(toy.STATES)}
        if cell.method != BRUTE_FORCE:
            metrics |= {f"local_{state}": float(result.local[i, 0]) for i, state in enumerate(toy.STATES)}
        return dict.fromkeys(seeds, Outcome(metrics))

    def smoke(self) -> Toy:
        """It is tiny already."""
        return self

    def tables(self, results: pd.DataFrame) -> Sequence[Table]:
        """Table 1 with the brute-force variance added."""
        value = results.set_index(["method", "metric"])["value"]
        columns = ["state", "u(s)", "w(s)", "W(s) pombu", "U(s) exact-ube", "brute force", "W error", "U error"]
        rows = []
        for state in SHOWN:
            true = value[BRUTE_FORCE, f"variance_{state}"]
            bound, exact = value["pombu", f"variance_{state}"], value["exact-ube", f"variance_{state}"]
            cells = [value["exact-ube", f"local_{state}"], value["pombu", f"local_{state}"], bound, exact, true]
            rows.append(
                [state, *(f"{x:.4f}" for x in cells), *(f"{round(x / true - 1, 6) + 0.0:+.1%}" for x in (bound, exact))]
            )
        if self.correlated:
            note = (
                "delta and beta rise and fall together here: the rows of s0 and s2 are dependent, which VIOLATES the paper's "
                "assumption of independent transitions, so the exact equation misses the true variance."
            )
        else:
            note = "The assumptions hold: U is the true variance, W is an upper bound."
        return [Table("Table 1: the toy example", columns, rows, note)]
