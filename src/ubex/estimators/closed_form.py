"""`closed-form` and `first-order`: the variance from moments of the posterior, without sampling (docs/equations.md)."""

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
