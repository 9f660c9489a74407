"""How the model-generated buffers can be had again: not by saving them, but by saving what made their rows.

Buffers of the paper's size are gigabytes. The models and the actor that made their rows are small, and the same rollouts give
the same rows. A ring holds rows of as many retrainings as it takes to fill it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from ubex.deep.buffer import ModelBuffer
from ubex.deep.dynamics import Dynamics
from ubex.deep.networks import MLP
from ubex.deep.termination import Termination


class Refill(NamedTuple):
    """What made the rollouts of one retraining, on the host; with several seeds, on a leading axis."""

    segment: Int[np.ndarray, ""]
    """Number of the segment that the retraining began."""
    before: Int[np.ndarray, "*k M"]
    """Rows that had been written to each buffer before."""
    dynamics: Dynamics
    actor: MLP
    termination: Termination | None
    """None unless terminations are learned, and one has been seen."""


def recorded(index: int, written: Any, dynamics: Dynamics, actor: MLP, ends: Termination | None = None) -> Refill:
    """A record of rollouts that are about to be made, after so many rows in each buffer."""
    ends = None if ends is None else ends._replace(optimiser=None)
    made: Any = jax.device_get((dynamics._replace(optimiser=None), actor, ends))
    return Refill(np.asarray(index, np.int32), np.asarray(written), *made)


def needed(history: Sequence[Refill], buffers: ModelBuffer) -> tuple[Refill, ...]:
    """Those of which some buffer still holds a row: fewer rows than it has places were written after them."""
    written = np.asarray(buffers.written)
    until = [*(after.before for after in history[1:]), written]
    capacity = buffers.rows.shape[-2]
    return tuple(one for one, end in zip(history, until, strict=True) if np.min(written - end) < capacity)


def again(history: Sequence[Refill], empty: ModelBuffer, refill: Callable[[ModelBuffer, Refill], ModelBuffer]) -> ModelBuffer:
    """The buffers that the history made, from empty ones."""
    buffers = empty if not history else empty._replace(written=jnp.asarray(history[0].before))
    for one in history:
        buffers = refill(buffers, jax.tree.map(jnp.asarray, one))
    return buffers
