"""Locomotion: learning curves of the deep agents on HalfCheetah, Walker2D and Ant (figure of section 5.3, in PyBullet)."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd
import tyro

from ubex import checks
from ubex.deep.config import PRECISIONS
from ubex.deep.methods import DEEP_METHODS
from ubex.deep.presets import AUTO, chosen
from ubex.deep.presets import LOCOMOTION as SETTINGS
from ubex.envs.locomotion import EPISODE, LOCOMOTION
from ubex.experiments.exploration import value_and_error
from ubex.experiments.pendulum import PAPER_METHODS
from ubex.experiments.spec import (
    Cell,
    Context,
    Curve,
    Experiment,
    FigureSpec,
    Mode,
    Outcome,
    Preset,
    SeedError,
    Table,
    mode_of_device,
)
from ubex.experiments.train_deep import TrainDeep
from ubex.learn.agent import Agent
from ubex.learn.deep_agent import configured
from ubex.runs import metrics
from ubex.types import InputError

TASKS = ("halfcheetah", "walker2d", "ant")
STEPS: Mapping[str, int] = {"halfcheetah": 200_000, "walker2d": 300_000, "ant": 300_000}
"""The paper's numbers of steps: 200 and 300 episodes of 1,000."""
MARKS = (20_000, 50_000, 100_000, 150_000, 200_000)
"""Steps at which means were published."""
LAST = 10
"""Evaluations that a published mean, and a smoothed curve, are over."""
FILM = "last-evaluation.gif"
"""What the best of the seeds that ran together leaves besides the agent."""
LOG = logging.getLogger("ubex")


class Course(TrainDeep):
    """One agent on one task, of which the best seed leaves a film of an episode."""

    live: ClassVar[Mapping[str, str]] = {"return": "training_return", "evaluation": "return"}

    def given(self, curves: Mapping[str, Sequence[tuple[float, float]]], steps: int) -> Outcome:
        """Also the means that were published."""
        return summed_up(super().given(curves, steps), self.evaluate_every, steps)

    def leave(self, agent: Agent, seed: int, context: Context, best: bool) -> None:
        """The agent, and of the best one a film, where pictures can be made here."""
        super().leave(agent, seed, context, best)
        if not best:
            return
        try:
            _, film = agent.film(1, seed)
        except InputError as error:
            LOG.warning("no film of seed %d: %s", seed, error)
            return
        context.keep(seed, FILM, film)


@dataclass(frozen=True)
class Locomotion(Experiment):
    """Learning curves in PyBullet, as in the paper, or in MuJoCo, for every method and task."""

    name: ClassVar[str] = "locomotion"
    summary: ClassVar[str] = "HalfCheetah, Walker2D and Ant in PyBullet: learning curves of the deep agents"
    figures: ClassVar[Sequence[FigureSpec]] = (
        FigureSpec(
            "smoothed",
            f"Return, mean of {LAST} evaluations",
            "curves",
            "smoothed_return",
            "step",
            "return",
            "step",
            facet="environment",
        ),
        FigureSpec("returns", "Return of every evaluation", "curves", "return", "step", "return", "step", facet="environment"),
        FigureSpec(
            "last",
            f"Mean return of the last {LAST} evaluations",
            "bars",
            "mean_return_last_10",
            "environment",
            "return",
            "environment",
        ),
    )
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": Preset("the paper's settings", {"preset": "paper"}),
        "laptop": Preset(
            "two methods with small networks and fewer updates, one seed of 50,000 steps on HalfCheetah",
            {
                **{"preset": "laptop", "methods": ("exact-ube", "ensemble-mean"), "tasks": ("halfcheetah",)},
                **{"steps": 50_000, "num_models": 3, "seeds": 1},
            },
        ),
        "mujoco": Preset(
            "HalfCheetah, Walker2d and Ant in MuJoCo: learning curves of the deep agents", {}, "locomotion-mujoco"
        ),
    }

    methods: tuple[str, ...] = PAPER_METHODS
    """The deep agents to train. `ubex list` names them."""
    tasks: tuple[str, ...] = TASKS
    """The bodies that learn to run: halfcheetah, walker2d, ant."""
    steps: int | None = None
    """The number of steps in the environment. With the preset paper it is 200,000 for HalfCheetah, 300,000 for the others."""
    num_models: int = 5
    """The number N of models, each with its critic."""
    gain: float = 1.0
    """The exploration gain lambda: how much a standard deviation is worth."""
    preset: Annotated[str, tyro.conf.Suppress] = AUTO
    """The agent's settings, one of `LOCOMOTION` in `deep/presets.py`; by default those that fit the machine."""
    precision: str = "float32"
    """How matrices are multiplied on a GPU: float32, split16 or tf32."""
    horizon: int = EPISODE
    """The number of steps after which an episode is cut off."""
    seeds: int = 10
    """The number of seeds per cell."""

    def __post_init__(self) -> None:
        """Refuses fields that make no sense; whether the physics is installed shows when a task is made."""
        super().__post_init__()
        for method in self.methods:
            checks.one_of("method", method, DEEP_METHODS)
        for task in self.tasks:
            checks.one_of("task", task, TASKS)
        object.__setattr__(self, "preset", chosen(self.preset, SETTINGS))
        checks.one_of("precision", self.precision, PRECISIONS)
        if self.steps is not None:
            checks.whole("steps", self.steps, 1)
        checks.whole("horizon", self.horizon, 1)
        for method in self.methods:
            configured(method, "paper", self.settings)

    @property
    def mode(self) -> Mode:  # type: ignore[override]
        """Seeds together on a GPU."""
        return mode_of_device()

    @property
    def physics(self) -> str:
        """pybullet or mujoco."""
        return self.study or "pybullet"

    @property
    def settings(self) -> dict[str, Any]:
        """The agent's settings, the method apart."""
        own = {"num_models": self.num_models, "gain": self.gain, "precision": self.precision}
        return {**SETTINGS[self.preset], **own}

    def cells(self) -> Sequence[Cell]:
        """Tasks x methods."""
        names = ("num_models", "gain", "preset", "precision", "horizon")
        shared: dict[str, Any] = {name: getattr(self, name) for name in names}
        return [
            Cell(self.name, f"{self.physics}-{task}", method, {"steps": self.steps or STEPS[task], **shared})
            for task in self.tasks
            for method in self.methods
        ]

    def ready(self) -> None:
        """A missing extra is named before anything begins."""
        LOCOMOTION[f"{self.physics}-{self.tasks[0]}"].make().close()

    def course(self, cell: Cell) -> Course:
        """The run of a cell: an evaluation with the mean action after every episode."""
        settings: Mapping[str, Any] = cell.settings
        return Course(
            env=cell.environment,
            agent=cell.method,
            steps=settings["steps"],
            preset="paper",
            settings=json.dumps(self.settings),
            horizon=self.horizon,
            evaluate_every=self.horizon,
            evaluation_episodes=1,
        )

    def run(self, cell: Cell, seeds: Sequence[int], context: Context) -> Mapping[int, Outcome | SeedError]:
        """All steps; after a stop, on from the last checkpoint."""
        return self.course(cell).run(cell, seeds, context)

    def smoke(self) -> Locomotion:
        """The last method, which compiles fastest, on one task, with the smallest sizes."""
        few: dict[str, Any] = {"methods": self.methods[-1:], "tasks": self.tasks[:1], "num_models": 2, "seeds": 1}
        return dataclasses.replace(self, preset="smoke", steps=60, horizon=20, **few)

    def tables(self, results: pd.DataFrame) -> Sequence[Table]:
        """Mean and standard error of the returns, as far as each run has come."""
        summary = metrics.summarize(results[results["metric"] == "mean_return_last_10"])
        rows = [[row["environment"], row["method"], f"{row['steps']:,}", value_and_error(row)] for _, row in summary.iterrows()]
        columns = ["task", "method", "steps", "mean, standard error"]
        return [Table(f"Mean return of the last {LAST} evaluations", columns, rows)]


def summed_up(found: Outcome, every: int, steps: int) -> Outcome:
    """Evaluations on a common grid of steps, their moving average, and the means that were published, as far as it got."""
    seen = found.curves["evaluation"]
    rows = list(zip(seen.index, seen.values, strict=True))
    marks = range(every, steps + 1, every)
    known = {mark: [value for step, value in rows if step <= mark] for mark in marks}
    grid = [mark for mark in marks if known[mark]]
    values = [known[mark][-1] for mark in grid]
    smooth = metrics.smoothed(values, LAST) if values else np.zeros(0)
    renamed = {"return": "training_return"}
    curves = {renamed.get(name, name): one for name, one in found.curves.items() if name != "evaluation"}
    curves |= {"return": Curve("step", grid, values), "smoothed_return": Curve("step", grid, [float(v) for v in smooth])}
    scalars = {
        "mean_return_last_10": last_mean(rows, steps),
        "final_return": rows[-1][1],
        "best_return": max(value for _, value in rows),
        "training_return_last_10": found.scalars.get("mean_return_last_10", float("nan")),
    }
    earlier = {mark: {"mean_return_last_10": last_mean(rows, mark)} for mark in MARKS if mark < steps}
    return Outcome(scalars, curves, earlier, "steps")


def last_mean(rows: Sequence[tuple[int, float]], mark: int) -> float:
    """Mean of the last ten evaluations up to a step; NaN if there is none."""
    until = [value for step, value in rows if step <= mark][-LAST:]
    return float(np.mean(until)) if until else float("nan")
