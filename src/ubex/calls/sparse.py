"""`value_variance` for a `SparsePosterior`: what is asked is checked here, and tabular/sparse.py computes it."""

from __future__ import annotations

import copy

import numpy as np
from jaxtyping import Int
from numpy.typing import ArrayLike

from ubex import checks
from ubex.calls.answers import ValueVariance
from ubex.calls.source import common_offset, raised
from ubex.estimators import ESTIMATORS, Estimator
from ubex.returns import OwnReturns
from ubex.tabular import sparse
from ubex.tabular.sparse import SparsePosterior
from ubex.types import InputError, KeyLike


def variance(
    source: SparsePosterior,
    policy: ArrayLike,
    discount: float,
    estimator: Estimator,
    name: str,
    key: KeyLike | None,
    num_models: int,
    ddof: int,
    horizon: int | None,
    starts: ArrayLike | None,
) -> tuple[ValueVariance, bool, OwnReturns]:
    """The answer, whether the fixed point of the closed form was reached, and by how much rows change their own returns."""
    drawn = estimator is ESTIMATORS["ensemble-var"]
    if estimator.closed in (None, "integral") and not drawn:
        raise InputError(f"a SparsePosterior is for closed-form, first-order and ensemble-var, not for {name}")
    if horizon is not None:
        raise InputError("a SparsePosterior has no horizon: leave horizon= out")
    choice = checks.policy_array(policy, source.num_states, source.num_actions)
    probabilities = np.eye(source.num_actions)[choice] if choice.ndim == 1 else choice
    asked = None if starts is None else states_in(starts, source.num_states)
    offset = 0.0 if discount == 1.0 else common_offset(source.reward_mean)  # at discount 1 ends have a reward of 0
    centred = copy.copy(source)
    centred.reward_mean = source.reward_mean - offset
    if drawn:
        if key is None:
            raise InputError("a posterior is sampled: give key= (a JAX key or an integer seed)")
        num_models = checks.whole("num_models", num_models, estimator.min_models)
        if checks.whole("ddof", ddof, 0) >= num_models:
            raise InputError(f"ddof must be smaller than the number of members {num_models}, but it is {ddof}")
        found = sparse.ensemble_variance(centred, probabilities, discount, key, num_models, ddof, asked)
        converged, own = True, OwnReturns()
    else:
        found, converged, own = sparse.closed_form(centred, probabilities, discount, estimator.closed == "first-order", asked)
    v_mean, q_mean = (np.asarray(raised(mean, offset, discount, None)) for mean in (found.v_mean, found.q_mean))
    v, q = (np.maximum(array, 0.0) for array in (found.v, found.q))  # what is below is rounding
    return ValueVariance(v, q, v_mean, q_mean, found.local, name, asked), converged, own


def states_in(starts: ArrayLike, num_states: int) -> Int[np.ndarray, " n"]:
    """The states whose variances are asked for, checked."""
    array = np.atleast_1d(checks.number_array("starts", starts))
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
        raise InputError(f"starts must be a list of states, but it is {checks.shown(starts)}")
    bad = (array < 0) | (array >= num_states)
    if bad.any():
        raise InputError(f"starts has the state {array[bad][0]} in it, but there are {num_states}")
    return array.astype(np.int64)
