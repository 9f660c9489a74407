"""Tabular agents on environments with Discrete spaces, behind `ubex.Agent`: the loops of `ubex.train`, episode by episode."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ubex import checks, training
from ubex.agent.core import Finished, Map
from ubex.envs.base import TabularEnv
from ubex.envs.custom import MAX_STEPS
from ubex.keys import named
from ubex.precision import float64
from ubex.tabular import agents, planner
from ubex.tabular.agents import PSRL, AgentConfig
from ubex.tabular.belief import Belief, mean_model, reward_posterior
from ubex.tabular.host import HostEnv, plan, state_number
from ubex.tabular.models import Dense, Flat, Known
from ubex.types import MDP, InputError, Key

WITHOUT_DEVIATION = (PSRL, "ensemble-mean")


class TabularState(NamedTuple):
    """What a run carries on."""

    belief: Belief
    episodes: int
    steps: int
    key: Key


class Views(NamedTuple):
    """What the agent holds, for every state and action."""

    policy: Int[np.ndarray, " S"]
    """Greedy in the mean MDP."""
    mean: Float[np.ndarray, "S A"]
    deviation: Float[np.ndarray, "S A"]


class TabularCore:
    """A tabular agent and its environment."""

    kind = "tabular"

    def __init__(self, config: AgentConfig, world: TabularEnv | HostEnv, state: TabularState, name: str) -> None:
        """Use `made` or `loaded`."""
        self.config, self.world, self.name = config, world, name
        self.belief, self.key = state.belief, state.key
        self.episodes, self.steps = state.episodes, state.steps
        self._views: tuple[int, Views] | None = None

    @property
    def env(self) -> Any:
        """The environment; None where there is none."""
        return self.world.env if isinstance(self.world, HostEnv) else self.world

    @property
    def state(self) -> TabularState:
        """All that was learned, as arrays."""
        return TabularState(self.belief, self.episodes, self.steps, self.key)

    def fresh(self, notes: Mapping[str, Any]) -> TabularState:
        """An untrained state with as many places for next states as the notes say."""
        shape = (self.world.num_states + 1, self.world.num_actions)
        places = (*shape, notes["places"])
        return TabularState(_plain(np.zeros(places, np.int32), np.zeros(places), np.zeros(shape)), 0, 0, self.key)

    def restore(self, state: TabularState) -> None:
        """Takes over what was learned before."""
        self.belief, self.key, self._views = state.belief, state.key, None
        self.episodes, self.steps = state.episodes, state.steps

    def attach(self, env: Any, horizon: int | None) -> None:
        """Takes an environment, if it has as many states and actions."""
        world, own = training.environment(env, horizon), self.world
        here, there = ((one.num_states, one.num_actions) for one in (own, world))
        if here != there:
            name = name_of(world)
            raise InputError(
                f"this agent knows {here[0]} states and {here[1]} actions, but {name} has {there[0]} and {there[1]}"
            )
        self.world = world

    def notes(self) -> dict[str, Any]:
        """What a file needs besides the state."""
        world = self.world
        firsts = (world.first_state, world.first_action) if isinstance(world, HostEnv) else (0, 0)
        sizes = (world.num_states, world.num_actions)
        known = {"name": self.name, "sizes": sizes, "firsts": firsts}
        return {"config": dataclasses.asdict(self.config), "world": known, "places": int(self.belief.counts.shape[-1])}

    def ready(self) -> None:
        """Nothing can be missing."""

    def run(self, steps: int, watch: Callable[[Finished], bool]) -> None:
        """Whole episodes until so many steps are made, or `watch` stops them."""
        goal = self.steps + steps
        while self.steps < goal:
            with jax.enable_x64(True):
                belief = Belief(*(jnp.asarray(x) for x in self.belief))
                out = training.run_block(self.world, self.config, self.key, belief, np.array([self.episodes], np.int32))
                self.belief = _plain(*out.belief)
            before, self._views = self.steps, None
            self.steps = round(float(np.sum(self.belief.counts)) / self.config.repeats)
            self.episodes += 1
            losses = {"improvements": float(out.steps[0])}
            if not watch(Finished(self.steps, self.episodes - 1, float(out.returns[0]), self.steps - before, losses)):
                return

    def predict(self, observation: Any, deterministic: bool) -> Any:
        """The greedy action of the mean MDP, or of the next episode, at a state or at an array of them."""
        state = self._states("observation", observation, 0)
        action = self._policy(deterministic)[state] + self._firsts()[1]
        return action if state.ndim else int(action)

    def value(self, observation: Any, action: Any) -> tuple[Any, Any]:
        """Mean and standard deviation of the value of the policy that is greedy in the mean MDP."""
        state, done = self._states("observation", observation, 0), self._states("action", action, 1)
        if state.shape != done.shape:
            raise InputError(f"observation and action must go together, but their shapes are {state.shape} and {done.shape}")
        views = self._known()
        mean, deviation = views.mean[state, done], views.deviation[state, done]
        return (mean, deviation) if state.ndim else (float(mean), float(deviation))

    def play(self, env: Any, episodes: int, deterministic: bool, seed: int, seen: Callable[[Any, int], None]) -> np.ndarray:
        """Returns of whole episodes; the first one has this seed, the others go on from there."""
        world = self.world
        if env is not None:
            other = TabularCore(self.config, world, self.state, self.name)
            other.attach(env, world.horizon)
            world = other.world
        if isinstance(world, TabularEnv):
            from ubex.envs.gymnasium import GymTabular

            size = world.num_states
            world = HostEnv(GymTabular(world), size, world.num_actions, 0, 0, world.horizon)
        policy, returns = self._policy(deterministic), np.zeros(episodes)
        for number in range(episodes):
            observation, _ = world.env.reset(seed=seed if number == 0 else None)
            seen(world.env, number)
            for step in range(MAX_STEPS if world.horizon is None else world.horizon):
                state = state_number(world, observation, f"in episode {number}, step {step}")
                observation, reward, terminated, truncated, _ = world.env.step(world.first_action + int(policy[state]))
                seen(world.env, number)
                returns[number] += float(reward)
                if terminated or truncated:
                    break
        return returns

    def uncertainty_map(self, observations: Any, axes: tuple[int, int], points: int) -> Map:
        """Mean and standard deviation for all states and actions, or for given states."""
        views = self._known()
        if observations is None:
            return Map(views.mean, views.deviation, ())
        states = self._states("observations", observations, 0)
        return Map(views.mean[states], views.deviation[states], ())

    def _firsts(self) -> tuple[int, int]:
        """The environment's own numbers of the first state and action."""
        return (self.world.first_state, self.world.first_action) if isinstance(self.world, HostEnv) else (0, 0)

    def _states(self, name: str, given: Any, which: int) -> Int[np.ndarray, "*b"]:
        """States (or actions) as the agent numbers them."""
        array = checks.number_array(name, given)
        size = (self.world.num_states, self.world.num_actions)[which]
        first = self._firsts()[which]
        if array.dtype.kind not in "iu" or not ((array >= first) & (array < first + size)).all():
            raise InputError(f"{name} must be whole numbers from {first} to {first + size - 1}, but it is {given!r}")
        return np.asarray(array - first, np.int64)

    def _known(self) -> Views:
        """Made anew after every episode."""
        if self._views is None or self._views[0] != self.episodes:
            self._views = (self.episodes, self._look())
        return self._views[1]

    @float64
    def _look(self) -> Views:
        found = _look(self.config, self._plan_key(), Belief(*(jnp.asarray(x) for x in self.belief)))
        policy, mean, deviation = (np.asarray(x)[: self.world.num_states] for x in found)
        return Views(policy, mean, deviation)

    def _policy(self, deterministic: bool) -> Int[np.ndarray, " S"]:
        """Greedy in the mean MDP, or the policy of the next episode."""
        return self._known().policy if deterministic else self._explore()

    @float64
    def _explore(self) -> Int[np.ndarray, " S"]:
        planned = plan(self.config, self._plan_key(), Belief(*(jnp.asarray(x) for x in self.belief))).policy
        return np.asarray(planned)[: self.world.num_states]

    def _plan_key(self) -> Key:
        """Of the next episode."""
        return named(jax.random.fold_in(self.key, self.episodes), "plan")


@functools.partial(jax.jit, static_argnames="config")
def _look(config: AgentConfig, key: Key, belief: Belief) -> tuple[Int[Array, " S"], Float[Array, "S A"], Float[Array, "S A"]]:
    """The greedy policy of the mean MDP, and mean and deviation of its values."""
    reward, spread = reward_posterior(belief, config.reward_precision, config.noise_precision)
    mean = mean_model(belief, reward)
    greedy = agents.update(dataclasses.replace(config, method="ensemble-mean"), key, belief).policy
    average = Dense(MDP(jnp.zeros((0, *mean.p.shape)), jnp.zeros((0, *reward.shape))), mean.dense())
    q = average.average(greedy, config.discount).q
    if config.method in WITHOUT_DEVIATION:
        return greedy, q, jnp.full_like(q, jnp.nan)
    how = config.optimism()._replace(gain=1.0)
    world = agents.planning_model(dataclasses.replace(config, gain=1.0), key, belief, mean, spread)
    assert isinstance(world, Dense | Flat | Known)
    return greedy, q, planner.q_moments(how, world, greedy)[1]


def _plain(*arrays: Any) -> Belief:
    """A belief in NumPy, which keeps its 64 bits outside the entry points."""
    return Belief(*(np.asarray(array) for array in arrays))  # type: ignore[arg-type]


def fits(env: Any) -> bool:
    """Whether this is an environment for tabular agents: ours, a pair p, r, or Discrete observations."""
    if isinstance(env, TabularEnv | MDP) or (isinstance(env, tuple) and len(env) == 2):
        return True
    space = getattr(env, "observation_space", None)
    return type(space).__name__ == "Discrete"


def name_of(world: TabularEnv | HostEnv) -> str:
    """For people."""
    if isinstance(world, TabularEnv):
        return world.name
    spec = getattr(world.env, "spec", None)
    return str(spec.id) if spec is not None else type(world.env).__name__


def made(method: str, env: Any, key: Key, horizon: int | None, settings: Mapping[str, Any]) -> TabularCore:
    """A new agent."""
    checks.one_of("method", method, agents.AGENTS)
    config = training.agent_config(method, settings)
    world = training.environment(env, horizon)
    with jax.enable_x64(True):
        belief = _plain(*training.first_belief(world))
    return TabularCore(config, world, TabularState(belief, 0, 0, key), name_of(world))


def loaded(notes: Mapping[str, Any], horizon: int | None) -> TabularCore:
    """An untrained agent as the notes of a file describe it, without an environment."""
    known, config = notes["world"], AgentConfig(**notes["config"])
    (states, actions), (first_state, first_action) = known["sizes"], known["firsts"]
    world = HostEnv(None, states, actions, first_state, first_action, horizon)
    nothing = np.zeros((1, 1, notes["places"]))
    empty = _plain(nothing.astype(np.int32), nothing, nothing[..., 0])
    return TabularCore(config, world, TabularState(empty, 0, 0, jax.random.key(0)), known["name"])
