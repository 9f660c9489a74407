"""Does the warning of the closed form miss single states? Rows of very different weight, against brute force."""

from __future__ import annotations

import sys
import warnings

import jax
import numpy as np
import pandas as pd

import ubex
from ubex.calls import covariance, doubts

SAMPLES, PART = 20_000, 2_000
NEGLIGIBLE = 1e-6
"""States whose variance is below this share of the largest one count as known."""


def problem(key: int) -> tuple[ubex.DirichletNormal, np.ndarray, float]:
    """A posterior, one action for each state, and a discount."""
    random = np.random.default_rng(key)
    states, actions = int(random.integers(3, 8)), int(random.integers(1, 3))
    discount = float(random.choice([0.5, 0.9, 0.95, 0.99]))
    scale, shape = float(random.choice([0.3, 1, 3, 10, 30, 100])), (states, actions, states + 1)
    support = random.random(shape) < random.choice([0.3, 0.6, 1.0])
    if random.random() < 0.5:  # every state may stay
        support[np.arange(states), :, np.arange(states)] = True
    support[..., random.integers(0, states + 1)] |= ~support.any(axis=-1)
    support[..., states] = True
    weights = random.gamma(0.7, 1.0, size=shape) * random.choice([0.05, 1, 1, 1, 5], size=(states, actions, 1))
    concentration = np.maximum(np.where(support, scale * weights, 0.0) + 1e-3 * support, 1e-3)
    rewards, known = random.normal(size=(states, actions)), float(random.choice([1.0, 1e6]))
    prior = {"support": support, "concentration": concentration, "reward_mean": rewards, "reward_precision": known}
    posterior = ubex.DirichletNormal(states, actions, terminal=True, **prior)
    return posterior, np.append(random.integers(0, actions, states), 0), discount


def truth(posterior: ubex.DirichletNormal, policy: np.ndarray, discount: float) -> np.ndarray:
    """The variance of the values of many samples."""
    values = []
    for part in range(SAMPLES // PART):
        p, r = (np.asarray(x) for x in posterior.sample(jax.random.key(part), PART))
        here = np.arange(p.shape[1])
        values.append(np.linalg.solve(np.eye(p.shape[1]) - discount * p[:, here, policy], r[:, here, policy][..., None]))
    found: np.ndarray = np.concatenate(values)[..., 0].var(axis=0)
    return found


def case(key: int) -> dict[str, float]:
    """What the rules of the warning look at, and the errors of the closed form in the worst state and in the median one."""
    posterior, policy, discount = problem(key)
    with jax.enable_x64(True):
        moments = covariance.moments(posterior, None, 2, 0)
        side = covariance.solve(moments, policy, discount)
        local, v, _, own = covariance.evaluate(moments.rows, side, discount, "full")
    known = truth(posterior, policy, discount)
    unknown = known > NEGLIGIBLE * known.max()
    error = np.abs(np.asarray(v)[unknown] / known[unknown] - 1.0)
    about = {"key": key, "states": len(known), "discount": discount, "converged": float(local.converged)}
    return about | {name: float(x) for name, x in own._asdict().items()} | {"worst": error.max(), "median": np.median(error)}


if __name__ == "__main__":
    warnings.simplefilter("ignore", ubex.UbexWarning)
    table = pd.DataFrame([case(key) for key in range(int(sys.argv[1]), int(sys.argv[2]))])
    table.to_csv(sys.argv[3], index=False, float_format="%.4g")
    limit = doubts.DOUBTED["full"]
    silent = table[(table["converged"] > 0) & (table["varies"] <= limit.varies) & (table["lopsided"] <= limit.lopsided)]
    for most in (np.inf, 0.3, 0.2, 0.15, 0.12):
        left, told = silent[silent["most"] <= most], silent[silent["most"] > most]
        errors = f"errors {told['worst'].median():.0%}; worst that is left {left['worst'].max():.0%}"
        print(f"limit {most}: {len(told)} of {len(silent)} are told, {errors}")
