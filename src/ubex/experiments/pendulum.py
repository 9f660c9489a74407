"""Sparse pendulum: learning curves of every deep agent at three noise levels, and ablations.

Figure of section 5.2; that of the ensemble size in the appendix (preset ensemble); pendulum_viz (values).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import tyro
from jaxtyping import Array, Float

from ubex import checks
from ubex.deep import actor as policy
from ubex.deep.agents import AgentState, Opinion, opinion
from ubex.deep.config import PRECISIONS, DeepConfig
from ubex.deep.loop import Evaluation
from ubex.deep.methods import DEEP_METHODS
from ubex.deep.presets import AUTO, PENDULUM, chosen
from ubex.envs.sparse_pendulum import PendulumState, render, sparse_pendulum
from ubex.experiments import deep_cells
from ubex.experiments.exploration import value_and_error
from ubex.experiments.spec import (
    Cell,
    Context,
    Experiment,
    FigureSpec,
    Mode,
    Outcome,
    Preset,
    SeedError,
    Table,
    grid,
    mode_of_device,
)
from ubex.runs import metrics
from ubex.runs.pictures import animation, maps_file
from ubex.types import Key

PAPER_METHODS = ("exact-ube", "pombu", "ensemble-var", "ensemble-mean", "sac")
ANGLES = np.linspace(-np.pi, np.pi, 61)
VELOCITIES = np.linspace(-10.0, 10.0, 41)
"""Where value maps are drawn; a full swing reaches a velocity of about 9."""
FRAMES_PER_SECOND = 80.0
"""Steps of the pendulum in a second."""
FRAME_STEP = 4
"""Steps between two frames of an animation."""
RETURNS = FigureSpec("returns", "Evaluation return", "curves", "return", "episode", "return", x="episode", facet="noise")


@dataclass(frozen=True)
class Pendulum(Experiment):
    """Learning curves on the sparse pendulum, for every method and noise level."""

    name: ClassVar[str] = "pendulum"
    summary: ClassVar[str] = "sparse pendulum: learning curves of the deep agents at three noise levels"
    figures: ClassVar[Sequence[FigureSpec]] = (
        RETURNS,
        FigureSpec("last", "Mean return of the last ten episodes", "bars", "mean_return_last_10", "noise", "return", x="noise"),
        FigureSpec("spread", "Spread of the critics", "curves", "critic_std", "episode", "value", x="episode", facet="noise"),
    )
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": Preset("the agent of the published runs", {"preset": "paper"}),
        "alone": Preset("the same, with rollouts that end each by itself, as in the paper's text", {"preset": "alone"}),
        "trusted": Preset("rollouts that stay near the data, and values that the rewards allow", {"preset": "trusted"}),
        "laptop": Preset(
            "two methods with small networks and short rollouts, one seed of 25 episodes",
            {
                **{"preset": "laptop", "methods": ("exact-ube", "ensemble-mean"), "noises": (0.0,)},
                **{"num_models": (3,), "episodes": 25, "seeds": 1},
            },
        ),
        "ensemble": Preset(
            "sparse pendulum: return against the number of models",
            {
                "preset": "paper",
                "methods": ("exact-ube", "pombu", "ensemble-var", "ensemble-mean"),
                "num_models": (2, 5, 10),
            },
            "pendulum-ensemble",
            (FigureSpec("final", "Final return", "bars", "final_return", "N", "return", x="num_models", facet="noise"),),
        ),
        "values": Preset(
            "sparse pendulum: maps of the values and of their variance while it learns",
            {
                **{"preset": "paper", "methods": ("exact-ube",), "noises": (0.0,)},
                **{"pictures": (1, 5, 10, 20, 40, 75), "seeds": 1},
            },
            "pendulum-values",
            (
                RETURNS,
                FigureSpec(
                    "variance", "Output of the U-net", "curves", "variance", "episode", "variance", x="episode", log=True
                ),
            ),
        ),
    }

    methods: tuple[str, ...] = PAPER_METHODS
    """The deep agents to train. `ubex list` names them."""
    noises: tuple[float, ...] = (0.0, 0.01, 0.02)
    """The standard deviations of the noise on the angle."""
    episodes: int = 75
    """The number of episodes, of 400 steps each."""
    num_models: tuple[int, ...] = (5,)
    """The numbers N of models, each with its critic."""
    gains: tuple[float, ...] = (1.0,)
    """The exploration gains lambda: how much a standard deviation is worth."""
    preset: Annotated[str, tyro.conf.Suppress] = AUTO
    """The agent's settings, one of `PENDULUM` in `deep/presets.py`; by default those that fit the machine."""
    precision: str = "float32"
    """How matrices are multiplied on a GPU: float32, split16 or tf32. Random keys do not depend on it."""
    pictures: tuple[int, ...] = (1, 5, 15, 30, 50, 75)
    """The episodes after which the first seed leaves value maps. After the last one it always does, with an animation."""
    seeds: int = 10
    """The number of seeds per cell."""

    def __post_init__(self) -> None:
        """Refuses fields that make no sense."""
        super().__post_init__()
        for method in self.methods:
            checks.one_of("method", method, DEEP_METHODS)
        for noise in self.noises:
            sparse_pendulum(noise)
        checks.whole("episodes", self.episodes, 1)
        object.__setattr__(self, "preset", chosen(self.preset, PENDULUM))
        checks.one_of("precision", self.precision, PRECISIONS)
        for cell in self.cells():
            self.agent(cell)

    def cells(self) -> Sequence[Cell]:
        """Noises x ensemble sizes x gains x methods."""
        shared: dict[str, Any] = {"episodes": self.episodes, "preset": self.preset, "precision": self.precision}
        axes = grid(noise=self.noises, num_models=self.num_models, gain=self.gains)
        return [
            Cell(self.name, "sparse-pendulum", method, {**setting, **shared}) for setting in axes for method in self.methods
        ]

    @property
    def mode(self) -> Mode:  # type: ignore[override]
        """Seeds together on a GPU."""
        return mode_of_device()

    def agent(self, cell: Cell) -> DeepConfig:
        """The agent of a cell."""
        settings: Mapping[str, Any] = cell.settings
        own = {name: settings[name] for name in ("num_models", "gain", "precision")}
        return DeepConfig(**{**PENDULUM[self.preset], "method": cell.method, **own})

    def key(self, cell: Cell, seed: int) -> Key:
        """Of the cell without its precision and preset, so that runs that differ in them alone can be compared in pairs."""
        settings = {name: value for name, value in cell.settings.items() if name not in ("precision", "preset")}
        return dataclasses.replace(cell, settings=settings).key(seed)

    def run(self, cell: Cell, seeds: Sequence[int], context: Context) -> Mapping[int, Outcome | SeedError]:
        """One agent for all episodes, all seeds together."""
        settings: Mapping[str, Any] = cell.settings
        env, config = sparse_pendulum(settings["noise"]), self.agent(cell)

        def watch(episode: int, agents: AgentState, evaluation: Evaluation) -> None:
            if 0 in seeds and (episode in self.pictures or episode == self.episodes):
                first = list(seeds).index(0)
                one: AgentState = jax.tree.map(lambda x: x[first], agents)
                context.keep(0, f"maps-{episode}.npz", value_maps(config, one, episode))
                if episode == self.episodes:
                    context.keep(0, "last-evaluation.gif", video(evaluation, first))

        keys = [self.key(cell, seed) for seed in seeds]
        return deep_cells.outcomes(seeds, deep_cells.learn(keys, env, config, self.episodes, context, watch, seeds))

    def smoke(self) -> Pendulum:
        """The last method, which compiles fastest, one noise, one episode, the smallest sizes."""
        return dataclasses.replace(
            self, seeds=1, methods=self.methods[-1:], noises=self.noises[:1], episodes=1, preset="smoke", num_models=(2,)
        )

    def tables(self, results: pd.DataFrame) -> Sequence[Table]:
        """Mean and standard error of the returns."""
        summary = metrics.summarize(results)
        titles = {"mean_return_last_10": "Mean return of the last ten episodes", "solved_share": "Share of seeds that solve it"}
        return [
            Table(
                title,
                ["method", "noise", "N", "gain", "mean, standard error"],
                [
                    [row["method"], f"{row['noise']:g}", f"{row['num_models']}", f"{row['gain']:g}", value_and_error(row)]
                    for _, row in summary[summary["metric"] == metric].iterrows()
                ],
            )
            for metric, title in titles.items()
        ]


@functools.partial(jax.jit, static_argnames="config")
def held(config: DeepConfig, agent: AgentState, observation: Float[Array, "B 3"]) -> Opinion:
    """What an agent holds of its mean actions."""
    return opinion(config, agent.values, observation, policy.mode(agent.actor, observation))


def value_maps(config: DeepConfig, agent: AgentState, episode: int) -> bytes:
    """Mean values and standard deviations at the mean action over angle and velocity (figure pendulum_viz)."""
    angle, velocity = (x.ravel() for x in np.meshgrid(ANGLES, VELOCITIES))
    seen = held(config, agent, jnp.asarray(np.stack((np.cos(angle), np.sin(angle), velocity), axis=-1), jnp.float32))
    shape = (len(VELOCITIES), len(ANGLES))
    maps = {"mean value": np.asarray(seen.mean)}
    if config.has_unet:
        maps[f"sd by {config.method}"] = np.sqrt(np.asarray(seen.variance))
    maps["sd over critics"] = np.sqrt(np.asarray(seen.critic_variance))
    layers = {name: values.reshape(shape) for name, values in maps.items()}
    return maps_file(ANGLES, VELOCITIES, "angle (0 is up)", "angular velocity", layers, episode)


def video(evaluation: Evaluation, seed: int) -> bytes:
    """An evaluation episode as an animation."""
    angles, velocities = (np.asarray(x)[seed, ::FRAME_STEP] for x in evaluation.states)
    torques = np.asarray(evaluation.actions)[seed, ::FRAME_STEP, 0]
    frames = [render(PendulumState(a, v), float(t)) for a, v, t in zip(angles, velocities, torques, strict=True)]
    return animation(frames, FRAMES_PER_SECOND / FRAME_STEP)
