"""How many episodes of DeepSea a limit on the improvements of a plan costs, with a prior of 8 visits per row.

python studies/prior-mass/planning_limit.py 20 40 20 12 8 5 3
python studies/prior-mass/planning_limit.py 20 40 20 16 12 --method exact-ube --gain 0.3 --plan-from random
"""

from __future__ import annotations

import argparse

import numpy as np

import ubex

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size", type=int)
    parser.add_argument("limits", type=int, nargs="+", help="most improvements per plan; the paper's limit is 40")
    parser.add_argument("--method", default="closed-form")
    parser.add_argument("--gain", type=float, default=1.0)
    parser.add_argument("--plan-from", default="last")
    parser.add_argument("--episodes", type=int, help="default: 4 L")
    known = parser.parse_args()
    episodes = known.episodes or 4 * known.size
    for limit in known.limits:
        found = ubex.train(
            "deep-sea",
            known.method,
            episodes=episodes,
            env_args={"size": known.size},
            prior_mass=8.0,
            repeats=known.size,
            u_min=-0.05,
            gain=known.gain,
            plan_from=known.plan_from,
            max_improvements=limit,
        )
        unsolved, reached = np.sum(found.returns < 0.5), np.mean(found.steps == limit)
        print(f"limit {limit}: {unsolved} of {episodes} episodes unsolved, {reached:.0%} of plans reach the limit", flush=True)
