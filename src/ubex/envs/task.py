"""What a deep agent is told of an environment: sizes, where episodes end, and what is known of the rewards."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Terminates = Callable[[Float[Array, " O"], Float[Array, " A"], Float[Array, " O"]], Bool[Array, ""]]
"""(observation, action in [-1, 1] or one-hot, next observation) -> whether an episode ends there."""
Reward = Callable[[Float[Array, " O"], Float[Array, " A"], Float[Array, " O"]], Float[Array, ""]]
"""The same for the reward."""


def never(observation: Float[Array, " O"], action: Float[Array, " A"], after: Float[Array, " O"]) -> Bool[Array, ""]:
    """No episode ends inside the model.

    Example:
        >>> bool(never(jnp.zeros(2), jnp.zeros(1), jnp.ones(2)))
        False
    """
    return jnp.asarray(False)


class Task(NamedTuple):
    """An environment as learned models need it. The same settings give an equal record, so that programs are compiled once."""

    observation_size: int
    action_size: int
    terminates: Terminates = never
    """Where episodes end inside the models."""
    reward: Reward | None = None
    """The reward, where it is known; None means that the models learn it."""
    reward_range: tuple[float, float] | None = None
    """The lowest and the highest reward that a step can have; None where it is not known."""
    discrete: bool = False
    """Whether an action is one of `action_size` choices, as a one-hot vector, instead of numbers in [-1, 1]."""
