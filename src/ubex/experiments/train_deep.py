"""`ubex train --steps N`: one deep agent on one environment of the user's choice, with everything that a run has."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Float

from ubex import checks, imports
from ubex.deep.presets import GYMNASIUM as PRESETS
from ubex.deep.seeds import HostRun, alone
from ubex.envs import adapter
from ubex.envs.resolve import by_name
from ubex.experiments.deep_cells import out_of_memory
from ubex.experiments.exploration import value_and_error
from ubex.experiments.spec import Cell, Context, Curve, Experiment, FigureSpec, Outcome, SeedError, Table
from ubex.learn import driver
from ubex.learn.agent import AGENT_FILE, Agent
from ubex.learn.crew import Crew, Maker
from ubex.learn.deep_agent import LEARNED, NONE, DeepBackend
from ubex.learn.together import SeedsLearner, Shown
from ubex.runs import metrics
from ubex.types import InputError, KeyLike

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

    live: ClassVar[Mapping[str, str]] = {"return": "return", "evaluation": "evaluation"}
    """What returns of training and of evaluations are called while it runs."""

    seeds: int = 1
    """The number of seeds."""
    env: str = "sparse-pendulum"
    """The environment: a name from `ubex list`, a Gymnasium id, or module:Class.
    Tabular agents need Discrete spaces, and deep agents Discrete or bounded Box actions."""
    agent: str = "exact-ube"
    """The agent. A tabular one is an estimator, by its name or as module:name, or psrl, beb or ucbvi.
    `ubex list` names the deep ones."""
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

    def ready(self) -> None:
        """Refuses an environment whose episodes may never end, before much is spent on it: the untrained agent makes one."""
        if self.horizon is None and not adapter.ends_in_time(by_name(self.env, self.parsed("env_args"))):
            self.make().evaluate(1)

    def cells(self) -> Sequence[Cell]:
        """The one cell."""
        names = ("steps", "preset", "settings", "env_args", "termination", "reward", "evaluate_every", "evaluation_episodes")
        settings: dict[str, Any] = {name: getattr(self, name) for name in names}
        if self.horizon is not None:
            settings["horizon"] = self.horizon
        return [Cell(self.name, self.env, self.agent, settings)]

    def run(self, cell: Cell, seeds: Sequence[int], context: Context) -> Mapping[int, Outcome | SeedError]:
        """All steps of all seeds together; after a stop, on from the last checkpoint."""
        agent = self.make()
        backend, number = agent.backend, len(seeds)
        assert isinstance(backend, DeepBackend)
        maker = Maker(self.env, self.parsed("env_args"), self.horizon, backend.config.scaled_observations)

        def record(run: HostRun, shown: Shown) -> tuple[driver.Rows, bool]:
            seen = shown.evaluations
            returns = [(k, one.step, one.reward) for k, one in shown.episodes.items()]
            evaluated = [(k, one.step, one.value) for k, one in seen.items()]
            for k, episode in shown.episodes.items():
                context.measure(seeds[k], episode.step, "step", {self.live["return"]: episode.reward, **episode.losses})
            for k, one in seen.items():
                context.measure(seeds[k], one.step, "step", {self.live["evaluation"]: one.value, **one.inside})
            names = sorted({name for one in seen.values() for name in one.inside})
            inside = {
                name: table([(k, one.step, one.inside[name]) for k, one in seen.items() if name in one.inside])
                for name in names
            }
            return {"return": table(returns), "evaluation": table(evaluated), **inside}, True

        def so_far(history: driver.Rows) -> Mapping[int, Outcome]:
            found = {}
            for k, seed in enumerate(seeds):
                curves = {name: curve_of(history, name, k) for name in history}
                if curves.get("evaluation"):
                    last = int(curves["evaluation"][-1][0])
                    known = {name: [row for row in rows if row[0] <= last] for name, rows in curves.items()}
                    found[seed] = self.given(known, last).until(last, "steps")
            return found

        errors: Sequence[str] | None = None
        with out_of_memory(number), contextlib.ExitStack() as crews:
            asked: dict[str, Any] = {"other": maker()}
            if number > 1:
                asked["ask"] = crews.enter_context(Crew(maker, number))
            if number > 1 or jax.default_backend() != "cpu":  # with a GPU there are cores left for evaluations
                asked["ask_apart"] = crews.enter_context(Crew(maker, number))
            keys = jnp.stack([cell.key(seed) for seed in seeds])
            learner = SeedsLearner.of(backend, keys, self.evaluate_every, self.evaluation_episodes, seeds, **asked)
            try:
                done = driver.run(learner, self.steps, context, record, CHECKPOINT_SECONDS, rescue=True, so_far=so_far)
                errors = done.state.errors
                run, final = learner.evaluate(done.state, done.state.living)
            except (FloatingPointError, InputError) as error:  # of a loss, or of the environment
                notes = context.checkpoints.notes() or {}
                said = errors or notes.get("errors", [""] * number)
                kept = f"; there is a checkpoint of step {notes['rows']}" if notes else ""
                return {seed: SeedError(f"seed {seed}: {why or error}{kept}") for seed, why in zip(seeds, said, strict=True)}
        state, found, best = learner.saved(run), dict[int, Outcome | SeedError](), max(final, key=lambda k: final[k].value)
        for k, seed in enumerate(seeds):
            if run.errors[k]:
                found[seed] = SeedError(f"seed {seed}: {run.errors[k]}")
                continue
            agent.restore(alone(state, k))
            self.leave(agent, seed, context, k == best)
            context.measure(seed, state.step, "step", {self.live["evaluation"]: final[k].value})
            curves = {name: curve_of(done.history, name, k) for name in done.history}
            curves["evaluation"] = [*curves.get("evaluation", []), (state.step, final[k].value)]
            found[seed] = self.given(curves, self.steps)
        return found

    def given(self, curves: Mapping[str, Sequence[tuple[float, float]]], steps: int) -> Outcome:
        """What a seed gives after so many steps."""
        inside = {name: rows for name, rows in curves.items() if name not in ("return", "evaluation")}
        return outcome(curves.get("return", []), curves["evaluation"], inside)

    def leave(self, agent: Agent, seed: int, context: Context, best: bool) -> None:
        """What a finished seed leaves on disk; `best` is the one of those that ran together whose last evaluation is best."""
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


def table(rows: Sequence[tuple[float, ...]]) -> Float[np.ndarray, "R 3"]:
    """Rows of seed, step and value."""
    return np.array(rows, np.float64).reshape(-1, 3)


def curve_of(history: Mapping[str, np.ndarray], name: str, seed: int) -> list[tuple[float, float]]:
    """Step and value in the rows of one seed; where a run went back, what it had shown from there on counts no more."""
    rows, found = history.get(name, table(())), list[tuple[float, float]]()
    for _, step, value in rows[rows[:, 0] == seed]:
        while found and found[-1][0] >= step:
            found.pop()
        found.append((float(step), float(value)))
    return found


def outcome(
    returns: Sequence[tuple[float, float]],
    evaluations: Sequence[tuple[float, float]],
    inside: Mapping[str, Sequence[tuple[float, float]]],
) -> Outcome:
    """Curves over steps, those of what the agent looked like inside among them, and their summary."""
    curves = {"evaluation": curve(evaluations), **{name: curve(rows) for name, rows in inside.items() if rows}}
    scalars = {
        "final_evaluation": evaluations[-1][1],
        "best_evaluation": max(value for _, value in evaluations),
    }
    if returns:
        curves["return"] = curve(returns)
        scalars["mean_return_last_10"] = float(np.mean([value for _, value in returns[-10:]]))
    return Outcome(scalars, curves)


def curve(rows: Sequence[tuple[float, float]]) -> Curve:
    """Pairs of step and value as a curve; of two at the same step, the later one counts."""
    last = dict(rows)
    return Curve("step", [int(step) for step in last], list(last.values()))
