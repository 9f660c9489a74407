"""The deep methods, one line each: what they estimate, how they are optimistic, and which parts they have."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from ubex.estimators import ESTIMATORS, Estimator


class DeepMethod(NamedTuple):
    """One deep method.

    Example:
        >>> DEEP_METHODS["pombu"].optimism
        'u-net'
    """

    summary: str
    """One line for `ubex list`."""
    estimator: Estimator = ESTIMATORS["ensemble-mean"]
    """What the uncertainty of values is estimated by."""
    optimism: Literal["u-net", "critics", "none"] = "none"
    """Where the standard deviation comes from that the actor adds: a U-net that solves the uncertainty Bellman equation, the
    critics' own spread, or nowhere."""
    twins: bool = False
    """Whether there are two critics, of which the smaller counts, instead of one per model."""
    model: bool = True
    """Whether it learns a model at all."""


DEEP_METHODS: Mapping[str, DeepMethod] = MappingProxyType(
    {
        "exact-ube": DeepMethod(
            "optimistic by the exact uncertainty Bellman equation (the paper's)", ESTIMATORS["exact-ube"], "u-net"
        ),
        "exact-ube-2": DeepMethod("the same with the gap as a difference of two averages", ESTIMATORS["exact-ube-2"], "u-net"),
        "pombu": DeepMethod("optimistic by the upper bound of Zhou et al. (2020)", ESTIMATORS["pombu"], "u-net"),
        "ensemble-var": DeepMethod("optimistic by the variance over critics", ESTIMATORS["ensemble-var"], "critics"),
        "ensemble-mean": DeepMethod("the mean critic alone"),
        "mbpo": DeepMethod("twin critics on model-randomised rollouts (Janner et al., 2019)", twins=True),
        "sac": DeepMethod("soft actor-critic without a model (Haarnoja et al., 2018)", twins=True, model=False),
    }
)
"""Adding one is adding a line here, where its estimator is in `ESTIMATORS`."""
