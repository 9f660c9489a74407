"""Small worlds in which the paper's assumptions hold exactly, and brute force by a route that shares no code with ubex."""

from __future__ import annotations

import contextlib
import functools
import warnings
from fractions import Fraction
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import strategies as st

from ubex import ESTIMATORS, MDP, DirichletNormal, UbexWarning, ValueVariance, value_variance


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


def cyclic_variance(*source: Any, estimator: str, **settings: Any) -> ValueVariance:
    """`value_variance` where states are visited again: an estimator that assumes otherwise has to say so, and no other may.

    A closed form may say that the data are too few for it.
    """
    says = functools.partial(pytest.warns, UbexWarning, match="no state is visited twice")
    doubts = functools.partial(warnings.catch_warnings, action="ignore", category=UbexWarning)
    known = ESTIMATORS[estimator]
    with says() if known.acyclic else doubts() if known.closed else contextlib.nullcontext():
        return value_variance(*source, estimator=estimator, **settings)


def slipping_grid(side: int) -> tuple[DirichletNormal, np.ndarray]:
    """Four moves that slip, to a goal in the corner that ends it, as a posterior with data; and a policy that goes there."""
    states, moves = side * side, ((0, 1), (1, 0), (0, -1), (-1, 0))
    alpha = np.zeros((states, 4, states + 1))
    for state, (action, intended), (_, move) in product(range(states), enumerate(moves), enumerate(moves)):
        place = [min(max(x + d, 0), side - 1) for x, d in zip(divmod(state, side), move, strict=True)]
        after = states if place == [side - 1, side - 1] else place[0] * side + place[1]
        alpha[state, action, after] += 48.0 if move == intended else 4.0
    posterior = DirichletNormal(
        *(states, 4),
        terminal=True,
        concentration=np.where(alpha > 0, alpha, 1.0),
        support=alpha > 0,
        reward_mean=-1.0,
        reward_precision=1e12,
    )
    down = np.arange(states + 1) % side == side - 1
    return posterior, down.astype(int)


def random_policy(seed: int, num_states: int, num_actions: int) -> np.ndarray:
    """A stochastic policy."""
    return np.random.default_rng(seed).dirichlet(np.ones(num_actions), size=num_states)


def nearly_certain(seed: int, random_rewards: bool, offset: float) -> World:
    """An acyclic world whose rows are within 1e-6 of 0 or 1 and whose rewards, also at its end, have a common offset.

    All is dyadic, so that rows sum to 1 exactly and `fractions` see the very numbers.
    """
    generator, last = np.random.default_rng(seed), 3
    choices = []
    for state in range(last):
        likeliest = generator.permutation(np.arange(state + 1, last + 1))[[0, -1]]
        rare = generator.permutation([0, 1])[:, None, None] * generator.integers(3, 5, size=(1, 2, last + 1)) * 2.0**-22
        rare[:, :, : state + 1] = 0.0
        for action in range(2):
            rare[:, action, likeliest[action]] = 0.0
            rare[:, action, likeliest[action]] = 1.0 - rare[:, action].sum(axis=-1)
        rewards = offset + generator.integers(-512, 512, size=(2, 2)) / 256.0
        choices.append(list(product(rare, rewards if random_rewards else rewards[:1])))
    members = list(product(*choices))
    p, r = np.zeros((len(members), last + 1, 2, last + 1)), np.full((len(members), last + 1, 2), offset)
    p[:, last, :, last] = 1.0
    for index, member in enumerate(members):
        for state, (rows, rewards) in enumerate(member):
            p[index, state], r[index, state] = rows, rewards
    policy = np.array([[1, 3], [2, 2], [3, 1], [1, 3]]) / 4.0
    return World(MDP(p, r), policy, 0.875)


def exact_values(world: World) -> tuple[np.ndarray, np.ndarray]:
    """`brute_force_values` in rational numbers, where the end pays its reward for ever."""
    p, r, policy = (np.vectorize(Fraction)(np.asarray(x)) for x in (*world.samples, world.policy))
    discount = Fraction(world.discount)
    q = r / (1 - discount)
    v = (q * policy).sum(axis=2)
    for state in range(p.shape[1] - 2, -1, -1):
        q[:, state] = r[:, state] + discount * (p[:, state] * v[:, None]).sum(axis=-1)
        v[:, state] = (q[:, state] * policy[state]).sum(axis=1)
    return v, q


def exact_variance(x: np.ndarray) -> np.ndarray:
    """Variance over members of rational numbers, in float64 only at the end."""
    return (((x - x.sum(axis=0) / len(x)) ** 2).sum(axis=0) / len(x)).astype(float)
