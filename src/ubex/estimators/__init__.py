"""One file per estimator, and the table of them. A new estimator is one file, its import and one line in `ESTIMATORS`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import get_args

from ubex import checks, imports
from ubex.estimators.base import Closed, Estimator
from ubex.estimators.closed_form import closed_form, first_order, integral
from ubex.estimators.ensemble_mean import ensemble_mean
from ubex.estimators.ensemble_var import ensemble_var
from ubex.estimators.exact_ube import exact_ube
from ubex.estimators.exact_ube_1 import exact_ube_1
from ubex.estimators.exact_ube_2 import exact_ube_2
from ubex.estimators.odonoghue import odonoghue
from ubex.estimators.pombu import pombu
from ubex.types import InputError

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
        "integral": integral,
    }
)

__all__ = ["ESTIMATORS", "Estimator", "find", "method", "name_of"]


def method(name: str, choices: Iterable[str] = ESTIMATORS) -> str:
    """The name of a method, if it is among the choices or stands for an estimator of the user's own: `module:name`."""
    if ":" not in name:
        return checks.one_of("method", name, choices)
    find(name)
    return name


def name_of(estimator: Estimator) -> str:
    """Its name in the table; the summary of one that is not there."""
    return next((name for name, entry in ESTIMATORS.items() if entry is estimator), estimator.summary)


def find(estimator: str | Estimator) -> Estimator:
    """The estimator of that name, the one at `module:name`, or the given one."""
    if isinstance(estimator, str) and ":" in estimator:
        found = imports.attribute(*estimator.split(":", 1))
        if not isinstance(found, Estimator):
            raise InputError(f"{estimator} is not an Estimator, but a {type(found).__name__}")
        return find(found)
    if isinstance(estimator, str):
        return ESTIMATORS[checks.one_of("estimator", estimator, ESTIMATORS)]
    if not isinstance(estimator, Estimator):
        raise InputError(f"estimator must be a name or an Estimator, but it is {checks.shown(estimator)}")
    if sum(way is not None for way in (estimator.local, estimator.direct, estimator.closed)) != 1:
        raise InputError("an Estimator needs exactly one of `local`, `direct` and `closed`")
    for name, function in (("local", estimator.local), ("direct", estimator.direct)):
        if function is not None and not callable(function):
            raise InputError(f"{name} of an Estimator must be a function, but it is {checks.shown(function)}")
    if estimator.closed is not None:
        checks.one_of("closed of an Estimator", estimator.closed, get_args(Closed))
    checks.whole("min_models of an Estimator", estimator.min_models, 1)
    for name in ("needs_chi_square", "own_values", "acyclic"):
        checks.flag(f"{name} of an Estimator", getattr(estimator, name))
    return estimator
