"""Small worlds in which the paper's assumptions hold exactly, and brute force by a route that shares no code with ubex."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from ubex import MDP


class World(NamedTuple):
    """Every member of an enumerated product posterior over an acyclic MDP, and a policy."""

    samples: MDP
    policy: np.ndarray
    discount: float


class Size(NamedTuple):
    """Few sizes, so that few programs are compiled."""

    states: int
    actions: int
    transition_options: int
    reward_options: int


SIZES = (Size(4, 2, 2, 2), Size(4, 3, 3, 1), Size(5, 2, 2, 1))
DISCOUNTS = (0.0, 0.3, 0.9, 0.99, 1.0)


def weights(count: int, high: int) -> st.SearchStrategy[list[int]]:
    """Row weights of which at least one is positive; zeros make impossible successors and deterministic rows."""
    return st.lists(st.integers(0, high), min_size=count, max_size=count).filter(any)


@st.composite
def worlds(draw: st.DrawFn, random_rewards: bool) -> World:
    """An acyclic MDP whose states have independent random rows (and rewards); the last state is absorbing, reward 0."""
    size = draw(st.sampled_from(SIZES))
    last = size.states - 1
    choices = []
    for state in range(last):
        later = last - state
        rows = [
            [[0.0] * (state + 1) + draw(weights(later, 4)) for _ in range(size.actions)] for _ in range(size.transition_options)
        ]
        number = size.reward_options if random_rewards else 1
        rewards = [draw(st.lists(st.integers(-3, 3), min_size=size.actions, max_size=size.actions)) for _ in range(number)]
        rewards = rewards * (size.reward_options // number)
        choices.append(list(product(rows, rewards)))
    members = list(product(*choices))
    p = np.zeros((len(members), size.states, size.actions, size.states))
    r = np.zeros((len(members), size.states, size.actions))
    p[:, last, :, last] = 1.0
    for index, member in enumerate(members):
        for state, (rows, rewards) in enumerate(member):
            table = np.array(rows, dtype=float)
            p[index, state] = table / table.sum(axis=1, keepdims=True)
            r[index, state] = rewards
    policy = np.array([draw(weights(size.actions, 2)) for _ in range(size.states)], dtype=float)
    return World(MDP(p, r), policy / policy.sum(axis=1, keepdims=True), draw(st.sampled_from(DISCOUNTS)))


def brute_force_values(world: World) -> tuple[np.ndarray, np.ndarray]:
    """V and Q of every member by backward recursion over states: no linear algebra, possible because the MDP is acyclic."""
    p, r = np.asarray(world.samples.p), np.asarray(world.samples.r)
    q = np.zeros(r.shape)
    v = np.zeros(r.shape[:2])
    for state in range(p.shape[1] - 2, -1, -1):
        for action in range(p.shape[2]):
            q[:, state, action] = r[:, state, action] + world.discount * np.sum(p[:, state, action] * v, axis=1)
        v[:, state] = q[:, state] @ world.policy[state]
    return v, q


def random_ensemble(seed: int, num_models: int, num_states: int, num_actions: int) -> MDP:
    """Dense random MDPs with cycles."""
    generator = np.random.default_rng(seed)
    p = generator.dirichlet(np.ones(num_states), size=(num_models, num_states, num_actions))
    return MDP(p, generator.normal(size=p.shape[:-1]))


def random_policy(seed: int, num_states: int, num_actions: int) -> np.ndarray:
    """A stochastic policy."""
    return np.random.default_rng(seed).dirichlet(np.ones(num_actions), size=num_states)
