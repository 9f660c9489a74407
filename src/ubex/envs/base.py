"""A tabular environment: a record of pure functions, and the MDP that it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ubex.types import MDP, Key


class Step(NamedTuple):
    """What an action leads to."""

    state: Int[Array, ""]
    """The next state; after termination, `num_states`."""
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]


class TabularEnv(NamedTuple):
    """A finite environment with a fixed start. `num_states` does not count the terminal state, whose index it is."""

    name: str
    num_states: int
    num_actions: int
    horizon: int
    """Steps after which an episode is cut off, which is not termination."""
    start: int
    step: Callable[[Key, Int[Array, ""], Int[Array, ""]], Step]
    """(key, state, action) -> what it leads to."""
    as_mdp: Callable[[], MDP]
    """The MDP as NumPy arrays; with one more state, absorbing and without reward, where the environment terminates."""
    best_return: float
    """Return of the best policy over one episode, undiscounted."""
    branching: int | None = None
    """The most next states that one action can lead to, which makes sampling the posterior fast; None if that is not known."""


class Trajectory(NamedTuple):
    """One episode, padded to the horizon; `valid` marks the steps that happened."""

    state: Int[Array, " H"]
    action: Int[Array, " H"]
    reward: Float[Array, " H"]
    next_state: Int[Array, " H"]
    valid: Bool[Array, " H"]


def rollout(env: TabularEnv, key: Key, policy: Int[Array, " S"]) -> Trajectory:
    """One episode of a deterministic policy, as one compiled loop."""

    def one(
        carry: tuple[Int[Array, ""], Bool[Array, ""]], key: Key
    ) -> tuple[tuple[Int[Array, ""], Bool[Array, ""]], Trajectory]:
        state, over = carry
        here = jnp.minimum(state, env.num_states - 1)  # after the end: any state, the step does not count
        action = policy[here]
        step = env.step(key, here, action)
        after = jnp.where(over, state, step.state)
        row = Trajectory(here, action, step.reward, step.state, ~over)
        return (after, over | step.terminated), row

    first = (jnp.asarray(env.start, jnp.int32), jnp.asarray(False))
    return jax.lax.scan(one, first, jax.random.split(key, env.horizon))[1]
