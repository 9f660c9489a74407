"""`ubex train --steps N`: one deep agent on one continuous environment of the user's choice, with everything that a run has."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from ubex import checks, imports
from ubex.callbacks import Evaluate
from ubex.deep.host import HostRun
from ubex.deep.presets import GYMNASIUM as PRESETS
from ubex.envs.adapter import Episode
from ubex.experiments.exploration import value_and_error
from ubex.experiments.spec import Cell, Context, Curve, Experiment, FigureSpec, Outcome, SeedError, Table
from ubex.learn import driver
from ubex.learn.agent import Agent
from ubex.learn.deep_agent import LEARNED, NONE
from ubex.runs import metrics
from ubex.types import InputError, KeyLike

AGENT_FILE = "agent.ubex"
"""What a seed leaves: `ubex.Agent.load` reads it."""
CHECKPOINT_SECONDS = 30.0
"""Least time between two checkpoints, which hold all transitions."""
SMOKE: Mapping[str, Any] = {
    "initial_steps": 20,
    "batch_size": 4,
    "updates_per_step": 1,
    "rollouts_per_step": 1,
    "max_epochs": 1,
}
"""Sizes with which nothing is learned, to see that everything runs."""


@dataclass(frozen=True)
class TrainDeep(Experiment):
    """One deep agent on one environment."""

    name: ClassVar[str] = "train-deep"
    summary: ClassVar[str] = "one deep agent on one environment"
    figures: ClassVar[Sequence[FigureSpec]] = (
        FigureSpec("evaluations", "Mean return of evaluations", "curves", "evaluation", "step", "return", x="step"),
        FigureSpec("returns", "Return of every episode of training", "curves", "return", "step", "return", x="step"),
    )

    seeds: int = 1
    """The number of seeds."""
    env: str = "sparse-pendulum"
    """The environment: a name from `ubex list`, a Gymnasium id, or module:Class.
    Tabular agents need Discrete spaces, and deep agents need Box spaces with bounded actions."""
    agent: str = "exact-ube"
    """The agent. A tabular one is an estimator, by its name or as module:name, or psrl. `ubex list` names the deep ones."""
    steps: int = 20_000
    """The number of steps in the environment per seed."""
    preset: str = "laptop"
    """The sizes of networks and rollouts: paper or laptop."""
    settings: str = "{}"
    """Other settings of the agent, as a JSON object such as '{"updates_per_step": 10}'."""
    horizon: int | None = None
    """The number of steps after which an episode is cut off, besides what the environment does."""
    env_args: str = "{}"
    """Settings of the environment, as a JSON object such as '{"g": 5.0}'."""
    termination: str = ""
    """Where episodes end inside the models: learned, none, or module:function.
    The function, in JAX, is of (observation, action, next observation).
    By default it is what the environment knows, if it is one of ours, else learned."""
    reward: str = ""
    """The reward, where it is known, as module:function. The function, in JAX, is of the same three.
    By default the models learn it."""
    evaluate_every: int = 2_000
    """The number of steps between two evaluations."""
    evaluation_episodes: int = 5
    """The number of episodes per evaluation."""

    def __post_init__(self) -> None:
        """Refuses fields that make no sense; the environment is looked at by `make`."""
        super().__post_init__()
        for name in ("steps", "evaluate_every", "evaluation_episodes"):
            checks.whole(name, getattr(self, name), 1)
        checks.one_of("preset", self.preset, PRESETS)
        for name in ("settings", "env_args"):
            self.parsed(name)

    def parsed(self, name: str) -> dict[str, Any]:
        """A field that holds a JSON object."""
        return checks.json_object(name, getattr(self, name))

    def make(self, key: KeyLike = 0) -> Agent:
        """The agent with its environment."""
        given: dict[str, Any] = {
            "preset": self.preset,
            "horizon": self.horizon,
            "termination": self.termination
            if self.termination in (LEARNED, NONE)
            else function("termination", self.termination, f"{LEARNED}, {NONE} or module:function"),
            "reward": function("reward", self.reward, "module:function"),
            "env_args": self.parsed("env_args"),
        }
        settings = self.parsed("settings")
        for name in settings:
            if name in given or name == "key":
                raise InputError(f"{name} is no setting of the agent: it has a flag of its own")
        agent = Agent(self.agent, self.env, key=key, **given, **settings)
        if agent.kind != "deep":
            raise InputError(f"{self.env} is tabular: give --episodes instead of --steps")
        return agent

    def cells(self) -> Sequence[Cell]:
        """The one cell."""
        names = ("steps", "preset", "settings", "env_args", "termination", "reward", "evaluate_every", "evaluation_episodes")
        settings: dict[str, Any] = {name: getattr(self, name) for name in names}
        if self.horizon is not None:
            settings["horizon"] = self.horizon
        return [Cell(self.name, self.env, self.agent, settings)]

    def run(self, cell: Cell, seeds: Sequence[int], context: Context) -> Mapping[int, Outcome | SeedError]:
        """All steps; after a stop, on from the last checkpoint."""
        (seed,) = seeds
        agent, evaluations = self.make(cell.key(seed)), list[tuple[float, float]]()
        evaluate = Evaluate(
            self.evaluate_every, self.evaluation_episodes, then=lambda info: evaluations.append((info.step, info.reward))
        )

        def record(state: HostRun, episode: Episode) -> tuple[driver.Rows, bool]:
            agent.follow(state)
            evaluations.clear()
            evaluate(agent.info(episode, self.steps))
            rows = np.array(evaluations, np.float64).reshape(-1, 2)
            return {"return": np.array([[episode.step, episode.reward]]), "evaluation": rows}, True

        try:
            run = driver.run(agent.backend, self.steps, context, record, CHECKPOINT_SECONDS, rescue=True)
        except (FloatingPointError, InputError) as error:  # of a loss, or of the environment
            step = (context.checkpoints.notes() or {}).get("rows")
            return {seed: SeedError(f"seed {seed}: {error}; there is a checkpoint of step {step}")}
        agent.follow(run.state)
        self.leave(agent, seed, context)
        final = (agent.steps, float(agent.evaluate(self.evaluation_episodes).mean()))
        returns, evaluated = ([(float(a), float(b)) for a, b in run.history.get(name, ())] for name in ("return", "evaluation"))
        return {seed: outcome(returns, [*evaluated, final], run.resumed)}

    def leave(self, agent: Agent, seed: int, context: Context) -> None:
        """What a finished seed leaves on disk."""
        context.keep(seed, AGENT_FILE, agent.dump())

    def smoke(self) -> TrainDeep:
        """Few steps and small sizes."""
        settings = json.dumps({**self.parsed("settings"), **SMOKE})
        return dataclasses.replace(self, steps=30, settings=settings, evaluate_every=20, evaluation_episodes=1)

    def tables(self, results: pd.DataFrame) -> Sequence[Table]:
        """Mean and standard error of the returns."""
        rows = [[row["metric"], value_and_error(row)] for _, row in metrics.summarize(results).iterrows()]
        return [Table(f"{self.agent} on {self.env}", ["metric", "mean, standard error"], rows)]


def function(name: str, text: str, choices: str) -> Any:
    """What `module:function` stands for; nothing for an empty text."""
    module, _, thing = text.partition(":")
    if text and not (module and thing):
        raise InputError(f"{name} must be {choices}, but it is {text!r}")
    return imports.attribute(module, thing) if text else None


def outcome(returns: Sequence[tuple[float, float]], evaluations: Sequence[tuple[float, float]], resumed: int) -> Outcome:
    """Curves over steps, and their summary."""
    curves = {"evaluation": curve(evaluations)}
    scalars = {
        "final_evaluation": evaluations[-1][1],
        "best_evaluation": max(value for _, value in evaluations),
        "times_resumed": float(resumed),
    }
    if returns:
        curves["return"] = curve(returns)
        scalars["mean_return_last_10"] = float(np.mean([value for _, value in returns[-10:]]))
    return Outcome(scalars, curves)


def curve(rows: Sequence[tuple[float, float]]) -> Curve:
    """Pairs of step and value as a curve; of two at the same step, the later one counts."""
    last = dict(rows)
    return Curve("step", [int(step) for step in last], list(last.values()))
