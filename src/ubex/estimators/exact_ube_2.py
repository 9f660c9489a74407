"""`exact-ube-2`: u = w - gap with the gap as a difference of two averages (Theorem 2; appendix, ablation of the forms)."""

from ubex import ube
from ubex.estimators.base import Estimator

exact_ube_2 = Estimator(
    summary="the exact equation, second form: w - difference of aleatoric terms",
    local=ube.exact_2,
    centred=True,
    claim="exact",
    acyclic=True,
    look=8,
)
