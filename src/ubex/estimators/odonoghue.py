"""`odonoghue`: the upper bound of O'Donoghue et al. (2018), "The Uncertainty Bellman Equation and Exploration".

What it assumes: independent rows, no state visited twice (as the paper does), and values bounded in absolute value.
It replaces the next values by that bound, so its local uncertainty is the bound squared times the summed relative
variance of the transition probabilities; it never looks at which next states matter, and is the loosest of the three.

Differs from the 2018 paper: the bound there is a constant known in advance (horizon times largest reward). Here it is the
largest absolute value over members, states and actions, the smallest number that the derivation allows for this ensemble.
"""

from jaxtyping import Array, Float

from ubex import ube
from ubex.estimators.base import Estimator
from ubex.types import NextValues


def local(moments: NextValues, ddof: int) -> Float[Array, "*sa"]:
    """The 2018 bound. With a mean that is known rather than estimated there is nothing to correct: `ddof` has no effect."""
    del ddof
    return ube.transition_bound(moments)


odonoghue = Estimator(
    summary="upper bound of O'Donoghue et al. (2018): value bound times spread of p",
    local=local,
    needs_chi_square=True,
    claim="upper bound",
    acyclic=True,
    look=9,
)
