"""Any Gymnasium environment with a bounded 1-D Box or Discrete action, as the deep agents see it: its observations are rows.

Agents compute in float32 and act by vectors (`actions.py`); what an environment says is checked before it can reach a network.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ubex import checks, imports
from ubex.envs import foreign, observe
from ubex.envs.actions import Actions, Bounded, Known, Numbered
from ubex.envs.base import TabularEnv
from ubex.envs.continuous import ContinuousEnv
from ubex.envs.custom import MAX_STEPS, size_and_start
from ubex.envs.task import Task, never
from ubex.types import InputError

SUPPORTED = "deep agents support Discrete actions, or a bounded 1-D Box of real-valued ones"
COMBINE = "a wrapper can number the combinations of several choices as one Discrete space"
RESHAPE = "gymnasium.wrappers.TransformAction can give them one axis"
MOST_ACTIONS = 1000
"""Of a Discrete space: all of them are asked about at every state."""


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
    actions: Actions
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
        """Step number `number` of all, number `elapsed` of its episode, both counted from 0; the action is a vector."""
        where = f"at step {number}{episode}"
        said = foreign.step(self.env, self.name, where, self.actions.outward(action))
        after, truncated = self._observation(said.observation, where), said.truncated
        if self.horizon is not None:
            truncated = truncated or elapsed + 1 >= self.horizon
        if elapsed + 1 >= MAX_STEPS and not (said.terminated or truncated or self.horizon):
            cure = "give it a horizon (--horizon N, in Python horizon=N), after which episodes are cut off"
            raise InputError(f"an episode of {self.name} is longer than {MAX_STEPS} steps: {cure}")
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


def hosted(env: Any, horizon: int | None = None, terminates: Any = None, reward: Any = None, scaled: bool = False) -> HostedEnv:
    """An environment after every check. `terminates` is a JAX function of (observation, its own action, next
    observation); None means never. `reward` is another one; None means that it is not known. Both are about observations as
    the environment gives them, also where the agent's are scaled to the bounds.

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
        (layout, size), actions = observe.layout_of(name, seen, scaled), _actions(name, acted)
    if horizon is not None:
        checks.steps("horizon", horizon)
    own = foreign.unwrapped(env)
    if terminates is None and isinstance(env, Body):
        terminates = env.terminates
    inside = own.env.terminates if isinstance(own, GymContinuous) else never
    if terminates is not None:
        _check_function("termination", terminates, size, actions, "b", "one truth value")
        inside = actions.seen_by(terminates)
    ruler = observe.ruler(layout)
    if ruler is not None and inside is not never:
        inside = of_given(inside, *ruler)
    known = None
    if reward is not None:
        _check_function("reward", reward, size, actions, "f", "one float32 number")
        known = actions.seen_by(reward)
        known = known if ruler is None else of_given(known, *ruler)
    rewards = own.env.reward_range if isinstance(own, GymContinuous) else None
    task = Task(size, actions.size, inside, known, rewards, isinstance(actions, Numbered))
    return HostedEnv(env, name, actions, horizon, task, layout)


def knows_its_ends(env: Any) -> bool:
    """Whether this is an environment of this package, which knows where its episodes end."""
    from ubex.envs.gymnasium import GymContinuous
    from ubex.envs.locomotion import Body

    return isinstance(env, ContinuousEnv | Body) or isinstance(foreign.unwrapped(env), GymContinuous)


def ends_in_time(env: Any) -> bool:
    """Whether an environment is known to cut its episodes off."""
    from gymnasium import Wrapper
    from gymnasium.wrappers import TimeLimit

    while isinstance(env, Wrapper) and not isinstance(env, TimeLimit):
        env = env.env
    return isinstance(env, TimeLimit | ContinuousEnv)


@functools.lru_cache(maxsize=32)
def of_given(function: Known, middles: tuple[float, ...], halves: tuple[float, ...]) -> Known:
    """A function of observations as the environment gives them as one of scaled ones; the same for the same settings."""

    def of_scaled(observation: Float[Array, " O"], action: Float[Array, " A"], after: Float[Array, " O"]) -> Array:
        middle, half = (jnp.asarray(side, jnp.float32) for side in (middles, halves))
        return function(middle + half * observation, action, middle + half * after)

    return of_scaled


def _check_function(name: str, function: Any, observation_size: int, actions: Actions, kind: str, gives: str) -> None:
    """Refuses what JAX cannot trace, or what gives something else."""
    if not callable(function):
        raise InputError(f"{name} must be a function, but it is a {type(function).__name__}")
    observation, action = (jnp.zeros(size, jnp.float32) for size in (observation_size, actions.size))
    try:
        found = jax.eval_shape(actions.seen_by(function), observation, action, observation)
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{name} must be a JAX function of (observation, action, next observation): {reason}") from error
    wanted = jnp.bool_ if kind == "b" else jnp.float32
    if getattr(found, "shape", None) != () or getattr(found, "dtype", None) != wanted:
        raise InputError(f"{name} must give {gives}, but it gives {found}")


def _actions(name: str, acted: Any) -> Actions:
    """The actions, if they are of one of the two kinds."""
    from gymnasium import spaces

    if isinstance(acted, spaces.Discrete):
        return Numbered(*size_and_start(name, "action", acted, MOST_ACTIONS))
    real = isinstance(acted, spaces.Box) and acted.dtype.kind == "f"
    if not real or len(acted.shape) != 1 or acted.shape[0] < 1:
        raise InputError(f"{SUPPORTED}, but the actions of {name} are {checks.shown(acted)}; {RESHAPE if real else COMBINE}")
    low, high = acted.low.astype(np.float32), acted.high.astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        bounded = np.isfinite(high - low) & (low < high)
    if low.shape != acted.shape or high.shape != acted.shape or not bounded.all():
        raise InputError(f"{SUPPORTED}, but the actions of {name} are {checks.shown(acted)}: give them finite bounds")
    return Bounded(low, high, acted.dtype)
