"""ubex: uncertainty Bellman equations in JAX. How sure is an agent of its values, and where should it look next?"""

import typing

from ubex import envs as envs  # so that Gymnasium knows our environments
from ubex import lazy

if typing.TYPE_CHECKING:
    from ubex.calls import (
        PolicyDifference,
        ValueCovariance,
        ValueVariance,
        policy_difference,
        value_covariance,
        value_variance,
    )
    from ubex.envs import ENVS
    from ubex.envs.base import TabularEnv
    from ubex.estimators import ESTIMATORS, Estimator
    from ubex.learn.agent import Agent
    from ubex.learn.tabular import Training, train
    from ubex.runs.folder import load_curves, load_results
    from ubex.tabular.posterior import DirichletNormal, DirichletNormalGamma
    from ubex.tabular.sparse import SparsePosterior
    from ubex.types import MDP, InputError, NextValues, Posterior, Transitions, UbexWarning

__version__ = "0.2.0"

__all__ = [
    "ENVS",
    "ESTIMATORS",
    "MDP",
    "Agent",
    "DirichletNormal",
    "DirichletNormalGamma",
    "Estimator",
    "InputError",
    "NextValues",
    "PolicyDifference",
    "Posterior",
    "SparsePosterior",
    "TabularEnv",
    "Training",
    "Transitions",
    "UbexWarning",
    "ValueCovariance",
    "ValueVariance",
    "__version__",
    "load_curves",
    "load_results",
    "policy_difference",
    "train",
    "value_covariance",
    "value_variance",
]

_HOMES = {
    "ENVS": "ubex.envs",
    "ESTIMATORS": "ubex.estimators",
    "MDP": "ubex.types",
    "Agent": "ubex.learn.agent",
    "DirichletNormal": "ubex.tabular.posterior",
    "DirichletNormalGamma": "ubex.tabular.posterior",
    "Estimator": "ubex.estimators",
    "InputError": "ubex.types",
    "NextValues": "ubex.types",
    "PolicyDifference": "ubex.calls",
    "Posterior": "ubex.types",
    "SparsePosterior": "ubex.tabular.sparse",
    "TabularEnv": "ubex.envs.base",
    "Training": "ubex.learn.tabular",
    "Transitions": "ubex.types",
    "UbexWarning": "ubex.types",
    "ValueCovariance": "ubex.calls",
    "ValueVariance": "ubex.calls",
    "load_curves": "ubex.runs.folder",
    "load_results": "ubex.runs.folder",
    "policy_difference": "ubex.calls",
    "train": "ubex.learn.tabular",
    "value_covariance": "ubex.calls",
    "value_variance": "ubex.calls",
}
lazy.install(__name__, _HOMES)
