"""`pombu`: the upper bound of Zhou et al. (2020), which propagates w alone (eq. ube_pombu)."""

from ubex import ube
from ubex.estimators.base import Estimator

pombu = Estimator(
    summary="upper bound of Zhou et al. (2020): propagates w, ignores the gap",
    local=ube.epistemic,
    own_values=False,
    claim="upper bound",
    acyclic=True,
    look=1,
)
