"""An unknown row decides how often it is met itself: exact where one state is unknown, and near brute force where all are."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ubex
from ubex import returns
from ubex.calls import covariance
from ubex.closed_form import DirichletRows, SampledRows, Table
from ubex.experiments import calibration_cases
from ubex.tabular.agents import AgentConfig
from ubex.types import MDP, InputError, UbexWarning

RANDOM = np.random.default_rng


@pytest.fixture(autouse=True, scope="module")
def double() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def brute_force(p: np.ndarray, r: np.ndarray, policy: np.ndarray, discount: float) -> tuple[np.ndarray, np.ndarray]:
    """Variances of V and Q over members."""
    rows, rewards = np.einsum("sa,nsat->nst", policy, p), np.einsum("sa,nsa->ns", policy, r)
    v = np.linalg.solve(np.eye(rows.shape[-1]) - discount * rows, rewards[..., None])[..., 0]
    q = r + discount * np.einsum("nsat,nt->nsa", p, v)
    return v.var(axis=0), q.var(axis=0)


def dirichlet(
    alpha: np.ndarray, r: np.ndarray, policy: np.ndarray, discount: float, closed: str = "integral"
) -> tuple[np.ndarray, np.ndarray, bool]:
    """The library's variances of V and Q, for known rewards."""
    total = jnp.asarray(alpha.sum(axis=-1))
    mean = MDP(jnp.asarray(alpha) / total[..., None], jnp.asarray(r))
    terminal = jnp.asarray(np.arange(len(r)) == len(r) - 1) if discount == 1.0 else None
    side = covariance.side_of(jnp, mean, jnp.asarray(policy), discount, terminal)
    rows = DirichletRows(Table(jnp.asarray(mean.p)), total, jnp.zeros_like(total))
    local, v, q, _ = covariance.evaluate(rows, side, discount, closed)
    return np.asarray(v), np.asarray(q), bool(local.converged)


def slippery(mass: float) -> tuple[np.ndarray, np.ndarray]:
    """A corridor with a goal at its end, in which one move in four fails and leaves the agent where it is."""
    size = 8
    alpha, r = np.zeros((size, 1, size)), np.zeros((size, 1))
    for state in range(size - 1):
        alpha[state, 0, state], alpha[state, 0, state + 1] = 0.25 * mass, 0.75 * mass
    alpha[-1, 0, -1], r[-1] = 1e9, 1.0
    return alpha, r


@pytest.mark.filterwarnings("ignore::ubex.UbexWarning")
@pytest.mark.parametrize("discount", [0.5, 0.9, 0.99])
def test_samples_in_which_one_state_is_unknown_are_exact(discount: float) -> None:
    """With cycles too, for a stochastic policy and unknown rewards: no other state adds anything."""
    random = RANDOM(3)
    number, states, actions, unknown = 40, 5, 3, 2
    p = np.repeat(random.dirichlet(np.ones(states), (1, states, actions)), number, axis=0)
    r = np.repeat(random.normal(size=(1, states, actions)), number, axis=0)
    p[:, unknown] = random.dirichlet(np.full(states, 0.3), (number, actions))
    r[:, unknown] = random.normal(size=(number, actions))
    policy = random.dirichlet(np.ones(actions), states)
    found = ubex.value_variance(MDP(p=p, r=r), policy, discount, estimator="integral")
    v, q = brute_force(p, r, policy, discount)
    np.testing.assert_allclose(found.v, v, rtol=1e-9)
    np.testing.assert_allclose(found.q, q, rtol=1e-9)
    by_moments = ubex.value_variance(MDP(p=p, r=r), policy, discount, estimator="closed-form").v
    assert np.max(np.abs(by_moments / v - 1.0)) > 0.005, "the closed form is not"


@pytest.mark.parametrize("mass", [0.3, 3.0, 300.0])
def test_a_single_unknown_row_is_exact_by_one_integral(mass: float) -> None:
    """Rows of one state and action, which the policy takes half of the time; all others are known."""
    random = RANDOM(4)
    states, actions, discount = 4, 2, 0.95
    alpha, r = 1e12 * random.dirichlet(np.ones(states), (states, actions)), random.normal(size=(states, actions))
    alpha[1, 0] = mass * np.array([0.2, 0.5, 0.0, 0.3])
    policy = np.full((states, actions), 0.5)
    p = np.repeat((alpha / alpha.sum(axis=-1, keepdims=True))[None], 100_000, axis=0)
    p[:, 1, 0] = 0.0
    p[:, 1, 0][:, [0, 1, 3]] = random.dirichlet(alpha[1, 0, [0, 1, 3]], 100_000)
    v, q, converged = dirichlet(alpha, r, policy, discount)
    true_v, true_q = brute_force(p, np.repeat(r[None], 100_000, axis=0), policy, discount)
    assert converged
    np.testing.assert_allclose(v, true_v, rtol=0.03)
    np.testing.assert_allclose(q, true_q, rtol=0.03)


@pytest.mark.parametrize(("mass", "least", "closed_at_most"), [(3.0, 0.85, 0.5), (10.0, 0.95, 0.8), (100.0, 0.97, 1.0)])
def test_moves_that_can_fail(mass: float, least: float, closed_at_most: float) -> None:
    """In a slippery corridor the integral has most of the variance, and the closed form much less with few counts."""
    (alpha, r), policy, random = slippery(mass), np.ones((8, 1)), RANDOM(5)
    stays = random.beta(0.25 * mass, 0.75 * mass, (40_000, 7))
    p = np.zeros((40_000, 8, 1, 8))
    p[:, -1, 0, -1] = 1.0
    for state in range(7):
        p[:, state, 0, state], p[:, state, 0, state + 1] = stays[:, state], 1.0 - stays[:, state]
    truth = brute_force(p, np.repeat(r[None], 40_000, axis=0), policy, 0.95)[0][:-1]
    ratio = np.median(dirichlet(alpha, r, policy, 0.95)[0][:-1] / truth)
    assert least < ratio < 1.1
    assert np.median(dirichlet(alpha, r, policy, 0.95, "full")[0][:-1] / truth) < closed_at_most


def test_without_returns_it_is_the_closed_form() -> None:
    random = RANDOM(6)
    alpha, r = (
        np.triu(random.uniform(0.1, 2.0, (6, 6)), 1)[:, None] + np.eye(6)[-1] * np.eye(6)[-1][:, None, None],
        np.zeros((6, 1)),
    )
    r[:-1, 0] = random.normal(size=5)
    for found, same in zip(*(dirichlet(alpha, r, np.ones((6, 1)), 0.9, how)[:2] for how in ("integral", "full")), strict=True):
        np.testing.assert_allclose(found, same, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize(("total", "error"), [(1e-4, 1e-3), (0.05, 1e-7), (1.0, 1e-7), (40.0, 1e-7), (1e6, 1e-7)])
def test_moments_of_a_ratio(total: float, error: float) -> None:
    """Known where the divisor is 1: no mean, and the variance of a Dirichlet row."""
    share, top = np.array([0.2, 0.5, 0.3]), np.array([1.0, -1.0, 1.0])
    mean, square, ones = returns.ratio_moments(
        jnp.asarray(total * share)[None, None], jnp.asarray(top)[None, None], jnp.ones((1, 1, 3))
    )
    np.testing.assert_allclose(mean[0, 0], share @ top, atol=1e-12)
    np.testing.assert_allclose(ones, 1.0, rtol=error)
    np.testing.assert_allclose(square[0, 0], (share @ top) ** 2 + (1.0 - (share @ top) ** 2) / (total + 1.0), rtol=error)


def test_a_variance_that_is_not_finite_is_flagged() -> None:
    """Without discount a row that may stay for ever has an infinite variance if its other counts are at most 2."""
    alpha, r = slippery(2.0)
    r[:, 0], r[-1] = -1.0, 0.0
    v, _, converged = dirichlet(alpha, r, np.ones((8, 1)), 1.0)
    assert not converged
    assert np.isfinite(v).all()
    alpha, _ = slippery(40.0)
    assert dirichlet(alpha, r, np.ones((8, 1)), 1.0)[2]


def test_places_that_are_never_taken_do_not_count() -> None:
    """The same rows with and without states that cannot follow, also at discount 1, where such a place leaves no divisor."""
    p, top = np.array([0.2, 0.5]), np.array([1.0, -1.0])
    few = returns.ratio_moments(jnp.asarray(p)[None, None], jnp.asarray(top)[None, None], jnp.asarray([[[0.4, 1.3]]]))
    wide = [jnp.asarray([[[*one, other]]]) for one, other in ((p, 0.0), (top, 5.0), ([0.4, 1.3], 0.0))]
    np.testing.assert_array_equal(np.array(returns.ratio_moments(*wide)), np.array(few))
    support = np.zeros((2, 1, 3), bool)
    support[0, 0, 1:] = support[1, 0, 2] = True
    light = ubex.DirichletNormal(2, 1, terminal=True, support=support, concentration=0.3, reward_mean=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found, closed = (ubex.value_variance(light, [0, 0], 1.0, estimator=name) for name in ("integral", "closed-form"))
    np.testing.assert_allclose(found.v, closed.v, rtol=1e-9)


@pytest.mark.filterwarnings("ignore::ubex.UbexWarning")
def test_a_posterior_is_answered_without_samples_and_over_steps_by_the_closed_form() -> None:
    posterior = ubex.DirichletNormal(4, 2)
    found = ubex.value_variance(posterior, [0, 1, 0, 1], 0.9, estimator="integral")
    assert found.estimator == "integral"
    np.testing.assert_allclose(found.q[np.arange(4), [0, 1, 0, 1]], found.v, rtol=1e-9)
    steps = (
        ubex.value_variance(posterior, [0, 1, 0, 1], 0.9, estimator=name, horizon=5).v for name in ("integral", "closed-form")
    )
    np.testing.assert_allclose(*steps)


def test_how_much_a_row_changes_its_own_returns() -> None:
    """Of samples it is the spread of how often a state is met, where its row alone is unknown; of a posterior the same."""
    random, discount = RANDOM(7), 0.95
    p = np.repeat(random.dirichlet(np.ones(4), (1, 4, 1)), 5000, axis=0)
    alpha = 1e9 * p[0]
    alpha[1, 0] = [2.0, 5.0, 1.0, 2.0]
    p[:, 1, 0] = random.dirichlet(alpha[1, 0], 5000)
    r = random.normal(size=(5000, 4, 1)) * np.array([1e-6, 1.0, 1e-6, 1e-6])[:, None]  # most of the variance is of state 1
    root = np.linalg.inv(np.eye(4) - discount * p.mean(axis=0)[:, 0])
    apart, v = discount * (p - p.mean(axis=0))[:, 1, 0], np.array([0.0, 1.0, 30.0, -5.0])
    y, x = apart @ root[:, 1], apart @ v
    policy, total = jnp.ones((4, 1)), jnp.asarray(alpha.sum(axis=-1))
    _, sampled = covariance.sample_moments(p, r, 0)
    rows = DirichletRows(Table(jnp.asarray(alpha) / total[..., None]), total, jnp.zeros_like(total))
    known = jnp.asarray(np.eye(4)[1])
    for each, close in ((sampled, 1e-9), (rows, 0.05)):
        found = returns.own_returns(each, jnp.asarray(root), jnp.asarray(v), known, policy, discount)
        np.testing.assert_allclose(found.varies, y.std(), rtol=close)
        assert found.most >= found.varies
        thirds = returns.third_moments(each, jnp.asarray(root), jnp.asarray(v), policy, discount)
        paid = (r - r.mean(axis=0))[:, 1, 0] * isinstance(each, SampledRows)
        np.testing.assert_allclose(thirds[1], ((x + paid) ** 2 * y).mean(), rtol=4 * close)
        np.testing.assert_allclose(found.lopsided, 2.0 * abs(float(thirds[1])), rtol=1e-6)  # of a variance of 1


@pytest.mark.parametrize("what", ["variance", "covariance", "difference", "sparse"])
def test_one_state_that_stays_is_told_among_many_that_do_not(what: str) -> None:
    """State 0 pays 1 and stays with an unknown chance, and four others end at once: the median state says nothing."""
    support = np.zeros((5, 2, 6), bool)
    support[..., 5] = support[0, :, 0] = True
    paid, known = np.zeros((5, 2)), np.ones((5, 2))
    paid[0], known[0] = (1.0, 2.0), 1e12
    given: Any = {"reward_mean": paid, "reward_precision": known}
    posterior = ubex.DirichletNormal(5, 2, terminal=True, support=support, concentration=0.5, **given)
    policy, said = np.zeros(5, int), r"its own state is met again, by [0-9]+% in (some states|the median)"
    rewards, variances = (np.append(x, np.zeros((1, 2)), axis=0) for x in (paid, 1.0 / known))
    successors = np.where(np.arange(6)[:, None, None] == 0, [0, 5], [5, 5]) * np.ones((6, 2, 2), int)
    sparse = ubex.SparsePosterior(successors, np.full((6, 2, 2), 0.5), reward_mean=rewards, reward_variance=variances)
    calls = {
        "variance": lambda: ubex.value_variance(posterior, policy, 0.99),
        "covariance": lambda: ubex.value_covariance(posterior, policy, 0.99),
        "difference": lambda: ubex.policy_difference(posterior, policy, np.ones(5, int), 0.99),
        "sparse": lambda: ubex.value_variance(sparse, np.zeros(6, int), 0.99, starts=[0]),
    }
    with pytest.warns(UbexWarning, match=said):
        calls[what]()
    ubex.value_variance(sparse, np.zeros(6, int), 0.99, starts=[1, 2])  # these are sound: no warning


@pytest.mark.parametrize("call", [ubex.value_variance, ubex.value_covariance])
def test_a_lopsided_row_is_told(call: Any) -> None:
    """State 0 stays, or leaves for a reward of 1 once in 50 times: the closed form is twice too large, the integral right."""
    support = np.zeros((2, 1, 3), bool)
    support[0, 0, :2] = support[1, 0, 2] = True
    counts = np.array([[[2.94, 0.06, 1.0]], [[1.0, 1.0, 1.0]]])
    settings: Any = {"reward_mean": [[0.0], [1.0]], "reward_precision": 1e12, "terminal": True}
    posterior = ubex.DirichletNormal(2, 1, support=support, concentration=counts, **settings)
    chance = RANDOM(0).beta(0.06, 2.94, 400_000)
    truth = (0.5 * chance / (1.0 - 0.5 * (1.0 - chance))).var()
    with pytest.warns(UbexWarning, match=r"changes values most where .* by about [0-9]+% of the variance of a state"):
        found = call(posterior, [0, 0, 0], 0.5)
    variance = found.v if call is ubex.value_variance else np.diag(found.covariance)
    assert variance[0] > 1.7 * truth
    integral = ubex.value_variance(posterior, [0, 0, 0], 0.5, estimator="integral")
    np.testing.assert_allclose(integral.v[0], truth, rtol=0.03)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not ubex.policy_difference(posterior, [0, 0, 0], [[1.0], [1.0], [1.0]], 0.5).variance.any(), "they never part"
    support, counts = support.repeat(2, axis=1), counts.repeat(2, axis=1)
    two = ubex.DirichletNormal(
        2, 2, support=support, concentration=counts, **{**settings, "reward_mean": [[0.0] * 2, [1.0] * 2]}
    )
    with pytest.warns(UbexWarning, match="changes values most"):
        ubex.policy_difference(two, [0, 0, 0], [1, 0, 0], 0.5)
    sparse = ubex.SparsePosterior(
        [[[0, 1]], [[2, 2]], [[2, 2]]], [[[2.94, 0.06]], [[1.0, 0.0]], [[1.0, 0.0]]], [[0.0], [1.0], [0.0]], 0.0
    )
    with pytest.warns(UbexWarning, match="changes values most"):
        np.testing.assert_allclose(ubex.value_variance(sparse, [0, 0, 0], 0.5).v, variance, atol=1e-11)


@pytest.mark.parametrize(("kind", "count", "doubted"), [("cyclic-grid", 5.0, True), ("cyclic-dense", 1.0, False)])
def test_a_closed_form_that_can_be_far_off_says_so(kind: str, count: float, doubted: bool) -> None:
    """It names an estimator that is right; a posterior with an error of 1% is answered without a word."""
    posterior, policy = calibration_cases.make(kind, count, 25, 2, RANDOM(0))
    says = pytest.warns(UbexWarning, match="changes how often .* met again, by 3[0-9]% .* better: estimator='ensemble-var'")
    with says if doubted else contextlib.nullcontext():
        ubex.value_variance(posterior, policy, 0.9)


def test_who_does_not_take_it() -> None:
    with pytest.raises(InputError, match="unknown method 'integral'"):
        AgentConfig(method="integral")
    sparse = ubex.SparsePosterior(np.zeros((2, 1, 1), int), np.ones((2, 1, 1)), np.zeros((2, 1)), np.ones((2, 1)))
    with pytest.raises(InputError, match="not for integral"):
        ubex.value_variance(sparse, [0, 0], 0.9, estimator="integral")
