"""What `ubex.Agent` asks of the two kinds of agents, deep and tabular."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np


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


class Core(Protocol):
    """One kind of agent with its environment."""

    kind: str
    """deep or tabular."""
    config: Any

    @property
    def name(self) -> str:
        """Of the environment."""
        ...

    @property
    def env(self) -> Any:
        """The environment; None where there is none."""
        ...

    @property
    def steps(self) -> int:
        """Steps in the environment so far."""
        ...

    @property
    def episodes(self) -> int:
        """Finished episodes."""
        ...

    @property
    def state(self) -> Any:
        """All that was learned, as arrays."""
        ...

    def fresh(self, notes: Mapping[str, Any]) -> Any:
        """An untrained state of the shapes that the notes tell."""
        ...

    def restore(self, state: Any) -> None:
        """Takes over what was learned before."""
        ...

    def attach(self, env: Any, horizon: int | None) -> None:
        """Takes an environment, if it fits."""
        ...

    def notes(self) -> dict[str, Any]:
        """What a file needs besides the state."""
        ...

    def ready(self) -> None:
        """Refuses to learn where something is missing."""
        ...

    def run(self, steps: int, watch: Callable[[Finished], bool]) -> None:
        """Learns for this many steps, or stops when `watch` says so."""
        ...

    def predict(self, observation: Any, deterministic: bool) -> Any:
        """The action at an observation, or at a batch of them."""
        ...

    def value(self, observation: Any, action: Any) -> tuple[Any, Any]:
        """Mean and standard deviation of the value."""
        ...

    def play(self, env: Any, episodes: int, deterministic: bool, seed: int, seen: Callable[[Any, int], None]) -> np.ndarray:
        """Returns of whole episodes; `seen` is told the environment and the number of the episode after reset and steps."""
        ...

    def uncertainty_map(self, observations: Any, axes: tuple[int, int], points: int) -> Map:
        """The values of many observations."""
        ...


class Origin(NamedTuple):
    """How an environment can be made again."""

    env: str | None
    """Its name; None where the environment itself was given."""
    env_args: Mapping[str, Any]
    horizon: int | None
