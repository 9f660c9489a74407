"""How many episodes of DeepSea a limit on the improvements of a plan costs the closed form with a light prior.

python studies/prior-mass/planning_limit.py 20 40 20 12 8 5 3
"""

from __future__ import annotations

import argparse
from typing import Any

import jax
import numpy as np

import ubex
from ubex.tabular import planner


def unsolved(size: int, limit: int) -> int:
    """Unsolved ones of 4 L episodes, if a plan may make so many improvements; the paper's limit is 40."""
    planner.MAX_STEPS = limit
    jax.clear_caches()  # type: ignore[no-untyped-call]  # the limit is part of what is compiled
    settings: dict[str, Any] = {"prior_mass": 8.0, "plan_from": "last", "repeats": size, "u_min": -0.05}
    returns = ubex.train("deep-sea", "closed-form", episodes=4 * size, env_args={"size": size}, **settings).returns
    return int(np.sum(np.asarray(returns) < 0.5))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("size", type=int)
    parser.add_argument("limits", type=int, nargs="+")
    known = parser.parse_args()
    for limit in known.limits:
        print(f"at most {limit} improvements: {unsolved(known.size, limit)} unsolved episodes")
