"""`value_variance`: the variance of values under a posterior over MDPs, in one call (Algorithm 1 of the paper)."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

from ubex import checks
from ubex.calls import covariance, doubts, sparse
from ubex.calls.answers import ValueVariance
from ubex.calls.members import ArrayOrHost, ensemble, on_device, values
from ubex.calls.source import Source, default_for, posterior_of, raised
from ubex.estimators import Estimator, find, name_of
from ubex.precision import float64
from ubex.tabular import bellman, uncertainty, unrolled
from ubex.tabular.assumptions import visits_no_state_twice
from ubex.tabular.bellman import Policy, Scalar, Values
from ubex.tabular.sparse import SparsePosterior
from ubex.types import MDP, InputError, KeyLike

PAPER_MODELS, MANY_MODELS = 5, 100
"""Samples of a posterior for estimators with a local uncertainty, as in the paper, and for the members' own values."""
_next_values = jax.jit(bellman.next_values, static_argnames="needs_chi_square")
_changes = jax.jit(bellman.changes)
_gap_rewards = jax.jit(bellman.gap_rewards)
_centred_next_values = jax.jit(bellman.centred_next_values)
_direct = jax.jit(uncertainty.direct, static_argnames=("estimator", "ddof"))
_local_rewards = jax.jit(uncertainty.local_rewards, static_argnames=("estimator", "ddof"))
_propagate = jax.jit(uncertainty.propagate)
_unrolled = jax.jit(unrolled.estimate, static_argnames=("estimator", "ddof"))


@float64
def value_variance(
    source: Source | SparsePosterior,
    policy: ArrayLike,
    discount: float,
    *,
    estimator: str | Estimator | None = None,
    key: KeyLike | None = None,
    num_models: int | None = None,
    u_min: float = 0.0,
    ddof: int = 0,
    horizon: int | None = None,
    starts: ArrayLike | None = None,
) -> ValueVariance:
    """Variance of the values of a policy under a posterior over MDPs.

    Args:
        source: samples of a posterior as an `MDP` with a leading axis N, a posterior (`sample` and `mean`), the belief of
            an agent that `ubex.train` returns, or a `SparsePosterior` for many states. Rows of probabilities in low precision,
            whose sums are 1 only roughly, are divided by their sums.
        policy: probabilities (S, A), or one action for each state (S,) as integers. It may leave out the terminal state of a
            posterior that has one.
        discount: in [0, 1]. 1 needs every state to reach an absorbing state with reward 0.
        estimator: a name of `ESTIMATORS`, or an `Estimator` of your own, also by its place: "module:name". By default one is
            chosen that holds with cycles, and the answer names it: "closed-form" for a `DirichletNormal` or another of our
            posteriors, and for the belief of an agent; "ensemble-var" for samples, for other posteriors and with a `horizon`.
        key: for a posterior that is sampled, the JAX key or integer seed of its samples.
        num_models: for a posterior that is sampled, the number of samples: 100 for "ensemble-var", and 5 for the others, as in
            the paper.
        u_min: smallest local uncertainty that is propagated; `-inf` switches the clip off, and variances may then be
            negative where the paper's assumptions do not hold.
        ddof: variances over members divide by N - ddof.
        horizon: number of steps that the values count, at discount 1 too; without it they never end. Answers are for the first
            step. `closed-form` and `first-order` then take every step's rows for fresh draws of the posterior, so that none is
            met twice; in the sampled estimators each member keeps its own rows at all steps (docs/equations.md).
        starts: for a `SparsePosterior`, the states to answer for; the arrays of the answer then have a line for each of these
            alone, in their order. With "first-order" no other state is computed.

    Returns:
        Variances and mean values as float64 NumPy arrays. The mean values are those of the mean MDP: the mean of the
        samples, or the posterior's own mean.

    Raises:
        ValueError: on bad input, with one line that names the problem and the place.

    Warns:
        UbexWarning: where the estimator that you ask for assumes that no state is visited twice, and one can be; where the
            closed form does not converge; where data are too few for it, as far as it can tell; and where the clip at `u_min`
            makes variances too large.

    Example:
        >>> p = np.array([[[[0.3, 0.7]], [[0, 1]]], [[[0.5, 0.5]], [[0, 1]]]], dtype=float)
        >>> float(value_variance(MDP(p=p, r=[[1.0], [0.0]]), [0, 0], 0.9).v[1])
        0.0
    """
    posterior = source if isinstance(source, SparsePosterior) else posterior_of(source)
    default = default_for(posterior, horizon)
    chosen = find(default if estimator is None else estimator)
    name = estimator if isinstance(estimator, str) else name_of(chosen)
    if num_models is None:
        num_models = MANY_MODELS if chosen.local is None else PAPER_MODELS
    discount = checks.discount_factor(discount)
    u_min = checks.real("u_min", u_min)
    if u_min == np.inf:
        raise InputError("u_min must be finite or -inf, but it is inf")
    steps = None if horizon is None else checks.steps("horizon", horizon)
    if starts is not None and not isinstance(posterior, SparsePosterior):
        raise InputError("starts= is for a SparsePosterior; from a table all states are answered")
    if chosen.closed is not None or isinstance(posterior, SparsePosterior):
        if isinstance(posterior, SparsePosterior):
            settings = (chosen, name, key, num_models, ddof, steps, starts)
            answer, converged, own = sparse.variance(posterior, policy, discount, *settings)
        else:
            assert chosen.closed is not None
            problem = covariance.moments(posterior, key, num_models, ddof)
            answer, converged, own = covariance.variance(problem, policy, discount, steps, chosen.closed)
        if chosen.closed is not None:
            doubts.closed_form(name, chosen.closed, converged, own)
        return answer._replace(estimator=name)
    known = ensemble(posterior, key, num_models, ddof, chosen.min_models, f"estimator {name!r}", level=chosen.needs_chi_square)
    choice = known.policy(policy)
    actions, terminal = jnp.asarray(choice), known.terminal(choice, discount, steps)
    if steps is None:
        result = over_chunks(
            chosen, known.p, known.r, known.mean, actions, discount, terminal, float(u_min), ddof, known.chunks()
        )
    else:
        samples = on_device(known.p, known.r, slice(None))
        result = _unrolled(chosen, samples, known.mean, actions, discount, steps, u_min=float(u_min), ddof=ddof)
    means = (raised(mean, known.offset, discount, steps) for mean in (result.mean.v, result.mean.q))
    v, q, v_mean, q_mean, local = (np.asarray(field) for field in (result.v, result.q, *means, result.local_q))
    share = f"u was below u_min at {float(result.clipped):.0%} of states and actions" if result.clipped else ""
    if chosen.acyclic and not visits_no_state_twice(known.p, known.r):
        more = f", and {share}" if share else ""
        doubts.warn(f"{name} assumes that no state is visited twice, but one can be{more}; better: estimator={default!r}")
    elif share:
        doubts.warn(f"{share} and was raised to it, so the variances are too large; u_min=-np.inf takes it as it is")
    return ValueVariance(v, q, v_mean, q_mean, local, name)


def over_chunks(
    estimator: Estimator,
    p: Float[ArrayOrHost, "N S A S"],
    r: Float[ArrayOrHost, "N S A"],
    average: MDP,
    policy: Policy,
    discount: Scalar,
    terminal: Bool[jax.Array, " S"] | None,
    u_min: Scalar,
    ddof: int,
    chunks: Sequence[slice],
) -> uncertainty.Uncertainty:
    """Algorithm 1 with the members handled chunk by chunk; also on traced arrays."""
    mean_values = values(average, policy, discount, terminal)
    members: list[Values] = []
    parts: list[bellman.Moments] = []
    for part in chunks:
        chunk = on_device(p, r, part)
        if estimator.centred:
            change = _changes(chunk, average.p, mean_values, policy)
            gaps = MDP(chunk.p, _gap_rewards(chunk, average, change, discount))
            members.append(values(gaps, policy, discount, terminal))
            parts.append(_centred_next_values(chunk, members[-1], change, average.p, mean_values, policy))
        else:
            members.append(values(chunk, policy, discount, terminal) if estimator.own_values else unrolled.unknown(chunk))
        if estimator.local is not None and not estimator.centred:
            moments = _next_values(chunk, members[-1], average.p, mean_values, policy, estimator.needs_chi_square)
            parts.append(moments)
        jax.block_until_ready((members[-1], parts[-1:]))  # type: ignore[no-untyped-call]
        del chunk  # its memory goes before the next one comes
    if estimator.direct is not None:
        found: uncertainty.Uncertainty = _direct(
            estimator, jax.tree.map(lambda *parts: jnp.concatenate(parts), *members), mean_values, ddof
        )
        return found
    moments = bellman.merge(parts)
    rewards = functools.partial(_local_rewards, estimator, moments, jnp.asarray(r), policy, discount, ddof=ddof)
    local = rewards(u_min=u_min)
    found = _propagate(*local, average, mean_values, policy, discount, terminal)
    return found._replace(clipped=uncertainty.clipped_share(rewards(u_min=-jnp.inf)[1], local[1], mean_values.v))
