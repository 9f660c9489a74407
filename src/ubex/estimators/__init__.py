"""One file an estimator, and the table of them. A new estimator is one file and one line in `ESTIMATORS`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ubex.estimators.base import Estimator
from ubex.estimators.closed_form import closed_form, first_order
from ubex.estimators.ensemble_mean import ensemble_mean
from ubex.estimators.ensemble_var import ensemble_var
from ubex.estimators.exact_ube import exact_ube
from ubex.estimators.exact_ube_1 import exact_ube_1
from ubex.estimators.exact_ube_2 import exact_ube_2
from ubex.estimators.odonoghue import odonoghue
from ubex.estimators.pombu import pombu

ESTIMATORS: Mapping[str, Estimator] = MappingProxyType(
    {
        "exact-ube": exact_ube,
        "exact-ube-1": exact_ube_1,
        "exact-ube-2": exact_ube_2,
        "pombu": pombu,
        "ensemble-var": ensemble_var,
        "ensemble-mean": ensemble_mean,
        "odonoghue": odonoghue,
        "closed-form": closed_form,
        "first-order": first_order,
    }
)

__all__ = ["ESTIMATORS", "Estimator"]
