"""`ensemble-var`: the variance of the members' own values. Brute force when the ensemble is the whole posterior."""

from ubex import ube
from ubex.estimators.base import Estimator

ensemble_var = Estimator(
    summary="variance over the members' own values; nothing is propagated", direct=ube.member_variance, claim="exact", look=2
)
