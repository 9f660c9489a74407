"""Regret, learning time, statistics over seeds and the comparison with the published results, by hand-computed numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ubex.runs import metrics
from ubex.types import InputError

NAN = math.nan
ROWS = hnp.arrays(np.float64, st.integers(1, 30), elements=st.floats(-1e6, 1e6, width=32))
FLAGS = st.lists(st.booleans(), min_size=1, max_size=60)


def deep_sea(values: list[float], **changes: Any) -> pd.DataFrame:
    """Results of exact-ube on DeepSea of size 10, whose published regret is 55.0 +- 0.45."""
    row: dict[str, Any] = {"experiment": "deep-sea", "environment": "deep-sea", "method": "exact-ube", "metric": "total_regret"}
    row |= {"num_models": 5, "gain": 1.0, "size": 10, "episodes": 1000}
    return pd.DataFrame([{**row, "seed": seed, "value": value, **changes} for seed, value in enumerate(values)])


# --- along a run


@pytest.mark.parametrize(
    ("solved", "regret"),
    [([], 0.0), ([False, True, False], 2.0), ([1, 1], 0.0), (np.zeros(4, bool), 4.0), ((0.0, 1.0), 1.0), ([np.False_], 1.0)],
)
def test_total_regret_counts_the_unsolved(solved: Any, regret: float) -> None:
    assert metrics.total_regret(solved) == regret


def test_solved_must_be_flags() -> None:
    with pytest.raises(InputError, match=r"solved must hold booleans, but it is 0.99 at episode 1"):
        metrics.total_regret([1.0, 0.99])
    with pytest.raises(InputError, match="one row"):
        metrics.learning_time(np.zeros((2, 3), bool))


def test_value_regret_is_clipped_in_every_episode() -> None:
    assert metrics.value_regret([17.0, 20.2947, 18.5], 19.0) == 2.5
    assert metrics.value_regret([], 19.0) == 0.0
    assert math.isnan(metrics.value_regret([NAN], 19.0))


@pytest.mark.parametrize(
    ("solved", "episode"),
    [
        ([True, False], 1.0),
        ([False] * 4 + [True], 5.0),
        ([False] * 9 + [True, True], 11.0),  # 1 of 10 is not above a tenth, 2 of 11 is
        ([False] * 29 + [True] * 3 + [False], NAN),  # 3 of 32 is not above a tenth
        ([False] * 27 + [True] * 4, 31.0),  # nor is 3 of 30, in floating point too
        ([False] * 50, NAN),
        ([], NAN),
    ],
)
def test_learning_time(solved: list[bool], episode: float) -> None:
    assert metrics.learning_time(solved) == pytest.approx(episode, nan_ok=True)


def test_learning_time_at_other_shares() -> None:
    assert metrics.learning_time([False, True, True, True], share=0.5) == 3.0
    assert math.isnan(metrics.learning_time([True, True], share=1.0))
    with pytest.raises(InputError, match="share"):
        metrics.learning_time([True], share=1.5)


@given(FLAGS)
def test_learning_time_by_definition(solved: list[bool]) -> None:
    shares = [sum(solved[:t]) / t for t in range(1, len(solved) + 1)]
    first = next((t for t, share in enumerate(shares, 1) if share > 0.1), NAN)
    assert metrics.learning_time(solved) == pytest.approx(first, nan_ok=True)
    assert metrics.total_regret(solved) + sum(solved) == len(solved)


def test_smoothed_averages_over_what_there_is() -> None:
    np.testing.assert_array_equal(metrics.smoothed([3, 5, 10, 0], 3), [3.0, 4.0, 6.0, 5.0])
    np.testing.assert_array_equal(metrics.smoothed([3, 5, 10], 1), [3.0, 5.0, 10.0])
    np.testing.assert_array_equal(metrics.smoothed([2, 4], 100), [2.0, 3.0])
    np.testing.assert_array_equal(metrics.smoothed([1, NAN, 1, 3], 2), [1.0, NAN, NAN, 2.0])
    assert metrics.smoothed([], 3).shape == (0,)


@pytest.mark.parametrize("window", [0, -1, 2.5])
def test_smoothed_refuses_windows(window: Any) -> None:
    with pytest.raises(Exception, match="window"):
        metrics.smoothed([1.0], window)


@given(ROWS, st.integers(1, 40))
def test_smoothed_by_definition(values: np.ndarray, window: int) -> None:
    expected = [values[max(0, t - window) : t].mean() for t in range(1, values.size + 1)]
    np.testing.assert_allclose(metrics.smoothed(values, window), expected, rtol=1e-9, atol=1e-6)


# --- over seeds


def test_mean_and_standard_error() -> None:
    mean, error = metrics.mean_and_standard_error([1.0, 2.0, 3.0, 4.0])  # variance 5/3
    assert (mean, error) == (2.5, pytest.approx(math.sqrt(5 / 12)))
    assert metrics.mean_and_standard_error([1.0, NAN, 3.0]) == (2.0, pytest.approx(1.0))
    assert metrics.mean_and_standard_error([0.1] * 3) == (0.1, 0.0)
    np.testing.assert_array_equal(metrics.mean_and_standard_error([7]), (7.0, NAN))
    np.testing.assert_array_equal(metrics.mean_and_standard_error([NAN, NAN]), (NAN, NAN))
    np.testing.assert_array_equal(metrics.mean_and_standard_error([]), (NAN, NAN))


def test_interquartile_mean() -> None:
    assert metrics.interquartile_mean([8, 1, 7, 2, 6, 3, 5, 4]) == 4.5
    assert metrics.interquartile_mean([1, 2, 3, 4, 5, 6, 70, 1000, NAN]) == 4.5
    assert metrics.interquartile_mean([0, 1, 2, 3, 100]) == 2.0
    assert metrics.interquartile_mean([0, 0, 9]) == 3.0
    assert metrics.interquartile_mean([5]) == 5.0
    assert math.isnan(metrics.interquartile_mean([]))
    assert math.isnan(metrics.interquartile_mean([NAN]))


def test_bootstrap_interval_of_two_values() -> None:
    """Resampled means are 0, 1/2, 1 with probabilities 1/4, 1/2, 1/4."""
    assert metrics.bootstrap_interval([0.0, 1.0], np.mean) == (0.0, 1.0)
    assert metrics.bootstrap_interval([0.0, 1.0], np.mean, confidence=0.4) == (0.5, 0.5)
    assert metrics.bootstrap_interval([0.0, NAN, 1.0], lambda row: float(np.max(row)), confidence=0.4) == (1.0, 1.0)


def test_a_share_of_seeds_has_its_exact_interval() -> None:
    """Of no success in ten the upper limit is 1 - 0.025^(1/10), by hand; one that is bootstrapped would be 0."""
    assert metrics.share_interval([0.0] * 10 + [NAN]) == pytest.approx((0.0, 1.0 - 0.025**0.1))
    rows = pd.DataFrame({"method": "sac", "metric": "solved_share", "seed": range(10), "value": [1.0] * 9 + [0.0]})
    found = metrics.summarize(rows).iloc[0]
    assert found["iqm"] == 0.9
    assert (found["low"], found["high"]) == pytest.approx((0.5550, 0.9975), abs=1e-4)
    compared = metrics.compare(rows.assign(environment="sparse-pendulum", noise=0.0, num_models=5, gain=1.0, episodes=75))
    assert (compared["ours_low"].iloc[0], compared["ours_high"].iloc[0]) == pytest.approx((0.5550, 0.9975), abs=1e-4)
    assert np.isnan(metrics.share_interval([NAN])).all()


def test_bootstrap_interval_of_the_iqm_ignores_an_outlier() -> None:
    values = [*np.linspace(0.0, 1.0, 19), 1e6]
    low, high = metrics.bootstrap_interval(values)
    assert 0.0 < low < metrics.interquartile_mean(values) < high < 1.0
    assert metrics.bootstrap_interval(values, np.mean)[1] > 1e4
    assert metrics.bootstrap_interval(values, confidence=0.5)[0] > low


def test_bootstrap_interval_is_the_normal_one_for_many_values() -> None:
    values = np.random.default_rng(1).normal(size=2000)
    mean, error = metrics.mean_and_standard_error(values)
    interval = metrics.bootstrap_interval(values, np.mean)
    np.testing.assert_allclose(interval, (mean - 1.96 * error, mean + 1.96 * error), atol=0.15 * error)


def test_bootstrap_interval_of_degenerate_samples() -> None:
    assert metrics.bootstrap_interval([2, 2, 2, 2]) == (2.0, 2.0)
    assert metrics.bootstrap_interval([2, 2], np.std) == (0.0, 0.0)
    for values in ([], [NAN, NAN], [3.0], [3.0, NAN]):
        np.testing.assert_array_equal(metrics.bootstrap_interval(values), (NAN, NAN))


def test_bootstrap_interval_repeats_and_checks_its_arguments() -> None:
    values = [1.0, 2.0, 4.0, 8.0, 16.0]
    assert metrics.bootstrap_interval(values, resamples=50) == metrics.bootstrap_interval(values, resamples=50)
    assert metrics.bootstrap_interval(values, resamples=50) != metrics.bootstrap_interval(values, resamples=50, seed=3)
    for confidence in (0.0, 1.0, 95.0, NAN):
        with pytest.raises(InputError, match="confidence"):
            metrics.bootstrap_interval(values, confidence=confidence)
    with pytest.raises(InputError, match="resamples"):
        metrics.bootstrap_interval(values, resamples=0)


@given(ROWS)
def test_statistics_stay_within_the_data(values: np.ndarray) -> None:
    slack = 1e-9 * np.abs(values).max()
    low, high = metrics.bootstrap_interval(values, resamples=20) if values.size > 1 else (values[0], values[0])
    mean, _ = metrics.mean_and_standard_error(values)
    for number in (low, high, mean, metrics.interquartile_mean(values)):
        assert values.min() - slack <= number <= values.max() + slack
    assert low <= high


# --- tables


def test_summarize() -> None:
    table = pd.concat(
        [
            deep_sea([1.0, 2.0, 3.0, 1000.0, 4.0], method="pombu"),
            deep_sea([7.0]),
            deep_sea([5.0, NAN, 5.0], method="pombu", metric="learning_time"),
            deep_sea([NAN, NAN], metric="learning_time"),
            deep_sea([1.0, 3.0], method="psrl", gain=NAN),
        ],
        ignore_index=True,
    )
    summary = metrics.summarize(table.sort_values("seed", kind="stable"))  # groups need not be contiguous
    settings = [column for column in table.columns if column not in ("seed", "value")]
    assert list(summary.columns) == [*settings, "mean", "standard_error", "iqm", "low", "high", "seeds"]
    assert list(summary["method"]) == ["pombu", "exact-ube", "pombu", "exact-ube", "psrl"]
    assert list(summary["metric"]) == [*["total_regret"] * 2, *["learning_time"] * 2, "total_regret"]
    np.testing.assert_array_equal(summary["seeds"], [5, 1, 2, 0, 2])
    np.testing.assert_array_equal(summary["mean"], [202.0, 7.0, 5.0, NAN, 2.0])
    np.testing.assert_array_equal(summary["iqm"], [3.0, 7.0, 5.0, NAN, 2.0])
    np.testing.assert_allclose(summary["standard_error"][1:], [NAN, 0.0, NAN, 1.0])
    np.testing.assert_array_equal(summary["low"][1:], [NAN, 5.0, NAN, 1.0])
    np.testing.assert_array_equal(summary["high"][1:], [NAN, 5.0, NAN, 3.0])
    assert 1.0 <= summary["low"][0] < 3.0 < summary["high"][0] <= 1000.0
    assert list(summary["size"]) == [10] * 5
    assert math.isnan(summary["gain"][4])


def test_summarize_nothing_and_nonsense() -> None:
    empty = metrics.summarize(pd.DataFrame(columns=["metric", "seed", "value"]))
    assert list(empty.columns) == ["metric", *metrics.STATISTICS]
    assert empty.empty
    with pytest.raises(InputError, match=r"lack the column value; they have: metric"):
        metrics.summarize(pd.DataFrame({"metric": ["a"]}))


def test_published_results() -> None:
    table = metrics.published()
    assert list(table.columns) == [*metrics.KEYS, "mean", "standard_error", "seeds"]
    assert len(table) == 125
    assert not table.duplicated(list(metrics.KEYS)).any()
    counts = {"deep-sea": 42, "seven-room": 8, "sparse-pendulum": 50, "pybullet-halfcheetah": 25}
    assert table["environment"].value_counts().to_dict() == counts
    names = "total_regret learning_time final_return mean_return mean_return_last_10 mean_return_episodes_21_30 solved_share"
    assert set(table["metric"]) == set(names.split())
    where = {column: set(table["environment"][table[column].notna()]) for column in ("size", "noise", "episodes", "steps")}
    assert where["size"] == {"deep-sea"}
    assert where["noise"] == {"sparse-pendulum"}
    assert where["steps"] == {"pybullet-halfcheetah"}
    assert where["episodes"] == set(counts) - where["steps"]


@pytest.mark.parametrize(
    ("condition", "mean", "error", "seeds"),
    [
        ("num_models == 5 and gain == 1 and size == 10 and metric == 'total_regret'", 55.0, 0.45, 5),
        ("environment == 'deep-sea' and num_models == 5 and size == 40 and metric == 'learning_time'", 574.2, 6.25, 5),
        ("environment == 'deep-sea' and num_models == 2", 158.8, 3.43, 5),
        ("environment == 'deep-sea' and gain == 2", 270.2, 1.85, 5),
        ("environment == 'seven-room' and episodes == 5000 and metric == 'total_regret'", 15227.71, 661.44, 10),
        ("environment == 'seven-room' and episodes == 1001 and metric == 'total_regret'", 14601.76, 382.9, 10),
        ("noise == 0.02 and episodes == 75 and metric == 'final_return'", 222.54, 5.69, 10),
        ("noise == 0.02 and episodes == 75 and metric == 'mean_return_last_10'", 209.53, 6.88, 10),
        ("noise == 0.02 and episodes == 75 and metric == 'mean_return_episodes_21_30'", 120.47, 37.18, 10),
        ("noise == 0.0 and episodes == 75 and metric == 'mean_return'", 97.62, 35.31, 10),
        ("noise == 0.0 and episodes == 75 and metric == 'solved_share'", 0.7, math.sqrt(0.7 * 0.3 / 9), 10),
        ("steps == 20_000 and metric == 'mean_return_last_10'", 655.73, 58.57, 10),
        ("steps == 200_000 and metric == 'mean_return_last_10'", 2361.88, 47.75, 10),
    ],
)
def test_known_published_results_of_exact_ube(condition: str, mean: float, error: float, seeds: int) -> None:
    rows = metrics.published().query(f"method == 'exact-ube' and {condition}")
    np.testing.assert_array_equal(rows[["mean", "standard_error", "seeds"]], [[mean, error, seeds]])


@pytest.mark.parametrize(
    ("values", "scaled", "verdict"),
    [
        ([54.0, 55.0, 56.0], 0.0, "match"),
        ([56.0, 56.0], 1.0 / 0.45, "match"),
        ([56.0], 1.0 / 0.45, "match"),
        ([57.0, 57.0], 2.0 / 0.45, "within 5%"),
        ([53.0, 53.0], -2.0 / 0.45, "within 5%"),
        ([58.0, 58.0, NAN], 3.0 / 0.45, "differs"),
        ([57.0, 59.0], 3.0 / math.sqrt(1.0 + 0.45**2), "match"),
        ([45.0, 65.0], 0.0, "compatible"),
        ([0.0, 5.0], -52.5 / math.hypot(2.5, 0.45), "differs"),
        ([NAN, NAN], NAN, "too few seeds"),
    ],
)
def test_verdicts(values: list[float], scaled: float, verdict: str) -> None:
    (row,) = metrics.compare(deep_sea(values)).to_dict("records")
    present = [value for value in values if not math.isnan(value)]
    assert row["verdict"] == verdict
    assert row["difference_in_standard_errors"] == pytest.approx(scaled, nan_ok=True)
    error = np.std(present, ddof=1) / math.sqrt(len(present)) if len(present) > 1 else 0.0
    assert row["smallest_difference"] == pytest.approx(3.0 * math.hypot(error, 0.45) if present else NAN, nan_ok=True)
    assert (row["ours_seeds"], row["published_seeds"]) == (len(present), 5)
    assert (row["published_mean"], row["published_standard_error"]) == (55.0, 0.45)
    assert row["ours_mean"] == pytest.approx(sum(present) / len(present) if present else NAN, nan_ok=True)


def test_compare_without_standard_errors() -> None:
    """SAC's published return is 0.0 +- 0.0, and so is its share of seeds; one seed of ours has no standard error."""
    shared = {"environment": "sparse-pendulum", "method": "sac", "noise": 0.0, "size": NAN, "num_models": NAN}
    for value, scaled, verdict in [(0.0, 0.0, "match"), (-1.0, -math.inf, "differs")]:
        for metric in ("final_return", "solved_share"):
            table = metrics.compare(deep_sea([value], metric=metric, episodes=75, **shared))
            assert list(table["difference_in_standard_errors"]) == [scaled]
            assert list(table["verdict"]) == [verdict]
            assert list(table["num_models"]) == [5]
    solved = deep_sea([1.0, 0.0], metric="solved_share", episodes=75, **shared | {"method": "exact-ube"})
    assert list(metrics.compare(solved)["difference_in_standard_errors"]) == [
        pytest.approx((0.5 - 0.7) / math.hypot(0.5, math.sqrt(0.7 * 0.3 / 9)))
    ]


def test_the_error_of_a_published_share_is_that_of_its_seeds() -> None:
    table = metrics.published().query("metric == 'solved_share' and method == 'ensemble-var' and noise == 0.02")
    seeds = np.array([1.0, 1.0, *[0.0] * 8])
    assert table["mean"].item() == pytest.approx(seeds.mean())
    assert table["standard_error"].item() == pytest.approx(seeds.std(ddof=1) / np.sqrt(10.0))


def test_compare_where_nothing_is_published() -> None:
    for values in ([900.0, 901.0], [NAN]):
        table = metrics.compare(deep_sea(values, method="pombu", size=40, metric="learning_time"))
        assert list(table["verdict"]) == ["no published value"]
        assert table["difference_in_standard_errors"].isna().all()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("episodes", 500),
        ("size", 11),
        ("gain", 0.5),
        ("num_models", 3),
        ("method", "odonoghue"),
        ("metric", "x"),
        ("gain", "1.0"),
    ],
)
def test_compare_gives_an_empty_table_for_other_conditions(column: str, value: Any) -> None:
    table = metrics.compare(deep_sea([55.0], **{column: value}))
    assert table.empty
    assert list(table.columns) == [*metrics.KEYS, *metrics.COMPARISON]


def test_compare_matches_on_what_both_sides_give() -> None:
    results = deep_sea([15000.0, 15001.0], environment="seven-room", size=29, noise=0.05, steps=40_000)
    for episodes, mean in [(5000, 15227.71), (1001, 14601.76)]:
        table = metrics.compare(results.assign(episodes=episodes))
        assert list(table["published_mean"]) == [mean]
        assert list(table["size"]) == [29]
        assert list(table["steps"]) == [40_000]
    both = metrics.compare(results.drop(columns=["episodes", "size"]))
    assert list(both["published_mean"]) == [15227.71, 14601.76]
    assert list(both["episodes"]) == [5000, 1001]
    assert metrics.compare(results.assign(episodes=1000)).empty
    assert len(metrics.compare(results[["environment", "method", "metric", "seed", "value"]])) == 2


def test_compare_keeps_settings_apart_that_the_published_table_does_not_have() -> None:
    results = pd.concat([deep_sea([55.0], u_min=-0.05), deep_sea([72.0], u_min=0.0)], ignore_index=True)
    table = metrics.compare(results)
    assert list(table.columns) == [*metrics.KEYS, "u_min", *metrics.COMPARISON]
    assert list(zip(table["u_min"], table["verdict"], strict=True)) == [(-0.05, "match"), (0.0, "differs")]
    assert list(metrics.compare(results[:1]).columns) == [*metrics.KEYS, *metrics.COMPARISON]


@pytest.mark.parametrize("setting", [{"stochastic": True}, {"repeats": 1}, {"prior_mass": 2.0}, {"noise_precision": 1.0}])
def test_another_task_or_posterior_has_no_published_counterpart(setting: dict[str, Any]) -> None:
    other, published = deep_sea([55.0], **setting), deep_sea([55.0])
    assert metrics.compare(other).empty
    both = pd.concat([other, published], ignore_index=True)  # the column is empty in the second row
    assert list(metrics.compare(both)["verdict"]) == ["match"]
    assert len(metrics.without_counterpart(both)) == 1


def test_compare_needs_its_columns() -> None:
    for column in ("environment", "method", "metric", "value"):
        with pytest.raises(InputError, match=f"lack the column {column}"):
            metrics.compare(deep_sea([55.0]).drop(columns=column))


@pytest.mark.parametrize(
    ("preset", "compared"), [("paper", True), (None, True), (np.nan, True), ("bounded", False), ("laptop", False)]
)
def test_only_the_papers_preset_is_held_against_the_published(preset: Any, compared: bool) -> None:
    ours = metrics.published().iloc[:1].rename(columns={"mean": "value"}).drop(columns=["standard_error", "seeds"])
    ours = ours.assign(seed=0, preset=preset)
    assert (not metrics.compare(ours).empty) is compared
    assert metrics.without_counterpart(ours).empty is compared
