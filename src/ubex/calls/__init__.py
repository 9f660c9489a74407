"""What people ask of a posterior in one call: how uncertain are values, how do they vary together, which policy is better?"""

from ubex import lazy
from ubex.calls.answers import PolicyDifference, ValueCovariance, ValueVariance
from ubex.calls.covariance import policy_difference, value_covariance
from ubex.calls.variance import value_variance

__all__ = ["PolicyDifference", "ValueCovariance", "ValueVariance", "policy_difference", "value_covariance", "value_variance"]

lazy.install(__name__)
