"""An estimator of one's own: a function of next-value moments, which ubex clips, adds up and propagates.

    python examples/custom_estimator.py

`shrunk` takes only a part of the gap off: 0 is pombu's upper bound, 1 is the paper's equation. docs/adding.md says how to make
such a function a part of the package, with a name on the command line.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Array, Float

import ubex
from ubex import ube
from ubex.envs import toy


def shrunk(share: float) -> ubex.Estimator:
    """w minus a share of the gap."""

    def local(moments: ubex.NextValues, ddof: int) -> Float[Array, "*sa"]:
        return ube.epistemic(moments, ddof) - share * ube.gap(moments)

    return ubex.Estimator(summary=f"w minus {share:g} of the gap", local=local)


def main() -> None:
    """The paper's toy example, whose true variances are 15.6875 at s0 and 25 at s2."""
    samples, policy = toy.posterior_samples(), np.ones((5, 1))
    for share in (0.0, 0.5, 1.0):
        estimator = shrunk(share)
        found = ubex.value_variance(samples, policy, 1.0, estimator=estimator, u_min=-np.inf)
        print(f"{estimator.summary:<22}  s0 {found.v[0]:8.4f}  s2 {found.v[2]:8.4f}")
    true = ubex.value_variance(samples, policy, 1.0, estimator="ensemble-var")
    print(f"{'all four members':<22}  s0 {true.v[0]:8.4f}  s2 {true.v[2]:8.4f}")


if __name__ == "__main__":
    main()
