"""An environment from its name: one of ours, a Gymnasium id, or `module:thing`.

The thing is an environment, or a function or class that makes one.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ubex import checks, imports
from ubex.envs import ENVS
from ubex.types import InputError

EXTRAS = {"bulletenv": ("pybullet", "pybullet_envs_gymnasium"), "mujoco": ("mujoco", "mujoco")}
"""What is said of environments: the extra of ubex that they need, and the module that it brings."""


def by_name(name: str, settings: Mapping[str, Any]) -> Any:
    """An environment of ours, `module:thing`, or a Gymnasium id."""
    if name in ENVS:
        return call(name, ENVS[name].make, settings)
    module, _, thing = name.partition(":")
    if thing and not registered_form(thing):
        found = imports.attribute(module, thing)
        if callable(found) and not isinstance(found, tuple):
            return call(name, found, settings)
        if settings:
            raise InputError(f"{name} is not a class or a function, so it takes no env_args")
        return found
    import gymnasium

    from ubex.envs.locomotion import LOCOMOTION, load_pybullet

    if name in LOCOMOTION:
        return call(name, LOCOMOTION[name].make, settings)
    if "BulletEnv" in name:
        with contextlib.suppress(ImportError):  # Gymnasium then says that there is no such environment
            load_pybullet()
    try:
        with imports.foreign(f"{name} cannot be made", gymnasium.error.Error, ImportError, InputError):
            return gymnasium.make(name, **settings)
    except (gymnasium.error.Error, ImportError) as error:
        reason = imports.reason(error).rstrip(".") or type(error).__name__
        registered = "BulletEnv" in name or not isinstance(error, gymnasium.error.UnregisteredEnv)
        if registered and (extra := missing_extra(f"{name} {reason}")):
            raise InputError(f"{name} needs an extra that is not installed: pip install 'ubex[{extra}]' ({reason})") from error
        if isinstance(error, gymnasium.error.DependencyNotInstalled):
            raise InputError(f"{name} needs something that is not installed: {reason}") from error
        choices = ", ".join((*ENVS, *LOCOMOTION))
        raise InputError(
            f"unknown environment {checks.shown(name)}: {reason}; a Gymnasium id, module:Class, or one of: {choices}"
        ) from error


def missing_extra(words: str) -> str:
    """The extra that an environment lacks, by what is said of it; empty where it is none of ours, or is there."""
    needed = (extra for sign, extra in EXTRAS.items() if sign in words.lower())
    return next((extra for extra, module in needed if importlib.util.find_spec(module) is None), "")


def registered_form(thing: str) -> bool:
    """Whether this is the id in Gymnasium's own `module:Name-v0`."""
    return "-v" in thing


def call(name: str, make: Callable[..., Any], settings: Mapping[str, Any]) -> Any:
    """Makes an environment, with a clear line where the settings do not fit."""
    with imports.foreign(f"{name} cannot be made", InputError):
        try:
            inspect.signature(make).bind(**settings)
        except TypeError as error:
            raise InputError(f"{name} does not take these env_args: {error}") from error
        return make(**settings)
