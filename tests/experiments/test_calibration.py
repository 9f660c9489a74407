"""The truth harness: honest posteriors, scores by hand, and the case that tells the closed form from the equation."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from ubex import InputError
from ubex.estimators import ESTIMATORS
from ubex.experiments import calibration_cases as cases
from ubex.experiments import calibration_scores as scores
from ubex.experiments.calibration import Calibration, by_kind, case_table
from ubex.experiments.calibration_scores import Problem
from ubex.tabular.assumptions import visits_no_state_twice


@pytest.mark.parametrize("kind", cases.RANDOM_KINDS)
def test_random_posteriors_have_the_structure_that_they_are_named_for(kind: str) -> None:
    for seed in range(5):
        posterior, policy = cases.make(kind, 0.3, 25, 2, np.random.default_rng(seed))
        alpha = posterior.transitions.alpha
        inner = alpha[:-1] if posterior.terminal else alpha
        assert (posterior.num_states, policy.shape, policy.dtype) == (25, (25,), np.int32)
        if kind == cases.GRID:
            np.testing.assert_allclose(inner.sum(axis=-1), 3 * 0.3)
            np.testing.assert_allclose(inner[12][:, [13, 17, 7, 11]], [[0.72, 0.09, 0.09, 0.0], [0.09, 0.72, 0.0, 0.09]])
            np.testing.assert_allclose(inner[24, 0, [24, 19]], [0.81, 0.09])
        else:
            assert set(np.unique(inner)) <= {0.0, 0.3}
        assert visits_no_state_twice(posterior.sample(seed, 3).p) == kind.startswith("acyclic")
        assert posterior.rewards.variance().max() < 1e-9
        share = (inner > 0).mean()
        assert {"cyclic-dense": share == 1.0, "cyclic-sparse": 0.15 < share < 0.25}.get(kind, share < 0.5)
        assert (inner > 0).any(axis=-1).all()
    if kind == "acyclic-layered":
        layer = np.append(np.arange(24) // 5, 5)
        start, _, after = np.nonzero(inner)
        assert (layer[after] == layer[start] + 1).all()


@pytest.mark.parametrize(("kind", "states", "transitions"), [("deep-sea", 26, 5 * 7), ("rooms", 52, 40 * 7)])
def test_environments_are_the_papers_prior_and_the_data_of_so_many_episodes(kind: str, states: int, transitions: int) -> None:
    posterior, policy = cases.make(kind, 7.0, 25, 2, np.random.default_rng(0))
    counts = posterior.transitions.alpha[:-1] - (states - 1) ** -0.5
    assert posterior.num_states == states
    assert counts.sum() == pytest.approx(transitions)
    assert counts.min() > -1e-12
    np.testing.assert_allclose(policy, 1.0 / posterior.num_actions)


def test_scores_by_hand() -> None:
    found = scores.agreement(np.array([1.0, 1.0, 6.0, 2.0]), np.array([1.0, 2.0, 4.0, 8.0]))  # 0, -1/2, +1/2, -3/4
    assert found[scores.ERROR] == 0.5
    assert found["worst_relative_error"] == 0.75
    assert found["mean_relative_bias"] == -0.1875
    assert found["rank_correlation"] == pytest.approx(np.corrcoef([1.5, 1.5, 4, 3], [1, 2, 3, 4])[0, 1])
    assert scores.agreement(np.zeros(3), np.arange(1.0, 4.0))["rank_correlation"] == 0.0
    values = np.array([[0.0, 5.0], [1.9, 5.0], [2.1, 5.0], [-2.1, 9.0]])
    assert scores.coverage(np.array([0.0, 5.0]), np.array([1.0, 0.0]), values) == (2 + 3) / 8
    assert scores.coverage(np.array([0.0, 5.0]), np.array([1.0, -1.0]), values) == 2 / 8


def test_the_closed_form_is_near_where_the_equation_is_not() -> None:
    """Cyclic dense, 25 states, one pseudo-count a cell, discount 0.9, 10,000 samples behind the truth."""
    problem = Problem("cyclic-dense", 1.0, 25, 2, 10_000, 0)
    closed = scores.score(problem, "closed-form", scores.NO_SAMPLES, 0.9)
    exact = scores.score(problem, "exact-ube", 1000, 0.9)
    assert closed["truth_error"] < 0.02
    assert closed[scores.ERROR] < 0.04
    assert closed["worst_relative_error"] < 0.15
    assert 0.93 < closed["coverage"] < 0.97
    assert exact[scores.ERROR] > 0.5
    assert exact["coverage"] < 0.7
    assert closed[scores.UNROLLED] > 0.5


def test_without_cycles_both_are_exact() -> None:
    problem = Problem("acyclic-layered", 1.0, 25, 2, 10_000, 0)
    closed = scores.score(problem, "closed-form", scores.NO_SAMPLES, 0.9)
    exact = scores.score(problem, "exact-ube", 1000, 0.9)
    assert closed[scores.ERROR] < 4 * closed["truth_error"]
    assert exact[scores.ERROR] < 0.1
    assert closed[scores.UNROLLED] < 1e-9  # in layers no row can be met at two times
    assert closed[scores.VIOLATION] < 0.01


def test_samples_of_estimators_and_truth_are_independent_and_repeat() -> None:
    problem = Problem("cyclic-dense", 1.0, 9, 2, 100, 0)
    drawn, _ = scores.samples_of(problem, 5)
    scores.samples_of.cache_clear()
    again, _ = scores.samples_of(problem, 5)
    np.testing.assert_array_equal(drawn.samples.p, again.samples.p)
    policy = scores.case_of(problem).policy
    rows = np.asarray(drawn.samples.p)[:, np.arange(9), policy]
    assert not np.isin(rows, scores.chains_of(problem).p).any()


def test_cells_and_tables() -> None:
    experiment = Calibration()
    cells = experiment.cells()
    closed = [name for name, estimator in ESTIMATORS.items() if estimator.closed]
    assert len(cells) == 7 * 3 * 3 * (len(closed) + 4 * (len(ESTIMATORS) - len(closed)))
    assert {cell.settings["num_models"] for cell in cells if cell.method in closed} == {scores.NO_SAMPLES}
    assert {cell.settings["data"] for cell in cells if cell.environment == "rooms"} == {1.0, 10.0, 100.0}
    rows = [
        {"method": m, "environment": e, "num_models": n, "data": d, "discount": 0.9, "metric": metric, "value": v}
        for m, n, d, v in (("closed-form", 0, 1.0, 0.1), ("closed-form", 0, 5.0, 0.3), ("exact-ube", 5, 1.0, 0.8))
        for e in ("rooms",)
        for metric in (scores.ERROR, "truth_error", scores.VIOLATION, scores.UNROLLED, "converged")
    ]
    results = pd.DataFrame(rows)
    assert by_kind(results, scores.ERROR, "t", "n").rows == [["closed-form", "-", "0.2"], ["exact-ube", "5", "0.8"]]
    table = case_table(results)
    assert [row[:3] for row in table.rows] == [["rooms", "1", "0.9"], ["rooms", "5", "0.9"]]
    assert table.rows[0][-2:] == ["0.1", "0.8"]
    assert "fell back to first order in 0 of 2" in table.note


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kinds": ("moebius",)}, "unknown kind 'moebius'; choose from: acyclic-layered"),
        ({"methods": ("magic",)}, "unknown method 'magic'"),
        ({"discounts": (1.0,)}, "discounts must be between 0 and 1, but one is 1"),
        ({"counts": (0.0,)}, "counts must be in"),
        ({"truth_samples": 3}, "truth_samples must be at least 20"),
    ],
)
def test_bad_fields(fields: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Calibration(**fields)  # type: ignore[arg-type]


def test_small_random_mdps_are_posteriors_after_transitions() -> None:
    """The preset `small`: without cycles the equation is exact and the bound is not; with cycles neither is."""
    small = Calibration.of("small", methods=("exact-ube", "pombu"), num_models=(1000,))
    cells = small.cells()
    assert [cell.environment for cell in cells] == ["acyclic-observed"] * 2 + ["cyclic-observed"] * 2
    assert [cell.settings["data"] for cell in cells] == [20.0] * 4
    for kind in cases.OBSERVED_KINDS:
        posterior, policy = cases.make(kind, 20.0, 9, 2, np.random.default_rng(0))
        assert posterior.num_states == 9
        prior = (posterior.transitions.alpha[:-1] > 0).sum()
        assert posterior.transitions.alpha[:-1].sum() == pytest.approx(prior + 20)
        assert posterior.rewards.variance()[:-1].min() > 0.01
        assert visits_no_state_twice(posterior.sample(0, 3).p) == kind.startswith("acyclic")
        np.testing.assert_allclose(policy, 0.5)
    error = {
        (kind, method): scores.score(Problem(kind, 20.0, 9, 2, 5000, 0), method, 1000, 0.95)[scores.ERROR]
        for kind in cases.OBSERVED_KINDS
        for method in small.methods
    }
    assert error["acyclic-observed", "exact-ube"] < 0.1
    assert error["acyclic-observed", "pombu"] > 0.2
    assert error["cyclic-observed", "exact-ube"] > 0.2
