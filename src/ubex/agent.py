"""`ubex.Agent`: a deep agent on any Gymnasium environment, with the calls that people know from Stable-Baselines3."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ubex import checks, training
from ubex.callbacks import Callback, Checkpoint, Info
from ubex.deep import actor as policy
from ubex.deep import agents, host
from ubex.deep.config import LAPTOP, DeepConfig
from ubex.deep.host import Episode, HostLoop, HostState, Shares
from ubex.deep.networks import MLP
from ubex.envs import adapter
from ubex.envs.adapter import Terminates, World
from ubex.keys import as_key, named
from ubex.runs import checkpoint
from ubex.runs.store import storage, write_atomically
from ubex.types import InputError, Key, KeyLike

PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType({"paper": MappingProxyType({}), "laptop": LAPTOP})
FORMAT = 1
"""Of saved agents."""


class Agent:
    """An agent and its environment.

    Example:
        >>> agent = Agent("sac", "Pendulum-v1", preset="laptop")
        >>> agent.predict([1.0, 0.0, 0.0])[0].shape
        (1,)
    """

    def __init__(
        self,
        method: str,
        env: Any,
        *,
        preset: str = "paper",
        key: KeyLike = 0,
        horizon: int | None = None,
        terminates: Terminates | None = None,
        env_args: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        """`settings` are the fields of `DeepConfig`, on top of the preset.

        `terminates` is a JAX function of (observation, action, next observation) that says where an episode ends inside the
        learned models; None means never. `horizon` cuts episodes off, besides what the environment does.
        """
        self.config = configured(method, preset, settings)
        given = env if isinstance(env, str) else None
        self._origin: dict[str, Any] = {"env": given, "env_args": dict(env_args or {}), "horizon": horizon}
        self._terminates, self._lacks = terminates, False
        world = adapter.world(made(env, env_args or {}), horizon, terminates)
        start = host.begin(self.config, as_key(key), world.observation_size, world.action_size)
        self._run = HostLoop(self.config, world, start)
        self._drawn = 0

    def __repr__(self) -> str:
        """What it is and how far it got."""
        return f"Agent({self.config.method!r}, {self._run.world.name!r}, steps={self.steps}, episodes={self.episodes})"

    @property
    def steps(self) -> int:
        """Steps in the environment so far."""
        return self._run.count

    @property
    def episodes(self) -> int:
        """Finished episodes of training."""
        return self._run.episodes

    @property
    def env(self) -> Any:
        """The environment; None if it was loaded without one."""
        return self._run.world.env

    @property
    def spent(self) -> Shares:
        """Seconds of `learn` in the environment, waiting for the device, and in the rest."""
        return self._run.spent

    @property
    def state(self) -> HostState:
        """All that was learned, as arrays."""
        return self._run.state

    def fresh(self, rows: int = 0) -> HostState:
        """An untrained state with places for this many transitions: what `runs/checkpoint.py` needs to read one."""
        world = self._run.world
        return host.begin(self.config, self._run.key, world.observation_size, world.action_size, rows)

    def go_on(self, state: HostState) -> None:
        """Takes over what was learned before; the environment begins a new episode."""
        self._run = HostLoop(self.config, self._run.world, state)

    def learn(self, total_steps: int, callback: Callback | Sequence[Callback] | None = None) -> Agent:
        """Learns for this many more steps in the environment, from a new episode; the first ones only fill the data.

        When the environment raises, or the run is interrupted, the agent keeps what it learned, and `Checkpoint` saves it.
        """
        goal = self.steps + checks.whole("total_steps", total_steps, 1)
        called = listed(callback)
        self._need_world()
        if self._lacks:
            raise InputError("this agent learned with a function `terminates`, which files do not hold: give it to Agent.load")

        def watch(episode: Episode) -> bool:
            losses = {} if episode.info is None else {k: float(v) for k, v in episode.info._asdict().items()}
            known = {name: value for name, value in losses.items() if not np.isnan(value)}
            info = Info(self, "episode", episode.step, goal, episode.number, episode.reward, episode.length, known)
            said = [one(info) for one in called]  # all of them, also after one that stops the run
            return not any(answer is False for answer in said)

        try:
            self._run.run(total_steps, watch)
        except FloatingPointError:
            raise  # the networks are spoiled, and the last checkpoint is better than they are
        except BaseException:
            self._save_last(called)
            raise
        self._save_last(called)
        return self

    def _save_last(self, called: Sequence[Callback]) -> None:
        for one in called:
            if isinstance(one, Checkpoint):
                one.save(self)

    def predict(
        self, observation: Any, state: None = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[np.ndarray, None]:
        """The action at an observation, or at a batch of them; the second part is for those who expect a recurrent state."""
        seen = self._rows("observation", observation, self._run.world.observation_size)
        action = self._run.world.scaled(self._act(np.atleast_2d(seen), deterministic))
        return (action if seen.ndim == 2 else action[0]), None

    def value(self, observation: Any, action: Any) -> tuple[np.ndarray | float, np.ndarray | float]:
        """Mean over critics, and the standard deviation of the value by the agent's method: NaN for those that have none.

        For one observation and action, or for a batch of both.
        """
        world = self._run.world
        seen = self._rows("observation", observation, world.observation_size)
        done = self._rows("action", action, world.action_size)
        if seen.shape[:-1] != done.shape[:-1]:
            raise InputError(f"observation and action must go together, but their shapes are {seen.shape} and {done.shape}")
        inside = world.unscaled(np.atleast_2d(done))
        agent = self._run.agent
        held = _held(self.config, agent.critics, agent.unet, jnp.asarray(np.atleast_2d(seen)), jnp.asarray(inside))
        mean, deviation = np.asarray(held.mean), np.sqrt(np.asarray(held.variance))
        return (mean, deviation) if seen.ndim == 2 else (float(mean[0]), float(deviation[0]))

    def evaluate(self, episodes: int = 10, env: Any = None, deterministic: bool = True, seed: int | None = None) -> np.ndarray:
        """Returns of whole episodes, in another environment or the agent's own."""
        checks.whole("episodes", episodes, 1)
        world = self._need_world() if env is None else self._fitting(adapter.world(env, self._origin["horizon"]))
        returns = np.zeros(episodes)
        for number in range(episodes):
            observation, over, length = world.reset(0, seed if number == 0 else None), False, 0
            while not over:
                moved = world.step(self._act(observation[None], deterministic)[0], length, length)
                observation, over, length = moved.observation, moved.terminated or moved.truncated, length + 1
                returns[number] += moved.reward
        return returns

    def save(self, path: str | Path) -> Path:
        """One file with all that was learned and all transitions: arrays and JSON, never pickle; written in one step."""
        file = Path(path)
        if file.parent != Path():
            with storage(f"make {file.parent}"):
                file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, self.dump())
        return file

    def dump(self) -> bytes:
        """What `save` writes."""
        state, world = self.state, self._run.world
        notes = {
            "format": FORMAT,
            "rows": state.step,
            "config": dataclasses.asdict(self.config),
            "world": {
                "name": world.name,
                "low": world.low.tolist(),
                "high": world.high.tolist(),
                "observation_size": world.observation_size,
                "dtype": str(world.dtype),
            },
            "terminates": self._terminates is not None or self._lacks,
            **self._origin,
        }
        return checkpoint.sealed(state.step, state, notes)

    @classmethod
    def load(cls, path: str | Path, env: Any = None, *, terminates: Terminates | None = None) -> Agent:
        """A saved agent. Without `env` it can predict; to learn on, the environment it was made with by name is made again.

        The environment's own state is not in the file, so learning goes on from a new episode.
        """
        file = Path(path)
        payload = checkpoint.read_sound(file)
        if payload is None:
            raise InputError(f"{file} is not a sound file of a saved agent" if file.exists() else f"there is no file {file}")
        notes = checkpoint.notes_of(payload)
        if notes.get("format") != FORMAT or "config" not in notes:
            raise InputError(f"{file} is a checkpoint, but not of an agent that this version knows")
        saved: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in notes["config"].items()}
        known = notes["world"]
        agent = cls.__new__(cls)
        agent.config = DeepConfig(**saved)
        agent._origin = {name: notes[name] for name in ("env", "env_args", "horizon")}
        agent._terminates, agent._lacks = terminates, notes["terminates"] and terminates is None
        low, high = (np.asarray(known[name], np.float32) for name in ("low", "high"))
        size, dtype = known["observation_size"], np.dtype(known["dtype"])
        world = World(None, known["name"], low, high, size, dtype, notes["horizon"], adapter.never)
        like = host.begin(agent.config, jax.random.key(0), size, len(low), notes["rows"])
        state: HostState = checkpoint.unpack(payload, like, file)[1]
        agent._run = HostLoop(agent.config, world, state)
        agent._drawn = 0
        if env is not None:
            agent._attach(env)
        return agent

    def _attach(self, env: Any) -> None:
        if isinstance(env, str):
            self._origin = {**self._origin, "env": env}
        found = adapter.world(made(env, self._origin["env_args"]), self._origin["horizon"], self._terminates)
        self._run.world = self._fitting(found)

    def _fitting(self, world: World) -> World:
        """The environment, if the networks fit it."""
        own = self._run.world
        for name, here, there in (
            ("observation size", own.observation_size, world.observation_size),
            ("lowest action", own.low.tolist(), world.low.tolist()),
            ("highest action", own.high.tolist(), world.high.tolist()),
        ):
            if here != there:
                raise InputError(f"the {name} of this agent is {here}, but that of {world.name} is {there}")
        return world

    def _need_world(self) -> World:
        if self._run.world.env is None:
            if self._origin["env"] is None:
                raise InputError(f"this agent has no environment: give {self._run.world.name} to Agent.load(path, env=...)")
            self._attach(self._origin["env"])
        return self._run.world

    def _rows(self, name: str, given: Any, size: int) -> Float[np.ndarray, "*b O"]:
        """One row, or a batch of them, in float32."""
        array = checks.number_array(name, given)
        if array.ndim not in (1, 2) or array.shape[-1] != size:
            raise InputError(f"{name} must have shape ({size},) or (batch, {size}), but it has shape {array.shape}")
        with np.errstate(over="ignore"):
            rows: np.ndarray = array.astype(np.float32)
        if not np.isfinite(rows).all():
            raise InputError(f"{name} has {rows[~np.isfinite(rows)][0]} in it")
        return rows

    def _act(self, observation: Float[np.ndarray, "B O"], deterministic: bool) -> Float[np.ndarray, "B A"]:
        """Actions in [-1, 1]."""
        actor, seen = self._run.agent.actor, jnp.array(observation)
        if deterministic:
            return np.asarray(_mode(self.config, actor, seen))
        self._drawn += 1
        key = jax.random.fold_in(named(self._run.key, "predict"), self._drawn)
        return np.asarray(_sample(self.config, key, actor, seen, self._run.world.action_size))


def configured(method: str, preset: str, settings: Mapping[str, Any]) -> DeepConfig:
    """The settings of an agent; unknown names get a line with the choices."""
    known = [field.name for field in dataclasses.fields(DeepConfig) if field.name != "method"]
    for name in settings:
        checks.one_of("setting", name, known)
    changed = {**PRESETS[checks.one_of("preset", preset, PRESETS)], **settings}
    lists: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in changed.items()}
    return DeepConfig(method=method, **lists)


def made(env: Any, settings: Mapping[str, Any]) -> Any:
    """The environment itself, from a name or as it is."""
    if isinstance(env, str):
        return training.by_name(env, settings)
    if settings:
        raise InputError("env_args go with an environment that is given by name")
    return env


def listed(callback: Any) -> list[Callback]:
    """Callbacks as a list."""
    found = [] if callback is None else list(callback) if isinstance(callback, list | tuple) else [callback]
    for one in found:
        if not callable(one):
            raise InputError(f"a callback must be a function of an Info, or a list of such, but it is a {type(one).__name__}")
    return found


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
def _held(
    config: DeepConfig, critics: MLP, unet: MLP | None, observation: Float[Array, "B O"], action: Float[Array, "B A"]
) -> agents.Opinion:
    with agents.precision(config):
        return agents.opinion(config, critics, unet, observation, action)
