"""Solves with the sparse matrix I - g P: few right-hand sides, or all columns of its inverse G in blocks.

Grids and corridors have matrices with a narrow band, once their states are reordered, and elimination stays within it. Random
graphs have none: there a few right-hand sides are solved for by iteration, and all columns by a dense inverse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from jaxtyping import Float

from ubex.types import InputError

BLOCK_ENTRIES = 2**21
"""Entries of a block of columns of G: 16 MiB."""
FEW = 1000
"""Up to so many states a dense inverse is quicker than anything sparse."""
NARROW, LEAST_WIDTH = 0.05, 64
"""A band is narrow up to this share of the states; elimination takes at least so many of them at once."""
RESIDUAL = 1e-12
"""Relative residual of iterative solves."""
RESTART, RESTARTS = 50, 200

Solver = Callable[..., np.ndarray]
"""(right-hand sides (S, n), transposed or not) -> solutions."""


def band(matrix: Any) -> tuple[np.ndarray, int]:
    """An order of the states, and how far entries of the matrix then are from its diagonal."""
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    order = reverse_cuthill_mckee((abs(matrix) + abs(matrix.T)).tocsr(), symmetric_mode=True)
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    entries = matrix.tocoo()
    return order, int(np.abs(place[entries.row] - place[entries.col]).max())


def few_at_once(matrix: Any) -> Solver:
    """By sparse factors where the band is narrow, else by iteration."""
    from scipy.sparse.linalg import gmres, splu

    if matrix.shape[0] <= FEW or band(matrix)[1] <= NARROW * matrix.shape[0]:
        factors: Any = splu(matrix)
        return lambda right, transposed=False: factors.solve(right, trans="T" if transposed else "N")
    ways = {False: matrix.tocsr(), True: matrix.T.tocsr()}

    def solve(right: np.ndarray, transposed: bool = False) -> np.ndarray:
        found = np.empty_like(right)
        for column in range(right.shape[1]):
            found[:, column], failed = gmres(
                ways[transposed], right[:, column], rtol=RESIDUAL, atol=0.0, restart=RESTART, maxiter=RESTARTS
            )
            if failed:
                raise InputError(f"the iterative solver did not converge in {RESTARTS * RESTART} steps: lower the discount")
        return found

    return solve


def many_at_once(matrix: Any) -> Solver | None:
    """By block elimination along a narrow band; None where there is no such band, or where it is not worth it.

    Nothing is pivoted: the diagonal of every row outweighs the rest of it, and elimination keeps that.
    """
    order, width = band(matrix)
    states = matrix.shape[0]
    if states <= FEW or width > NARROW * states:
        return None
    width = max(width, LEAST_WIDTH)
    ordered = matrix.tocsr()[order][:, order]
    cuts = [slice(first, min(first + width, states)) for first in range(0, states, width)]
    pivots: list[np.ndarray] = []
    lower: list[np.ndarray] = [np.empty((0, 0))]
    upper: list[np.ndarray] = []
    for number, here in enumerate(cuts):
        pivot = ordered[here, here].toarray()
        if number:
            lower.append(ordered[here, cuts[number - 1]].toarray() @ pivots[-1])
            pivot -= lower[-1] @ upper[-1]
        pivots.append(np.linalg.inv(pivot))
        upper += [ordered[here, after].toarray() for after in cuts[number + 1 : number + 2]]

    def solve(right: np.ndarray) -> np.ndarray:
        x: np.ndarray = right[order]
        for number in range(1, len(cuts)):
            x[cuts[number]] -= lower[number] @ x[cuts[number - 1]]
        for number in reversed(range(len(cuts))):
            if number + 1 < len(cuts):
                x[cuts[number]] -= upper[number] @ x[cuts[number + 1]]
            x[cuts[number]] = pivots[number] @ x[cuts[number]]
        found: np.ndarray = np.empty_like(x)
        found[order] = x
        return found

    return solve


def blocks(root: Any, states: int) -> Iterator[tuple[slice, np.ndarray]]:
    """Columns of G: of the matrix itself, or solved for."""
    step = max(1, BLOCK_ENTRIES // states)
    for first in range(0, states, step):
        part = slice(first, min(first + step, states))
        if isinstance(root, np.ndarray):
            yield part, np.ascontiguousarray(root[:, part])
        else:
            unit = np.zeros((states, part.stop - first))
            unit[np.arange(first, part.stop), np.arange(part.stop - first)] = 1.0
            yield part, root(unit)


def inverse(matrix: Any, solve: Solver | None) -> Float[np.ndarray, "S S"]:
    """G as a table: by blocks of columns, or without a way to solve for them by a dense inverse in place."""
    from scipy.linalg import inv

    if solve is None:
        found: np.ndarray = inv(matrix.toarray(order="F"), overwrite_a=True, check_finite=False)
        return found
    root = np.empty(matrix.shape, order="F")
    for part, columns in blocks(solve, matrix.shape[0]):
        root[:, part] = columns
    return root
