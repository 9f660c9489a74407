"""Locomotion: learning curves of the deep agents on HalfCheetah, Walker2D and Ant (figure of section 5.3, in PyBullet)."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from ubex import checks
from ubex.agent import Agent
from ubex.agent.deep import configured
from ubex.deep.config import LAPTOP, PRECISIONS
from ubex.deep.methods import DEEP_METHODS
from ubex.envs.locomotion import EPISODE, LOCOMOTION
from ubex.experiments.exploration import value_and_error
from ubex.experiments.pendulum import PAPER_METHODS
from ubex.experiments.spec import Cell, Context, Curve, Experiment, FigureSpec, Outcome, SeedError, Table
from ubex.experiments.train_deep import SMOKE, TrainDeep
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
"""What a finished seed leaves besides the agent."""
LOG = logging.getLogger("ubex")
PAPER: Mapping[str, Any] = {
    "updates_per_step": 10,
    "retrain_every": 250,
    "retain": 10,
    "rollout_length": 1,
    "regularisation": 0.0,
    "actor_hidden": (128, 128),
    "model_scale": 1.0,
}
"""What differs from the pendulum (appendix, table of hyperparameters)."""
SMALL: Mapping[str, Any] = {
    **LAPTOP,
    **{name: PAPER[name] for name in ("retrain_every", "retain", "rollout_length", "regularisation", "model_scale")},
    "model_hidden": (64, 64),
    "rollouts_per_step": 40,
    "max_epochs": 5,
}
"""The same algorithm with small networks and fewer updates, for two cores."""
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "paper": PAPER,
    "laptop": SMALL,
    "smoke": {**SMALL, **SMOKE, "critic_hidden": (8,), "actor_hidden": (8,), "model_hidden": (8,), "num_models": 2},
}


class Course(TrainDeep):
    """One agent on one task, which leaves a film of an episode."""

    def leave(self, agent: Agent, seed: int, context: Context) -> None:
        """The agent, and a film where pictures can be made here."""
        super().leave(agent, seed, context)
        try:
            _, film = agent.film(1, seed)
        except InputError as error:
            LOG.warning("no film of seed %d: %s", seed, error)
            return
        context.keep(seed, FILM, film)


@dataclass(frozen=True)
class Locomotion(Experiment):
    """Learning curves in PyBullet, as in the paper, for every method and task."""

    name: ClassVar[str] = "locomotion"
    summary: ClassVar[str] = "HalfCheetah, Walker2D and Ant in PyBullet: learning curves of the deep agents"
    physics: ClassVar[str] = "pybullet"
    needs: ClassVar[str] = "pybullet_envs_gymnasium"
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
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": {},
        "laptop": {
            "methods": ("exact-ube", "ensemble-mean"),
            "tasks": ("halfcheetah",),
            "steps": 50_000,
            "num_models": 3,
            "seeds": 1,
        },
        "smoke": {"methods": ("ensemble-mean",), "tasks": ("halfcheetah",), "steps": 60, "num_models": 2, "seeds": 1},
    }

    methods: tuple[str, ...] = PAPER_METHODS
    """Deep agents."""
    tasks: tuple[str, ...] = TASKS
    """halfcheetah, walker2d, ant."""
    steps: int | None = None
    """Steps in the environment; by default the paper's, 200,000 for HalfCheetah and 300,000 for the others."""
    num_models: int = 5
    """N, models and critics."""
    gain: float = 1.0
    """lambda, exploration gain."""
    preset: str = "paper"
    """paper, laptop (small networks, fewer updates) or smoke."""
    precision: str = "float32"
    """How matrices are multiplied: float32, bf16x3 or tf32."""
    horizon: int = EPISODE
    """Steps of an episode."""
    seeds: int = 10
    """Number of seeds of every cell."""

    def __post_init__(self) -> None:
        """Refuses fields that make no sense; whether the physics is installed shows when a task is made."""
        super().__post_init__()
        for method in self.methods:
            checks.one_of("method", method, DEEP_METHODS)
        for task in self.tasks:
            checks.one_of("task", task, TASKS)
        checks.one_of("preset", self.preset, PRESETS)
        checks.one_of("precision", self.precision, PRECISIONS)
        if self.steps is not None:
            checks.whole("steps", self.steps, 1)
        checks.whole("horizon", self.horizon, 1)
        for method in self.methods:
            configured(method, "paper", self.settings)

    @property
    def settings(self) -> dict[str, Any]:
        """The agent's settings, the method apart."""
        own = {"num_models": self.num_models, "gain": self.gain, "precision": self.precision}
        return {**PRESETS[self.preset], **own}

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
        every, steps = self.horizon, int(cell.settings["steps"])
        found = self.course(cell).run(cell, seeds, context)
        return {seed: summed_up(one, every, steps) if isinstance(one, Outcome) else one for seed, one in found.items()}

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


@dataclass(frozen=True)
class LocomotionMujoco(Locomotion):
    """Learning curves in MuJoCo, with the paper's settings; nothing was published for it."""

    name: ClassVar[str] = "locomotion-mujoco"
    summary: ClassVar[str] = "HalfCheetah, Walker2d and Ant in MuJoCo: learning curves of the deep agents"
    physics: ClassVar[str] = "mujoco"
    needs: ClassVar[str] = "mujoco"


def summed_up(found: Outcome, every: int, steps: int) -> Outcome:
    """Evaluations on a common grid of steps, their moving average, and the means that were published, as far as it got."""
    seen = found.curves["evaluation"]
    rows = list(zip(seen.index, seen.values, strict=True))
    marks = range(every, steps + 1, every)
    known = {mark: [value for step, value in rows if step <= mark] for mark in marks}
    grid = [mark for mark in marks if known[mark]]
    values = [known[mark][-1] for mark in grid]
    smooth = metrics.smoothed(values, LAST) if values else np.zeros(0)
    curves = {"return": Curve("step", grid, values), "smoothed_return": Curve("step", grid, [float(v) for v in smooth])}
    if "return" in found.curves:
        curves["training_return"] = found.curves["return"]
    scalars = {
        "mean_return_last_10": last_mean(rows, steps),
        "final_return": rows[-1][1],
        "best_return": max(value for _, value in rows),
        "training_return_last_10": found.scalars.get("mean_return_last_10", float("nan")),
        "times_resumed": found.scalars["times_resumed"],
    }
    earlier = {mark: {"mean_return_last_10": last_mean(rows, mark)} for mark in MARKS if mark < steps}
    return Outcome(scalars, curves, earlier, "steps")


def last_mean(rows: Sequence[tuple[int, float]], mark: int) -> float:
    """Mean of the last ten evaluations up to a step; NaN if there is none."""
    until = [value for step, value in rows if step <= mark][-LAST:]
    return float(np.mean(until)) if until else float("nan")
