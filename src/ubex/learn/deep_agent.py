"""Deep agents on environments with Box or Discrete actions, behind `ubex.Agent`."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ubex import checks
from ubex.deep import agents, policy, seeds
from ubex.deep.config import DeepConfig
from ubex.deep.host import HostLoop
from ubex.deep.networks import MLP
from ubex.deep.presets import AUTO, DISCRETE, GYMNASIUM, chosen, reason
from ubex.deep.seeds import HostRun, HostState
from ubex.envs import actions, adapter, observe
from ubex.envs.adapter import Episode, HostedEnv
from ubex.envs.task import Task, never
from ubex.keys import named
from ubex.learn.driver import Learner
from ubex.types import InputError, Key

LOG = logging.getLogger("ubex")
T = TypeVar("T")
LEARNED, NONE, OWN, FUNCTION = "learned", "none", "own", "function"
"""Where episodes end inside the models: learned, nowhere, as the environment itself knows, or by a function of the user."""


class Functions(NamedTuple):
    """What is known inside the models, in JAX."""

    termination: Any = None
    reward: Any = None


@dataclass(frozen=True)
class DeepBackend(HostLoop, Learner[HostRun, Episode]):
    """A deep agent and its environment."""

    unit: ClassVar[str] = "step"
    kind: ClassVar[str] = "deep"

    key: Key
    """Of a new agent."""
    termination: str
    """Where episodes end inside the models: one of the names above."""
    reward: str
    """learned, or a function."""
    functions: Functions
    """Those that somebody gave."""
    draws: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    """Numbers of the sampled actions that were asked for."""

    @property
    def name(self) -> str:
        """Of the environment."""
        return self.env.name

    @property
    def own_env(self) -> Any:
        """The environment; None where there is none."""
        return self.env.env

    def blank(self, notes: Mapping[str, Any]) -> HostState:
        """An untrained state with as many transitions as the notes say."""
        rows, known = int(notes.get("rows", 0)), notes.get("refills", ())
        return seeds.begin(self.config, self.env.task, self.key, rows, self.termination == LEARNED, known)

    def restore(self, kept: HostState) -> HostRun:
        """A run of the one seed."""
        return self.resumed(seeds.together([kept]))

    def kept(self, state: HostRun) -> HostState:
        """What a file holds."""
        return seeds.alone(self.saved(state), 0)

    def advance(self, state: HostRun, goal: int) -> tuple[HostRun, Episode | Exception | None]:
        """A reset, the choice of an action, or a step, which may end an episode."""
        state, shown = self.piece(state, goal)
        return state, shown[0] if isinstance(shown, dict) else shown

    def under_way(self, state: HostRun) -> Episode:
        """The episode that has not ended, as far as it is."""
        held = state.state
        return Episode(held.step, int(held.episodes[0]), float(state.total[0]), int(held.elapsed[0]), self.shown(state, 0))

    def attached(self, env: Any, horizon: int | None) -> DeepBackend:
        """The same with an environment, if the networks fit it."""
        found = self._fitting(adapter.hosted(env, horizon, *self.functions, self.config.scaled_observations))
        return dataclasses.replace(self, env=without_ends(found) if self.termination in (LEARNED, NONE) else found)

    def described(self, state: HostRun) -> dict[str, Any]:
        """What a file needs besides the state."""
        return {
            **self.notes(state),
            "config": dataclasses.asdict(self.config),
            "world": {
                "name": self.name,
                "observation_size": self.env.task.observation_size,
                **self.env.actions.described(),
                **({"layout": self.env.layout} if self.env.layout else {}),
            },
            "termination": self.termination,
            "reward": self.reward,
        }

    def ready(self, state: HostRun, goal: int) -> HostRun:
        """Refuses to learn without the functions it learned with."""
        pairs = (("termination", self.termination), ("reward", self.reward))
        lacks = [f"`{name}`" for name, kind in pairs if kind == FUNCTION and getattr(self.functions, name) is None]
        if lacks:
            what = " and ".join(lacks)
            raise InputError(f"this agent learned with a function {what}, which files do not hold: give it to Agent.load")
        return super().ready(state, goal)

    def predict(self, state: HostRun, observation: Any, deterministic: bool) -> np.ndarray | int:
        """The action at an observation, or at a batch of them."""
        seen = self._seen("observation", observation)
        vectors = self._act(state, np.atleast_2d(seen), deterministic)
        return self.env.actions.outward(vectors if seen.ndim == 2 else vectors[0])

    def value(self, state: HostRun, observation: Any, action: Any) -> tuple[np.ndarray | float, np.ndarray | float]:
        """Mean over critics, and the standard deviation by the agent's method."""
        seen = self._seen("observation", observation)
        done = self.env.actions.inward("action", action)
        if seen.shape[:-1] != done.shape[:-1]:
            shapes = f"{seen.shape} and {np.shape(action)}"
            raise InputError(f"observation and action must go together, but their shapes are {shapes}")
        mean, deviation = self._held(state, np.atleast_2d(seen), np.atleast_2d(done))
        return (mean, deviation) if seen.ndim == 2 else (float(mean[0]), float(deviation[0]))

    def play(
        self, state: HostRun, env: Any, episodes: int, deterministic: bool, seed: int, seen: Callable[[Any, int], None]
    ) -> np.ndarray:
        """Returns of whole episodes."""
        scaled = self.config.scaled_observations
        found = self.env if env is None else self._fitting(adapter.hosted(env, self.env.horizon, scaled=scaled))
        returns = np.zeros(episodes)
        for number in range(episodes):
            episode = f", in episode {number}"
            observation, over, length = found.reset(0, seed if number == 0 else None, episode), False, 0
            seen(found.env, number)
            while not over:
                moved = found.step(self._act(state, observation[None], deterministic)[0], length, length, episode)
                observation, over, length = moved.observation, moved.terminated or moved.truncated, length + 1
                returns[number] += moved.reward
                seen(found.env, number)
        return returns

    def uncertainty_map(
        self, state: HostRun, observations: Any, axes: tuple[int, int], points: int
    ) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, ...]]:
        """The values of given observations at the agent's actions, or of a grid over two axes of what was observed."""
        size, across = self.env.task.observation_size, tuple[np.ndarray, ...]()
        if observations is None:
            if size < 2:
                raise InputError(
                    f"a map needs observations with at least two numbers, but those of {self.name} have {size}: "
                    "call agent.value on a batch of observations"
                )
            if self.done(state) == 0:
                raise InputError("a map needs observations: this agent has seen none, so give some")
            if axes[0] == axes[1] or max(axes) >= size:
                raise InputError(f"axes must be two different numbers below {size}, but they are {axes}")
            held = state.state.data[0, : self.done(state), :size]
            across = tuple(np.linspace(held[:, axis].min(), held[:, axis].max(), points) for axis in axes)
            grid = np.broadcast_to(np.median(held, axis=0), (points, points, size)).copy()
            grid[..., axes[0]], grid[..., axes[1]] = across[0][None, :], across[1][:, None]
        else:
            given = observe.flat(self.env.layout, "observations", observations) if self.env.layout else observations
            grid = checks.number_array("observations", given)
        if grid.ndim < 2 or grid.shape[-1] != size or grid.size == 0:
            raise InputError(f"observations must have shape (..., {size}), but they have shape {grid.shape}")
        flat = checks.rows("observations", grid.reshape(-1, size), size)
        mean, deviation = (x.reshape(grid.shape[:-1]) for x in self._held(state, flat, self._act(state, flat, True)))
        ruler = observe.ruler(self.env.layout)
        if ruler is not None:  # axes in the environment's own numbers
            across = tuple(ruler[0][axis] + ruler[1][axis] * points for axis, points in zip(axes, across, strict=False))
        return mean, deviation, across

    def _seen(self, name: str, given: Any) -> Float[np.ndarray, "*b O"]:
        """One observation as the environment gives it, or a batch of them, made flat."""
        layout = self.env.layout
        return checks.rows(name, observe.flat(layout, name, given) if layout else given, self.env.task.observation_size)

    def _fitting(self, env: HostedEnv) -> HostedEnv:
        """The environment, if the networks fit it."""
        own = self.env
        for name, here, there in (
            ("observation size", own.task.observation_size, env.task.observation_size),
            ("range of actions", own.actions.range, env.actions.range),
        ):
            if here != there:
                raise InputError(f"the {name} of this agent is {here}, but that of {env.name} is {there}")
        if own.layout != env.layout:
            raise InputError(f"this agent learned from observations of another form than those of {env.name}")
        return env

    def _held(
        self, state: HostRun, seen: Float[np.ndarray, "B O"], inside: Float[np.ndarray, "B A"]
    ) -> tuple[np.ndarray, np.ndarray]:
        agent = state.state.agent
        held = _opinion(self.config, agent.values, jnp.asarray(seen), jnp.asarray(inside))
        return np.asarray(held.mean), np.sqrt(np.asarray(held.variance))

    def _act(self, state: HostRun, observation: Float[np.ndarray, "B O"], deterministic: bool) -> Float[np.ndarray, "B A"]:
        """Actions as vectors."""
        actor, seen = state.state.agent.deployed, jnp.array(observation)
        if deterministic:
            return np.asarray(_mode(self.config, self.env.task, actor, seen))
        key = jax.random.fold_in(named(state.state.key[0], "predict"), next(self.draws))
        return np.asarray(_draw(self.config, self.env.task, key, actor, seen))


def create(
    method: str,
    env: Any,
    key: Key,
    preset: str,
    horizon: int | None,
    termination: Any,
    reward: Any,
    settings: Mapping[str, Any],
) -> DeepBackend:
    """A new agent; `termination` is learned, none, or a function, and None means what the environment knows, else learned."""
    config = configured(method, preset, settings)
    if preset == AUTO:
        LOG.warning(reason('preset="{}"'))
    if termination is None:
        ends = OWN if adapter.knows_its_ends(env) else LEARNED
    elif isinstance(termination, str):
        ends = checks.one_of("termination", termination, (LEARNED, NONE))
    else:
        ends = FUNCTION
    given = Functions(termination if ends == FUNCTION else None, reward)
    found = adapter.hosted(env, horizon, *given, config.scaled_observations)
    found = without_ends(found) if ends in (LEARNED, NONE) else found
    if found.task.discrete:
        config = configured(method, preset, {**DISCRETE[chosen(preset, DISCRETE)], **settings})
    return DeepBackend(config, found, key, ends, LEARNED if reward is None else FUNCTION, given)


def from_file(notes: Mapping[str, Any], horizon: int | None, termination: Any, reward: Any) -> DeepBackend:
    """An agent as the notes of a file describe it, without an environment."""
    saved: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in notes["config"].items()}
    known = notes["world"]
    acted = actions.from_file(known)
    task = Task(known["observation_size"], acted.size, discrete=isinstance(acted, actions.Numbered))
    env = HostedEnv(None, known["name"], acted, horizon, task, observe.read(known.get("layout", ())))
    given = Functions(termination, reward)
    for name, function in given._asdict().items():
        if function is not None and notes[name] != FUNCTION:
            raise InputError(f"this agent did not learn with a function `{name}` ({notes[name]}), so it takes none now")
    return DeepBackend(DeepConfig(**saved), env, jax.random.key(0), notes["termination"], notes["reward"], given)


def without_ends(env: HostedEnv) -> HostedEnv:
    """The environment with a task whose episodes end nowhere inside the models."""
    return env._replace(task=env.task._replace(terminates=never))


def configured(method: str, preset: str, settings: Mapping[str, Any]) -> DeepConfig:
    """The settings of an agent; unknown names get a line with the choices."""
    known = [field.name for field in dataclasses.fields(DeepConfig) if field.name != "method"]
    for name in settings:
        checks.one_of("setting", name, known)
    changed = {**GYMNASIUM[chosen(preset, GYMNASIUM)], **settings}
    lists: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in changed.items()}
    config = DeepConfig(method=method, **lists)
    for name in ("critic_hidden", "actor_hidden", "model_hidden"):
        if not getattr(config, name):
            raise InputError(f"{name} must have at least 1 value: without hidden layers a network is linear")
    return config


def _only(networks: T) -> T:
    """The networks of the one seed."""
    one: T = jax.tree.map(lambda x: x[0], networks)
    return one


@functools.partial(jax.jit, static_argnames=("config", "task"))
def _mode(config: DeepConfig, task: Task, actor: MLP, observation: Float[Array, "B O"]) -> Float[Array, "B A"]:
    with agents.precision(config):
        return policy.of(task).mode(_only(actor), observation)


@functools.partial(jax.jit, static_argnames=("config", "task"))
def _draw(config: DeepConfig, task: Task, key: Key, actor: MLP, observation: Float[Array, "B O"]) -> Float[Array, "B A"]:
    with agents.precision(config):
        return policy.of(task).draw(_only(actor), observation, key)


@functools.partial(jax.jit, static_argnames="config")
def _opinion(config: DeepConfig, values: MLP, observation: Float[Array, "B O"], action: Float[Array, "B A"]) -> agents.Opinion:
    with agents.precision(config):
        return agents.opinion(config, _only(values), observation, action)
