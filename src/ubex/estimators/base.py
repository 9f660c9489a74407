"""What an estimator of the value variance is: a record of one pure function.

`local` turns next-value moments into a local uncertainty that the uncertainty Bellman equation propagates.
`direct` turns the members' own values into a variance that nothing propagates. `closed` takes the moments of the posterior
itself (see `closed_form.py`). An estimator has exactly one of the three.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from jaxtyping import Array, Float

from ubex.types import NextValues

Closed = Literal["full", "first-order", "integral"]


class Estimator(NamedTuple):
    """One way to estimate the variance of values; see `docs/adding.md`.

    Example:
        >>> nothing = Estimator("no uncertainty", local=lambda moments, ddof: 0.0 * moments.total, own_values=False)
        >>> p = np.array([[[[0.3, 0.7]], [[0.0, 1.0]]], [[[0.5, 0.5]], [[0.0, 1.0]]]])
        >>> ubex.value_variance(ubex.MDP(p=p, r=[[1.0], [0.0]]), [0, 0], 0.9, estimator=nothing).v.tolist()
        [0.0, 0.0]
    """

    summary: str
    """One line for `ubex list`."""
    local: Callable[[NextValues, int], Float[Array, "*sa"]] | None = None
    """(moments, ddof) -> local uncertainty, before rewards and discount."""
    direct: Callable[[Float[Array, "N *sa"], int], Float[Array, "*sa"]] | None = None
    """(member values, ddof) -> variance."""
    closed: Closed | None = None
    """The closed form, whole, to first order, or with an integral for every row."""
    min_models: int = 2
    """The smallest ensemble for which the estimate means something."""
    needs_chi_square: bool = False
    """Whether it looks at `NextValues.chi_square`, which costs more memory than all the rest (and is NaN otherwise)."""
    centred: bool = False
    """Whether all it looks at is `NextValues.mean_bar`, `drop` and `rise`: differences of variances, from centred values."""
    own_values: bool = True
    """Whether it looks at the members' own values. Where it does not, they are never solved for (and are NaN)."""
    claim: Literal["exact", "upper bound"] | None = None
    """How it relates to the true variance where the paper's assumptions hold; `tests/test_theory.py` checks that."""
    acyclic: bool = False
    """Whether it assumes that no state is visited twice; `value_variance` warns where one can be."""
    look: int | None = None
    """The number of its colour and marker in reports (`report/charts.py`); without one it takes what is free."""
