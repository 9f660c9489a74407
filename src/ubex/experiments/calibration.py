"""Every estimator held against the true variance, on posteriors without and with cycles, and how the error follows from them.

The truth is the variance over many posterior samples, each evaluated exactly, with its own Monte-Carlo error. Next to it stands
how far the paper's assumptions fail: how much rows and values depend on each other, and how much the answer would change if
every step had rows of its own. docs/equations.md says what came out.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd

from ubex import checks, estimators
from ubex.estimators import ESTIMATORS
from ubex.experiments import calibration_cases as cases
from ubex.experiments.calibration_scores import ERROR, NO_SAMPLES, UNROLLED, VIOLATION, Problem, score
from ubex.experiments.spec import Cell, Context, Experiment, FigureSpec, Mode, Outcome, Preset, Table
from ubex.types import InputError

IN_CASES = ("closed-form", "first-order", "exact-ube", "pombu", "ensemble-var")
"""Methods in the table of cases, which has room for few."""
ERROR_LABEL = "|estimate / truth - 1|"
"""Figures show medians over states."""


@dataclass(frozen=True)
class Calibration(Experiment):
    """Error, ranking and coverage of every estimator against the variance over many posterior samples."""

    name: ClassVar[str] = "calibration"
    summary: ClassVar[str] = "every estimator against the true variance, and how far the assumptions fail"
    mode: ClassVar[Mode] = "inline"
    figures: ClassVar[Sequence[FigureSpec]] = (
        FigureSpec(
            "error-by-kind",
            "Error by kind of MDP",
            "bars",
            ERROR,
            "",
            ERROR_LABEL,
            x="environment",
            facet="num_models",
            cap=1.5,
        ),
        FigureSpec(
            "error-by-samples",
            "Error against the number of samples (0: none needed)",
            "bars",
            ERROR,
            "posterior samples",
            ERROR_LABEL,
            x="num_models",
            facet="environment",
            cap=1.5,
        ),
        FigureSpec(
            "error-by-violation",
            "Error against how much rows and values depend on each other",
            "scatter",
            ERROR,
            "|sum Cov[p, V]| / sd[V]",
            ERROR_LABEL,
            x=VIOLATION,
            facet="num_models",
            log=True,
        ),
        FigureSpec(
            "error-by-unrolling",
            "Error against how much fresh rows at every step would change",
            "scatter",
            ERROR,
            "|unrolled / stationary - 1|",
            ERROR_LABEL,
            x=UNROLLED,
            facet="num_models",
            log=True,
        ),
        FigureSpec(
            "coverage",
            "Share of true values within two standard deviations",
            "bars",
            "coverage",
            "",
            "coverage, mean over states",
            x="environment",
            facet="num_models",
        ),
    )
    presets: ClassVar[Mapping[str, Preset]] = {
        "small": Preset(
            "MDPs of eight states after 20 transitions, without and with cycles, three of each",
            {
                **{"kinds": cases.OBSERVED_KINDS, "episodes": (20,), "size": 9, "discounts": (0.95,)},
                **{"num_models": (5, 100), "seeds": 3},
            },
        ),
    }

    seeds: int = 1
    """The number of random posteriors per case."""
    methods: tuple[str, ...] = tuple(ESTIMATORS)
    """The estimators, by their names."""
    kinds: tuple[str, ...] = (*cases.RANDOM_KINDS, *cases.ENVIRONMENT_KINDS)
    """The kinds of posteriors: acyclic-layered, acyclic-random, cyclic-dense, cyclic-sparse, cyclic-grid, deep-sea, rooms.
    There are also the small MDPs acyclic-observed and cyclic-observed."""
    counts: tuple[float, ...] = (0.1, 1.0, 5.0)
    """The pseudo-counts of random posteriors, per state, action and next state."""
    episodes: tuple[int, ...] = (1, 10, 100)
    """The numbers of episodes of data in environments, and of transitions of data in the two observed kinds."""
    discounts: tuple[float, ...] = (0.9, 0.95, 0.99)
    """The discount factors."""
    num_models: tuple[int, ...] = (5, 20, 100, 1000)
    """The numbers of posterior samples that an estimator gets, where it needs any."""
    size: int = 25
    """The number of states of random posteriors. DeepSea has about as many."""
    rooms: int = 2
    """The number of rooms of the n-room environment. It has 51 states with two rooms, and 181 with seven."""
    truth_samples: int = 20_000
    """The number of posterior samples behind the true variance. Above 30 states it is a fifth of that."""

    def __post_init__(self) -> None:
        """Refuses fields that make no sense."""
        super().__post_init__()
        for method in self.methods:
            estimators.method(method)
        for kind in self.kinds:
            checks.one_of("kind", kind, cases.KINDS)
        for count in self.counts:
            checks.real("counts", count, 1e-3, 1e9)
        for number in self.episodes:
            checks.whole("episodes", number, 1)
        for discount in self.discounts:
            if checks.discount_factor(discount) in (0.0, 1.0):
                raise InputError(f"discounts must be between 0 and 1, but one is {discount:g}")
        for number in self.num_models:
            checks.whole("num_models", number, 2)
        checks.whole("size", self.size, 4)
        checks.whole("rooms", self.rooms, 2)
        checks.whole("truth_samples", self.truth_samples, 20)

    def cells(self) -> Sequence[Cell]:
        """Kinds x amounts of data x discounts x ensemble sizes x methods."""
        shared: dict[str, Any] = {field: getattr(self, field) for field in ("size", "rooms", "truth_samples")}
        sampled = [method for method in self.methods if estimators.find(method).closed is None]
        pairs = [(method, NO_SAMPLES) for method in self.methods if method not in sampled]
        pairs += [(method, number) for number in self.num_models for method in sampled]
        return [
            Cell(self.name, kind, method, {"data": float(data), "discount": discount, "num_models": number, **shared})
            for kind in self.kinds
            for data in (self.counts if kind in cases.RANDOM_KINDS else self.episodes)
            for discount in self.discounts
            for method, number in pairs
        ]

    def run(self, cell: Cell, seeds: Sequence[int], context: Context) -> Mapping[int, Outcome]:
        """One estimate against one truth; all methods see the same problems and the same samples."""
        settings: Mapping[str, Any] = cell.settings
        outcomes = {}
        for done, seed in enumerate(seeds):
            context.progress(done, len(seeds), "problem")
            names = ("data", "size", "rooms", "truth_samples")
            problem = Problem(kind=cell.environment, seed=seed, **{name: settings[name] for name in names})
            outcomes[seed] = Outcome(score(problem, cell.method, settings["num_models"], settings["discount"]))
        return outcomes

    def smoke(self) -> Calibration:
        """Two methods, two kinds of one shape, one amount of data, one discount, few samples."""
        return dataclasses.replace(
            self,
            seeds=1,
            methods=("exact-ube", "closed-form"),
            kinds=self.kinds if len(self.kinds) <= 2 else ("acyclic-layered", "cyclic-dense"),
            counts=(1.0,),
            episodes=(2,),
            discounts=(0.9,),
            num_models=(5,),
            size=9,
            truth_samples=200,
        )

    def tables(self, results: pd.DataFrame) -> Sequence[Table]:
        """Error and coverage by method and kind, and the cases with their violations."""
        return [
            by_kind(results, ERROR, "Relative error of the variance", "Median over states, then over the cases of a kind."),
            by_kind(
                results, "coverage", "Coverage of two standard deviations", "Mean over states, then median over the cases."
            ),
            case_table(results),
        ]


def by_kind(results: pd.DataFrame, metric: str, title: str, note: str) -> Table:
    """A metric by method, number of samples and kind."""
    rows = results[results["metric"] == metric]
    middle = rows.groupby(["num_models", "method", "environment"], sort=False)["value"].median().unstack("environment")
    kinds = list(dict.fromkeys(rows["environment"]))
    lines = [
        [str(method), "-" if number == NO_SAMPLES else str(number), *(f"{row[kind]:.3g}" for kind in kinds)]
        for (number, method), row in zip(middle.index, middle.to_dict("records"), strict=True)
    ]
    return Table(title, ["method", "N", *kinds], lines, note)


def case_table(results: pd.DataFrame) -> Table:
    """Every case: the error of the truth, the violations, and the error of each method with the most samples."""
    axes = ["environment", "data", "discount"]
    own = ("truth_error", VIOLATION, UNROLLED)
    methods = [method for method in dict.fromkeys(results["method"]) if method in IN_CASES]
    lines = []
    for case, rows in results.groupby(axes, sort=False):
        facts = rows.groupby("metric")["value"].median()
        errors = rows[rows["metric"] == ERROR].sort_values("num_models").groupby("method")["value"].last()
        numbers = [*(facts[name] for name in own), *(errors.get(method, math.nan) for method in methods)]
        lines.append([str(case[0]), f"{case[1]:g}", f"{case[2]:g}", *(f"{number:.3g}" for number in numbers)])
    columns = ["kind", "data", "discount", "truth's error", "violation", "unrolled", *methods]
    note = (
        "Data are pseudo-counts per cell, episodes or transitions. The truth's error is its relative Monte-Carlo standard "
        "error, the others are as in the figures; methods have the most samples. Medians over states and seeds. "
        f"{stuck(results)}"
    )
    return Table("Cases", columns, lines, note.strip())


def stuck(results: pd.DataFrame) -> str:
    """In how many cases the fixed point of the closed form was not reached."""
    rows = results[(results["metric"] == "converged") & (results["method"] == "closed-form")]
    failed = int((rows["value"] == 0.0).sum())
    return f"The closed form fell back to first order in {failed} of {len(rows)} cases." if len(rows) else ""
