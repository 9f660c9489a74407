"""Warnings of the calls, and of agents that answer as they do, at the line of the caller."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping

from ubex.calls.source import FROM_MEMBERS
from ubex.estimators.base import Closed
from ubex.returns import OwnReturns
from ubex.types import UbexWarning

DOUBTED: Mapping[Closed, OwnReturns] = {
    "full": OwnReturns(0.1, 0.15, 0.2),
    "first-order": OwnReturns(math.inf, math.inf, math.inf),
    "integral": OwnReturns(0.2, 0.3, math.inf),
}
"""From how much `returns.own_returns` on an answer is doubted (docs/equations.md). The first order is too small in any case.
The integral is right also where rows are lopsided."""

BETTER = f"better: estimator={FROM_MEMBERS!r}"


def warn(message: str) -> None:
    """At the line that called a function of `ubex.calls`, which calls this."""
    warnings.warn(message, UbexWarning, stacklevel=4)


def closed_form(name: str, closed: Closed, converged: bool, own: OwnReturns, *, better: str = BETTER, level: int = 4) -> None:
    """Says where the closed form is not to be trusted; `level` counts the calls down to the one that is told."""
    limit, more = DOUBTED[closed], f"{better} with num_models=1000"
    varies, most, lopsided = map(float, own)
    if not converged:
        message = f"{name} did not converge, so its variances are of first order, too small; {more}"
    elif varies > limit.varies or most > limit.most:
        share, where = (varies, "the median") if varies > limit.varies else (most, "some states")
        message = (
            f"{name} can be far off here: what is not known of a row changes how often its own state is met again, by "
            f"{share:.0%} in {where}; {more}"
        )
    elif lopsided > limit.lopsided:
        message = (
            f"{name} can be far off here: what is not known of a row changes values most where it also changes how often its "
            f"own state is met again, by about {lopsided:.0%} of the variance of a state; {more}"
        )
    else:
        return
    warnings.warn(message, UbexWarning, stacklevel=level)
