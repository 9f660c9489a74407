"""Any Gymnasium environment with a bounded 1-D Box action, as the deep agents see it: its observations are rows of numbers.

Agents act in [-1, 1] and compute in float32; what the environment says is checked before it can reach a network.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ubex import checks, imports
from ubex.envs import foreign, observe
from ubex.envs.base import TabularEnv
from ubex.envs.continuous import ContinuousEnv
from ubex.envs.custom import MAX_STEPS
from ubex.envs.task import Task, never
from ubex.types import InputError

SUPPORTED = "deep agents support a bounded 1-D Box of real-valued actions"
TABULAR = "tabular agents support Discrete observations with Discrete actions"


class Moved(NamedTuple):
    """What an action leads to."""

    observation: Float[np.ndarray, " O"]
    reward: float
    terminated: bool
    truncated: bool
    """The time limit cut the episode off, which is not termination: the value of what follows still counts."""


class Episode(NamedTuple):
    """A finished episode of training, whatever kind of agent made it."""

    step: int
    """Steps in the environment so far."""
    number: int
    """Counted from 0."""
    reward: float
    """Its return, undiscounted."""
    length: int
    losses: Mapping[str, float]
    """Of the last gradient rounds; empty before training."""


class HostedEnv(NamedTuple):
    """A checked environment. Its own state lives inside `env`, where nothing can save it."""

    env: Any
    name: str
    low: Float[np.ndarray, " A"]
    high: Float[np.ndarray, " A"]
    dtype: np.dtype[Any]
    """Of the environment's actions."""
    horizon: int | None
    """Steps after which an episode is cut off here, besides what the environment does."""
    task: Task
    """What the agent is told of it."""
    layout: observe.Layout = ()
    """How its observations are made flat."""

    def reset(self, number: int, seed: int | None = None, episode: str = "") -> Float[np.ndarray, " O"]:
        """The first observation of an episode; errors name the step `number`, and the episode where it is said."""
        where = f"before step {number}{episode}"
        return self._observation(foreign.reset(self.env, self.name, where, seed), f"after reset, {where}")

    def step(self, action: Float[np.ndarray, " A"], number: int, elapsed: int, episode: str = "") -> Moved:
        """Step number `number` of all, number `elapsed` of its episode, both counted from 0; the action is in [-1, 1]."""
        where = f"at step {number}{episode}"
        said = foreign.step(self.env, self.name, where, self.scaled(action))
        after, truncated = self._observation(said.observation, where), said.truncated
        if self.horizon is not None:
            truncated = truncated or elapsed + 1 >= self.horizon
        if elapsed + 1 >= MAX_STEPS and not (said.terminated or truncated or self.horizon):
            raise InputError(f"an episode of {self.name} is longer than {MAX_STEPS} steps: give it a horizon")
        return Moved(after, said.reward, said.terminated, truncated and not said.terminated)

    def again(
        self, number: int, seed: int, rows: Float[np.ndarray, "E D"], episode: str = ""
    ) -> tuple[Float[np.ndarray, " O"], float] | None:
        """The last observation and the return of an episode that is made again from its transitions, which began at `number`.

        None where something else comes back; the first observation is compared before any action is taken.
        """
        size, total = self.task.observation_size, 0.0
        acted, observation = slice(size, size + self.task.action_size), self.reset(number, seed, episode)
        for elapsed, row in enumerate(rows):
            if not np.array_equal(observation, row[:size]):
                return None
            moved = self.step(row[acted], number + elapsed, elapsed, episode)
            observation, total = moved.observation, total + moved.reward
            if not (np.array_equal(observation, row[-size - 1 : -1]) and np.float32(moved.reward) == row[acted.stop]):
                return None
        return observation, total

    def scaled(self, action: Float[np.ndarray, "*b A"]) -> Float[np.ndarray, "*b A"]:
        """An action in [-1, 1] in the environment's bounds and type."""
        inside = self.low + np.float32(0.5) * (action + np.float32(1.0)) * (self.high - self.low)
        bounded: np.ndarray = np.clip(inside, self.low, self.high).astype(self.dtype)
        return bounded

    def unscaled(self, action: Float[np.ndarray, "*b A"]) -> Float[np.ndarray, "*b A"]:
        """The inverse of `scaled`."""
        inside: np.ndarray = (2.0 * (action - self.low) / (self.high - self.low) - 1.0).astype(np.float32)
        return inside

    def _observation(self, given: Any, where: str) -> Float[np.ndarray, " O"]:
        if self.layout:
            given = observe.flat(self.layout, f"the observation of {self.name} {where}", given)
        try:
            with np.errstate(over="ignore"):  # always a copy: some environments write into the array that they gave
                observation: np.ndarray = checks.number_array("observation", given).astype(np.float32)
        except Exception as error:
            kind = type(given).__name__
            raise InputError(
                f"the observation of {self.name} {where} holds no numbers: {kind} {checks.shown(given)}"
            ) from error
        if observation.shape != (self.task.observation_size,):
            raise InputError(
                f"the observation of {self.name} {where} has shape {observation.shape}, not ({self.task.observation_size},)"
            )
        if not np.isfinite(observation).all():
            place = int(np.flatnonzero(~np.isfinite(observation))[0])
            raise InputError(f"the observation of {self.name} {where} is {observation[place]} at place {place}")
        return observation


def answer(env: HostedEnv, method: str, words: tuple[Any, ...]) -> Any:
    """What a method says, or its InputError."""
    try:
        return getattr(env, method)(*words)
    except InputError as error:
        return error


def hosted(env: Any, horizon: int | None = None, terminates: Any = None, reward: Any = None) -> HostedEnv:
    """An environment after every check. `terminates` is a JAX function of (observation, action in its bounds, next
    observation); None means never. `reward` is another one; None means that it is not known.

    Environments of this package know their own termination, unless something is wrapped around them.
    """
    from ubex.envs.gymnasium import GymContinuous  # here, because the rest of ubex works without Gymnasium
    from ubex.envs.locomotion import Body

    name = env.name if isinstance(env, ContinuousEnv) else foreign.name_of(env)
    if isinstance(env, TabularEnv):
        raise InputError(f"{SUPPORTED}, but {env.name} is tabular: choose one of the tabular agents")
    if isinstance(env, ContinuousEnv):
        env = GymContinuous(env)
    seen, acted = foreign.spaces_of(env, "an environment is a name or a Gymnasium environment")
    with imports.foreign(f"the spaces of {name} cannot be read", InputError):
        layout, size = observe.layout_of(name, seen)
        low, high = _bounds(name, acted)
    if horizon is not None:
        checks.steps("horizon", horizon)
    own = foreign.unwrapped(env)
    if terminates is None and isinstance(env, Body):
        terminates = env.terminates
    bounds = (tuple(low.tolist()), tuple(high.tolist()))
    inside = own.env.terminates if isinstance(own, GymContinuous) else never
    if terminates is not None:
        _check_function("termination", terminates, size, len(low), "b", "one truth value")
        inside = in_bounds(terminates, *bounds)
    known = None
    if reward is not None:
        _check_function("reward", reward, size, len(low), "f", "one float32 number")
        known = in_bounds(reward, *bounds)
    rewards = own.env.reward_range if isinstance(own, GymContinuous) else None
    return HostedEnv(env, name, low, high, acted.dtype, horizon, Task(size, len(low), inside, known, rewards), layout)


def knows_its_ends(env: Any) -> bool:
    """Whether this is an environment of this package, which knows where its episodes end."""
    from ubex.envs.gymnasium import GymContinuous
    from ubex.envs.locomotion import Body

    return isinstance(env, ContinuousEnv | Body) or isinstance(foreign.unwrapped(env), GymContinuous)


@functools.lru_cache(maxsize=32)
def in_bounds(function: Callable[..., Array], low: tuple[float, ...], high: tuple[float, ...]) -> Callable[..., Array]:
    """The same for actions in [-1, 1]; the same function for the same settings, so that programs are compiled once."""

    def inside(observation: Float[Array, " O"], action: Float[Array, " A"], after: Float[Array, " O"]) -> Array:
        bottom, top = jnp.asarray(low, jnp.float32), jnp.asarray(high, jnp.float32)
        return function(observation, bottom + 0.5 * (action + 1.0) * (top - bottom), after)

    return inside


def _check_function(name: str, function: Any, observation_size: int, action_size: int, kind: str, gives: str) -> None:
    """Refuses what JAX cannot trace, or what gives something else."""
    if not callable(function):
        raise InputError(f"{name} must be a function, but it is a {type(function).__name__}")
    observation, action = (jnp.zeros(size, jnp.float32) for size in (observation_size, action_size))
    try:
        found = jax.eval_shape(function, observation, action, observation)
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{name} must be a JAX function of (observation, action, next observation): {reason}") from error
    wanted = jnp.bool_ if kind == "b" else jnp.float32
    if getattr(found, "shape", None) != () or getattr(found, "dtype", None) != wanted:
        raise InputError(f"{name} must give {gives}, but it gives {found}")


def _bounds(name: str, acted: Any) -> tuple[Float[np.ndarray, " A"], Float[np.ndarray, " A"]]:
    """The bounds of actions."""
    from gymnasium import spaces

    if not isinstance(acted, spaces.Box) or len(acted.shape) != 1 or acted.shape[0] < 1 or acted.dtype.kind != "f":
        raise InputError(f"{SUPPORTED}, but the actions of {name} are {checks.shown(acted)}; {TABULAR}")
    low, high = acted.low.astype(np.float32), acted.high.astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        bounded = np.isfinite(high - low) & (low < high)
    if low.shape != acted.shape or high.shape != acted.shape or not bounded.all():
        raise InputError(f"{SUPPORTED}, but the actions of {name} are {checks.shown(acted)}: give them finite bounds")
    return low, high
