"""A small deep agent and a linear environment, for tests."""

from __future__ import annotations

import functools
from typing import Any

import jax.numpy as jnp

from ubex.deep.config import DeepConfig
from ubex.deep.networks import MLP
from ubex.envs.continuous import ContinuousEnv, ContinuousStep
from ubex.envs.task import Task

TINY: dict[str, Any] = {
    "num_models": 2,
    "updates_per_step": 2,
    "rollouts_per_step": 3,
    "retrain_every": 4,
    "rollout_length": 2,
    "initial_steps": 40,
    "batch_size": 8,
    "gap_actions": 3,
    "critic_hidden": (8,),
    "actor_hidden": (8,),
    "model_hidden": (8,),
    "model_batch": 16,
    "max_epochs": 2,
}


def config(**changes: Any) -> DeepConfig:
    return DeepConfig(**{**TINY, **changes})


@functools.lru_cache
def drifting(horizon: int = 10) -> ContinuousEnv:
    """x' = x + 0.1 action, reward -x^2, over when |x| > 5."""

    def over(x: Any) -> Any:
        return jnp.abs(x[0]) > 5.0

    def step(key: Any, state: Any, action: Any) -> ContinuousStep:
        after = state + 0.1 * action
        return ContinuousStep(after, -(state[0] ** 2), over(after))

    return ContinuousEnv(
        "drifting",
        1,
        1,
        horizon,
        (-2.0,),
        (2.0,),
        lambda key: jnp.ones(1, jnp.float32),
        step,
        lambda state: state,
        lambda observation, action, after: over(after),
    )


LINE = Task(1, 1)
"""One number observed, one action, and no episode ends inside the models."""


def constant_critics(levels: list[float]) -> MLP:
    """Critics that say the same everywhere."""
    return MLP((jnp.zeros((len(levels), 3, 1)),), (jnp.asarray(levels)[:, None],), jnp.tanh)
