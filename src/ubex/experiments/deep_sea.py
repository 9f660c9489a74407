"""DeepSea: total regret and learning time against size, and ablations.

Figures deep_sea_results and full_results_deep_sea; exact_ube_ablation (preset forms), ensemble_ablation and ensemble_size
(ensemble), exploration_gain (gain).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from ubex import checks
from ubex.envs.base import TabularEnv
from ubex.envs.deep_sea import deep_sea
from ubex.experiments.exploration import (
    OPTIMISTIC_METHODS,
    Exploration,
    Score,
    Watch,
    ablation,
    agent_config,
    also_varied,
    best_gains,
    expected_returns,
    in_words,
    regret_curve,
    value_and_error,
)
from ubex.experiments.spec import Cell, Context, FigureSpec, Outcome, Preset, Table
from ubex.learn.tabular import TabularState
from ubex.learn.tabular_agent import TabularBackend
from ubex.runs import metrics
from ubex.runs.pictures import maps_file
from ubex.runs.records import IF_GIVEN
from ubex.tabular.agents import AgentConfig

SOLVED = 0.5
"""An episode with at least this share of the best return found the reward."""
UNIT = "unsolved episodes"
FORMS = ("exact-ube-1", "exact-ube-2", "exact-ube")


@dataclass(frozen=True)
class DeepSea(Exploration):
    """Total regret and learning time on DeepSea against its size, for every method."""

    name: ClassVar[str] = "deep-sea"
    summary: ClassVar[str] = "DeepSea: total regret and learning time against size, for every method"
    environment: ClassVar[str] = "deep-sea"
    figures: ClassVar[Sequence[FigureSpec]] = (
        FigureSpec("learning-time", "Learning time", "lines", "learning_time", "size L", "episodes", x="size"),
        FigureSpec("regret", "Total regret", "lines", "total_regret", "size L", UNIT, x="size"),
        FigureSpec("regret-curve", "Regret along the run", "curves", "regret", "episode", "regret", x="episode", facet="size"),
    )
    presets: ClassVar[Mapping[str, Preset]] = {
        "forms": Preset(
            "DeepSea: the three forms of the uncertainty reward (ablation)",
            {"methods": FORMS},
            "deep-sea-forms",
            (FigureSpec("regret", "Total regret by form of u", "bars", "total_regret", "size L", UNIT, x="size"),),
        ),
        "ensemble": Preset(
            "DeepSea: total regret against the number of posterior samples N (ablation)",
            {"methods": OPTIMISTIC_METHODS, "sizes": (20, 30), "num_models": (2, 5, 10, 20)},
            "deep-sea-ensemble",
            (ablation("num_models", UNIT, "size"),),
        ),
        "gain": Preset(
            "DeepSea: total regret against the exploration gain (ablation)",
            {"methods": OPTIMISTIC_METHODS, "sizes": (20, 30), "gains": (1.0, 2.0, 3.0)},
            "deep-sea-gain",
            (ablation("gain", UNIT, "size"),),
        ),
        "maps": Preset(
            "DeepSea: where agents go and how sure they are of every cell, while they explore",
            {
                **{"methods": ("closed-form", "exact-ube"), "sizes": (10,), "seeds": 1},
                **{"episodes": 50, "pictures": (5, 10, 15, 20, 30, 50)},
            },
            "deep-sea-maps",
            (FigureSpec("regret", "Unsolved episodes of the first 50", "bars", "total_regret", "size L", UNIT, x="size"),),
        ),
    }

    sizes: tuple[int, ...] = (10, 20)
    """The sizes L of the grid. The paper has 10, 20, 30 and 40."""
    u_min: float = -0.05
    """The least uncertainty reward. Smaller ones are clipped. The default is the paper's for DeepSea."""
    repeats: tuple[int, ...] | None = field(default=None, metadata=IF_GIVEN)
    """How many times a transition counts. By default it counts L times, as in the paper."""
    stochastic: bool | None = field(default=None, metadata=IF_GIVEN)
    """Whether the move to the right fails once in L times and the last rewards are noisy, as in bsuite. By default not."""
    pictures: tuple[int, ...] | None = field(default=None, metadata=IF_GIVEN)
    """The episodes after which the first seed leaves maps of what it knows. By default there are none."""

    def __post_init__(self) -> None:
        """Refuses fields that make no sense."""
        super().__post_init__()
        for size in self.sizes:
            checks.whole("size", size, 2)
        for repeats in self.repeats or ():
            checks.whole("repeats", repeats, 1)
        for episode in self.pictures or ():
            checks.whole("pictures", episode, 1)

    def axes(self) -> dict[str, Sequence[Any]]:
        """Sizes x ensemble sizes x gains."""
        new = {"repeats": self.repeats, "stochastic": (True,) if self.stochastic else None}
        return {"size": self.sizes, **super().axes(), **{name: values for name, values in new.items() if values is not None}}

    def agent(self, cell: Cell) -> AgentConfig:
        """Every transition counts as many times as the grid is wide, unless the cell says otherwise."""
        settings: Mapping[str, Any] = cell.settings
        return agent_config(cell, repeats=settings["size"])

    def environment_of(self, cell: Cell) -> TabularEnv:
        """DeepSea of the cell's size."""
        settings: Mapping[str, Any] = cell.settings
        return deep_sea(settings["size"], settings.get("stochastic", False))

    def score(self, env: TabularEnv) -> Score:
        """DeepSea is judged by its returns, and the stochastic one, whose returns are noisy, by what they are on average."""
        return (lambda returns, policies: returns) if env.branching == 1 else expected_returns(env)

    def watch(self, env: TabularEnv, cell: Cell, context: Context) -> tuple[Sequence[int], Watch | None]:
        """Maps of the grid after the episodes `pictures`."""

        def look(state: TabularState) -> None:
            context.keep(0, f"maps-{state.episodes}.npz", maps(env, self.agent(cell), state))

        return self.pictures or (), look

    def outcome(self, env: TabularEnv, score: Float[np.ndarray, " E"], steps: Int[np.ndarray, " E"]) -> Outcome:
        """Regret counts the episodes without the reward."""
        solved = score >= SOLVED * env.best_return
        scalars = {
            "total_regret": metrics.total_regret(solved),
            "learning_time": metrics.learning_time(solved),
            "mean_return_last_10": float(score[-10:].mean()),
            "improvements_per_update": float(steps.mean()),
        }
        return Outcome(scalars, {"regret": regret_curve(np.cumsum(~solved).astype(np.float64))})

    def smoke(self) -> DeepSea:
        """Two methods, or one with two values of an axis, on a grid of four cells, few episodes."""
        models, gains = self.num_models[:2], self.gains[:2]
        methods = self.methods[: 2 if len(models) == len(gains) == 1 else 1]
        return dataclasses.replace(self, seeds=1, methods=methods, sizes=(4,), num_models=models, gains=gains, episodes=60)

    def tables(self, results: pd.DataFrame) -> Sequence[Table]:
        """Mean and standard error of regret and learning time; before them the best gains, where there are several."""
        summary = metrics.summarize(results)
        tables = [best_gains(results, ("size", "num_models"))] if len(self.gains) > 1 else []
        more = also_varied(results)
        for metric, title in (("total_regret", "Total regret"), ("learning_time", "Learning time")):
            rows = [
                [*in_words(row, ["method", "size", "num_models", "gain", *more]), value_and_error(row)]
                for _, row in summary[summary["metric"] == metric].iterrows()
            ]
            tables.append(Table(title, ["method", "L", "N", "gain", *more, "mean, standard error"], rows))
        return tables


def maps(env: TabularEnv, config: AgentConfig, state: TabularState) -> bytes:
    """What an agent knows of the grid: where it was, the mean value of the better action, and how unsure it is of the action
    that it knows less. No episode gets to the cells right of the diagonal, so they are blank."""
    size = env.horizon
    _, mean, deviation = TabularBackend(env, config, state.key).known(state)
    visits = np.asarray(state.belief.counts)[: env.num_states].sum(axis=(1, 2)) / (config.repeats * state.episodes)
    layers = {"share of episodes that came here": visits, "mean value": mean.max(axis=1)}
    if np.isfinite(deviation).all():
        layers["standard deviation of the value"] = deviation.max(axis=1)
    reached = np.tri(size, dtype=bool)
    grids = {name: np.where(reached, values.reshape(size, size), np.nan)[::-1] for name, values in layers.items()}
    return maps_file(range(size), range(1, size + 1), "column", "steps left", grids, state.episodes)
