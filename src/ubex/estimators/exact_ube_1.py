"""`exact-ube-1`: u as total minus average aleatoric uncertainty (Theorem 1; appendix, ablation of the forms)."""

from jaxtyping import Array, Float

from ubex import ube
from ubex.estimators.base import Estimator
from ubex.types import NextValues


def local(moments: NextValues, ddof: int) -> Float[Array, "*sa"]:
    """First form of u. It takes no variance over members, so `ddof` has nothing to act on."""
    del ddof
    return ube.exact_1(moments)


exact_ube_1 = Estimator(
    summary="the exact equation, first form: total - average aleatoric (Theorem 1)",
    local=local,
    centred=True,
    claim="exact",
    acyclic=True,
    look=7,
)
