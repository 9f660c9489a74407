"""The kind of policy that a task needs: `actor.py` for bounded actions, `categorical.py` for discrete ones.

Everything that depends on the kind is a function of these two modules, and the algorithm is written once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar, runtime_checkable

from jaxtyping import Array, Float

from ubex.deep import actor, categorical
from ubex.deep.actor import Actions
from ubex.deep.config import DeepConfig
from ubex.deep.networks import MLP, Product, product
from ubex.envs.task import Task
from ubex.types import Key

T = TypeVar("T")


@runtime_checkable
class Policy(Protocol):
    """What both modules have; an `actor` is the network of one of them."""

    def init(self, key: Key, observation_size: int, action_size: int, hidden: tuple[int, ...]) -> MLP:
        """An untrained network."""

    def noise_size(self, action_size: int) -> int:
        """Normal numbers that `actions` and `expected` need for one action."""

    def actions(self, actor: MLP, observation: Float[Array, "*b O"], noise: Float[Array, "*b K Z"]) -> Actions:
        """What values are averaged over at each observation."""

    def expected(
        self,
        actor: MLP,
        observation: Float[Array, "*b O"],
        noise: Float[Array, "*b Z"],
        value: Callable[[Float[Array, "*b O"], Float[Array, "*b A"]], T],
        floor: float = 0.0,
    ) -> tuple[T, Float[Array, "*b"]]:
        """The average over actions of a function of (observation, action), and of the logarithm of their probability."""

    def draw(
        self, actor: MLP, observation: Float[Array, "*b O"], key: Key, multiply: Product = product
    ) -> Float[Array, "*b A"]:
        """One random action for each observation."""

    def mode(self, actor: MLP, observation: Float[Array, "*b O"]) -> Float[Array, "*b A"]:
        """What evaluation does."""

    def usual_entropy(self, config: DeepConfig, action_size: int) -> float:
        """What the temperature aims at, unless something else is asked for."""

    def entropy_bounds(self, alpha: Float[Array, ""], action_size: int) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The least and the most that the entropy term of a step adds."""


def of(task: Task) -> Policy:
    """The kind for a task."""
    if task.discrete:
        return categorical
    return actor
