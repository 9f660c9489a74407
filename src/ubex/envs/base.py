"""A tabular environment: a record of pure functions, and the MDP that it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ubex.types import MDP, Key


class Step(NamedTuple):
    """What an action leads to."""

    state: Int[Array, ""]
    """The next state; after termination, `num_states`."""
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]


class TabularEnv(NamedTuple):
    """A finite environment with a fixed start. `num_states` does not count the terminal state, whose index it is.

    Example:
        >>> env = ubex.ENVS["deep-sea"].make(size=3)
        >>> env.num_states, env.num_actions, env.horizon
        (9, 2, 3)
    """

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


def table_step(
    mdp: MDP, terminal: int | None = None, exact: bool = False
) -> Callable[[Key, Int[Array, ""], Int[Array, ""]], Step]:
    """The `step` of an environment that is known by its tables; reaching the state `terminal` ends an episode.

    Rewards are rounded to float32, as in the runs that were kept; `exact` ones have 64 bits where JAX has them.

    Example:
        >>> step = table_step(MDP(p=np.array([[[0.0, 1.0]], [[0.0, 1.0]]]), r=np.array([[1.0], [0.0]])))
        >>> int(step(jax.random.key(0), jnp.asarray(0), jnp.asarray(0)).state)
        1
    """
    log_p, rewards = jnp.log(jnp.asarray(mdp.p, jnp.float32)), np.asarray(mdp.r, np.float64 if exact else np.float32)

    def step(key: Key, state: Int[Array, ""], action: Int[Array, ""]) -> Step:
        after = jax.random.categorical(key, log_p[state, action]).astype(jnp.int32)
        over = jnp.asarray(False) if terminal is None else after == terminal
        return Step(after, jnp.asarray(rewards)[state, action], over)

    return step


def finite_horizon_optimum(p: np.ndarray, r: np.ndarray, horizon: int) -> np.ndarray:
    """Best undiscounted return over `horizon` steps from every state (S,), by backups; p is (S, A, S) and r is (S, A).

    Example:
        >>> finite_horizon_optimum(np.ones((1, 1, 1)), np.array([[2.0]]), 3).tolist()
        [6.0]
    """
    value = np.zeros(p.shape[0])
    for _ in range(horizon):
        value = (r + p @ value).max(axis=1)
    return value


def finite_horizon_value(p: np.ndarray, r: np.ndarray, policy: np.ndarray, horizon: int) -> np.ndarray:
    """Undiscounted return of a deterministic policy (S,) over `horizon` steps from every state, by backups.

    p is (S, A, S), r is (S, A), and the answer is (S,).

    Example:
        >>> finite_horizon_value(np.ones((1, 1, 1)), np.array([[2.0]]), np.array([0]), 3).tolist()
        [6.0]
    """
    states = np.arange(p.shape[0])
    rows, rewards = p[states, policy], r[states, policy]
    value = np.zeros(p.shape[0])
    for _ in range(horizon):
        value = rewards + rows @ value
    return value


class Trajectory(NamedTuple):
    """One episode, padded to the horizon; `valid` marks the steps that happened."""

    state: Int[Array, "*H"]
    action: Int[Array, "*H"]
    reward: Float[Array, "*H"]
    next_state: Int[Array, "*H"]
    valid: Bool[Array, "*H"]


def rollout(env: TabularEnv, key: Key, policy: Int[Array, " S"]) -> Trajectory:
    """One episode of a deterministic policy, as one compiled loop.

    Example:
        >>> env = ubex.ENVS["deep-sea"].make(size=3)
        >>> rollout(env, jax.random.key(0), jnp.ones(9, jnp.int32)).state.tolist()
        [0, 4, 8]
    """

    return jax.lax.scan(lambda at, key: acted(env, key, policy, at), beginning(env), jax.random.split(key, env.horizon))[1]


class Place(NamedTuple):
    """Where an episode is."""

    state: Int[Array, ""]
    over: Bool[Array, ""]


def beginning(env: TabularEnv) -> Place:
    """Where an episode begins.

    Example:
        >>> beginning(ubex.ENVS["deep-sea"].make(size=3)).state.item()
        0
    """
    return Place(jnp.asarray(env.start, jnp.int32), jnp.asarray(False))


def acted(env: TabularEnv, key: Key, policy: Int[Array, " S"], at: Place) -> tuple[Place, Trajectory]:
    """One step of a policy, as a trajectory without an axis; after the end of an episode it is not valid.

    Example:
        >>> env = ubex.ENVS["deep-sea"].make(size=3)
        >>> at, row = acted(env, jax.random.key(0), jnp.ones(9, jnp.int32), beginning(env))
        >>> row.state.item(), at.state.item()
        (0, 4)
    """
    here = jnp.minimum(at.state, env.num_states - 1)  # after the end: any state, the step does not count
    action = policy[here]
    step = env.step(key, here, action)
    row = Trajectory(here, action, step.reward, step.state, ~at.over)
    return Place(jnp.where(at.over, at.state, step.state), at.over | step.terminated), row
