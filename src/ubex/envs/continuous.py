"""An environment with continuous states and actions: a record of pure functions for one step, unbatched and in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Array, Bool, Float, UInt8

from ubex.envs.task import Task, Terminates
from ubex.types import Key

State: TypeAlias = Any
"""What an environment carries from step to step: a pytree of float32 arrays, none of them weakly typed."""


class ContinuousStep(NamedTuple):
    """What an action leads to."""

    state: State
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]


class ContinuousEnv(NamedTuple):
    """A continuous environment. Makers return the same record for the same settings, so that programs are compiled once."""

    name: str
    observation_size: int
    action_size: int
    horizon: int
    """Steps after which an episode is cut off, which is not termination."""
    action_low: tuple[float, ...]
    action_high: tuple[float, ...]
    """Bounds of the actions, which `step` clips to."""
    reset: Callable[[Key], State]
    """The start of an episode."""
    step: Callable[[Key, State, Float[Array, " A"]], ContinuousStep]
    """(key, state, action) -> what it leads to."""
    observe: Callable[[State], Float[Array, " O"]]
    """What the agent sees of a state."""
    terminates: Terminates
    """(observation, action, next observation) -> whether the episode ends there; for learned models, which have no state."""
    reward_range: tuple[float, float] | None = None
    """The lowest and the highest reward that a step can have; None where it is not known."""
    observation_high: tuple[float, ...] | None = None
    """Observations lie within plus and minus this; None where they have no bounds."""
    draw: Callable[[State, Float[np.ndarray, " A"]], UInt8[np.ndarray, "H W 3"]] | None = None
    """(state, the action that led to it) -> a picture; None where there is none."""
    frames_per_second: int = 30
    """Steps per second of a film."""

    @property
    def task(self) -> Task:
        """What a deep agent is told of it."""
        return Task(self.observation_size, self.action_size, self.terminates, None, self.reward_range)
