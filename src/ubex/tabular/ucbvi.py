"""UCBVI of Azar, Osband and Munos (ICML 2017) with their Chernoff-Hoeffding bonus: value iteration in the empirical MDP.

Theirs is for H steps, Q_h = min(H, r + p V_h+1 + 7 H L / sqrt(N)), with N visits and L a logarithm of all sizes, and an action
that was never tried is worth H. Policies here do not depend on the step, so this is the discounted form: 1 / (1 - discount) in
the place of H, and the gain in the place of 7 L, which is far too large in practice. Rewards are taken to lie in [0, 1].
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ubex.tabular.belief import Belief
from ubex.tabular.planner import Plan

MAX_SWEEPS = 5000
DIGITS = 1e-9
"""Of the largest value: a sweep that changes less is the last."""


def values(belief: Belief, gain: float, discount: float) -> tuple[Float[Array, "S A"], Int[Array, ""], Bool[Array, ""]]:
    """Optimistic values, how many sweeps they took, and whether they had settled."""
    counts = jnp.sum(belief.counts, axis=-1)
    number, highest = jnp.maximum(counts, 1.0), 1.0 / (1.0 - discount)
    terminal = (jnp.arange(counts.shape[0]) == counts.shape[0] - 1)[:, None]
    rewards = belief.rewards / number + gain * highest / jnp.sqrt(number)
    weights = belief.counts / number[:, :, None]

    def sweep(q: Float[Array, "S A"]) -> Float[Array, "S A"]:
        ahead = jnp.max(q, axis=1)[belief.successors]
        backed_up = jnp.minimum(rewards + discount * jnp.sum(weights * ahead, axis=-1), highest)
        return jnp.where(terminal, 0.0, jnp.where(counts > 0, backed_up, highest))

    def body(state: tuple[Float[Array, "S A"], Int[Array, ""], Bool[Array, ""]]) -> tuple[Array, Array, Array]:
        q, sweeps, _ = state
        after = sweep(q)
        return after, sweeps + 1, jnp.max(jnp.abs(after - q)) <= DIGITS * highest

    start = (jnp.full_like(rewards, highest), jnp.asarray(0, jnp.int32), jnp.asarray(False))
    found: tuple[Array, Array, Array] = jax.lax.while_loop(lambda now: (now[1] < MAX_SWEEPS) & ~now[2], body, start)
    return found


def plan(belief: Belief, gain: float, discount: float) -> Plan:
    """Greedy in the optimistic values; of actions that are equally good, the first. `steps` are sweeps."""
    q, sweeps, settled = values(belief, gain, discount)
    return Plan(jnp.argmax(q, axis=1).astype(jnp.int32), sweeps, settled)
