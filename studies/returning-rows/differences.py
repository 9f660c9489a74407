"""Does `ubex.policy_difference` warn where it should? Random posteriors and pairs of policies, against brute force."""

from __future__ import annotations

import sys
import warnings

import numpy as np
import pandas as pd

import ubex

ACTIONS, CASES, SAMPLES = 2, 120, 8000


def case(number: int, random: np.random.Generator) -> dict[str, float]:
    """One posterior and two policies: the closed form's error in the median state, and whether it warned."""
    states, concentration = int(random.choice([4, 8])), float(random.choice([0.1, 0.3, 1.0]))
    tries, discount = int(random.choice([0, 3, 10, 40])), float(random.choice([0.8, 0.95]))
    posterior = ubex.DirichletNormal(states, ACTIONS, concentration=concentration)
    truth = random.dirichlet(np.full(states, 0.3), size=(states, ACTIONS))
    if tries:
        state, action = (random.integers(high, size=tries * states) for high in (states, ACTIONS))
        after = np.array([random.choice(states, p=truth[place]) for place in zip(state, action, strict=True)])
        posterior = posterior.observe(ubex.Transitions(state, action, random.normal(size=state.size), after))
    first, second = (random.integers(ACTIONS, size=states) for _ in range(2))
    second[0] = 1 - first[0]
    with warnings.catch_warnings(record=True, action="always") as said:
        found = ubex.policy_difference(posterior, first, second, discount).variance
    brute = {"estimator": "ensemble-var", "key": number, "num_models": SAMPLES}
    known = ubex.policy_difference(posterior, first, second, discount, **brute).variance  # type: ignore[arg-type]
    about = {"states": states, "concentration": concentration, "tries": tries, "discount": discount}
    return about | {"warned": len(said), "error": float(np.median(np.abs(found / known - 1.0)))}


if __name__ == "__main__":
    generator = np.random.default_rng(0)
    table = pd.DataFrame([case(number, generator) for number in range(CASES)])
    table.to_csv(sys.argv[1], index=False, float_format="%.4g")
    print(table.groupby("warned")["error"].describe(percentiles=[0.5, 0.9]))
