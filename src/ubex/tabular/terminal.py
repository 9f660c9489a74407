"""Where a process without discount ends: states that are absorbing with reward 0."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from ubex.types import InputError

ABSORBING_TOLERANCE = 1e-12
"""A probability up to which a step counts as one that is never taken: beside 1 it is hardly a number."""


def terminal_states(p: Float[np.ndarray, "N S A S"], r: Float[np.ndarray, "N S A"], policy: Any) -> Bool[np.ndarray, " S"]:
    """States that are absorbing with reward 0 under the policy in every member; an error unless every state reaches one.

    Without discounting the values are finite exactly then.
    """
    num_states, num_actions = p.shape[1:3]
    taken = policy > 0 if policy.ndim == 2 else np.arange(num_actions) == policy[:, None]
    stays = np.einsum("nsas->nsa", p) >= 1.0 - ABSORBING_TOLERANCE
    terminal: Bool[np.ndarray, " S"] = np.all((stays & (r == 0.0)) | ~taken, axis=(0, 2))
    for member, rows in enumerate(p):
        edges = np.zeros((num_states, num_states), dtype=bool)
        for action in range(num_actions):
            edges |= (rows[:, action] > ABSORBING_TOLERANCE) & taken[:, action, None]
        lost = ~reaching(edges, terminal)
        if lost.any():
            raise InputError(
                "discount 1 needs every state to reach an absorbing state with reward 0, "
                f"but state {lost.argmax()} does not in member {member}"
            )
    return terminal


def reaching(edges: Bool[np.ndarray, "S S"], goals: Bool[np.ndarray, " S"]) -> Bool[np.ndarray, " S"]:
    """States from which a way along the edges leads to a goal, the goals among them."""
    into, reached, newest = np.ascontiguousarray(edges.T), goals, goals
    while newest.any():
        newest = into[newest].any(axis=0) & ~reached
        reached = reached | newest
    return reached
