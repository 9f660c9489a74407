"""Environments of one's own: a tabular environment from a `p, r` pair, and what is asked of a Gymnasium environment."""

from __future__ import annotations

from typing import Any

from ubex import checks, imports
from ubex.envs import foreign
from ubex.envs.base import TabularEnv, finite_horizon_optimum, table_step
from ubex.types import MDP, InputError

HORIZON = 100
"""Steps of an episode where nobody says how many."""
MAX_STEPS = 10_000
"""An episode longer than this needs a time limit."""

DEEP = "--steps N (in Python ubex.Agent) makes a deep agent"
"""What to do with an environment that is not for tabular agents."""


def from_mdp(mdp: MDP, start: int = 0, horizon: int = HORIZON, name: str = "mdp") -> TabularEnv:
    """A tabular environment that behaves as this MDP; it never terminates, but absorbing states may be part of it.

    Example:
        >>> env = from_mdp(MDP(p=[[[0.0, 1.0]], [[0.0, 1.0]]], r=[[1.0], [0.0]]), horizon=3)
    """
    p, r = checks.mdp_arrays(mdp)
    if p.ndim != 3:
        raise InputError(f"an environment is one MDP, but p has shape {p.shape}: choose one of the samples")
    num_states, num_actions, _ = p.shape
    if not 0 <= checks.whole("start", start, 0) < num_states:
        raise InputError(f"start must be a state, 0 to {num_states - 1}, but it is {start}")
    horizon = checks.steps("horizon", horizon)
    best = float(finite_horizon_optimum(p, r, horizon)[start])
    whole = MDP(p, r)
    branching = int((p > 0).sum(axis=-1).max())
    return TabularEnv(
        name, num_states, num_actions, horizon, start, table_step(whole, exact=True), lambda: whole, best, branching
    )


def discrete_sizes(env: Any) -> tuple[int, int, int, int]:
    """Numbers of states and actions of a Gymnasium environment, if it has such, and the first of either.

    Example:
        >>> import gymnasium
        >>> discrete_sizes(gymnasium.make("ubex/DeepSea-v0", size=3))
        (10, 2, 0, 0)
    """
    from gymnasium import spaces

    kinds = "an environment is a name, a Gymnasium environment, a TabularEnv or a pair p, r"
    name, found, both = foreign.name_of(env), list[tuple[int, int]](), foreign.spaces_of(env, kinds)
    for kind, space in zip(("observation", "action"), both, strict=True):
        if not isinstance(space, spaces.Discrete):
            for_deep = isinstance(both[0], spaces.Space) and isinstance(both[1], spaces.Box | spaces.Discrete)
            cure = f": {DEEP}" if for_deep else ""
            raise InputError(f"tabular agents need a Discrete {kind} space, but that of {name} is {checks.shown(space)}{cure}")
        with imports.foreign(f"the {kind} space of {name} cannot be read", InputError):
            found.append(size_and_start(name, kind, space))
    (states, first_state), (actions, first_action) = found
    checks.fits(f"a table of states and actions of {name}", (states + 1, actions))
    return states, actions, first_state, first_action


def size_and_start(name: str, kind: str, space: Any, most: int = checks.MOST) -> tuple[int, int]:
    """How many numbers a Discrete space has, and the first of them.

    Example:
        >>> from gymnasium import spaces
        >>> size_and_start("Line", "action", spaces.Discrete(3, start=-1))
        (3, -1)
    """
    size = checks.whole(f"the size of the {kind} space of {name}", space.n, 1, most)
    return size, checks.whole(f"the start of the {kind} space of {name}", space.start, -checks.MOST)
