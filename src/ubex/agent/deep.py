"""Deep agents on environments with Box spaces, behind `ubex.Agent`."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ubex import checks
from ubex.agent.core import Finished, Map
from ubex.deep import actor as policy
from ubex.deep import agents, host
from ubex.deep.config import DeepConfig
from ubex.deep.host import Episode, HostLoop, HostState
from ubex.deep.networks import MLP
from ubex.deep.presets import AUTO, GYMNASIUM, chosen, reason
from ubex.envs import adapter
from ubex.envs.adapter import World
from ubex.envs.task import Task, never
from ubex.keys import named
from ubex.types import InputError, Key

LOG = logging.getLogger("ubex")
LEARNED, NONE, OWN, FUNCTION = "learned", "none", "own", "function"
"""Where episodes end inside the models: learned, nowhere, as the environment itself knows, or by a function of the user."""


class DeepCore:
    """A deep agent and its environment."""

    kind = "deep"

    def __init__(self, config: DeepConfig, world: World, state: HostState, ends: str, rewards: str) -> None:
        """Use `made` or `loaded`."""
        self.config, self.ends, self.rewards = config, ends, rewards
        self.lacks: list[str] = []
        """Functions that it learned with, and that nobody gave again."""
        self.loop = HostLoop(config, world, state)
        self._given: tuple[Any, Any] = (None, None)
        self._drawn = 0

    @property
    def name(self) -> str:
        """Of the environment."""
        return self.loop.world.name

    @property
    def env(self) -> Any:
        """The environment; None where there is none."""
        return self.loop.world.env

    @property
    def steps(self) -> int:
        """Steps in the environment so far."""
        return self.loop.count

    @property
    def episodes(self) -> int:
        """Finished episodes."""
        return self.loop.episodes

    @property
    def state(self) -> HostState:
        """All that was learned, as arrays."""
        return self.loop.state

    def fresh(self, notes: Mapping[str, Any]) -> HostState:
        """An untrained state with as many transitions as the notes say."""
        rows, ends_known = int(notes.get("rows", 0)), notes.get("refills", ())
        return host.begin(self.config, self.loop.world.task, self.loop.key, rows, self.ends == LEARNED, ends_known)

    def restore(self, state: HostState) -> None:
        """Takes over what was learned before."""
        self.loop = HostLoop(self.config, self.loop.world, state)

    def attach(self, env: Any, horizon: int | None) -> None:
        """Takes an environment, if the networks fit it."""
        self.loop.world = self._fitting(adapter.world(env, horizon, *self._given))
        if self.ends in (LEARNED, NONE):
            self.loop.world = without_ends(self.loop.world)

    def shapes(self) -> dict[str, Any]:
        """What the shapes of the state depend on."""
        return {"rows": self.steps, "refills": [one.termination is not None for one in self.loop.refills]}

    def notes(self) -> dict[str, Any]:
        """What a file needs besides the state."""
        world = self.loop.world
        return {
            **self.shapes(),
            "config": dataclasses.asdict(self.config),
            "world": {
                "name": world.name,
                "low": world.low.tolist(),
                "high": world.high.tolist(),
                "observation_size": world.task.observation_size,
                "dtype": str(world.dtype),
            },
            "termination": self.ends,
            "reward": self.rewards,
        }

    def ready(self) -> None:
        """Refuses to learn without the functions it learned with."""
        if self.lacks:
            named_ = " and ".join(f"`{name}`" for name in self.lacks)
            raise InputError(f"this agent learned with a function {named_}, which files do not hold: give it to Agent.load")

    def run(self, steps: int, watch: Callable[[Finished], bool]) -> None:
        """Learns for this many steps, or stops when `watch` says so."""

        def told(episode: Episode) -> bool:
            losses = {} if episode.info is None else {k: float(v) for k, v in episode.info._asdict().items()}
            known = {name: value for name, value in losses.items() if not np.isnan(value)}
            return watch(Finished(episode.step, episode.number, episode.reward, episode.length, known))

        self.loop.run(steps, told)

    def predict(self, observation: Any, deterministic: bool) -> np.ndarray:
        """The action at an observation, or at a batch of them."""
        seen = rows_of("observation", observation, self.loop.world.task.observation_size)
        action = self.loop.world.scaled(self._act(np.atleast_2d(seen), deterministic))
        chosen: np.ndarray = action if seen.ndim == 2 else action[0]
        return chosen

    def value(self, observation: Any, action: Any) -> tuple[np.ndarray | float, np.ndarray | float]:
        """Mean over critics, and the standard deviation by the agent's method."""
        world = self.loop.world
        seen = rows_of("observation", observation, world.task.observation_size)
        done = rows_of("action", action, world.task.action_size)
        if seen.shape[:-1] != done.shape[:-1]:
            raise InputError(f"observation and action must go together, but their shapes are {seen.shape} and {done.shape}")
        mean, deviation = self._held(np.atleast_2d(seen), world.unscaled(np.atleast_2d(done)))
        return (mean, deviation) if seen.ndim == 2 else (float(mean[0]), float(deviation[0]))

    def play(self, env: Any, episodes: int, deterministic: bool, seed: int, seen: Callable[[Any, int], None]) -> np.ndarray:
        """Returns of whole episodes; the first one has this seed, the others go on from there."""
        own = self.loop.world
        world = own if env is None else self._fitting(adapter.world(env, own.horizon))
        returns = np.zeros(episodes)
        for number in range(episodes):
            observation, over, length = world.reset(0, seed if number == 0 else None), False, 0
            seen(world.env, number)
            while not over:
                moved = world.step(self._act(observation[None], deterministic)[0], length, length)
                observation, over, length = moved.observation, moved.terminated or moved.truncated, length + 1
                returns[number] += moved.reward
                seen(world.env, number)
        return returns

    def uncertainty_map(self, observations: Any, axes: tuple[int, int], points: int) -> Map:
        """The values of given observations at the agent's actions, or of a grid over two axes of what was observed."""
        size, across = self.loop.world.task.observation_size, tuple[np.ndarray, ...]()
        if observations is None:
            if self.steps == 0:
                raise InputError("a map needs observations: this agent has seen none, so give some")
            for axis in axes:
                if not 0 <= checks.whole("an axis", axis, 0) < size:
                    raise InputError(f"axes must be two numbers below {size}, but they are {axes}")
            held = self.loop.data[: self.steps, :size]
            across = tuple(np.linspace(held[:, axis].min(), held[:, axis].max(), points) for axis in axes)
            grid = np.broadcast_to(np.median(held, axis=0), (points, points, size)).copy()
            grid[..., axes[0]], grid[..., axes[1]] = across[0][None, :], across[1][:, None]
        else:
            grid = checks.number_array("observations", observations)
        if grid.ndim < 2 or grid.shape[-1] != size or grid.size == 0:
            raise InputError(f"observations must have shape (..., {size}), but they have shape {grid.shape}")
        flat = rows_of("observations", grid.reshape(-1, size), size)
        mean, deviation = (x.reshape(grid.shape[:-1]) for x in self._held(flat, self._act(flat, True)))
        return Map(mean, deviation, across)

    def _fitting(self, world: World) -> World:
        """The environment, if the networks fit it."""
        own = self.loop.world
        for name, here, there in (
            ("observation size", own.task.observation_size, world.task.observation_size),
            ("lowest action", own.low.tolist(), world.low.tolist()),
            ("highest action", own.high.tolist(), world.high.tolist()),
        ):
            if here != there:
                raise InputError(f"the {name} of this agent is {here}, but that of {world.name} is {there}")
        return world

    def _held(self, seen: Float[np.ndarray, "B O"], inside: Float[np.ndarray, "B A"]) -> tuple[np.ndarray, np.ndarray]:
        agent = self.loop.agent
        held = _opinion(self.config, agent.critics, agent.unet, jnp.asarray(seen), jnp.asarray(inside))
        return np.asarray(held.mean), np.sqrt(np.asarray(held.variance))

    def _act(self, observation: Float[np.ndarray, "B O"], deterministic: bool) -> Float[np.ndarray, "B A"]:
        """Actions in [-1, 1]."""
        actor, seen = self.loop.agent.actor, jnp.array(observation)
        if deterministic:
            return np.asarray(_mode(self.config, actor, seen))
        self._drawn += 1
        key = jax.random.fold_in(named(self.loop.key, "predict"), self._drawn)
        return np.asarray(_sample(self.config, key, actor, seen, self.loop.world.task.action_size))


def made(
    method: str,
    env: Any,
    key: Key,
    preset: str,
    horizon: int | None,
    termination: Any,
    reward: Any,
    settings: Mapping[str, Any],
) -> DeepCore:
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
    given = (termination if ends == FUNCTION else None, reward)
    world = adapter.world(env, horizon, *given)
    if ends in (LEARNED, NONE):
        world = without_ends(world)
    state = host.begin(config, world.task, key, 0, ends == LEARNED)
    core = DeepCore(config, world, state, ends, LEARNED if reward is None else FUNCTION)
    core._given = given
    return core


def loaded(notes: Mapping[str, Any], horizon: int | None, termination: Any, reward: Any) -> DeepCore:
    """An untrained agent as the notes of a file describe it, without an environment."""
    saved: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in notes["config"].items()}
    config, known = DeepConfig(**saved), notes["world"]
    low, high = (np.asarray(known[name], np.float32) for name in ("low", "high"))
    size, dtype = known["observation_size"], np.dtype(known["dtype"])
    world = World(None, known["name"], low, high, dtype, horizon, Task(size, len(low)))
    ends, rewards = notes["termination"], notes["reward"]
    for name, given, before in (("termination", termination, ends), ("reward", reward, rewards)):
        if given is not None and before != FUNCTION:
            raise InputError(f"this agent did not learn with a function `{name}` ({before}), so it takes none now")
    known_ends = notes.get("refills", ())
    state = host.begin(config, world.task, jax.random.key(0), notes["rows"], ends == LEARNED, known_ends)
    core = DeepCore(config, world, state, ends, rewards)
    core._given = (termination, reward)
    functions = (("termination", termination, ends), ("reward", reward, rewards))
    core.lacks = [name for name, given, before in functions if before == FUNCTION and given is None]
    return core


def without_ends(world: World) -> World:
    """The environment with a task whose episodes end nowhere inside the models."""
    return world._replace(task=world.task._replace(terminates=never))


def configured(method: str, preset: str, settings: Mapping[str, Any]) -> DeepConfig:
    """The settings of an agent; unknown names get a line with the choices."""
    known = [field.name for field in dataclasses.fields(DeepConfig) if field.name != "method"]
    for name in settings:
        checks.one_of("setting", name, known)
    changed = {**GYMNASIUM[chosen(preset, GYMNASIUM)], **settings}
    lists: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in changed.items()}
    return DeepConfig(method=method, **lists)


def rows_of(name: str, given: Any, size: int) -> Float[np.ndarray, "*b O"]:
    """One row, or a batch of them, in float32."""
    array = checks.number_array(name, given)
    if array.ndim not in (1, 2) or array.shape[-1] != size:
        raise InputError(f"{name} must have shape ({size},) or (batch, {size}), but it has shape {array.shape}")
    with np.errstate(over="ignore"):
        rows: np.ndarray = array.astype(np.float32)
    if not np.isfinite(rows).all():
        raise InputError(f"{name} has {rows[~np.isfinite(rows)][0]} in it")
    return rows


@functools.partial(jax.jit, static_argnames="config")
def _mode(config: DeepConfig, actor: MLP, observation: Float[Array, "B O"]) -> Float[Array, "B A"]:
    with agents.precision(config):
        return policy.mode(actor, observation)


@functools.partial(jax.jit, static_argnames=("config", "action_size"))
def _sample(
    config: DeepConfig, key: Key, actor: MLP, observation: Float[Array, "B O"], action_size: int
) -> Float[Array, "B A"]:
    with agents.precision(config):
        noise = jax.random.normal(key, (observation.shape[0], action_size), jnp.float32)
        return policy.sample(actor, observation, noise).action


@functools.partial(jax.jit, static_argnames="config")
def _opinion(
    config: DeepConfig, critics: MLP, unet: MLP | None, observation: Float[Array, "B O"], action: Float[Array, "B A"]
) -> agents.Opinion:
    with agents.precision(config):
        return agents.opinion(config, critics, unet, observation, action)
