"""What `ubex.Agent` asks of the two kinds of agents, deep and tabular."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ubex.learn.driver import Learner


class Finished(NamedTuple):
    """An episode of training, whatever kind of agent made it."""

    step: int
    """Steps in the environment so far."""
    number: int
    """Counted from 0."""
    reward: float
    """Its return, undiscounted."""
    length: int
    losses: Mapping[str, float]


class Map(NamedTuple):
    """What an agent holds of many places at once."""

    mean: np.ndarray
    deviation: np.ndarray
    """NaN for agents that have none."""
    axes: tuple[np.ndarray, ...]
    """Where: two axes of observations that were chosen, or none where the places were given, or are all states and actions."""


class Backend(Learner[Any, Finished]):
    """One kind of agent with its environment: a learner that counts steps and shows episodes, and can be asked."""

    unit: ClassVar[str] = "step"
    kind: ClassVar[str]
    """deep or tabular."""
    config: Any
    name: str
    """Of the environment."""

    @property
    @abstractmethod
    def own_env(self) -> Any:
        """The environment as somebody gave it; None where there is none."""

    @abstractmethod
    def episodes(self, state: Any) -> int:
        """Finished episodes."""

    @abstractmethod
    def attached(self, env: Any, horizon: int | None) -> Backend:
        """The same with an environment, if it fits."""

    @abstractmethod
    def described(self, state: Any) -> dict[str, Any]:
        """What a file needs besides the state."""

    def check(self) -> None:
        """Refuses to learn where something is missing."""

    @abstractmethod
    def predict(self, state: Any, observation: Any, deterministic: bool) -> Any:
        """The action at an observation, or at a batch of them."""

    @abstractmethod
    def value(self, state: Any, observation: Any, action: Any) -> tuple[Any, Any]:
        """Mean and standard deviation of the value."""

    @abstractmethod
    def play(
        self, state: Any, env: Any, episodes: int, deterministic: bool, seed: int, seen: Callable[[Any, int], None]
    ) -> np.ndarray:
        """Returns of whole episodes; `seen` is told the environment and the number of the episode after reset and steps.

        The first episode has this seed, the others go on from there.
        """

    @abstractmethod
    def uncertainty_map(self, state: Any, observations: Any, axes: tuple[int, int], points: int) -> Map:
        """The values of many observations."""


class Origin(NamedTuple):
    """How an environment can be made again."""

    env: str | None
    """Its name; None where the environment itself was given."""
    env_args: Mapping[str, Any]
    horizon: int | None
