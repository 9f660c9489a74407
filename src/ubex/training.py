"""`ubex.train(...)`: an exploring agent on an environment of one's own, in one call.

An environment is a name of ours, a Gymnasium id, a Gymnasium environment with Discrete spaces, a `TabularEnv`, or an MDP
(`p, r`). Strings may also be `module:thing`, where the thing is any of these or a function or class that gives one.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from ubex import checks
from ubex.envs import ENVS
from ubex.envs.base import TabularEnv
from ubex.envs.continuous import ContinuousEnv
from ubex.envs.custom import HORIZON, discrete_sizes, from_mdp
from ubex.keys import as_key
from ubex.tabular import host, loop
from ubex.tabular.agents import AgentConfig
from ubex.tabular.belief import Belief
from ubex.tabular.host import HostEnv
from ubex.types import MDP, InputError, Key, KeyLike

BLOCK = 50
"""Episodes of a compiled block."""


class Training(NamedTuple):
    """What training gives.

    Example:
        >>> result = ubex.train("deep-sea", "psrl", episodes=3, env_args={"size": 3})
        >>> result.returns.shape, result.policy.shape
        ((3,), (9,))
    """

    returns: Float[np.ndarray, " E"]
    """Undiscounted return of every episode."""
    policy: Int[np.ndarray, " S"]
    """The policy of the last episode: an action for every state."""
    steps: Int[np.ndarray, " E"]
    """Improvements that the update before each episode made."""
    belief: Belief
    """What was learned: `mean_model` and `sample_transitions` of `ubex.tabular.belief` read it."""


def train(
    env: Any,
    agent: str = "exact-ube",
    *,
    episodes: int = 100,
    key: KeyLike = 0,
    horizon: int | None = None,
    env_args: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Training:
    """Trains an agent on an environment; `settings` are those of `AgentConfig` (num_models, gain, discount, ...).

    Example:
        >>> result = train("deep-sea", "psrl", episodes=3, env_args={"size": 3})
        >>> result.returns.shape
        (3,)
    """
    world = environment(env, horizon, env_args or {})
    config = agent_config(agent, settings)
    numbers = np.arange(checks.whole("episodes", episodes, 1), dtype=np.int32)
    with jax.enable_x64(True):
        return run_block(world, config, as_key(key), first_belief(world), numbers)


def agent_config(agent: str, settings: Mapping[str, Any]) -> AgentConfig:
    """The agent's settings; unknown names get a clear line."""
    known = [name for name in inspect.signature(AgentConfig).parameters if name != "method"]
    for name in settings:
        checks.one_of("setting", name, known)
    return AgentConfig(method=agent, **settings)


def first_belief(world: TabularEnv | HostEnv, places: int = 1) -> Belief:
    """The belief before the first episode; on the host, with places for this many next states."""
    return host.begin(world, places) if isinstance(world, HostEnv) else loop.begin(world)


def run_block(
    world: TabularEnv | HostEnv, config: AgentConfig, key: Key, belief: Belief, episodes: Int[np.ndarray, " E"]
) -> Training:
    """Runs these episodes, compiled where the environment is."""
    if isinstance(world, HostEnv):
        belief, seen = host.run_episodes(world, config, key, belief, episodes)
        return Training(seen.returns, seen.policies[-1], seen.steps, belief)
    returns, steps, policy = [], [], np.zeros(0, np.int32)
    for part in np.split(episodes, range(BLOCK, len(episodes), BLOCK)):
        belief, out = loop.run_episodes(world, config, key, belief, jnp.asarray(part))
        returns.append(np.asarray(out.returns, np.float64))
        steps.append(np.asarray(out.steps))
        policy = np.asarray(out.policies[-1])
    return Training(np.concatenate(returns), policy, np.concatenate(steps), belief)


def environment(env: Any, horizon: int | None = None, env_args: Mapping[str, Any] | None = None) -> TabularEnv | HostEnv:
    """Whatever stands for an environment, as the loops take it."""
    settings = dict(env_args or {})
    if horizon is not None:
        checks.whole("horizon", horizon, 1)
    if isinstance(env, str):
        env = by_name(env, settings)
    elif settings:
        raise InputError("env_args go with an environment that is given by name")
    if isinstance(env, TabularEnv):
        return env if horizon is None else env._replace(horizon=horizon)
    if isinstance(env, ContinuousEnv):
        choices = ", ".join(name for name, entry in ENVS.items() if isinstance(entry.make(), TabularEnv))
        raise InputError(f"tabular agents need finite states and actions, but {env.name} is continuous; choose from: {choices}")
    if isinstance(env, tuple) and len(env) == 2:  # an MDP, or a plain pair p, r
        return from_mdp(MDP(*env), horizon=HORIZON if horizon is None else horizon)
    if hasattr(env, "reset") and hasattr(env, "step") and hasattr(env, "observation_space"):
        states, actions = discrete_sizes(env)
        return HostEnv(env, states, actions, int(env.observation_space.start), int(env.action_space.start), horizon)
    raise InputError(
        f"an environment is a name, a Gymnasium environment, a TabularEnv or a pair p, r, but this is a {type(env).__name__}"
    )


def by_name(name: str, settings: Mapping[str, Any]) -> Any:
    """An environment of ours, `module:thing`, or a Gymnasium id."""
    if name in ENVS:
        return call(name, ENVS[name].make, settings)
    module, _, thing = name.partition(":")
    if thing and not registered_form(thing):
        found = attribute(module, thing)
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
        return gymnasium.make(name, **settings)
    except (gymnasium.error.Error, ImportError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        if extra := missing_extra(name, reason):
            raise InputError(f"{name} needs an extra that is not installed: pip install 'ubex[{extra}]' ({reason})") from None
        if isinstance(error, gymnasium.error.DependencyNotInstalled):
            raise InputError(f"{name} needs something that is not installed: {reason}") from None
        choices = ", ".join((*ENVS, *LOCOMOTION))
        raise InputError(
            f"unknown environment {name!r}: {reason}; a Gymnasium id, module:Class, or one of: {choices}"
        ) from None
    except TypeError as error:
        raise InputError(f"{name} does not take these env_args: {error}") from None


def missing_extra(name: str, reason: str) -> str:
    """The extra of ubex that an environment lacks, by its name and what Gymnasium says; empty where it is none of ours."""
    words = f"{name} {reason}".lower()
    return "pybullet" if "bullet" in words else "mujoco" if "mujoco" in words else ""


def registered_form(thing: str) -> bool:
    """Whether this is the id in Gymnasium's own `module:Name-v0`."""
    return "-v" in thing


def attribute(module: str, name: str) -> Any:
    """A thing of a module, which may lie in the current folder."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise InputError(f"{module} needs the module {error.name}, which is not installed") from None
        raise InputError(f"there is no module {module!r}, here or among the installed ones") from None
    for part in name.split("."):
        if not hasattr(found, part):
            raise InputError(f"the module {module} has no {name!r}")
        found = getattr(found, part)
    return found


def call(name: str, make: Callable[..., Any], settings: Mapping[str, Any]) -> Any:
    """Makes an environment, with a clear line where the settings do not fit."""
    try:
        inspect.signature(make).bind(**settings)
    except TypeError as error:
        raise InputError(f"{name} does not take these env_args: {error}") from None
    return make(**settings)
