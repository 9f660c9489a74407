"""How much of a value's variance the closed form misses where a state can be met again, and what counting the returns gives.

python studies/returning-rows/returning_rows.py studies/returning-rows/ratios.csv
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

SIDE, STATES, NODES, DRAWS = 5, 25, 64, 20_000


class Case(NamedTuple):
    """A Dirichlet posterior over the rows of one policy, and known rewards."""

    name: str
    alpha: np.ndarray
    r: np.ndarray
    discount: float


def slippery(mass: float) -> Case:
    """A grid with its goal in a corner; a move goes aside with a chance of 0.2, and at a wall that means to stay."""

    def after(state: int, move: int) -> int:
        row, column = divmod(state, SIDE)
        down, right = ((-1, 0), (0, 1), (1, 0), (0, -1))[move % 4]
        return min(max(row + down, 0), SIDE - 1) * SIDE + min(max(column + right, 0), SIDE - 1)

    alpha, r = np.zeros((STATES, STATES)), np.zeros(STATES)
    for state in range(STATES - 1):
        move = 1 if state % SIDE < SIDE - 1 else 2
        for turn, share in ((0, 0.8), (-1, 0.1), (1, 0.1)):
            alpha[state, after(state, move + turn)] += share * mass
    alpha[-1, -1], r[-1] = 1e9, 1.0
    return Case(f"slippery grid, {mass:g} counts per row", alpha, r, 0.95)


def scattered(seed: int, share: float, count: float, discount: float) -> Case:
    """Random successors, a share of all states, with so many counts each, and random rewards."""
    random = np.random.default_rng(seed)
    cells = random.uniform(size=(STATES, STATES)) < share
    cells[np.arange(STATES), random.integers(0, STATES, STATES)] = True
    name = f"{'dense' if share == 1.0 else 'sparse'} rows, {count:g} counts per cell, discount {discount:g}"
    return Case(name, count * cells, random.normal(size=STATES), discount)


def cases() -> Iterator[Case]:
    """Grids that slip, then random problems."""
    yield from map(slippery, (3.0, 10.0, 30.0))
    kinds = ((1.0, 1.0, 0.9), (1.0, 0.1, 0.9), (0.2, 5.0, 0.9), (0.2, 1.0, 0.95), (0.2, 0.1, 0.95), (0.2, 1.0, 0.99))
    for seed, kind in enumerate(kinds):
        yield scattered(seed, *kind)


def truth(case: Case) -> np.ndarray:
    """The variance over sampled problems."""
    random = np.random.default_rng(0)
    drawn = random.gamma(np.where(case.alpha > 0.0, case.alpha, 1.0), size=(DRAWS, STATES, STATES)) * (case.alpha > 0.0)
    p = drawn / np.maximum(drawn.sum(-1, keepdims=True), 1e-300)
    v = np.linalg.solve(np.eye(STATES) - case.discount * p, np.broadcast_to(case.r, (DRAWS, STATES))[..., None])
    found: np.ndarray = v[..., 0].var(0)
    return found


def squares(alpha: np.ndarray, top: np.ndarray, below: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """E[q] and E[q^2] of q = sum g top / sum g below for independent gamma variables g: one integral per row.

    1 / z = int exp(-t z) dt and 1 / z^2 = int t exp(-t z) dt, and under the exponential every g is a gamma variable again.
    """
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    first, second = np.zeros(len(alpha)), np.zeros(len(alpha))
    total = alpha.sum(-1)
    for u, weight in zip(0.5 * (nodes + 1.0), 0.5 * weights, strict=True):
        t = np.expm1(-2.0 * np.log(u) / total)  # so that the integrand has no singular end, whatever the counts
        shrunk = 1.0 + t[:, None] * below
        density = np.exp(-(alpha * np.log(shrunk)).sum(-1)) * (1.0 + t) * 2.0 * weight / (total * u)
        mean = (alpha * top / shrunk).sum(-1)
        first += density * mean
        second += density * t * ((alpha * (top / shrunk) ** 2).sum(-1) + mean**2)
    return first, second


def estimates(case: Case) -> dict[str, np.ndarray | None]:
    """The library's two closed forms, written out, and two that count returns to a row."""
    mass, discount = case.alpha.sum(-1), case.discount
    p = case.alpha / mass[:, None]
    g = np.linalg.inv(np.eye(STATES) - discount * p)
    m = g @ case.r
    # what a row adds if it points to j, and by how much it then leads back to its own state
    x = discount * (m[None] - (p @ m)[:, None])
    y = discount * (g.T - (p @ g).diagonal()[:, None])

    def mean(f: np.ndarray) -> np.ndarray:
        averaged: np.ndarray = (p * f).sum(-1)
        return averaged

    variance = mean(x**2) / (mass + 1.0)
    spread = discount**2 * (p @ g**2 - (p @ g) ** 2) / (mass + 1.0)[:, None]
    others = spread - np.diag(spread.diagonal())
    third = 2.0 * mean(x**2 * y) / ((mass + 1.0) * (mass + 2.0))
    fourth = 6.0 * mean(x**2 * y**2) + mass * (mean(x**2) * mean(y**2) + 2.0 * mean(x * y) ** 2)
    fourth /= (mass + 1.0) * (mass + 2.0) * (mass + 3.0)
    series = variance + 2.0 * third + 3.0 * fourth - (mean(x * y) / (mass + 1.0)) ** 2
    mean_alone, square_alone = squares(case.alpha, x, 1.0 - y)
    weight = squares(case.alpha, np.ones_like(x), 1.0 - y)[1]

    def settled(local: np.ndarray, couples: np.ndarray) -> np.ndarray | None:
        if np.abs(np.linalg.eigvals(couples)).max() >= 1.0:
            return None
        found: np.ndarray = g**2 @ np.linalg.solve(np.eye(STATES) - couples, local)
        return found

    return {
        "first-order": g**2 @ variance,
        "closed-form": settled(variance, spread),
        "series": settled(series, others * (1.0 + 3.0 * mean(y**2) / (mass + 1.0))[:, None]),
        "integral": settled(square_alone - mean_alone**2, others),
        "integral, weighted": settled(square_alone - mean_alone**2, others * weight[:, None]),
    }


def main(file: str) -> None:
    """The median over states of estimate / truth, and of the relative error."""
    table = []
    for case in cases():
        true = truth(case)
        counts = true > 1e-9 * true.max()
        for name, found in estimates(case).items():
            ratio = np.full(1, np.nan) if found is None else found[counts] / true[counts]
            row = {"case": case.name, "estimate": name, "ratio": np.median(ratio), "error": np.median(np.abs(ratio - 1.0))}
            table.append(row)
            print(row, flush=True)
    pd.DataFrame(table).to_csv(file, index=False, float_format="%.3g")


if __name__ == "__main__":
    main(sys.argv[1])
