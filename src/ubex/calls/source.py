"""What the calls are asked about: samples of a posterior, a posterior, or what an agent has learned; checked in one place."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Array, Float, Int
from numpy.typing import ArrayLike

from ubex import checks
from ubex.keys import as_key
from ubex.tabular.belief import LearnedBelief
from ubex.tabular.posterior import INSTEAD, TabularPosterior
from ubex.tabular.sparse import SparsePosterior
from ubex.types import MDP, InputError, KeyLike, Posterior

Source = MDP | Posterior | LearnedBelief
CALL_COPIES = 3
"""Memory that a call takes at its peak, in sizes of its samples (tests/test_project.py)."""
FROM_MOMENTS, FROM_MEMBERS = "closed-form", "ensemble-var"
"""What is chosen for a posterior whose moments are known, and for samples (docs/first-variance.md has the errors of both)."""
FAR = 1e3
"""Rewards have a common offset where their middle is this many times what they differ by."""


def posterior_of(source: Source) -> MDP | Posterior:
    """The source itself; what an agent has learned becomes the posterior that it stands for."""
    return source.posterior() if isinstance(source, LearnedBelief) else source


def default_for(source: MDP | Posterior | SparsePosterior, horizon: int | None) -> str:
    """The estimator that is chosen. Over a number of steps the closed form answers another question: docs/equations.md."""
    return FROM_MOMENTS if isinstance(source, TabularPosterior | SparsePosterior) and horizon is None else FROM_MEMBERS


def resolve(
    source: MDP | Posterior,
    key: KeyLike | None,
    num_models: int,
    ddof: int,
    *,
    at_least: int = 2,
    what: str = "closed form",
) -> tuple[Float[np.ndarray, "N S A S"], Float[np.ndarray, "N S A"]]:
    """The members of the ensemble, checked: the samples themselves, or samples of the posterior.

    `at_least` is the smallest ensemble that serves, and `what` says for whom.
    """
    if isinstance(source, MDP):
        samples = source
    elif isinstance(source, Posterior):
        if key is None:
            raise InputError("a posterior is sampled: give key= (a JAX key or an integer seed)")
        num_models = checks.whole("num_models", num_models, at_least)
        if isinstance(source, TabularPosterior):
            shape = (num_models, *source.transitions.alpha.shape)
            checks.fits("the variance over samples, with an array", shape, CALL_COPIES, INSTEAD)
        samples = mdp_of("sample", source.sample(as_key(key), num_models))
    else:
        raise InputError(f"source must be an MDP with a sample axis or a posterior, but it is a {type(source).__name__}")
    p, r = checks.mdp_arrays(samples)
    if p.ndim == 3:
        raise InputError(f"p has shape {p.shape}, one MDP without a sample axis: a variance needs samples, (N, S, A, S)")
    checks.whole(f"the number of members ({what})", p.shape[0], at_least)
    if checks.whole("ddof", ddof, 0) >= p.shape[0]:
        raise InputError(f"ddof must be smaller than the number of members {p.shape[0]}, but it is {ddof}")
    return p, r


def mean_of(source: Posterior, shape: tuple[int, ...]) -> MDP:
    """The posterior's own mean, checked; `shape` is the (S, A, S) of its samples."""
    p, r = checks.mdp_arrays(mdp_of("mean", source.mean()))
    if p.shape != shape:
        raise InputError(f"p of the posterior's mean must have shape {shape}, as in its samples, but it has shape {p.shape}")
    return MDP(p, r)


def mdp_of(method: str, given: Any) -> MDP:
    """What a method of a posterior returned, if it is an MDP."""
    if not isinstance(given, MDP):
        raise InputError(f"{method} of a posterior must return an MDP, but it returned a {type(given).__name__}")
    return given


def policy_in(
    source: MDP | Posterior, policy: ArrayLike, num_states: int, num_actions: int
) -> Float[np.ndarray, "S A"] | Int[np.ndarray, " S"]:
    """The policy, checked. It may leave out the terminal state of a posterior that has one: nothing depends on it there."""
    given = checks.number_array("policy", policy)
    terminal = isinstance(source, TabularPosterior) and source.terminal
    if terminal and given.ndim > 0 and len(given) == num_states - 1:
        given = np.concatenate([given, given[:1]])
    return checks.policy_array(given, num_states, num_actions)


def common_offset(rewards: Float[np.ndarray, "*n S A"]) -> float:
    """The middle of all rewards where it is far larger than what they differ by, else 0.

    It is in every value alike and in no variance, but it costs the digits of what they differ by.
    """
    low, high = float(rewards.min()), float(rewards.max())
    middle = 0.5 * low + 0.5 * high
    return middle if abs(middle) > FAR * (high - low) else 0.0


def raised(
    values: Float[Array | np.ndarray, "..."], offset: float, discount: float, horizon: int | None
) -> Float[Array | np.ndarray, "..."]:
    """Values with the offset of the rewards back in them."""
    if not offset:
        return values
    steps = 1.0 / (1.0 - discount) if horizon is None else math.fsum(discount**step for step in range(horizon))
    return values + offset * steps
