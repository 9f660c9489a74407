"""Posteriors over large MDPs: Dirichlet rows over a few successors each, and the variance of values by sparse solves.

What it computes is in closed_form.py: with G = (I - g Pbar)^-1, Var[V] = (G*G) l, and l = c + g^2 T l for the closed form, or
c itself to first order. Columns of G come in blocks. One state needs one row of G, which is one transposed solve.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike

from ubex import checks
from ubex.closed_form import MAX_ROUNDS, NEGLIGIBLE, TOLERANCE
from ubex.keys import as_key, host_generator, named
from ubex.returns import OwnReturns
from ubex.tabular.sparse_solvers import Solver, blocks, few_at_once, inverse, many_at_once
from ubex.tabular.terminal import ABSORBING_TOLERANCE
from ubex.types import InputError, KeyLike

MATRICES = 2.5
"""Arrays (S, S) that the closed form holds for all states; measured: 2.1."""


class SparsePosterior:
    """Independent Dirichlet rows over the successors of each state and action, and rewards with a mean and a variance.

    `value_variance` takes it for "closed-form", "first-order" and "ensemble-var". It holds S A K numbers and no table.

    Example:
        >>> chain = SparsePosterior(successors=[[[0, 1]], [[1, 1]]], concentration=[[[3.0, 1.0]], [[1.0, 0.0]]])
        >>> ubex.value_variance(chain, [0, 0], 0.9).v.tolist()
        [0.0, 0.0]
    """

    def __init__(
        self,
        successors: ArrayLike,
        concentration: ArrayLike,
        reward_mean: ArrayLike = 0.0,
        reward_variance: ArrayLike = 0.0,
    ) -> None:
        """Takes the posterior as it is: a prior and counts are already added up.

        Args:
            successors: states that may follow, (S, A, K) whole numbers. A state may stand in several places of a row.
            concentration: their Dirichlet parameters, (S, A, K). 0 marks a free place, which never follows.
            reward_mean: posterior mean of the rewards, broadcasts to (S, A).
            reward_variance: posterior variance of the mean rewards, broadcasts to (S, A).
        """
        places = checks.number_array("successors", successors)
        if places.ndim != 3 or 0 in places.shape:
            raise InputError(f"successors must have shape (S, A, K), but they have shape {places.shape}")
        if places.dtype.kind not in "iu":
            raise InputError(f"successors must hold whole numbers, but their type is {places.dtype}")
        bad = (places < 0) | (places >= places.shape[0])
        if bad.any():
            where = checks.first_place(bad, ("state", "action", "place"))
            raise InputError(f"successor {places[bad][0]} at {where} is out of range: there are {places.shape[0]} states")
        given = checks.number_array("concentration", concentration).astype(np.float64)
        if given.shape != places.shape:
            raise InputError(f"concentration must have the shape {places.shape} of successors, but it has {given.shape}")
        bad = ~((given == 0.0) | ((given >= checks.SMALLEST) & (given <= checks.LARGEST)))
        if bad.any():
            where = checks.first_place(bad, ("state", "action", "place"))
            raise InputError(f"concentration must be positive, or 0 for none, but it is {given[bad][0]} at {where}")
        stuck = np.logical_not(given.any(axis=-1))
        if stuck.any():
            raise InputError(f"concentration leaves no successor at {checks.first_place(stuck, ('state', 'action'))}")
        self.successors: Int[np.ndarray, "S A K"] = places.astype(np.int32)
        self.concentration: Float[np.ndarray, "S A K"] = given
        self.reward_mean = _table("reward_mean", reward_mean, places.shape[:2], -checks.LARGEST)
        self.reward_variance = _table("reward_variance", reward_variance, places.shape[:2], 0.0)

    @property
    def num_states(self) -> int:
        """Number of states."""
        return int(self.successors.shape[0])

    @property
    def num_actions(self) -> int:
        """Number of actions."""
        return int(self.successors.shape[1])

    def draws(self, key: KeyLike, num_models: int) -> Iterator[tuple[Float[np.ndarray, "S A K"], Float[np.ndarray, "S A"]]]:
        """Probabilities of the successors and rewards, one member after another.

        Example:
            >>> chain = SparsePosterior(successors=[[[0, 1]], [[1, 1]]], concentration=[[[3.0, 1.0]], [[1.0, 0.0]]])
            >>> [p.shape for p, r in chain.draws(key=0, num_models=2)]
            [(2, 1, 2), (2, 1, 2)]
        """
        root, possible = as_key(key), self.concentration > 0.0
        shape = np.where(possible, self.concentration, 1.0)
        for member in range(checks.whole("num_models", num_models, 1)):
            generator = host_generator(named(root, str(member)))
            logs = np.log(generator.standard_gamma(shape + 1.0)) + np.log1p(-generator.random(shape.shape)) / shape
            logs = np.where(possible, logs, -np.inf)  # in logarithms: with small parameters the variates underflow
            weights = np.exp(logs - logs.max(axis=-1, keepdims=True))
            noise = generator.standard_normal(self.reward_mean.shape)
            yield weights / weights.sum(axis=-1, keepdims=True), self.reward_mean + np.sqrt(self.reward_variance) * noise


class SparseAnswer(NamedTuple):
    """Variances, values in the mean MDP and local uncertainties, of the states that were asked for."""

    v: Float[np.ndarray, " n"]
    q: Float[np.ndarray, "n A"]
    v_mean: Float[np.ndarray, " n"]
    q_mean: Float[np.ndarray, "n A"]
    local: Float[np.ndarray, "n A"]


class Chain(NamedTuple):
    """One policy in an MDP whose rows are known by their successors."""

    policy: Float[np.ndarray, "S A"]
    rows: Any
    """All rows p(s, a) as a sparse matrix (S A, S)."""
    matrix: Any
    """I - g P, sparse."""


def chain(
    posterior: SparsePosterior,
    p: Float[np.ndarray, "S A K"],
    policy: Float[np.ndarray, "S A"],
    discount: float,
    terminal: Bool[np.ndarray, " S"],
) -> Chain:
    """The policy in the MDP with these probabilities of the successors. Columns of terminal states drop out of its matrix."""
    from scipy.sparse import csr_array, eye_array

    states, actions, width = p.shape
    after = posterior.successors.ravel()
    rows = csr_array((p.ravel(), after, np.arange(0, p.size + 1, width)), shape=(states * actions, states))
    weights = (policy[:, :, None] * p * ~terminal[posterior.successors]).ravel()
    moves = csr_array(
        (weights, posterior.successors.ravel(), np.arange(0, p.size + 1, actions * width)), shape=(states, states)
    )
    moves.sum_duplicates()
    moves.eliminate_zeros()
    return Chain(policy, rows, (eye_array(states, format="csr") - discount * moves).tocsc())


def terminal_states(posterior: SparsePosterior, policy: Float[np.ndarray, "S A"]) -> Bool[np.ndarray, " S"]:
    """States that are absorbing without reward, known for certain; an error unless every state reaches one."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    states = posterior.num_states
    here, mean = np.arange(states)[:, None, None], mean_rows(posterior)
    leaves = mean * (posterior.successors != here)
    paid = (posterior.reward_mean != 0.0) | (posterior.reward_variance != 0.0)
    terminal: np.ndarray = np.all(((leaves.sum(axis=-1) <= ABSORBING_TOLERANCE) & ~paid) | (policy == 0.0), axis=1)
    taken = (mean > ABSORBING_TOLERANCE) & (policy > 0.0)[:, :, None]
    source = np.broadcast_to(here, taken.shape)[taken]
    edges = csr_array((np.ones(source.size), (posterior.successors[taken], source)), shape=(states, states))
    lost = ~terminal
    if terminal.any():
        lost = np.isinf(dijkstra(edges, indices=np.flatnonzero(terminal), unweighted=True, min_only=True))
    if lost.any():
        raise InputError(
            "discount 1 needs every state to reach an absorbing state whose reward is 0 for certain, "
            f"but state {lost.argmax()} does not"
        )
    return terminal


def mean_rows(posterior: SparsePosterior) -> Float[np.ndarray, "S A K"]:
    """Mean probabilities of the successors."""
    found: np.ndarray = posterior.concentration / posterior.concentration.sum(axis=-1, keepdims=True)
    return found


def known(posterior: SparsePosterior, p: Float[np.ndarray, "S A K"], v: np.ndarray, discount: float) -> np.ndarray:
    """Var[r + g p v] of every state and action, for fixed next values."""
    after = v[posterior.successors]
    after -= np.einsum("sak,sak->sa", p, after)[:, :, None]
    spread = np.einsum("sak,sak,sak->sa", p, after, after)
    found: np.ndarray = posterior.reward_variance + discount**2 * spread / (posterior.concentration.sum(axis=-1) + 1.0)
    return found


def closed_form(
    posterior: SparsePosterior,
    policy: Float[np.ndarray, "S A"],
    discount: float,
    first_order: bool,
    asked: Int[np.ndarray, " n"] | None,
) -> tuple[SparseAnswer, bool, OwnReturns]:
    """The closed form or its first order, at the states that were asked for, whether the fixed point was reached, and by how
    much rows change their own returns (`ubex.returns.own_returns`), which is not computed for the first order."""
    states, actions = policy.shape
    if not first_order:
        fits(states)
    p = mean_rows(posterior)
    terminal = terminal_states(posterior, policy) if discount == 1.0 else np.zeros(states, bool)
    mean = chain(posterior, p, policy, discount, terminal)
    solve = few_at_once(mean.matrix)
    few = first_order and asked is not None
    root: Any = None if few else many_at_once(mean.matrix)
    table = not few and (root is None or not first_order)
    if table:
        fits(states)
    v_mean = solve((policy * posterior.reward_mean).sum(axis=1)[:, None])[:, 0]
    q_mean = posterior.reward_mean + discount * (mean.rows @ v_mean).reshape(states, actions)
    local = known(posterior, p, v_mean, discount)
    at_states, converged, own = (policy**2 * local).sum(axis=1), True, OwnReturns()
    if table:
        root = inverse(mean.matrix, root)
    chosen = np.arange(states) if asked is None else asked
    if few:
        v, ahead, back = from_rows(mean, solve, at_states, chosen)
    else:
        if not first_order:
            at_states, varies, thirds, converged = higher_orders(posterior, mean, root, v_mean, at_states, discount)
            own = own_returns(root, at_states, varies, thirds, chosen)
        v, ahead, back, trace = from_columns(mean, root, at_states)
        if not first_order and converged:
            local = local + discount**2 * trace / (posterior.concentration.sum(axis=-1) + 1.0)
        v, ahead, back = v[chosen], ahead[chosen], back[chosen]
    q = local[chosen] + discount**2 * ahead + 2.0 * discount * back * (policy * local)[chosen]
    return SparseAnswer(v, q, v_mean[chosen], q_mean[chosen], local[chosen]), converged, own


def own_returns(
    root: Float[np.ndarray, "S S"], local: np.ndarray, varies: np.ndarray, thirds: np.ndarray, asked: Int[np.ndarray, " n"]
) -> OwnReturns:
    """`ubex.returns.own_returns` of the states that are asked for, from how much every state's returns vary, and E[x^2 y]."""
    parts = np.zeros((local.size, 3))
    for part, columns in blocks(root, local.size):
        parts += columns**2 @ np.stack((local, local * varies, 2.0 * np.abs(thirds)), axis=1)[part]
    unknown = asked[parts[asked, 0] > NEGLIGIBLE * parts[:, 0].max()]
    if not unknown.size:
        return OwnReturns()
    varied, lopsided = (parts[unknown, 1:] / parts[unknown, :1]).T
    middle, most = (math.sqrt(max(float(x), 0.0)) for x in (np.median(varied), varied.max()))
    return OwnReturns(middle, most, float(lopsided.max()))


def fits(states: int) -> None:
    """Refuses what needs the inverse as a table where memory will not do."""
    instead = "take estimator='first-order' with starts=, or 'ensemble-var'"
    checks.fits("the inverse for all states, with arrays", (states, states), MATRICES, instead)


def from_rows(mean: Chain, solve: Solver, local: np.ndarray, asked: np.ndarray) -> tuple[np.ndarray, ...]:
    """(G*G) l, ((p G)*(p G)) l and (p(s) G)(s) at a few states: a row of G, or of p G, is one transposed solve."""
    states, actions = mean.policy.shape
    v, q, back = np.empty(asked.size), np.empty((asked.size, actions)), np.empty((asked.size, actions))
    for number, state in enumerate(asked):
        right = np.zeros((states, actions + 1))
        right[state, 0] = 1.0
        right[:, 1:] = mean.rows[state * actions : (state + 1) * actions].toarray().T
        rows = solve(right, True)
        found = local @ rows**2
        v[number], q[number], back[number] = found[0], found[1:], rows[state, 1:]
    return v, q, back


def from_columns(
    mean: Chain, root: Any, local: np.ndarray
) -> tuple[Float[np.ndarray, " S"], Float[np.ndarray, "S A"], Float[np.ndarray, "S A"], Float[np.ndarray, "S A"]]:
    """(G*G) l, ((p G)*(p G)) l, (p(s) G)(s) and p (G*G) l - ((p G)*(p G)) l at all states, by blocks of columns of G.

    The last one is found with columns about their middle: near discount 1 its two parts are the same in nearly all digits.
    """
    shape, size = mean.policy.shape, mean.policy.size
    v, q, back = np.zeros(shape[0]), np.zeros(size), np.empty(shape)
    about, ahead_about = np.zeros(shape[0]), np.zeros(size)
    for part, columns in blocks(root, local.size):
        ahead = mean.rows @ columns
        here = np.arange(local.size)[part]
        back[part] = ahead.reshape(*shape, -1)[here, :, np.arange(here.size)]
        level = columns.mean(axis=0)
        v += columns**2 @ local[part]
        q += ahead**2 @ local[part]
        about += (columns - level) ** 2 @ local[part]
        ahead_about += (ahead - level) ** 2 @ local[part]
    return v, q.reshape(shape), back, (mean.rows @ about - ahead_about).reshape(shape)


def higher_orders(
    posterior: SparsePosterior,
    mean: Chain,
    root: Float[np.ndarray, "S S"],
    v: Float[np.ndarray, " S"],
    first: np.ndarray,
    discount: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
    """Solves l = c + g^2 T l, T l = tr(Sigma C) averaged by the policy: l, the diagonal of g^2 T, E[x^2 y] as in
    `ubex.returns.third_moments`, and whether l was found; otherwise it is c."""
    states, actions = mean.policy.shape
    total = posterior.concentration.sum(axis=-1)
    taken = np.flatnonzero(mean.policy.ravel())
    rows, weight = mean.rows[taken], (mean.policy**2 / (total + 1.0)).ravel()[taken]
    cubes = (2.0 * (discount * mean.policy) ** 3 / ((total + 1.0) * (total + 2.0))).ravel()[taken]
    squares = rows.copy()  # p (v - p v)^2
    squares.data = rows.data * (v[rows.indices] - np.repeat(rows @ v, np.diff(rows.indptr))) ** 2
    firsts, of = np.searchsorted(taken // actions, np.arange(states)), taken // actions
    trace, thirds = np.empty((states, states), order="F"), np.zeros(states)
    for part, columns in blocks(root, states):
        columns = columns - columns.mean(axis=0)  # what is common to a column adds nothing but rounding
        ahead = rows @ columns
        spread = rows @ columns**2 - ahead**2
        trace[:, part] = np.add.reduceat(weight[:, None] * spread, firsts, axis=0)
        (here,) = np.nonzero((of >= part.start) & (of < part.stop))
        own = (here, of[here] - part.start)
        bent = (squares[here] @ columns)[np.arange(here.size), own[1]] - np.asarray(squares[here].sum(axis=1)).ravel() * ahead[
            own
        ]
        np.add.at(thirds, of[here], cubes[here] * bent)
    local, converged = first, False
    for _ in range(MAX_ROUNDS):
        better = first + discount**2 * (trace @ local)
        change, local = np.abs(better - local).max(), better
        converged = bool(change <= TOLERANCE * np.abs(local).max())
        if converged or not np.isfinite(change):
            break
    return (local if converged else first), discount**2 * trace.diagonal(), thirds, converged


def ensemble_variance(
    posterior: SparsePosterior,
    policy: Float[np.ndarray, "S A"],
    discount: float,
    key: KeyLike,
    num_models: int,
    ddof: int,
    asked: Int[np.ndarray, " n"] | None,
) -> SparseAnswer:
    """The variance over the values of members that are drawn and solved one after another."""
    states, actions = policy.shape
    terminal = terminal_states(posterior, policy) if discount == 1.0 else np.zeros(states, bool)

    def values(p: np.ndarray, r: np.ndarray) -> np.ndarray:
        member = chain(posterior, p, policy, discount, terminal)
        v = few_at_once(member.matrix)((policy * r).sum(axis=1)[:, None])[:, 0]
        return np.concatenate([v[:, None], r + discount * (member.rows @ v).reshape(states, actions)], axis=1)

    members = (values(p, r) for p, r in posterior.draws(key, num_models))
    first = next(members)
    total, squares = np.zeros_like(first), np.zeros_like(first)
    for found in members:
        apart = found - first  # identical members give exactly 0
        total += apart
        squares += apart**2
    spread = np.maximum(squares - total**2 / num_models, 0.0) / (num_models - ddof)
    mean = values(mean_rows(posterior), posterior.reward_mean)
    chosen = np.arange(states) if asked is None else asked
    spread, mean = spread[chosen], mean[chosen]
    return SparseAnswer(spread[:, 0], spread[:, 1:], mean[:, 0], mean[:, 1:], np.zeros_like(mean[:, 1:]))


def _table(name: str, value: ArrayLike, shape: tuple[int, ...], low: float) -> Float[np.ndarray, "S A"]:
    given = checks.number_array(name, value)
    try:
        table: np.ndarray = np.broadcast_to(given, shape).astype(np.float64)
    except ValueError:
        raise InputError(f"{name} must broadcast to {shape}, but it has shape {given.shape}") from None
    bad = np.logical_not((table >= low) & (table <= checks.LARGEST))
    if bad.any():
        where = checks.first_place(bad, ("state", "action"))
        raise InputError(f"{name} must be in [{low:g}, {checks.LARGEST:g}], but it is {table[bad][0]} at {where}")
    return table
