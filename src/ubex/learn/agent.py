"""`ubex.Agent`: an agent on an environment of one's own, with the calls that people know from Stable-Baselines3.

Environments whose spaces are both Discrete get a tabular agent (`tabular_agent.py`), all others a deep one (`deep_agent.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

import jax
import numpy as np

from ubex import checks, fields
from ubex.callbacks import Callback, Checkpoint, Evaluate, Info
from ubex.envs import foreign
from ubex.envs.adapter import Episode
from ubex.envs.resolve import by_name
from ubex.fields import Within
from ubex.keys import as_key, named, plain_seed
from ubex.learn import driver, tabular_agent
from ubex.learn.driver import Learner
from ubex.learn.tabular_agent import TabularBackend
from ubex.runs import checkpoint
from ubex.runs.disk import storage, write_atomically
from ubex.tabular.belief import LearnedBelief
from ubex.types import InputError, Key, KeyLike

if TYPE_CHECKING:
    from ubex.deep.clock import Shares
    from ubex.learn.deep_agent import DeepBackend

    Backend: TypeAlias = TabularBackend | DeepBackend

__all__ = ["Agent", "Map"]

FORMAT = 4
"""Of saved agents."""
AGENT_FILE = "agent.ubex"
"""What a seed of a run leaves: `ubex.Agent.load` reads it."""
POINTS = 41
"""Places along each axis of a map."""


class Map(NamedTuple):
    """What an agent holds of many places at once."""

    mean: np.ndarray
    deviation: np.ndarray
    """NaN for agents that have none."""
    axes: tuple[np.ndarray, ...]
    """Where: two axes of observations that were chosen, or none where the places were given, or are all states and actions."""


class Origin(NamedTuple):
    """How an environment can be made again."""

    env: str | None
    """Its name; None where the environment itself was given."""
    env_args: Mapping[str, Any]
    horizon: int | None


class Agent:
    """An agent and its environment.

    Example:
        >>> agent = Agent("psrl", "deep-sea", env_args={"size": 3})
        >>> agent.learn(9).episodes
        3
    """

    def __init__(
        self,
        method: str,
        env: Any,
        *,
        preset: str = "auto",
        key: KeyLike = 0,
        horizon: int | None = None,
        termination: Any = None,
        reward: Any = None,
        env_args: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        """`settings` are the fields of `DeepConfig`, on top of the preset, or those of `AgentConfig` for tabular agents.

        `preset` is "paper" or "laptop" (small networks, short rollouts); "auto" is paper where there is a GPU, else laptop.
        `termination` says where an episode ends inside the learned models: "learned" (from the terminations in the data, the
        default), "none", or a JAX function of (observation, action, next observation). `reward` is such a function too, or None
        to learn it. `horizon` cuts episodes off, besides what the environment does.
        """
        given = env if isinstance(env, str) else None
        self._origin, self._named = Origin(given, checks.mapping("env_args", env_args), horizon), given is not None
        env = resolved(env, self._origin.env_args)
        if tabular_agent.fits(env):
            tabular_agent.refuse_deep(method, env, given or type(env).__name__)
            not_for_tables(given or type(env).__name__, preset, termination, reward)
            backend: Any = tabular_agent.create(method, env, as_key(key), horizon, settings)
        else:
            from ubex.learn import deep_agent  # here, because it takes as long to import as the rest of ubex

            backend = deep_agent.create(method, env, as_key(key), preset, horizon, termination, reward, settings)
        self._backend: Backend = backend
        self.restore(backend.blank({}))

    @classmethod
    def of(cls, backend: Backend, origin: Origin, state: Any) -> Agent:
        """An agent that has learned without this class."""
        agent = cls.__new__(cls)
        agent._origin, agent._backend, agent._named = origin, backend, origin.env is not None
        agent.restore(state)
        return agent

    def __repr__(self) -> str:
        """What it is and how far it got."""
        return f"Agent({self.config.method!r}, {self._backend.name!r}, steps={self.steps}, episodes={self.episodes})"

    @property
    def kind(self) -> str:
        """deep or tabular."""
        return self._backend.kind

    @property
    def config(self) -> Any:
        """The agent's settings: a `DeepConfig` or an `AgentConfig`."""
        return self._backend.config

    @property
    def steps(self) -> int:
        """Steps in the environment so far."""
        return self._backend.done(self._run)

    @property
    def episodes(self) -> int:
        """Finished episodes of training."""
        return int(self.state.episodes)

    @property
    def env(self) -> Any:
        """The environment; None if it was loaded without one."""
        return self._backend.own_env

    @property
    def belief(self) -> LearnedBelief:
        """What a tabular agent has learned: a posterior over MDPs, which `ubex.value_variance` takes.

        Its states and actions count from 0. The policy of `predict` is `agent.predict(states)` less the first action, for all
        states in their order.
        """
        if not isinstance(self._backend, TabularBackend):
            raise InputError("deep agents have no `belief`: it is for environments whose spaces are Discrete")
        return self._backend.belief(self._run)

    @property
    def spent(self) -> Shares:
        """Seconds of a deep agent's `learn` in the environment, in its models, waiting for the device, and in the rest."""
        if isinstance(self._backend, TabularBackend):
            raise InputError("tabular agents have no `spent`")
        return self._backend.clock.spent

    @property
    def state(self) -> Any:
        """All that was learned, as arrays."""
        return self._backend.kept(self._run)

    @property
    def backend(self) -> Learner[Any, Episode]:
        """What learns, for `driver.run`."""
        return self._backend

    def follow(self, run: Any) -> None:
        """Takes over the state of a run of its backend."""
        self._run: Any = run

    def restore(self, state: Any) -> None:
        """Takes over what was learned before."""
        self.follow(self._backend.restore(state))

    def learn(
        self,
        total_steps: int | None = None,
        callback: Callback | Sequence[Callback] | None = None,
        *,
        total_timesteps: int | None = None,
    ) -> Agent:
        """Learns for this many more steps in the environment; tabular agents finish the last episode.

        `total_timesteps` is the same, for scripts that come from Stable-Baselines3.
        When the environment raises, or the run is interrupted, the agent keeps what it learned, and `Checkpoint` saves it. At a
        loss that is not finite the agent goes back to where its numbers were sound, and that is saved.
        """
        if (total_steps is None) == (total_timesteps is None):
            raise InputError("learn needs total_steps, or total_timesteps, which is the same")
        steps = checks.whole("total_steps", total_timesteps if total_steps is None else total_steps, 1)
        goal = self.steps + steps
        called = listed(callback)
        self._need_env()
        exact = self._with_another(called)

        def see(run: Any, episode: Episode | None) -> bool:
            self.follow(run)
            if episode is None:
                said = [one(self.info(self._under_way(), goal), env) for one, env in exact if one.due(self.steps)]
            else:
                info = self.info(episode, goal)
                said = [one(info) for one in called]
            return not any(answer is False for answer in said)  # all were called, also after one that stops the run

        try:
            driver.advance(self.backend, self._run, goal, see)
        finally:
            for one in called:
                if isinstance(one, Checkpoint):
                    one.save(self)
        return self

    def info(self, episode: Episode, goal: int) -> Info:
        """What callbacks are told of an episode."""
        return Info(self, "episode", episode.step, goal, episode.number, episode.reward, episode.length, episode.losses)

    def predict(
        self, observation: Any, state: None = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[Any, None]:
        """The action at an observation, or at a batch of them; the second part is for those who expect a recurrent state.

        Observations are as the environment gives them: (O,) or (B, O), or a dictionary or tuple, whose arrays may all have the
        axis B in front. Actions are (A,) or (B, A); states and discrete actions are () or (B,).

        Deterministic is the mean action of a deep agent, or the likeliest where they are discrete, and the best action by the
        mean MDP of a tabular one; otherwise it is an action as in training.
        """
        return self._backend.predict(self._run, observation, checks.flag("deterministic", deterministic)), None

    def value(self, observation: Any, action: Any) -> tuple[Any, Any]:
        """Mean and standard deviation of the value of what `predict` does after this action; NaN for agents without the latter.

        For one observation and action, or for a batch of both, shaped as for `predict`; each answer is () or (B,).

        Warns:
            UbexWarning: where a tabular agent has too few data for the closed form, as `ubex.value_variance` does. Nobody looks
                where a table (S, A, S) has more than four million entries, as with 1,000 states and more than four actions.
        """
        return self._backend.value(self._run, observation, action)

    def uncertainty_map(self, observations: Any = None, *, axes: tuple[int, int] = (0, 1), points: int = POINTS) -> Map:
        """Mean and standard deviation of the value at many observations.

        Of a tabular agent for all states and actions. Of a deep one at the agent's own actions: for given observations of any
        leading shape, or on a grid over two axes of the observations seen so far, the others at their median. It warns as
        `value` does.
        """
        chosen = fields.checked("axes", axes, Annotated[tuple[int, int], Within(0)])
        return Map(*self._backend.uncertainty_map(self._run, observations, chosen, checks.whole("points", points, 2)))

    def evaluate(
        self, episodes: int = 10, env: Any = None, deterministic: bool = True, seed: int | None = None, watch: Any = None
    ) -> np.ndarray:
        """Returns of whole episodes, in another environment or the agent's own.

        Without a seed the key and the number of steps give one: the same agent has the same returns. `watch` is called with the
        environment and the number of the episode after every reset and step.
        """
        episodes, exact = checks.whole("episodes", episodes, 1), checks.flag("deterministic", deterministic)
        if env is None:
            self._need_env()
        begin = evaluation_seed(self.state.key, self.steps) if seed is None else checks.whole("seed", seed, 0, 2**32 - 1)
        return self._backend.play(self._run, env, episodes, exact, begin, watch or (lambda env, number: None))

    def film(self, episodes: int = 1, seed: int | None = None) -> tuple[np.ndarray, bytes]:
        """Returns of whole episodes, and the first of them as a GIF. An environment by name is made again so that it draws."""
        from ubex.learn.film import Film, drawing

        film = Film()
        self._need_env()
        env = None if self._origin.env is None else drawing(self._origin.env, self._origin.env_args)
        return self.evaluate(episodes, env=env, seed=seed, watch=film.see), film.gif()

    def save(self, path: str | Path) -> Path:
        """One file with all that was learned and all transitions: arrays and JSON, never pickle; written in one step."""
        file = checks.path("path", path)
        if not file.name:
            raise InputError(f"path must name a file, but it is {file}")
        if file.is_dir():
            raise InputError(f"path must name a file, but {file} is a folder")
        if file.parent != Path():
            with storage(f"make {file.parent}"):
                file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, self.dump())
        return file

    def dump(self) -> bytes:
        """What `save` writes."""
        known = self._backend.described(self._run)
        notes = {"format": FORMAT, "kind": self.kind, **known, "origin": self._origin._asdict()}
        return checkpoint.sealed(self.steps, self.state, notes)

    @classmethod
    def load(
        cls, path: str | Path, env: Any = None, *, termination: Any = None, reward: Any = None, horizon: int | None = None
    ) -> Agent:
        """A saved agent. Without `env` it can predict; to learn on, the environment it was made with by name is made again.

        Functions are not in the file: an agent that learned with some needs them again, to learn on. A file never says what is
        imported: an environment at `module:name` has to be named in `env`. `horizon` replaces that of the training.
        """
        file = checks.path("path", path)
        payload = checkpoint.read_sound(file)
        if payload is None:
            raise InputError(f"{file} is not a sound file of a saved agent" if file.exists() else f"there is no file {file}")
        notes = checkpoint.notes_of(payload, file)
        if notes.get("format") != FORMAT or "kind" not in notes:
            raise InputError(f"{file} is a checkpoint, but not of an agent that this version knows")
        origin = Origin(**notes["origin"])
        if horizon is not None:
            origin = origin._replace(horizon=checks.steps("horizon", horizon))
        if notes["kind"] == "tabular":
            not_for_tables(notes["world"]["name"], "auto", termination, reward)
            backend: Backend = tabular_agent.from_file(notes, origin.horizon)
        else:
            from ubex.learn import deep_agent

            backend = deep_agent.from_file(notes, origin.horizon, termination, reward)
        agent = cls.of(backend, origin, checkpoint.unpack(payload, backend.blank(notes), file)[1])
        if env is not None:
            agent._attach(env)
        return agent

    def _under_way(self) -> Episode:
        assert not isinstance(self._backend, TabularBackend), "tabular agents make whole episodes"
        return self._backend.under_way(self._run)

    def _with_another(self, called: Sequence[Callback]) -> list[tuple[Evaluate, Any]]:
        """The evaluations that need not wait for the end of an episode, each with another environment than the agent's own."""
        found, again = list[tuple[Evaluate, Any]](), None
        for one in (one for one in called if isinstance(one, Evaluate)):
            one.begin(self.steps)
            if one.env is None and again is None and self._named and self.kind == "deep":
                again = by_name(str(self._origin.env), self._origin.env_args)
            env = again if one.env is None else one.env
            if env is not None and foreign.unwrapped(env) is not foreign.unwrapped(self.env):
                found.append((one, env))
        return found if self.kind == "deep" else []

    def _attach(self, env: Any) -> None:
        if isinstance(env, str) or ":" in (self._origin.env or ""):
            self._origin = self._origin._replace(env=env if isinstance(env, str) else None)
        self._named = isinstance(env, str)
        found = resolved(env, self._origin.env_args if self._named else {})
        self._backend = self._backend.attached(found, self._origin.horizon)

    def _need_env(self) -> None:
        if self.env is None:
            if self._origin.env is None:
                raise InputError(f"this agent has no environment: give {self._backend.name} to Agent.load(path, env=...)")
            if ":" in self._origin.env:
                own = self._origin.env
                raise InputError(f"the file names {own}, code that would be imported: allow it with env={own!r} (--env {own})")
            self._attach(self._origin.env)


def not_for_tables(where: str, preset: Any, termination: Any, reward: Any) -> None:
    """Refuses what only deep agents take."""
    given = {
        "preset": not isinstance(preset, str) or preset != "auto",
        "termination": termination is not None,
        "reward": reward is not None,
    }
    for name in (name for name, there in given.items() if there):
        raise InputError(f"{name} is for deep agents, but {where} is tabular (on the command line: --episodes)")


def evaluation_seed(key: Key, step: int) -> int:
    """What the evaluation after a step begins with."""
    return plain_seed(jax.random.fold_in(named(key, "evaluate"), step))


def resolved(env: Any, settings: Mapping[str, Any]) -> Any:
    """The environment itself, from a name or as it is."""
    if isinstance(env, str):
        return by_name(env, settings)
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
