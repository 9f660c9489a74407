"""Warnings of the calls, at the line of the caller."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping

from ubex.calls.source import FROM_MEMBERS
from ubex.estimators.base import Closed
from ubex.types import UbexWarning

RETURNS: Mapping[Closed, float] = {"full": 0.1, "first-order": math.inf, "integral": 0.2}
"""From how much `returns.own_returns` on an answer is doubted (docs/equations.md). The first order is too small in any case."""


def warn(message: str) -> None:
    """At the line that called a function of `ubex.calls`, which calls this."""
    warnings.warn(message, UbexWarning, stacklevel=4)


def closed_form(name: str, closed: Closed, converged: bool, again: float) -> None:
    """Says where the closed form is not to be trusted; `again` is what `returns.own_returns` found."""
    if not converged:
        message = f"{name} did not converge, so its variances are of first order, too small; better: estimator={FROM_MEMBERS!r}"
    elif again > RETURNS[closed]:
        message = (
            f"{name} can be far off here: what is not known of a row changes how often its own state is met again, by "
            f"{again:.0%} in the median; better: estimator={FROM_MEMBERS!r} with num_models=1000"
        )
    else:
        return
    warnings.warn(message, UbexWarning, stacklevel=4)
