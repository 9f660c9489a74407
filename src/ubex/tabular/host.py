"""The tabular loop for environments that live on the host: anything with Gymnasium's `reset` and `step`.

The agent is the compiled one; only acting and counting happen in Python. Places for next states are added as they are needed,
so nobody has to say how random the environment is.
"""

from __future__ import annotations

import functools
import itertools
import operator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from ubex import checks
from ubex.envs import foreign
from ubex.envs.custom import MAX_STEPS
from ubex.keys import named
from ubex.tabular.agents import DOUBLED, AgentConfig, plan_key, update
from ubex.tabular.belief import Belief
from ubex.tabular.loop import Episodes, Memory
from ubex.types import InputError, Key


class HostEnv(NamedTuple):
    """A Gymnasium environment with Discrete spaces, and the numbers that the agent uses for its states and actions."""

    env: Any
    num_states: int
    num_actions: int
    first_state: int
    first_action: int
    horizon: int | None
    """Steps after which an episode is cut off here, besides what the environment does."""
    start: int | None = None
    """Where episodes begin, if that is known."""
    name: str = ""

    @property
    def longest(self) -> int:
        """Steps after which an episode ends, or is too long."""
        return MAX_STEPS if self.horizon is None else self.horizon

    def reset(self, episode: int, seed: int | None) -> int:
        """The first state of an episode."""
        where = f"at the start of episode {episode}"
        return self._state(foreign.reset(self.env, self.name, where, seed), where)

    def step(self, state: int, action: int, episode: int, step: int) -> tuple[int, float, bool]:
        """The state after an action, the reward, and whether the episode is over; a terminal state has the last number."""
        own = self.first_action + action
        where = f"in episode {episode}, step {step} (state {self.first_state + state}, action {own})"
        said = foreign.step(self.env, self.name, where, own)
        after = self.num_states if said.terminated else self._state(said.observation, where)
        over = said.terminated or said.truncated
        if self.horizon is None and step + 1 >= MAX_STEPS and not over:
            raise InputError(f"episode {episode} of {self.name} is longer than {MAX_STEPS} steps: give it a horizon")
        return after, said.reward, over

    def _state(self, observation: Any, where: str) -> int:
        """The agent's number of an observed state."""
        try:
            state = operator.index(observation)
        except Exception:
            state = None
        if state is None or isinstance(observation, bool):
            raise InputError(f"the state of {self.name} {where} is {checks.shown(observation)}, not a whole number")
        if not 0 <= state - self.first_state < self.num_states:
            last, said = self.first_state + self.num_states - 1, checks.shown(observation)
            raise InputError(f"the state of {self.name} {where} is {said}, but states go from {self.first_state} to {last}")
        return state - self.first_state


plan = functools.partial(jax.jit, static_argnames=("config", "start"))(update)
"""The compiled update, for callers on the host."""


def run_episodes(
    env: HostEnv, config: AgentConfig, key: Key, memory: Memory, episodes: Int[np.ndarray, " E"]
) -> tuple[Memory, Episodes]:
    """Runs episodes number `episodes[0]`, ...; each is seeded by the key and its number alone."""
    belief, last = memory
    returns, policies, steps = [], [], []
    for number in episodes:
        here, most = jax.random.fold_in(key, number), 0
        seed = int(jax.random.bits(named(here, "act"), dtype=jnp.uint32)) % 2**31
        part = Part(int(number), env.reset(int(number), seed))
        for plans in itertools.count():
            planned = plan(config, plan_key(here, plans), belief, env.start, last)
            most, last = max(most, int(planned.steps)), planned.policy
            part, belief = played(env, config, np.asarray(last), belief, part)
            if part.over:
                break
        returns.append(part.total)
        policies.append(np.asarray(last)[: env.num_states])
        steps.append(most)
    return Memory(belief, last), Episodes(np.array(returns), np.array(policies), np.array(steps))


class Part(NamedTuple):
    """An episode so far."""

    number: int
    state: int
    step: int = 0
    total: float = 0.0
    over: bool = False


def played(env: HostEnv, config: AgentConfig, policy: Int[np.ndarray, " S"], belief: Belief, part: Part) -> tuple[Part, Belief]:
    """The episode until it is over or a new plan is due, and the belief with what it showed."""
    counts, enough = Counts(belief), 2.0 * np.asarray(belief.counts).sum(axis=-1) + belief.weight(config.prior_mass)
    number, state, step, total, over = part
    due = False
    while not over and not due:
        action = int(policy[state])
        after, reward, over = env.step(state, action, number, step)
        counts.add(state, action, after, reward, config.repeats)
        due = config.plan_when == DOUBLED and counts.visits(state, action) >= enough[state, action]
        state, total, step = after, total + reward, step + 1
        over = over or step == env.longest
    return Part(number, state, step, total, over), counts.belief()


class Counts:
    """A belief on the host, in NumPy, with room for more next states than were seen so far."""

    def __init__(self, belief: Belief) -> None:
        """A copy of the belief."""
        self.successors, self.counts, self.rewards = (np.array(x) for x in belief)

    def add(self, state: int, action: int, after: int, reward: float, repeats: int) -> None:
        """One transition, counted `repeats` times."""
        here = (state, action)
        seen = self.counts[here] > 0
        (same,) = np.nonzero(seen & (self.successors[here] == after))
        if same.size == 0 and seen.all():
            self._grow()
            seen = self.counts[here] > 0
        place = same[0] if same.size else int(np.argmin(seen))
        self.successors[here][place] = after
        self.counts[here][place] += repeats
        self.rewards[here] += repeats * reward

    def visits(self, state: int, action: int) -> float:
        """How often the action was tried in the state."""
        return float(self.counts[state, action].sum())

    def _grow(self) -> None:
        """Twice the places, so that programs are compiled anew a few times at most."""
        num_states, places = self.counts.shape[0], self.counts.shape[-1]
        more = min(places, num_states - places)
        empty = ((0, 0), (0, 0), (0, more))
        self.successors = np.pad(self.successors, empty, constant_values=num_states - 1)
        self.counts = np.pad(self.counts, empty)

    def belief(self) -> Belief:
        """The belief, on the device."""
        return Belief(jnp.asarray(self.successors), jnp.asarray(self.counts), jnp.asarray(self.rewards))
