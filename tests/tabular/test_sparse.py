"""Sparse posteriors against the calls on tables, on random MDPs with cycles; and what they refuse."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from ubex import MDP, DirichletNormal, InputError, SparsePosterior, UbexWarning, value_variance
from ubex.experiments import calibration_cases
from ubex.tabular import sparse_solvers
from ubex.tabular.posterior import Dirichlet

FIELDS = ("v", "q", "v_mean", "q_mean", "local")


def random_posterior(seed: int, states: int = 12, actions: int = 3, width: int = 4) -> SparsePosterior:
    """Cycles, states that stand twice in a row, free places, and rewards with variances."""
    generator = np.random.default_rng(seed)
    shape = (states, actions, width)
    concentration = generator.gamma(2.0, 5.0, shape) * (generator.random(shape) < 0.8)
    concentration[..., 0] += 3.0
    rewards = generator.normal(size=shape[:2]), generator.random(shape[:2])
    return SparsePosterior(generator.integers(states, size=shape), concentration, *rewards)


def table(posterior: SparsePosterior, p: np.ndarray) -> np.ndarray:
    """Rows over successors as rows over all states."""
    found = np.zeros((*p.shape[:2], posterior.num_states))
    np.add.at(found, (*(i[..., None] for i in np.indices(p.shape[:2])), posterior.successors), p)
    return found


def dense(posterior: SparsePosterior) -> DirichletNormal:
    """The same posterior with a table."""
    variance = posterior.reward_variance
    prior = DirichletNormal(
        posterior.num_states, posterior.num_actions, reward_mean=posterior.reward_mean, reward_precision=1.0 / variance
    )
    return prior.restored(Dirichlet(table(posterior, posterior.concentration)), prior.rewards)


def assert_same(found: Any, expected: Any, states: Any = slice(None)) -> None:
    for field in FIELDS:
        np.testing.assert_allclose(getattr(found, field), getattr(expected, field)[states], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("estimator", ["closed-form", "first-order"])
@pytest.mark.parametrize("discount", [0.0, 0.95])
def test_equals_the_call_on_a_table(estimator: str, discount: float) -> None:
    for seed in range(4):
        posterior = random_posterior(seed)
        policy = np.random.default_rng(seed).dirichlet(np.ones(3), 12) if seed % 2 else np.arange(12) % 3
        found = value_variance(posterior, policy, discount, estimator=estimator)
        assert_same(found, value_variance(dense(posterior), policy, discount, estimator=estimator))
        few = value_variance(posterior, policy, discount, estimator=estimator, starts=[5, 0])
        assert_same(few, found, [5, 0])
        assert found.estimator == estimator


@pytest.mark.parametrize("estimator", ["closed-form", "first-order", "ensemble-var"])
@pytest.mark.parametrize("narrow", [0.0, 1.0])
def test_the_ways_to_solve_agree(estimator: str, narrow: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Along a band, and by iteration with a dense inverse; blocks of columns end within a matrix."""
    posterior, policy = random_posterior(7, 40), np.full((40, 3), 1 / 3)
    options = {"estimator": estimator, "key": 0, "num_models": 3}
    expected = value_variance(posterior, policy, 0.9, **options)
    monkeypatch.setattr(sparse_solvers, "FEW", 0)
    monkeypatch.setattr(sparse_solvers, "NARROW", narrow)
    monkeypatch.setattr(sparse_solvers, "BLOCK_ENTRIES", 40 * 7)
    assert_same(value_variance(posterior, policy, 0.9, **options), expected)
    assert_same(value_variance(posterior, policy, 0.9, starts=[3], **options), expected, [3])


@pytest.mark.parametrize("ddof", [0, 1])
def test_samples_equal_the_call_on_tables_of_the_same_samples(ddof: int) -> None:
    posterior, policy = random_posterior(3), np.arange(12) % 3
    p, r = zip(*posterior.draws(5, 6), strict=True)
    samples = MDP(np.stack([table(posterior, one) for one in p]), np.stack(r))
    options = {"estimator": "ensemble-var", "ddof": ddof}
    found = value_variance(posterior, policy, 0.9, key=5, num_models=6, **options)
    expected = value_variance(samples, policy, 0.9, **options)
    np.testing.assert_allclose(found.v, expected.v, rtol=1e-9)
    np.testing.assert_allclose(found.q, expected.q, rtol=1e-9)
    assert_same(
        found._replace(v=found.v_mean, q=found.q_mean),
        value_variance(posterior, policy, 0.9)._replace(v=found.v_mean, q=found.q_mean, local=np.zeros((12, 3))),
    )


def test_draws_have_the_moments_of_the_posterior() -> None:
    """The same row in 2,000 states, ten times."""
    parameters, rewards = np.array([0.3, 2.0, 0.0, 7.0]), (0.5, 2.0)
    posterior = SparsePosterior(np.zeros((2000, 1, 4), int), np.tile(parameters, (2000, 1, 1)), *rewards)
    p, r = (np.stack(x) for x in zip(*posterior.draws(0, 10), strict=True))
    mean, total = parameters / parameters.sum(), parameters.sum()
    np.testing.assert_allclose(p.mean(axis=(0, 1, 2)), mean, atol=0.01)
    np.testing.assert_allclose(p.var(axis=(0, 1, 2)), mean * (1 - mean) / (total + 1), rtol=0.06)
    np.testing.assert_allclose((r.mean(), r.var()), rewards, rtol=0.06)
    assert (p[..., 2] == 0.0).all()


def ending(states: int = 9) -> SparsePosterior:
    """A walk to the last state, which is absorbing without reward."""
    here = np.arange(states)
    successors = np.stack([np.minimum(here + 1, states - 1), np.maximum(here - 1, 0)], axis=1)[:, None, :]
    concentration = np.broadcast_to([6.0, 2.0], successors.shape).copy()
    successors[-1], concentration[-1] = states - 1, [1.0, 0.0]
    paid = (here < states - 1).astype(float)[:, None]
    return SparsePosterior(successors, concentration, -paid, 0.1 * paid)


@pytest.mark.filterwarnings("ignore::ubex.UbexWarning")
@pytest.mark.parametrize("estimator", ["closed-form", "first-order", "ensemble-var"])
def test_discount_one_ends_in_an_absorbing_state(estimator: str) -> None:
    posterior, policy = ending(), np.zeros(9, int)
    found = value_variance(posterior, policy, 1.0, estimator=estimator, key=0, num_models=4)
    near = value_variance(posterior, policy, 1.0 - 1e-9, estimator=estimator, key=0, num_models=4)
    np.testing.assert_allclose(found.v, near.v, rtol=1e-5, atol=1e-12)
    assert found.v[-1] == found.v_mean[-1] == 0.0
    with pytest.raises(InputError, match=r"discount 1 needs every state to reach .* but state 0 does not"):
        value_variance(random_posterior(0), np.zeros(12, int), 1.0, estimator=estimator, key=0)
    never = posterior.concentration.copy()
    never[3, 0] = [1e-7, 1e7]  # where the only way on is next to never taken
    stuck = SparsePosterior(posterior.successors, never, posterior.reward_mean, posterior.reward_variance)
    with pytest.raises(InputError, match="but state 0 does not"):
        value_variance(stuck, policy, 1.0, estimator=estimator, key=0)


def test_an_offset_of_the_rewards_costs_no_digits() -> None:
    posterior, policy = random_posterior(2), np.zeros(12, int)
    rewards = posterior.reward_mean + 1e9, posterior.reward_variance
    far = value_variance(SparsePosterior(posterior.successors, posterior.concentration, *rewards), policy, 0.9)
    np.testing.assert_allclose(far.v, value_variance(posterior, policy, 0.9).v, rtol=1e-6)


def test_where_the_closed_form_does_not_converge_it_is_of_first_order_and_says_so() -> None:
    sticky = SparsePosterior([[[0, 1]], [[1, 0]]], [[[0.05, 0.01]], [[0.05, 0.01]]], [[1.0], [0.0]])
    with pytest.warns(UbexWarning, match="closed-form did not converge"):
        found = value_variance(sticky, [0, 0], 0.999)
    assert_same(found, value_variance(sticky, [0, 0], 0.999, estimator="first-order"))


def test_too_few_data_give_the_warning_of_the_table() -> None:
    """A closed form that can be far off says by how much rows change their own returns, as for the same rows in a table."""
    table, policy = calibration_cases.make("cyclic-grid", 5.0, 25, 2, np.random.default_rng(0))
    alpha = table.transitions.alpha
    successors = np.argsort(-alpha, axis=-1, kind="stable")[..., :3]
    sparse = SparsePosterior(successors, np.maximum(np.take_along_axis(alpha, successors, -1), 1e-9), table.rewards.mean())
    share = {}
    for posterior in (table, sparse):
        with pytest.warns(UbexWarning, match="changes how often its own state is met again") as said:
            value_variance(posterior, policy, 0.9)
        share[type(posterior)] = re.findall(r"by \d+%", str(said[0].message))
    assert share[DirichletNormal] == share[SparsePosterior] == ["by 30%"]


@pytest.mark.filterwarnings("ignore::ubex.UbexWarning")
def test_two_thousand_states() -> None:
    """A corridor, whose factors are sparse, against a few states one by one; and no table where none is needed."""
    posterior, policy = ending(2000), np.zeros(2000, int)
    found = value_variance(posterior, policy, 0.95, estimator="first-order")
    assert_same(value_variance(posterior, policy, 0.95, estimator="first-order", starts=[0, 999]), found, [0, 999])
    whole = value_variance(posterior, policy, 0.95)
    assert (whole.v >= found.v).all()
    assert whole.v[0] > found.v[0]


GOOD = {"successors": [[[0, 1]], [[1, 0]]], "concentration": [[[1.0, 2.0]], [[1.0, 0.0]]]}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"successors": [[[0, 2]], [[1, 0]]]}, "successor 2 at state 0, action 0, place 1 is out of range: there are 2 states"),
        ({"successors": [[[0, -1]], [[1, 0]]]}, "successor -1 at state 0, action 0, place 1 is out of range"),
        ({"successors": [[[0.0, 1.0]], [[1.0, 0.0]]]}, "successors must hold whole numbers, but their type is float64"),
        ({"successors": [[0, 1], [1, 0]]}, r"successors must have shape \(S, A, K\), but they have shape \(2, 2\)"),
        ({"concentration": [[[1.0]], [[1.0]]]}, r"concentration must have the shape \(2, 1, 2\) of successors"),
        ({"concentration": [[[1.0, -2.0]], [[1.0, 0.0]]]}, "or 0 for none, but it is -2.0 at state 0, action 0, place 1"),
        ({"concentration": [[[1.0, np.nan]], [[1.0, 0.0]]]}, "but it is nan at state 0, action 0, place 1"),
        ({"concentration": [[[1.0, 2.0]], [[0.0, 0.0]]]}, "concentration leaves no successor at state 1, action 0"),
        ({"reward_mean": [1.0, 2.0, 3.0]}, r"reward_mean must broadcast to \(2, 1\), but it has shape \(3,\)"),
        ({"reward_mean": np.nan}, "reward_mean must be in .* but it is nan at state 0, action 0"),
        ({"reward_variance": -1.0}, r"reward_variance must be in \[0, 1e\+100\], but it is -1.0 at state 0, action 0"),
    ],
)
def test_bad_posteriors(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        SparsePosterior(**(GOOD | change))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"estimator": "pombu"}, "a SparsePosterior is for closed-form, first-order and ensemble-var, not for pombu"),
        ({"horizon": 3}, "a SparsePosterior has no horizon"),
        ({"estimator": "ensemble-var"}, "a posterior is sampled: give key="),
        ({"estimator": "ensemble-var", "key": 0, "num_models": 1}, "num_models must be at least 2, but it is 1"),
        ({"estimator": "ensemble-var", "key": 0, "ddof": 100}, "ddof must be smaller than the number of members 100"),
        ({"starts": [0, 2]}, "starts has the state 2 in it, but there are 2"),
        ({"starts": [0.5]}, r"starts must be a list of states, but it is \[0.5\]"),
        ({"starts": []}, r"starts must be a list of states, but it is \[\]"),
    ],
)
def test_bad_questions(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        value_variance(SparsePosterior(**GOOD), [0, 0], 0.9, **options)


def test_starts_are_for_sparse_posteriors() -> None:
    with pytest.raises(InputError, match="starts= is for a SparsePosterior"):
        value_variance(DirichletNormal(2, 1), [0, 0], 0.9, starts=[0])


def test_a_closed_form_that_does_not_fit_names_what_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ubex.checks.memory", lambda: 10)
    with pytest.raises(InputError, match="take estimator='first-order' with starts=, or 'ensemble-var'"):
        value_variance(SparsePosterior(**GOOD), [0, 0], 0.9)
    assert value_variance(SparsePosterior(**GOOD), [0, 0], 0.9, estimator="first-order", starts=[0]).v.shape == (1,)
