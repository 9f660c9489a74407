"""The posteriors that `calibration` looks at: Dirichlet rows of known structure, and environments after some episodes.

Random kinds have known rewards, drawn from a standard Normal distribution, the same number of pseudo-counts in every possible
cell, and a fixed random deterministic policy. In grids moves go right or down and can fail; there the cells have so many
pseudo-counts on average. Environments have the paper's prior and data of the uniformly random policy,
which is also the policy that is evaluated. Observed kinds are random MDPs after so many transitions from anywhere: both
transitions and rewards are learned, and the policy is uniform.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from ubex.envs.base import TabularEnv
from ubex.envs.deep_sea import deep_sea
from ubex.envs.n_room import n_room
from ubex.tabular.posterior import DirichletNormal
from ubex.tabular.truth import PolicyArray
from ubex.types import Transitions

GRID = "cyclic-grid"
RANDOM_KINDS = ("acyclic-layered", "acyclic-random", "cyclic-dense", "cyclic-sparse", GRID)
ENVIRONMENT_KINDS = ("deep-sea", "rooms")
OBSERVED_KINDS = ("acyclic-observed", "cyclic-observed")
KINDS = (*RANDOM_KINDS, *ENVIRONMENT_KINDS, *OBSERVED_KINDS)
NUM_ACTIONS = 2
SPARSE = 0.2
"""Share of next states that are possible in sparse MDPs."""
LATER = 0.5
"""Share of later states that are possible in acyclic random MDPs."""
GAMMA, ENDING = 0.5, 0.05
"""Shape of the true rows of observed kinds, and what is added to the chance of an end before they are normalised."""
SLIPS = {(0, 1): 0.8, (1, 0): 0.1, (-1, 0): 0.1}
"""Where a move leads, as steps aside and ahead, and how often. At a wall it leads nowhere."""
KNOWN_PRECISION = 1e12
"""Precision of rewards that count as known."""


class Case(NamedTuple):
    """A posterior and the policy whose values are asked for."""

    posterior: DirichletNormal
    policy: PolicyArray


def make(kind: str, data: float, size: int, rooms: int, generator: np.random.Generator) -> Case:
    """The case of a kind: `data` is pseudo-counts per cell, episodes or transitions; `size` counts the end, if there is one."""
    if kind in RANDOM_KINDS:
        return random_case(kind, data, size, generator)
    if kind in OBSERVED_KINDS:
        return observed_case(kind, int(data), size, generator)
    env = n_room(rooms) if kind == "rooms" else deep_sea(max(2, math.isqrt(size)))
    return explored(env, int(data), generator)


def random_case(kind: str, count: float, size: int, generator: np.random.Generator) -> Case:
    """Dirichlet(count) on the possible next states; acyclic means that states only lead to later ones, and to an end."""
    terminal = kind.startswith("acyclic")
    inner = size - terminal
    counts = slippery(count, size) if kind == GRID else np.where(possible(kind, inner, generator), count, 0.0)
    posterior = DirichletNormal(
        len(counts),
        NUM_ACTIONS,
        concentration=counts,
        support=counts > 0.0,
        terminal=terminal,
        reward_mean=generator.normal(size=(len(counts), NUM_ACTIONS)),
        reward_precision=KNOWN_PRECISION,
    )
    return Case(posterior, generator.integers(NUM_ACTIONS, size=posterior.num_states).astype(np.int32))


def slippery(count: float, size: int) -> Float[np.ndarray, "S A T"]:
    """Dirichlet parameters of a square grid of at most so many cells, in which moves go right or down and may slip aside."""
    side = max(2, math.isqrt(size))
    counts = np.zeros((side * side, NUM_ACTIONS, side * side))
    row, column = np.divmod(np.arange(side * side), side)
    for action in range(NUM_ACTIONS):
        for (aside, ahead), share in SLIPS.items():
            down, right = (aside, ahead) if action == 0 else (ahead, aside)
            after = np.clip(row + down, 0, side - 1) * side + np.clip(column + right, 0, side - 1)
            counts[np.arange(side * side), action, after] += len(SLIPS) * share * count
    return counts


def observed_case(kind: str, transitions: int, size: int, generator: np.random.Generator) -> Case:
    """Dirichlet(1) after transitions in a random MDP that ends from everywhere; acyclic as in `random_case`."""
    inner = size - 1
    support = np.arange(size) > np.arange(inner)[:, None, None] if kind.startswith("acyclic") else None
    posterior = DirichletNormal(inner, NUM_ACTIONS, terminal=True, support=support, concentration=1.0, noise_precision=1.0)
    allowed = posterior.transitions.alpha[:inner] > 0
    p = np.where(allowed, generator.gamma(GAMMA, size=allowed.shape), 0.0)
    p[..., -1] += ENDING
    p /= p.sum(axis=-1, keepdims=True)
    state, action = (generator.integers(number, size=transitions) for number in (inner, NUM_ACTIONS))
    after = np.array([generator.choice(size, p=p[s, a]) for s, a in zip(state, action, strict=True)], dtype=int)
    seen = Transitions(state, action, generator.normal(size=transitions), after)
    return Case(posterior.observe(seen), np.full((size, NUM_ACTIONS), 1.0 / NUM_ACTIONS))


def possible(kind: str, inner: int, generator: np.random.Generator) -> Bool[np.ndarray, "S A T"]:
    """Which next states a kind allows."""
    states = np.arange(inner)
    shape = (inner, NUM_ACTIONS, inner)
    some = generator.random(shape)
    if kind == "cyclic-dense":
        return np.ones(shape, dtype=bool)
    if kind == "cyclic-sparse":
        kept = some < SPARSE
        kept |= some == np.where(kept.any(axis=-1, keepdims=True), -1.0, some.min(axis=-1, keepdims=True))
        return kept
    width = math.isqrt(inner + 1)
    if kind == "acyclic-layered":
        layer = states // width
        inside = np.broadcast_to((layer[None, :] == layer[:, None] + 1)[:, None], shape)
    else:
        inside = (states[None, :] > states[:, None])[:, None] & (some < LATER)
    end = ~inside.any(axis=-1, keepdims=True)
    return np.concatenate([inside, end], axis=-1)


def explored(env: TabularEnv, episodes: int, generator: np.random.Generator) -> Case:
    """The paper's prior after episodes of the uniformly random policy, which is evaluated."""
    p, r = (np.asarray(array) for array in env.as_mdp())
    posterior = DirichletNormal(env.num_states, env.num_actions, terminal=True)
    seen: list[tuple[int, int, float, int]] = []
    for _ in range(episodes):
        state = env.start
        for _ in range(env.horizon):
            action = int(generator.integers(env.num_actions))
            after = int(generator.choice(p.shape[-1], p=p[state, action]))
            seen.append((state, action, float(r[state, action]), after))
            if after == env.num_states:
                break
            state = after
    uniform = np.full((posterior.num_states, env.num_actions), 1.0 / env.num_actions)
    return Case(posterior.observe(Transitions(*map(np.array, zip(*seen, strict=True)))), uniform)
