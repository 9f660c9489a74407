"""Variance and covariance of values from moments of the posterior, without sampling MDPs from it.

Fix a policy. With e(s) the deviation of r(s) + g p(s) V from its mean at fixed next values, the deviation of V is G e, where
G = (I - g Pbar)^-1. Under the paper's assumptions the e(s) are uncorrelated, so C = Cov[V] = G diag(l) G^T with

    l(s) = Var[r(s) + g p(s) m] + g^2 tr(Sigma(s) C),

m the values in the mean MDP and Sigma(s) the covariance of the row p(s): a linear fixed point in l. C is never formed to find
it: diag(C) = (G*G) l and x C x = ((x G)*(x G)) l with elementwise products. Two policies have Cov[V_a, V_b] = G_a diag(l) G_b^T
with the l of what they share. docs/equations.md derives it and says where it ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

TOLERANCE = 1e-13
"""Last change of l, relative to its largest entry, at which the fixed point counts as reached in double precision."""
MAX_ROUNDS = 300
"""Rounds after which it counts as not contracting."""
NEGLIGIBLE = 1e-6
"""States whose variance is below this share of the largest one count as known."""

Scalar = float | Float[Array, ""]
Pair = tuple[Float[Array, "..."], Float[Array, "..."]]
"""The same quantity under two policies, which may be the same one."""


@runtime_checkable
class Mean(Protocol):
    """Mean transition probabilities, as what can be done with them: a table, or something that needs none."""

    def expect(self, x: Float[Array, " S"]) -> Float[Array, "S A"]:
        """Mean of x at the next state."""
        ...

    def times(self, x: Float[Array, "S T"]) -> Float[Array, "S A T"]:
        """The same for every column."""
        ...


class Table(NamedTuple):
    """Mean transition probabilities as a table."""

    p: Float[Array, "S A S"]

    def expect(self, x: Float[Array, " S"]) -> Float[Array, "S A"]:
        """Mean of x at the next state."""
        return self.p @ x

    def times(self, x: Float[Array, "S T"]) -> Float[Array, "S A T"]:
        """The same for every column."""
        return self.p @ x


@runtime_checkable
class Rows(Protocol):
    """What is known of the rows of p and of r: their means, and how they vary together within a state and action."""

    @property
    def mean(self) -> Mean:
        """Mean transition probabilities."""
        ...

    def known(self, values: Pair, discount: Scalar, paid: tuple[float, float] = (1.0, 1.0)) -> Float[Array, "S A A"]:
        """Covariance of paid r + discount p v between any two actions of a state, for fixed next values."""
        ...

    def trace(self, roots: Pair) -> Callable[[Float[Array, " S"]], Float[Array, "S A A"]]:
        """l -> tr(Sigma C) between any two actions of a state, with C = X diag(l) Y^T for the given X, Y."""
        ...

    def averaged_trace(self, roots: Pair, policies: Pair) -> Callable[[Float[Array, " S"]], Float[Array, " S"]]:
        """l -> the policies' average of `trace`: what many rounds need, and cheaper than averaging each time."""
        ...


class DirichletRows(NamedTuple):
    """Independent Dirichlet rows and independent rewards; different actions have nothing in common."""

    mean: Mean
    total: Float[Array, "S A"]
    """Sum of each row's parameters."""
    reward_variance: Float[Array, "S A"]

    def known(self, values: Pair, discount: Scalar, paid: tuple[float, float] = (1.0, 1.0)) -> Float[Array, "S A A"]:
        """Covariance of paid r + discount p v for fixed next values."""
        covariance = next_covariance(self.mean, values)
        return _own(paid[0] * paid[1] * self.reward_variance + discount**2 * covariance / (self.total + 1.0))

    def trace(self, roots: Pair) -> Callable[[Float[Array, " S"]], Float[Array, "S A A"]]:
        """tr(Sigma C) = (sum_t p_t C_tt - p C p) / (total + 1)."""
        diagonal, squares = centred_products(self.mean, roots)

        def apply(local: Float[Array, " S"]) -> Float[Array, "S A A"]:
            return _own((self.mean.expect(diagonal @ local) - squares @ local) / (self.total + 1.0))

        return apply

    def averaged_trace(self, roots: Pair, policies: Pair) -> Callable[[Float[Array, " S"]], Float[Array, " S"]]:
        """l -> the policies' average of `trace`."""
        weight = policies[0] * policies[1] / (self.total + 1.0)
        diagonal, squares = centred_products(self.mean, roots)
        squares = jnp.sum(weight[:, :, None] * squares, axis=1)
        return lambda local: jnp.sum(weight * self.mean.expect(diagonal @ local), axis=1) - squares @ local


class SampledRows(NamedTuple):
    """Any posterior given by samples, which stand for it: actions of one state may depend on each other and on rewards."""

    mean: Mean
    p: Float[Array, "N S A S"]
    """Deviations of the samples from the mean."""
    r: Float[Array, "N S A"]
    scale: float = 1.0
    """By how much deviations were enlarged, for variances that divide by N - ddof."""

    def known(self, values: Pair, discount: Scalar, paid: tuple[float, float] = (1.0, 1.0)) -> Float[Array, "S A A"]:
        """Covariance of paid r + discount p v for fixed next values."""
        a, b = (share * self.r + discount * (self.p @ v) for share, v in zip(paid, values, strict=True))
        return jnp.einsum("nsa,nsb->sab", a, b) / self.r.shape[0]

    def trace(self, roots: Pair) -> Callable[[Float[Array, " S"]], Float[Array, "S A A"]]:
        """tr(Sigma C): the mean over samples of (p - pbar) C (p' - pbar')."""
        products = self.products(roots)
        return lambda local: products @ local

    def averaged_trace(self, roots: Pair, policies: Pair) -> Callable[[Float[Array, " S"]], Float[Array, " S"]]:
        """l -> the policies' average of `trace`."""
        matrix = jnp.einsum("sa,sabt,sb->st", policies[0], self.products(roots), policies[1])
        return lambda local: matrix @ local

    def products(self, roots: Pair) -> Float[Array, "S A A S"]:
        """The mean over samples of ((p - pbar) X)_t ((p' - pbar') Y)_t."""

        def one(total: Float[Array, "S A A S"], deviation: Float[Array, "S A S"]) -> tuple[Float[Array, "S A A S"], None]:
            x, y = (deviation @ root for root in roots)
            return total + x[:, :, None] * y[:, None], None

        _, num_states, num_actions, _ = self.p.shape
        zero = jnp.zeros((num_states, num_actions, num_actions, num_states), self.p.dtype)
        return jax.lax.scan(one, zero, self.p)[0] / self.p.shape[0]


def _own(x: Float[Array, "S A"]) -> Float[Array, "S A A"]:
    """A covariance between actions that only each action has with itself."""
    return jnp.where(jnp.eye(x.shape[1], dtype=bool)[None], x[:, :, None], 0.0)


def next_covariance(mean: Mean, values: Pair) -> Float[Array, "S A"]:
    """Covariance of two values at the next state in every row of the mean MDP; rows sum to 1, so no level of them matters.

    A table has it from each row's own expectations: 0 in a known row, and not what rounding leaves of the values' squares,
    which discounts near 1 enlarge.
    """
    a, b = (v - jnp.mean(v) for v in values)
    mean_a, mean_b = mean.expect(a), mean.expect(b)
    if isinstance(mean, Table):
        return jnp.sum(mean.p * (a[None, None] - mean_a[..., None]) * (b[None, None] - mean_b[..., None]), axis=-1)
    return mean.expect(a * b) - mean_a * mean_b


def row_products(mean: Mean, roots: Pair) -> Float[Array, "S A S"]:
    """Elementwise (p X) * (p Y) for every row p: applied to l, it gives p C p."""
    x, y = roots
    first = mean.times(x)
    return first * (first if y is x else mean.times(y))


def centred_products(mean: Mean, roots: Pair) -> tuple[Float[Array, "S S"], Float[Array, "S A S"]]:
    """X * Y and `row_products`, with every column of X and Y about its middle.

    tr(Sigma C) is their difference. What all entries of a column have in common is not in it, and near discount 1 that is far
    larger than the rest. The products with the mean are those of X and Y themselves, so that they can be used again.
    """
    x, y = roots
    level_x, level_y = jnp.mean(x, axis=0), jnp.mean(y, axis=0)
    first = mean.times(x) - level_x[None, None]
    second = first if y is x else mean.times(y) - level_y[None, None]
    return (x - level_x[None]) * (y - level_y[None]), first * second


class Local(NamedTuple):
    """Uncertainty of one step, and how it was found."""

    states: Float[Array, " S"]
    """l: what every state adds to the (co)variance."""
    actions: Float[Array, "S A"]
    """The same for every action by itself."""
    shared: Float[Array, "S A"]
    """What the action has in common with what the policy does in the state: its covariance with it."""
    rounds: Int[Array, ""]
    converged: Bool[Array, ""]
    """Whether the fixed point was reached; otherwise both are of first order: without tr(Sigma C)."""


def local_uncertainty(rows: Rows, roots: Pair, values: Pair, policies: Pair, discount: Scalar, first_order: bool) -> Local:
    """Solves l = c + M l by iteration; where that does not contract, l = c is returned and flagged."""
    a, b = policies
    known, trace = rows.known(values, discount), rows.trace(roots)
    infinite = jnp.isinf(jnp.einsum("saa->sa", known))
    known = jnp.where(jnp.isinf(known), 0.0, known)

    def averaged(x: Float[Array, "S A A"]) -> Float[Array, " S"]:
        return jnp.einsum("sa,sab,sb->s", a, x, b)

    start = averaged(known)

    def by_action(between: Float[Array, "S A A"]) -> tuple[Float[Array, "S A"], Float[Array, "S A"]]:
        return jnp.einsum("saa->sa", between), jnp.einsum("sab,sb->sa", between, b)

    if first_order:
        found = Local(start, *by_action(known), jnp.asarray(0, jnp.int32), jnp.asarray(True))
        return with_infinite(found, infinite, a * b)
    rounds, local, converged = fixed_point(start, rows.averaged_trace(roots, policies), discount)
    whole = by_action(jnp.where(converged, known + discount**2 * trace(local), known))
    found = Local(jnp.where(converged, local, start), *whole, rounds, converged)
    return with_infinite(found, infinite, a * b)


def with_infinite(local: Local, infinite: Bool[Array, "S A"], weight: Float[Array, "S A"]) -> Local:
    """Puts back the actions whose rewards have an infinite variance, which is kept out of sums: 0 times infinity is no number.

    Their states have it too where the action has a weight.
    """
    states = jnp.any(infinite & (weight > 0.0), axis=1)
    return local._replace(states=jnp.where(states, jnp.inf, local.states), actions=jnp.where(infinite, jnp.inf, local.actions))


def without_infinite(local: Float[Array, " S"]) -> tuple[Float[Array, " S"], Float[Array, " S"]]:
    """The entries that are finite, with 0 for the others, and 1 for the others, with 0 for those."""
    infinite = jnp.isinf(local)
    return jnp.where(infinite, 0.0, local), infinite.astype(local.dtype)


def fixed_point(
    start: Float[Array, " S"], step: Callable[[Float[Array, " S"]], Float[Array, " S"]], discount: Scalar
) -> tuple[Int[Array, ""], Float[Array, " S"], Bool[Array, ""]]:
    """l = start + discount^2 step(l) by iteration: the rounds, l, and whether it was reached.

    It can be differentiated: l solves a linear equation, whose transpose the same iteration solves.
    """
    local, (rounds, converged) = jax.lax.custom_linear_solve(
        lambda local: local - discount**2 * step(local),
        start,
        solve=lambda _, start: iterate(start, lambda local: discount**2 * step(local)),
        transpose_solve=lambda transposed, start: iterate(start, lambda local: local - transposed(local)),
        has_aux=True,
    )
    return rounds, local, converged


def iterate(
    start: Float[Array, " S"], more: Callable[[Float[Array, " S"]], Float[Array, " S"]]
) -> tuple[Float[Array, " S"], tuple[Int[Array, ""], Bool[Array, ""]]]:
    """l = start + more(l) by iteration, the rounds that it took, and whether it was reached; it has no derivative."""
    State = tuple[Int[Array, ""], Float[Array, " S"], Float[Array, ""]]
    tolerance = TOLERANCE * float(np.finfo(start.dtype).eps / np.finfo(np.float64).eps)

    def go_on(state: State) -> Bool[Array, ""]:
        rounds, local, change = state
        return (rounds < MAX_ROUNDS) & (change > tolerance * jnp.max(jnp.abs(local)))

    def improve(state: State) -> State:
        rounds, local, _ = state
        better = start + more(local)
        return rounds + 1, better, jnp.max(jnp.abs(better - local))

    first = (jnp.asarray(0, jnp.int32), start, jnp.asarray(jnp.inf, start.dtype))
    rounds, local, change = jax.lax.while_loop(go_on, improve, first)
    return local, (rounds, jnp.isfinite(change) & (change <= tolerance * jnp.max(jnp.abs(local))))


class Apart(NamedTuple):
    """(Co)variances of a quantity under policy a and of its difference between policies a and b: nothing is subtracted."""

    own: Float[Array, "..."]
    """Of a with itself."""
    cross: Float[Array, "..."]
    """Of a with the difference."""
    apart: Float[Array, "..."]
    """Of the difference with itself."""


def known_apart(rows: Rows, values: Pair, discount: Scalar) -> Apart:
    """`Rows.known` for a's values and for how much they are above b's, whose rewards are the same."""
    v, above = values
    return Apart(
        rows.known((v, v), discount),
        rows.known((v, above), discount, (1.0, 0.0)),
        rows.known((above, above), discount, (0.0, 0.0)),
    )


def averaged_apart(known: Apart, policies: Pair) -> Apart:
    """The policies' average of e_a, and of e_a - e_b = sum (a - b) e(a's values) + sum b e(a's values above b's)."""
    a, b = policies
    change = a - b

    def averaged(x: Float[Array, "S A"], known: Float[Array, "S A A"], y: Float[Array, "S A"]) -> Float[Array, " S"]:
        return jnp.einsum("sa,sab,sb->s", x, known, y)

    own, cross, apart = known
    return Apart(
        averaged(a, own, a),
        averaged(a, own, change) + averaged(a, cross, b),
        averaged(change, own, change) + 2.0 * averaged(change, cross, b) + averaged(b, apart, b),
    )


def plus(now: Apart, later: Apart, discount: Scalar) -> Apart:
    """What a step adds to what comes after it."""
    return Apart(*(x + discount**2 * y for x, y in zip(now, later, strict=True)))


def difference(
    rows: Rows, roots: Pair, root_change: Float[Array, "S S"], values: Pair, policies: Pair, discount: Scalar, first_order: bool
) -> tuple[Float[Array, " S"], Bool[Array, ""]]:
    """Var[V_a - V_b], with G_a - G_b as `root_change` and V_a, V_a - V_b in the mean MDP as `values`.

    The deviation of V_a - V_b is (G_a - G_b) e_a + G_b (e_a - e_b), so that what both have in common never enters. Where the
    fixed point is not reached, all is of first order.
    """
    (a, b), (root_a, root_b) = policies, roots
    known = known_apart(rows, values, discount)
    first = averaged_apart(known, policies)
    if first_order:
        return _spread(first, root_change, root_b), jnp.asarray(True)

    none = jnp.zeros_like(known.own)
    _, own, own_found = fixed_point(first.own, rows.averaged_trace((root_a, root_a), (a, a)), discount)
    traces = Apart(rows.trace((root_a, root_a))(own), rows.trace((root_a, root_change))(own), none)
    start = averaged_apart(plus(known, traces, discount), policies).cross
    _, cross, cross_found = fixed_point(start, rows.averaged_trace((root_a, root_b), (a, b)), discount)
    through_b = rows.trace((root_a, root_b))(cross)
    apart = rows.trace((root_change, root_change))(own) + 2.0 * rows.trace((root_change, root_b))(cross)
    traces = Apart(traces.own, traces.cross + through_b, apart)
    start = averaged_apart(plus(known, traces, discount), policies).apart
    _, apart, apart_found = fixed_point(start, rows.averaged_trace((root_b, root_b), (b, b)), discount)
    found = own_found & cross_found & apart_found
    local = Apart(*(jnp.where(found, x, y) for x, y in zip((own, cross, apart), first, strict=True)))
    return _spread(local, root_change, root_b), found


def difference_parts(
    rows: Rows, root_b: Float[Array, "S S"], root_change: Float[Array, "S S"], values: Pair, policies: Pair, discount: Scalar
) -> Float[Array, "S S"]:
    """What every row adds to `difference` in every state, to first order."""
    own, cross, apart = averaged_apart(known_apart(rows, values, discount), policies)
    return root_change**2 * own[None] + (root_change * root_b) * (2.0 * cross)[None] + root_b**2 * apart[None]


def _spread(local: Apart, root_change: Float[Array, "S S"], root_b: Float[Array, "S S"]) -> Float[Array, " S"]:
    """Var[(G_a - G_b) e_a + G_b (e_a - e_b)]."""
    return root_change**2 @ local.own + (root_change * root_b) @ (2.0 * local.cross) + root_b**2 @ local.apart


def covariance(roots: Pair, local: Float[Array, " S"]) -> Float[Array, "S S"]:
    """C = X diag(l) Y^T, infinite where an infinite entry of l counts in both."""
    x, y = roots
    finite, infinite = without_infinite(local)
    return jnp.where((x * infinite[None]) @ y.T > 0.0, jnp.inf, (x * finite[None]) @ y.T)


def variances(
    rows: Rows, root: Float[Array, "S S"], local: Local, discount: Scalar
) -> tuple[Float[Array, " S"], Float[Array, "S A"]]:
    """Var[V] = diag(C), and Var[Q(s,a)], without forming C.

    The deviation of Q(s,a) is e(s,a) + discount pbar(s,a) G e. Both parts have e(s) in common, as often as the way after the
    action comes back to s, (pbar(s,a) G)(s).
    """
    ahead, squares, (finite, infinite) = rows.mean.times(root), root * root, without_infinite(local.states)
    common = 2.0 * discount * jnp.einsum("sas->sa", ahead) * local.shared
    q = local.actions + discount**2 * (ahead**2 @ finite) + common
    lost = squares @ infinite > 0.0
    after = discount * rows.mean.expect(lost.astype(q.dtype)) > 0.0
    return jnp.where(lost, jnp.inf, squares @ finite), jnp.where(after, jnp.inf, q)
