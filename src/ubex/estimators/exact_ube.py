"""`exact-ube`: the paper's estimator, u = w - gap with the gap as one variance (eq. exact_ube_q_rewards)."""

from ubex import ube
from ubex.estimators.base import Estimator

exact_ube = Estimator(
    summary="the exact uncertainty Bellman equation, u = w - gap (the paper's)",
    local=ube.exact_3,
    claim="exact",
    acyclic=True,
    look=0,
)
