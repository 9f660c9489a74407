"""Anybody's environment, where what it says comes in: every `reset` and `step` of the agents on the host passes here.

Whatever it raises, or gives instead of what Gymnasium asks for, is one line that names the environment and the place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ubex import checks, imports
from ubex.types import InputError

LARGEST = float(np.finfo(np.float32).max)
"""Of a reward: beyond it float32 has infinity, and sums of float64 soon have it too."""
PARTS = ("reset", "step", "observation_space", "action_space")


class Said(NamedTuple):
    """What a step gave; nobody has looked at the observation."""

    observation: Any
    reward: float
    terminated: bool
    truncated: bool


def reset(env: Any, name: str, where: str, seed: int | None) -> Any:
    """The first observation of an episode."""
    with imports.foreign(f"{name} failed in reset {where}"):
        said = env.reset(seed=seed)
    if not isinstance(said, tuple | list) or len(said) != 2:
        raise InputError(f"reset of {name} {where} gave {checks.shown(said)}, not (observation, info)")
    _check_info(said[1], name, where)
    return said[0]


def step(env: Any, name: str, where: str, action: Any) -> Said:
    """What an action leads to."""
    with imports.foreign(f"{name} failed {where}"):
        said = env.step(action)
    if not isinstance(said, tuple | list) or len(said) != 5:
        wanted = "(observation, reward, terminated, truncated, info)"
        raise InputError(f"step of {name} {where} gave {checks.shown(said)}, not {wanted}")
    observation, reward, terminated, truncated, info = said
    number = _number(reward)
    if number is None:
        raise InputError(f"the reward of {name} {where} is {checks.shown(reward)}, not a number")
    if not abs(number) <= LARGEST:
        raise InputError(f"the reward of {name} {where} is {checks.shown(reward)}, not a finite number")
    for kind, flag in (("terminated", terminated), ("truncated", truncated)):
        if not isinstance(flag, bool | np.bool_) and not _is_flag(flag):
            raise InputError(f"{kind} of {name} {where} is {checks.shown(flag)}, not true or false")
    _check_info(info, name, where)
    return Said(observation, number, bool(terminated), bool(truncated))


def spaces_of(env: Any, kinds: str) -> tuple[Any, Any]:
    """The spaces of observations and actions, if this is an environment at all; `kinds` are the words for what may be one."""
    if isinstance(env, type):
        raise InputError(f"{kinds}, but this is the class {env.__name__}: make an environment of it")
    with imports.foreign(f"the spaces of {name_of(env)} cannot be read"):
        lacking = [part for part in PARTS if not hasattr(env, part)]
        found = None if lacking else (env.observation_space, env.action_space)
    if found is None:
        raise InputError(f"{kinds}, but this is a {type(env).__name__}, which has no {lacking[0]}")
    refuse_vectors(env)
    return found


def refuse_vectors(env: Any) -> None:
    """Refuses copies of an environment that step together."""
    from gymnasium.vector import VectorEnv  # here, because the rest of ubex works without Gymnasium

    if isinstance(env, VectorEnv):
        raise InputError(
            f"{type(env).__name__} is a vector environment, and an agent acts in a single one: give it what `gymnasium.make` "
            "makes; `ubex train --seeds K` runs several seeds at once"
        )


def name_of(env: Any) -> str:
    """For people: its id, or its class."""
    try:
        return str(env.spec.id)
    except Exception:
        return type(unwrapped(env)).__name__


def unwrapped(env: Any) -> Any:
    """The environment without its wrappers, as far as it says so."""
    try:
        return env.unwrapped
    except Exception:
        return env


def _check_info(info: Any, name: str, where: str) -> None:
    if not isinstance(info, Mapping):
        raise InputError(f"the info of {name} {where} is {checks.shown(info)}, not a dictionary")


def _number(value: Any) -> float | None:
    """One real number as a float; None for anything else, also for texts and arrays that Python or NumPy would convert."""
    try:
        if not isinstance(value, float | int) and (isinstance(value, str | bytes) or np.ndim(value) or np.iscomplexobj(value)):
            return None
        return float(value)
    except OverflowError:
        return math.inf
    except Exception:
        return None


def _is_flag(value: Any) -> bool:
    """Whether this is a truth value of another library: an array of them without an axis."""
    return getattr(value, "shape", None) == () and getattr(getattr(value, "dtype", None), "kind", "") == "b"
