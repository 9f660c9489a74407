"""`closed-form`, `first-order` and `integral`: variance from moments of the posterior, without sampling (docs/equations.md)."""

from ubex.estimators.base import Estimator

closed_form = Estimator(
    summary="from moments of the posterior: exact without cycles, close with them, no sampling",
    closed="full",
    claim="exact",
    look=5,
)
first_order = Estimator(
    summary="the closed form to first order (delta method): never diverges, too small", closed="first-order"
)
integral = Estimator(
    summary="the closed form with an integral for every row: near the truth also where a row decides how often it is met",
    closed="integral",
    claim="exact",
    look=15,
)
