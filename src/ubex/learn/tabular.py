"""Tabular agents on environments of one's own: the learner, and `ubex.train(...)`, which runs it in one call.

An environment is a name (`envs/resolve.py`), a Gymnasium environment with Discrete spaces, a `TabularEnv`, or an MDP (`p, r`).
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray, Shaped

from ubex import checks
from ubex.envs import ENVS, foreign
from ubex.envs.base import TabularEnv
from ubex.envs.continuous import ContinuousEnv
from ubex.envs.custom import DEEP, HORIZON, discrete_sizes, from_mdp
from ubex.envs.resolve import by_name
from ubex.keys import as_key
from ubex.learn import driver
from ubex.learn.driver import Learner
from ubex.tabular import host, loop
from ubex.tabular.agents import AGENTS, DOUBLED, START, AgentConfig
from ubex.tabular.belief import Belief, LearnedBelief, prior
from ubex.tabular.host import HostEnv
from ubex.tabular.loop import Episodes, Memory
from ubex.types import MDP, InputError, KeyLike

BLOCK = 50
"""Episodes of a block. One program makes blocks of up to so many."""
RECOMMENDED, RECOMMENDED_SETTINGS = "closed-form", {"prior_mass": 2.0, "plan_when": DOUBLED}
"""The agent where none is named, and its settings: they learn most in studies/default-agent."""


class TabularState(NamedTuple):
    """What a run carries on, with several seeds on a leading axis K; in NumPy, which keeps 64 bits outside the entry points."""

    memory: Memory
    episodes: int
    steps: int
    """Steps in the environment; counted for agents that learn by steps."""
    key: Shaped[PRNGKeyArray, "*k"]

    @property
    def belief(self) -> Belief:
        """What was learned."""
        return self.memory.belief


@dataclass(frozen=True)
class TabularLearner(Learner[TabularState, Any]):
    """A tabular agent, compiled where the environment is; all seeds at once where there is more than one key."""

    env: TabularEnv | HostEnv
    config: AgentConfig
    key: Shaped[PRNGKeyArray, "*k"]
    block: int = BLOCK
    """Episodes of one piece."""

    def __post_init__(self) -> None:
        """Refuses a planner that has to know more of the environment than there is."""
        if self.env.start is None and self.config.planner == START:
            raise InputError(
                f"planner {START!r} has to know where episodes begin, and a Gymnasium environment does not say it: "
                "give a pair p, r or a name of `ubex list`, or take the planner 'policy-iteration'"
            )

    def blank(self, notes: Mapping[str, Any]) -> TabularState:
        """Before the first episode, with as many places for next states as the notes say; on the host there is one at first."""
        places = notes.get("places", 1 if isinstance(self.env, HostEnv) else self.env.branching)
        with jax.enable_x64(True):
            memory = loop.blank(prior(self.env.num_states, self.env.num_actions, places))
            memory = jax.tree.map(lambda x: np.tile(x, (*self.key.shape, *[1] * x.ndim)), memory)
        return TabularState(memory, 0, 0, self.key)

    def done(self, state: TabularState) -> int:
        """Episodes."""
        return state.episodes

    def notes(self, state: TabularState) -> dict[str, Any]:
        """Places for next states."""
        return {"places": int(state.belief.counts.shape[-1])}

    def advance(self, state: TabularState, goal: int) -> tuple[TabularState, Any]:
        """A block of episodes."""
        made = min(self.block, goal - state.episodes)
        numbers = np.arange(state.episodes, state.episodes + max(BLOCK, self.block), dtype=np.int32)
        with jax.enable_x64(True):
            memory: Memory = jax.tree.map(jnp.asarray, state.memory)
            if isinstance(self.env, HostEnv):
                memory, out = host.run_episodes(self.env, self.config, state.key, memory, numbers[:made])
            else:
                run = loop.run_batch if state.key.ndim else loop.run_episodes
                memory, out = run(self.env, self.config, state.key, memory, jnp.asarray(numbers), np.int32(made))
                out = jax.tree.map(lambda x: np.asarray(x).take(range(made), axis=state.key.ndim), out)
            memory, out = jax.tree.map(np.asarray, (memory, out._replace(returns=np.asarray(out.returns, np.float64))))
        return state._replace(memory=memory, episodes=state.episodes + made), out


class Training(NamedTuple):
    """What training gives.

    Example:
        >>> result = ubex.train("deep-sea", "psrl", episodes=3, env_args={"size": 3})
        >>> result.returns.shape, result.policy.shape
        ((3,), (9,))
        >>> ubex.value_variance(result.belief, result.policy, 0.99, estimator="ensemble-var", key=0).v.shape
        (10,)
    """

    returns: Float[np.ndarray, " E"]
    """Undiscounted return of every episode."""
    policy: Int[np.ndarray, " S"]
    """The policy of the last episode: an action for every state. States and actions count from 0, also where the spaces of the
    environment start at another number: add `start` of its action space, and index with a state less that of the states."""
    steps: Int[np.ndarray, " E"]
    """Improvements that the update before each episode made, or the most that one within it made."""
    belief: LearnedBelief
    """What was learned: a posterior over MDPs. `value_variance` takes it, with `policy` or any other."""


def train(
    env: Any,
    agent: str | None = None,
    *,
    episodes: int = 100,
    key: KeyLike = 0,
    horizon: int | None = None,
    env_args: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Training:
    """Trains an agent on an environment; `settings` are those of `AgentConfig` (num_models, gain, discount, ...).

    Args:
        env: a name of `ubex list`, a Gymnasium id, "module:Class", a Gymnasium environment with Discrete spaces, a
            `TabularEnv`, or a pair p, r.
        agent: an estimator, by its name or as "module:name", or "psrl", "beb" or "ucbvi". Without one it is "closed-form" with
            `prior_mass=2.0` and `plan_when="doubled"`. An agent that is named has the published settings instead.
        episodes: how many are played.
        key: a JAX key or an integer seed.
        horizon: steps after which an episode is cut off; 100 by default for a pair p, r.
        env_args: settings of an environment that is given by name.

    Example:
        >>> result = train("deep-sea", "psrl", episodes=3, env_args={"size": 3})
        >>> result.returns.shape
        (3,)
    """
    config = agent_config(*recommended(agent, settings))
    learner = TabularLearner(environment(env, horizon, env_args), config, as_key(key))
    blocks = list[Episodes]()

    def see(state: TabularState, block: Episodes | None) -> bool:
        blocks.extend([] if block is None else [block])
        return True

    state = driver.advance(learner, learner.blank({}), checks.whole("episodes", episodes, 1), see)
    returns, steps = (np.concatenate([getattr(block, name) for block in blocks]) for name in ("returns", "steps"))
    return Training(returns, np.asarray(blocks[-1].policies[-1]), steps, learner.config.learned(state.belief))


def recommended(agent: str | None, settings: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The agent and its settings; where none is named, ours, unless the settings say otherwise."""
    if agent is not None:
        return agent, settings
    ours = {name: value for name, value in RECOMMENDED_SETTINGS.items() if settings.get(name) is None}
    if settings.get("planner") == START:
        ours.pop("plan_when", None)  # it plans for the start of an episode
    return RECOMMENDED, {**settings, **ours}


def agent_config(agent: str, settings: Mapping[str, Any]) -> AgentConfig:
    """The agent's settings; unknown names get a clear line."""
    known = [name for name in inspect.signature(AgentConfig).parameters if name != "method"]
    for name in settings:
        checks.one_of("setting", name, known)
    if only_deep(agent):
        raise InputError(f"{agent} is not a tabular agent: {DEEP}")
    return AgentConfig(method=agent, **settings)


def only_deep(agent: Any) -> bool:
    """Whether this names an agent that is deep alone."""
    if not isinstance(agent, str) or agent in AGENTS:
        return False
    from ubex.deep.methods import DEEP_METHODS  # here, because tabular agents need nothing of it

    return agent in DEEP_METHODS


def environment(env: Any, horizon: int | None = None, env_args: Mapping[str, Any] | None = None) -> TabularEnv | HostEnv:
    """Whatever stands for an environment, as the loops take it."""
    settings = checks.mapping("env_args", env_args)
    if horizon is not None:
        checks.steps("horizon", horizon)
    if isinstance(env, str):
        env = by_name(env, settings)
    elif settings:
        raise InputError("env_args go with an environment that is given by name")
    if isinstance(env, TabularEnv):
        return env if horizon is None else env._replace(horizon=horizon)
    if isinstance(env, ContinuousEnv):
        choices = ", ".join(name for name, entry in ENVS.items() if isinstance(entry.make(), TabularEnv))
        raise InputError(
            f"tabular agents need finite states and actions, but {env.name} is continuous; choose from: {choices}; {DEEP}"
        )
    if isinstance(env, tuple) and len(env) == 2:  # an MDP, or a plain pair p, r
        return from_mdp(MDP(*env), horizon=HORIZON if horizon is None else horizon)
    return HostEnv(env, *discrete_sizes(env), horizon, name=foreign.name_of(env))
