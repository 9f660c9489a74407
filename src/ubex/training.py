"""`ubex.train(...)`: an exploring agent on an environment of one's own, in one call.

An environment is a name (`envs/resolve.py`), a Gymnasium environment with Discrete spaces, a `TabularEnv`, or an MDP (`p, r`).
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
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
from ubex.envs.resolve import by_name
from ubex.keys import as_key
from ubex.tabular import host, loop
from ubex.tabular.agents import AgentConfig
from ubex.tabular.belief import Belief, LearnedBelief
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
        >>> ubex.value_variance(result.belief, result.policy, 0.99, estimator="closed-form").v.shape
        (10,)
    """

    returns: Float[np.ndarray, " E"]
    """Undiscounted return of every episode."""
    policy: Int[np.ndarray, " S"]
    """The policy of the last episode: an action for every state."""
    steps: Int[np.ndarray, " E"]
    """Improvements that the update before each episode made."""
    belief: LearnedBelief
    """What was learned: a posterior over MDPs. `value_variance` takes it, with `policy` or any other."""


class Block(NamedTuple):
    """What a block of episodes gives; the fields are those of `Training`, and the next block goes on with the belief."""

    returns: Float[np.ndarray, " E"]
    policy: Int[np.ndarray, " S"]
    steps: Int[np.ndarray, " E"]
    belief: Belief


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
        done = run_block(world, config, as_key(key), first_belief(world), numbers)
    return Training(done.returns, done.policy, done.steps, config.learned(done.belief))


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
) -> Block:
    """Runs these episodes, compiled where the environment is."""
    if isinstance(world, HostEnv):
        belief, seen = host.run_episodes(world, config, key, belief, episodes)
        return Block(seen.returns, seen.policies[-1], seen.steps, belief)
    returns, steps, policy = [], [], np.zeros(0, np.int32)
    for part in np.split(episodes, range(BLOCK, len(episodes), BLOCK)):
        belief, out = loop.run_episodes(world, config, key, belief, jnp.asarray(part))
        returns.append(np.asarray(out.returns, np.float64))
        steps.append(np.asarray(out.steps))
        policy = np.asarray(out.policies[-1])
    return Block(np.concatenate(returns), policy, np.concatenate(steps), belief)


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
