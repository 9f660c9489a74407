"""Settings of deep agents by name: the paper's sizes and a laptop's, with what each task changes on top of them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import jax

from ubex import checks

Settings = Mapping[str, Any]

AUTO = "auto"
"""The preset that fits the machine."""
LAPTOP: Settings = MappingProxyType(
    {
        "num_models": 3,
        "updates_per_step": 4,
        "rollouts_per_step": 20,
        "rollout_length": 5,
        "batch_size": 64,
        "gap_actions": 4,
        "critic_hidden": (64, 64),
        "actor_hidden": (32, 32),
        "model_hidden": (64, 64, 64),
        "max_epochs": 10,
        "critic_rate": 1e-3,
        "actor_rate": 1e-3,
        "model_rate": 1e-3,
    }
)
"""The same algorithm with small networks, small batches and short rollouts, for two cores: `laptop` of every task."""
SMOKE: Settings = MappingProxyType(
    {
        **LAPTOP,
        **{"num_models": 2, "critic_hidden": (8,), "actor_hidden": (8,), "model_hidden": (8,)},
        **{"initial_steps": 20, "batch_size": 4, "updates_per_step": 1, "rollouts_per_step": 1, "max_epochs": 1},
    }
)
"""Sizes with which nothing is learned, to see that everything runs."""

PATIENCE_STEPS = 500
"""Away from the pendulum: its published rule, an epoch without improvement, leaves models of larger tasks untrained."""
TRUSTED: Settings = MappingProxyType({"rollout_ends": "trusted", "patience": 10, "reward_prior": 0.5})
"""Our own rule for rollouts: near the data, by models that are trained for longer, whose rewards are uncertain where none was
seen."""
GYMNASIUM: Mapping[str, Settings] = MappingProxyType(
    {
        "paper": MappingProxyType({"patience_steps": PATIENCE_STEPS}),
        "laptop": MappingProxyType(
            {
                **{**LAPTOP, **TRUSTED, "max_epochs": 100, "model_batch": 64},
                **{"scaled_observations": True, "polyak": 0.025, "actor_average": 0.0005},
            }
        ),
    }
)
"""Of `ubex.Agent` and `ubex train`. `laptop` has few rounds per step, so its targets move faster, and it takes tasks whose
numbers are small or large (studies/mountain-car)."""
DISCRETE: Mapping[str, Settings] = MappingProxyType(
    {"paper": MappingProxyType({}), "laptop": MappingProxyType({"critics_per_model": 2})}
)
"""On top of these where actions are discrete. Small critics overestimate the edge of CartPole's track, and two per model do so
less (studies/cart-pole); the goal of MountainCarContinuous they find later, or not at all (studies/mountain-car)."""

PUBLISHED: Settings = MappingProxyType({"rollout_ends": "together", "initial_resets": False})
"""How the published runs of the pendulum differ from the paper's text; `DeepConfig` says what these are."""
PENDULUM: Mapping[str, Settings] = MappingProxyType(
    {
        "paper": PUBLISHED,
        "alone": {**PUBLISHED, "rollout_ends": "alone"},
        "trusted": TRUSTED,
        "laptop": {**LAPTOP, **PUBLISHED},
        "smoke": {**SMOKE, **PUBLISHED},
    }
)
"""Of the sparse pendulum. `alone` has rollouts as in the paper's text, `trusted` is our own."""

TASK: Settings = MappingProxyType(
    {
        **{"retrain_every": 250, "retain": 10, "rollout_length": 1, "regularisation": 0.0, "model_scale": 1.0},
        **{"model_rate": 1e-3, "patience_steps": PATIENCE_STEPS},
    }
)
"""What locomotion changes at any size (appendix, table of hyperparameters). The paper does not say how the models are trained
there; the last two are ours (studies/locomotion-models)."""
LOCOMOTION: Mapping[str, Settings] = MappingProxyType(
    {
        "paper": {**TASK, "updates_per_step": 10, "actor_hidden": (128, 128)},
        "laptop": {**LAPTOP, **TASK, "rollouts_per_step": 40, "max_epochs": None},
        "smoke": {**SMOKE, **TASK},
    }
)


def fitting() -> str:
    """The preset for this machine: `paper` where there is a GPU, `laptop` where there is none.

    Example:
        >>> fitting() in ("paper", "laptop")
        True
    """
    return "laptop" if jax.default_backend() == "cpu" else "paper"


def chosen(preset: str, table: Mapping[str, Settings]) -> str:
    """The name of a preset in a table, with `auto` settled."""
    return fitting() if isinstance(preset, str) and preset == AUTO else checks.one_of("preset", preset, table)


def reason(how: str = "--preset {}") -> str:
    """One line on what `auto` means here; `how` is the way to ask for another one."""
    if fitting() == "paper":
        return f"preset: paper, because there is a GPU; {how.format('laptop')} takes small sizes"
    return f"preset: laptop, because there is no GPU; {how.format('paper')} takes the paper's sizes"
