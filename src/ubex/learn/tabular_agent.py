"""Tabular agents on environments with Discrete spaces, behind `ubex.Agent`: the learner of `ubex.train`, episode by episode."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ubex import checks, imports
from ubex.calls import covariance, doubts
from ubex.envs import foreign
from ubex.envs.adapter import Episode
from ubex.envs.base import TabularEnv
from ubex.learn.tabular import TabularLearner, TabularState, agent_config, environment, only_deep
from ubex.precision import float64
from ubex.returns import OwnReturns
from ubex.tabular import agents, planner
from ubex.tabular.agents import AgentConfig
from ubex.tabular.belief import Belief, LearnedBelief, mean_model, reward_posterior
from ubex.tabular.host import HostEnv, plan
from ubex.tabular.models import ByMoments, Dense, Flat
from ubex.types import MDP, InputError, Key

WITHOUT_DEVIATION = (*agents.OTHERS, "ensemble-mean")
MOST_ENTRIES = 4_000_000
"""Of a table (S, A, S), up to which the closed form's deviations are looked at before they are told: it takes some of them."""
BETTER = "better: ubex.value_variance(agent.belief, policy, discount, estimator='ensemble-var', key=0)"

Views: TypeAlias = tuple[Int[np.ndarray, " S"], Float[np.ndarray, "S A"], Float[np.ndarray, "S A"]]
"""What the agent holds: the policy that is greedy in the mean MDP, and mean and deviation of its values."""


@dataclass(frozen=True)
class TabularBackend(TabularLearner):
    """A tabular agent and its environment: whole episodes, one by one."""

    unit: ClassVar[str] = "step"
    kind: ClassVar[str] = "tabular"

    name: str = ""
    _views: list[tuple[TabularState, Views]] = field(default_factory=list, repr=False)
    """What was looked at last: a state and the views of it."""
    _trust: list[tuple[TabularState, tuple[bool, OwnReturns]]] = field(default_factory=list, repr=False)
    """The same for how far the closed form is to be trusted: whether it converged, and `returns.own_returns`."""

    @classmethod
    def of(cls, learner: TabularLearner) -> TabularBackend:
        """The same agent in the same environment."""
        return cls(learner.env, learner.config, learner.key, name=learner.env.name)

    @property
    def own_env(self) -> Any:
        """The environment; None where there is none."""
        return self.env.env if isinstance(self.env, HostEnv) else self.env

    def done(self, state: TabularState) -> int:
        """Steps."""
        return state.steps

    def restore(self, kept: TabularState) -> TabularState:
        """With its number of steps, which is that of the transitions."""
        return counted(kept, self.config.repeats)

    def attached(self, env: Any, horizon: int | None) -> TabularBackend:
        """The same with an environment, if it has as many states and actions."""
        found, own = environment(env, horizon), self.env
        here, there = ((one.num_states, one.num_actions) for one in (own, found))
        if here != there:
            raise InputError(
                f"this agent knows {here[0]} states and {here[1]} actions, but {found.name} has {there[0]} and {there[1]}"
            )
        return dataclasses.replace(self, env=found)

    def described(self, state: TabularState) -> dict[str, Any]:
        """What a file needs besides the state."""
        sizes = (self.env.num_states, self.env.num_actions)
        known = {"name": self.name, "sizes": sizes, "firsts": self._firsts(), "start": self.env.start}
        return {"config": dataclasses.asdict(self.config), "world": known, **self.notes(state)}

    def advance(self, state: TabularState, goal: int) -> tuple[TabularState, Episode]:
        """One episode."""
        after, out = super().advance(state, state.episodes + 1)
        after = counted(after, self.config.repeats)
        shown = (float(out.returns[0]), after.steps - state.steps, {"improvements": float(out.steps[0])})
        return after, Episode(after.steps, state.episodes, *shown)

    def predict(self, state: TabularState, observation: Any, deterministic: bool) -> Any:
        """The greedy action of the mean MDP, or of the next episode, at a state or at an array of them."""
        place = self._states("observation", observation, 0)
        action = self._policy(state, deterministic)[place] + self._firsts()[1]
        return action if place.ndim else int(action)

    def value(self, state: TabularState, observation: Any, action: Any) -> tuple[Any, Any]:
        """Mean and standard deviation of the value of the policy that is greedy in the mean MDP."""
        place, done = self._states("observation", observation, 0), self._states("action", action, 1)
        if place.shape != done.shape:
            raise InputError(f"observation and action must go together, but their shapes are {place.shape} and {done.shape}")
        self._warn(state)
        mean, deviation = (values[place, done] for values in self.known(state)[1:])
        return (mean, deviation) if place.ndim else (float(mean), float(deviation))

    def play(
        self,
        state: TabularState,
        env: Any,
        episodes: int,
        deterministic: bool,
        seed: int,
        seen: Callable[[Any, int], None],
    ) -> np.ndarray:
        """Returns of whole episodes."""
        found = self.env if env is None else self.attached(env, self.env.horizon).env
        if isinstance(found, TabularEnv):
            from ubex.envs.gymnasium import GymTabular

            found = HostEnv(GymTabular(found), found.num_states, found.num_actions, 0, 0, found.horizon, name=found.name)
        policy, returns = self._policy(state, deterministic), np.zeros(episodes)
        for number in range(episodes):
            place = found.reset(number, seed if number == 0 else None)
            seen(found.env, number)
            for step in range(found.longest):
                place, reward, over = found.step(place, int(policy[place]), number, step)
                seen(found.env, number)
                returns[number] += reward
                if over:
                    break
        return returns

    def uncertainty_map(
        self, state: TabularState, observations: Any, axes: tuple[int, int], points: int
    ) -> tuple[np.ndarray, np.ndarray, tuple[()]]:
        """Mean and standard deviation for all states and actions, or for given states."""
        _, mean, deviation = self.known(state)
        places = slice(None) if observations is None else self._states("observations", observations, 0)
        self._warn(state)
        return mean[places], deviation[places], ()

    def _firsts(self) -> tuple[int, int]:
        """The environment's own numbers of the first state and action."""
        return (self.env.first_state, self.env.first_action) if isinstance(self.env, HostEnv) else (0, 0)

    def _states(self, name: str, given: Any, which: int) -> Int[np.ndarray, "*b"]:
        """States (or actions) as the agent numbers them."""
        array = checks.number_array(name, given)
        size = (self.env.num_states, self.env.num_actions)[which]
        first = self._firsts()[which]
        if array.dtype.kind not in "iu" or not ((array >= first) & (array < first + size)).all():
            raise InputError(
                f"{name} must be whole numbers from {first} to {first + size - 1}, but it is {checks.shown(given)}"
            )
        return np.asarray(array - first, np.int64)

    def belief(self, state: TabularState) -> LearnedBelief:
        """What was learned, as a posterior."""
        return self.config.learned(state.belief)

    def _warn(self, state: TabularState) -> None:
        """Tells who asked for a deviation where the closed form is not to be trusted with it."""
        name, closed = self.config.method, self.config.optimism().estimator.closed
        entries = self.env.num_states**2 * self.env.num_actions
        if closed != "full" or entries > MOST_ENTRIES:  # the first order is too small in any case
            return
        if not self._trust or self._trust[0][0] is not state:
            self._trust[:] = [(state, self._trusted(state))]
        doubts.closed_form(name, closed, *self._trust[0][1], better=BETTER, level=5)

    def known(self, state: TabularState) -> Views:
        """What `value` and `uncertainty_map` tell, without a warning; made anew after every episode."""
        if not self._views or self._views[0][0] is not state:
            self._views[:] = [(state, self._look(state))]
        return self._views[0][1]

    @float64
    def _look(self, state: TabularState) -> Views:
        found = _look(self.config, next_key(state), jax.tree.map(jnp.asarray, state.belief))
        policy, mean, deviation = (np.asarray(x)[: self.env.num_states] for x in found)
        return policy, mean, deviation

    @float64
    def _trusted(self, state: TabularState) -> tuple[bool, OwnReturns]:
        """Whether the closed form converged for the policy that is told of, and `returns.own_returns`."""
        problem = covariance.moments(self.belief(state).posterior(), None, 0, 0)
        return covariance.variance(problem, self.known(state)[0], self.config.discount, None, "full")[1:]

    def _policy(self, state: TabularState, deterministic: bool) -> Int[np.ndarray, " S"]:
        """Greedy in the mean MDP, or the policy of the next episode."""
        return self.known(state)[0] if deterministic else self._explore(state)

    @float64
    def _explore(self, state: TabularState) -> Int[np.ndarray, " S"]:
        belief, last = jax.tree.map(jnp.asarray, state.memory)
        planned = plan(self.config, next_key(state), belief, self.env.start, last).policy
        return np.asarray(planned)[: self.env.num_states]


def counted(state: TabularState, repeats: int) -> TabularState:
    """The state with its number of steps, which is that of the transitions."""
    return state._replace(steps=round(float(np.sum(state.belief.counts)) / repeats))


def next_key(state: TabularState) -> Key:
    """Of the first plan of the next episode."""
    return agents.plan_key(jax.random.fold_in(state.key, state.episodes), 0)


@functools.partial(jax.jit, static_argnames="config")
def _look(config: AgentConfig, key: Key, belief: Belief) -> tuple[Int[Array, " S"], Float[Array, "S A"], Float[Array, "S A"]]:
    """The greedy policy of the mean MDP, and mean and deviation of its values."""
    reward, spread = reward_posterior(belief, config.reward_precision, config.noise_precision)
    mean = mean_model(belief, reward, config.prior_mass)
    plain = dataclasses.replace(config, method="ensemble-mean", planner=agents.EVERYWHERE)
    greedy = agents.update(plain, key, belief).policy
    certain = agents.planning_model(plain, key, belief, mean, spread)
    assert isinstance(certain, Dense | Flat)
    q = certain.average(greedy, config.discount).q
    if config.method in WITHOUT_DEVIATION:
        return greedy, q, jnp.full_like(q, jnp.nan)
    how = config.optimism()._replace(gain=1.0)
    model = agents.planning_model(dataclasses.replace(config, gain=1.0), key, belief, mean, spread)
    assert isinstance(model, Dense | Flat | ByMoments)
    return greedy, q, planner.q_moments(how, model, greedy)[1]


def fits(env: Any) -> bool:
    """Whether this is an environment for tabular agents: ours, a pair p, r, or Discrete observations without Box actions."""
    if isinstance(env, TabularEnv | MDP) or (isinstance(env, tuple) and len(env) == 2):
        return True
    foreign.refuse_vectors(env)
    with imports.foreign(f"the spaces of {foreign.name_of(env)} cannot be read"):
        seen, acted = (type(getattr(env, f"{kind}_space", None)).__name__ for kind in ("observation", "action"))
        return seen == "Discrete" and acted != "Box"


def refuse_deep(method: Any, env: Any, where: str) -> None:
    """Refuses the name of an agent that is deep alone."""
    if only_deep(method):
        vector = "gymnasium.wrappers.FlattenObservation(env), whose observations are vectors, is for deep agents"
        also = f"; {vector}" if hasattr(env, "observation_space") else ""
        raise InputError(
            f"{method} is a deep agent, but the spaces of {where} are Discrete, so it gets a tabular one of `ubex list`{also}"
        )


def create(method: str, env: Any, key: Key, horizon: int | None, settings: Mapping[str, Any]) -> TabularBackend:
    """A new agent."""
    checks.one_of("method", method, agents.AGENTS)
    config, found = agent_config(method, settings), environment(env, horizon)
    return TabularBackend.of(TabularLearner(found, config, key))


def from_file(notes: Mapping[str, Any], horizon: int | None) -> TabularBackend:
    """An agent as the notes of a file describe it, without an environment."""
    known = notes["world"]
    checks.one_of("method", notes["config"]["method"], agents.AGENTS)  # never code at module:name
    (states, actions), (first_state, first_action) = known["sizes"], known["firsts"]
    env = HostEnv(None, states, actions, first_state, first_action, horizon, known.get("start"), known["name"])
    return TabularBackend(env, AgentConfig(**notes["config"]), jax.random.key(0), name=known["name"])
