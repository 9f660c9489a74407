"""Where a process without discount ends: states that are absorbing with reward 0."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from ubex.types import InputError

ABSORBING_TOLERANCE = 1e-12


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
            edges |= (rows[:, action] > 0.0) & taken[:, action, None]
        lost = ~terminal
        if terminal.any():
            steps = dijkstra(csr_array(edges.T), indices=np.flatnonzero(terminal), unweighted=True, min_only=True)
            lost = np.isinf(steps)
        if lost.any():
            raise InputError(
                "discount 1 needs every state to reach an absorbing state with reward 0, "
                f"but state {lost.argmax()} does not in member {member}"
            )
    return terminal
