"""The members of an ensemble: who they are, and their own values, in chunks that fit the memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy.typing import ArrayLike

from ubex.calls.source import common_offset, mean_of, policy_in, resolve
from ubex.tabular import bellman, unrolled
from ubex.tabular.bellman import Policy, Scalar, Values
from ubex.tabular.terminal import terminal_states
from ubex.types import MDP, KeyLike, Posterior

ArrayOrHost = Array | np.ndarray
CHUNK_BYTES = 40 * 10**6
MAX_CHUNKS = 16
"""Large ensembles are handled in at most this many chunks of at least `CHUNK_BYTES`, so that temporary arrays stay small.
Chunks are larger than 32 MiB because glibc gives smaller blocks back late, if ever."""

# Compiled in pieces, not whole: a matrix is made in one call and factorised in another, because XLA's threads and those of
# the linear algebra library slow each other down inside one call (docs/comparison.md has the numbers).
_equation = jax.jit(bellman.equation)
_solve = jax.jit(jnp.linalg.solve)
_with_actions = jax.jit(bellman.with_actions)
_unrolled = jax.jit(unrolled.values)
_gap_side = jax.jit(bellman.gap_side)
_unrolled_gap = jax.jit(unrolled.gap)
Terminal = Bool[Array, " S"] | None


class Ensemble(NamedTuple):
    """Samples of a posterior and its mean MDP, both without what all rewards have in common."""

    source: MDP | Posterior
    p: Float[np.ndarray, "N S A S"]
    r: Float[np.ndarray, "N S A"]
    mean: MDP
    offset: float
    """What all rewards have in common."""

    def policy(self, given: ArrayLike) -> Float[np.ndarray, "S A"] | Int[np.ndarray, " S"]:
        """The policy, checked."""
        return policy_in(self.source, given, *self.p.shape[1:3])

    def terminal(self, policy: ArrayOrHost, discount: float, horizon: int | None) -> Terminal:
        """States whose value is known to be 0 under the policy; nobody asks but where discount 1 goes on without end."""
        if discount < 1.0 or horizon is not None:
            return None
        rewards = self.r + self.offset if self.offset else self.r
        return jnp.asarray(terminal_states(self.p, rewards, np.asarray(policy)))

    def chunks(self) -> list[slice]:
        """Parts of the ensemble that are handled one after the other."""
        return chunk_slices(self.p.shape[0], self.p.nbytes)

    def each(self, found: Callable[[MDP], Float[np.ndarray, "n S"]]) -> Float[np.ndarray, "N S"]:
        """What is found in every member."""
        return np.concatenate([found(on_device(self.p, self.r, part)) for part in self.chunks()])


def ensemble(
    source: MDP | Posterior, key: KeyLike | None, num_models: int, ddof: int, at_least: int, what: str, *, level: bool = False
) -> Ensemble:
    """The members, checked, and their mean: that of the samples, or the posterior's own. `level` keeps rewards as they are."""
    p, r = resolve(source, key, num_models, ddof, at_least=at_least, what=what)
    if isinstance(source, MDP):
        mean = bellman.mean_mdp(on_device(p, r, part) for part in chunk_slices(p.shape[0], p.nbytes))
    else:
        mean = MDP(*map(jnp.asarray, mean_of(source, p.shape[1:])))
    offset = 0.0 if level else common_offset(r)
    if offset:
        r, mean = r - offset, MDP(mean.p, jnp.asarray(mean.r) - offset)
    return Ensemble(source, p, r, mean, offset)


def values(mdp: MDP, policy: Policy, discount: Scalar, terminal: Terminal) -> Values:
    """`bellman.solve` in three compiled pieces."""
    solved: Values = _with_actions(mdp, _solve(*_equation(mdp, policy, discount, terminal)), discount)
    return solved


def values_in(mdp: MDP, policy: Policy, discount: Scalar, terminal: Terminal, horizon: int | None) -> Float[np.ndarray, "*n S"]:
    """Values of the policy in one MDP or, with a leading axis, in each of N; over a number of steps or without end."""
    found = values(mdp, policy, discount, terminal) if horizon is None else _unrolled(mdp, policy, discount, horizon)
    return np.asarray(found.v)


def gap(
    mdp: MDP, policies: tuple[Policy, Policy], discount: Scalar, terminals: Sequence[Terminal], horizon: int | None
) -> Float[np.ndarray, "*n S"]:
    """Values of the first policy minus those of the second, in one MDP or in each of N; no value is subtracted from another."""
    first, second = (_equation(mdp, policy, discount, ends) for policy, ends in zip(policies, terminals, strict=True))
    if horizon is not None:
        return np.asarray(_unrolled_gap(first, second, horizon)[..., 0])
    return np.asarray(_solve(first[0], _gap_side(first, second, _solve(*second)))[..., 0])


def on_device(p: Float[ArrayOrHost, "N S A S"], r: Float[ArrayOrHost, "N S A"], part: slice) -> MDP:
    """Some members of the ensemble, where JAX computes."""
    return MDP(jax.device_put(p[part]), jax.device_put(r[part]))


def chunk_slices(num_models: int, num_bytes: int) -> list[slice]:
    """Equal chunks, but for the last, of an ensemble of that size."""
    number = max(1, min(num_models, MAX_CHUNKS, num_bytes // CHUNK_BYTES))
    size = -(-num_models // number)
    return [slice(start, start + size) for start in range(0, num_models, size)]
