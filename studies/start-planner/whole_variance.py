"""7-room by policy iteration on the closed form, with the whole variance of action values.

Tabular agents leave out that the row of an action can be met again later (docs/equations.md). This plans with it.

python studies/start-planner/whole_variance.py 2 --seeds 3
"""

from __future__ import annotations

import argparse
from unittest import mock

import numpy as np
from jaxtyping import Array, Float

import ubex
from ubex import closed_form
from ubex.closed_form import Local, Rows, Scalar

OPTIMUM = 19.0
"""The return that the published regret is counted from."""


def whole(
    rows: Rows, root: Float[Array, "S S"], local: Local, discount: Scalar, again: bool
) -> tuple[Float[Array, " S"], Float[Array, "S A"]]:
    """The variances with rows that are met again, whatever the agent asks for."""
    del again
    return closed_form.variances(rows, root, local, discount)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("masses", type=float, nargs="+")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--episodes", type=int, default=1001)
    parser.add_argument("--left-out", action="store_true", help="plan as the agents do")
    known = parser.parse_args()
    if not known.left_out:
        mock.patch("ubex.tabular.models.variances", whole).start()
    for mass in known.masses:
        for seed in range(known.seeds):
            found = ubex.train("seven-room", "closed-form", episodes=known.episodes, prior_mass=mass, key=seed)
            reached = np.flatnonzero(found.returns > 5.0)
            first = f"reached first in episode {reached[0] + 1} and in {reached.size}" if reached.size else "never reached"
            regret = np.maximum(OPTIMUM - found.returns, 0.0).sum()
            print(f"mass {mass:g}, key {seed}: goal {first}, regret of the returns {regret:,.0f}", flush=True)
