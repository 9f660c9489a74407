"""`ensemble-mean`: no uncertainty at all, so that an optimistic agent with it is the greedy baseline of the paper."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ubex.estimators.base import Estimator


def direct(members: Float[Array, "N *sa"], ddof: int) -> Float[Array, "*sa"]:
    """Zero, whatever the members say."""
    del ddof
    return jnp.zeros_like(members[0])


ensemble_mean = Estimator(
    summary="no variance: the mean value alone, the greedy baseline", direct=direct, min_models=1, own_values=False, look=3
)
