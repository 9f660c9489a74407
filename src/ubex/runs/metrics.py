"""What is computed from the episodes of a run, from its seeds, and from the distance to the published results.

Regret and learning time are those of the paper's tabular experiments. A value that does not exist, such as the learning time
of a run that never learned, is NaN: it is left out of every statistic, and `seeds` counts what is left. SciPy's statistics
take a second to import, which worker processes save.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from ubex import checks
from ubex.types import InputError

Values: TypeAlias = Sequence[Any] | np.ndarray
"""Numbers in one row: a list, a tuple or an array."""

CONDITIONS = ("num_models", "gain", "size", "noise", "episodes", "steps")
"""Columns under which a published number was obtained; they have to agree where both sides give them."""
KEYS = ("environment", "method", *CONDITIONS, "metric")
PAPER = "paper"
"""The preset of the published runs, for experiments that have presets."""
OUR_OWN = ("prior_mass", "repeats", "noise_precision", "stochastic")
"""Settings of another task or another posterior than the published one, where they are given."""
SHARE = "solved_share"
"""A metric that is 0 or 1 for each seed, and a share of them in the mean."""
STATISTICS = ("mean", "standard_error", "iqm", "low", "high", "seeds")
COMPARISON = (
    "ours_mean",
    "ours_standard_error",
    "ours_seeds",
    "ours_low",
    "ours_high",
    "published_mean",
    "published_standard_error",
    "published_seeds",
    "difference_in_standard_errors",
    "smallest_difference",
    "verdict",
)

TRIM = 0.25
"""What the interquartile mean cuts off at each end."""
MATCH = 3.0
"""Combined standard errors within which two means can be the same."""
NARROW = 0.25
"""The smallest difference that the seeds could have shown, as a share of the published mean, for means that match."""
CLOSE = 0.05
"""Relative difference up to which means that differ are still called close."""


def total_regret(solved: Values) -> float:
    """The number of unsolved episodes: sum over episodes of 1 - solved.

    Example:
        >>> total_regret([True, False, False])
        2.0
    """
    return float(np.count_nonzero(~_flags(solved)))


def value_regret(values: Values, optimum: float) -> float:
    """The value lost over all episodes: sum over episodes of max(optimum - value, 0).

    Example:
        >>> value_regret([0.5, 1.0], optimum=1.0)
        0.5
    """
    return float(np.maximum(optimum - _row("values", values), 0.0).sum())


def learning_time(solved: Values, share: float = 0.1) -> float:
    """The first episode, counted from 1, at which the share of solved episodes so far is above `share`; NaN if there is none.

    min {t : (solved_1 + ... + solved_t) / t > share}

    Example:
        >>> learning_time([0, 0, 1, 1], share=0.4)
        4.0
    """
    flags = _flags(solved)
    above = np.cumsum(flags) / np.arange(1, flags.size + 1) > checks.real("share", share, 0.0, 1.0)
    return float(np.argmax(above) + 1) if above.any() else math.nan


def smoothed(values: Values, window: int) -> Float[np.ndarray, " T"]:
    """The trailing moving average, as long as the values: the mean of the last `window` of values_1..t at every t.

    Example:
        >>> smoothed([1.0, 2.0, 6.0], window=2).tolist()
        [1.0, 1.5, 4.0]
    """
    row, window = _row("values", values), checks.whole("window", window, 1)
    if not row.size:
        return row
    width = min(window, row.size)
    sums: Float[np.ndarray, " T"] = np.convolve(row, np.ones(width))[: row.size]
    return sums / np.minimum(np.arange(1, row.size + 1), width)


def mean_and_standard_error(values: Values) -> tuple[float, float]:
    """The mean and its standard error, std(values, ddof=1) / sqrt(n), which is NaN for one value; NaNs are left out.

    Example:
        >>> mean_and_standard_error([1.0, 3.0, math.nan])
        (2.0, 1.0)
    """
    row = _present(values)
    if row.size < 2:
        return (float(row[0]) if row.size else math.nan), math.nan
    if np.all(row == row[0]):  # exactly, where rounding in the sum would leave a tiny spread
        return float(row[0]), 0.0
    return float(row.mean()), float(row.std(ddof=1)) / math.sqrt(row.size)


def interquartile_mean(values: Values) -> float:
    """The mean without the floor(n / 4) smallest and as many largest values; with fewer than four it is the plain mean.

    Example:
        >>> interquartile_mean([0.0, 1.0, 3.0, 100.0])
        2.0
    """
    row = _present(values)
    return float(_trimmed_mean(row)) if row.size else math.nan


def bootstrap_interval(
    values: Values,
    statistic: Callable[..., Any] = interquartile_mean,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> tuple[float, float]:
    """The percentile bootstrap interval of a statistic: quantiles (1 -+ confidence) / 2 of it over samples with replacement.

    Percentiles, not the corrected BCa: with few seeds BCa has no value whenever leaving out any one seed changes nothing,
    while percentiles always exist and stay within the data. With very few seeds the interval is too narrow, as every
    bootstrap is. Equal values give an empty interval; one value says nothing about its spread and gives (NaN, NaN).

    Args:
        values: One value per seed; NaNs are left out.
        statistic: A function of an array; where it takes an `axis`, as `np.mean` does, all resamples are done at once.
        confidence: Coverage asked for, in (0, 1).
        resamples: Number of bootstrap samples.
        seed: Of the resampling; the same seed gives the same interval.

    Example:
        >>> low, high = bootstrap_interval([1.0, 2.0, 3.0, 4.0])
        >>> 1.0 <= low < high <= 4.0
        True
    """
    if not 0.0 < confidence < 1.0:
        raise InputError(f"confidence must be in (0, 1), but it is {confidence!r}")
    row, resamples = _present(values), checks.whole("resamples", resamples, 1)
    if row.size < 2:
        return math.nan, math.nan
    if np.all(row == row[0]):
        return float(statistic(row)), float(statistic(row))
    from scipy import stats

    result = stats.bootstrap(
        (row,),
        _trimmed_mean if statistic is interquartile_mean else statistic,
        n_resamples=resamples,
        confidence_level=confidence,
        method="percentile",
        random_state=np.random.default_rng(seed),
    )
    return float(result.confidence_interval.low), float(result.confidence_interval.high)


def share_interval(values: Values, confidence: float = 0.95) -> tuple[float, float]:
    """The exact binomial interval (Clopper and Pearson, 1934) of a share of seeds; values are 0 or 1, and NaNs are left out.

    Example:
        >>> low, high = share_interval([1.0] * 6 + [0.0] * 4)
        >>> round(low, 3), round(high, 3)
        (0.262, 0.878)
    """
    row = _present(values)
    if row.size == 0:
        return math.nan, math.nan
    from scipy import stats

    found = stats.binomtest(int(np.sum(row == 1.0)), row.size).proportion_ci(confidence, "exact")
    return float(found.low), float(found.high)


def summarize(results: pd.DataFrame) -> pd.DataFrame:
    """Statistics over seeds, one row for each group of rows that differ in `seed` and `value` only, in order of appearance.

    Adds mean, standard_error, iqm, low and high (the bootstrap interval of the iqm), and seeds (values that are not NaN). Of a
    share of seeds the mean takes the place of the iqm, and its exact interval that of the bootstrap.

    Example:
        >>> rows = pd.DataFrame({"method": "psrl", "metric": "total_regret", "seed": [0, 1], "value": [1.0, 3.0]})
        >>> float(summarize(rows)["mean"].iloc[0])
        2.0
    """
    rows = []
    for group, values in _groups(results):
        estimate = _estimate(values)
        spread = (interquartile_mean(values), *bootstrap_interval(values))
        if group.get("metric") == SHARE:
            spread = (estimate.mean, *share_interval(values))
        numbers = (estimate.mean, estimate.standard_error, *spread, estimate.seeds)
        rows.append(group | dict(zip(STATISTICS, numbers, strict=True)))
    return pd.DataFrame(rows, columns=[*_settings(results), *STATISTICS])


def published() -> pd.DataFrame:
    """The published results under this project's names: mean, standard error and number of seeds of each condition.

    A share of seeds is published without an error, but its value and the number of seeds give it: sqrt(p (1 - p) / (n - 1)).

    Example:
        >>> {"environment", "method", "metric", "mean", "standard_error", "seeds"} <= set(published().columns)
        True
    """
    with resources.files("ubex.runs").joinpath("published.csv").open(encoding="utf-8") as file:
        table = pd.read_csv(file)
    shares = table["metric"] == SHARE
    mean, seeds = table.loc[shares, "mean"], table.loc[shares, "seeds"]
    table.loc[shares, "standard_error"] = np.sqrt(mean * (1.0 - mean) / (seeds - 1.0))
    return table


def compare(results: pd.DataFrame) -> pd.DataFrame:
    """Our results next to every published one for the same environment, method, metric and conditions, with a verdict.

    A condition that one side does not give (no such column, or empty) agrees with anything; the table then shows the other
    side's. A preset other than the paper's has no published counterpart, and neither has a setting of `OUR_OWN`.

    Verdicts: `match` (within 3 combined standard errors, an unknown one counting as 0, where 3 of them are at most a quarter of
    the published mean), `compatible` (within 3 that are more: these seeds could not have shown a smaller difference),
    `within 5%` (of the published mean, otherwise), `differs`, `no published value`, and `too few seeds` (ours has no value).

    ours_low and ours_high are the 95% bootstrap interval of our mean, and of a share of seeds the exact one.
    difference_in_standard_errors = (ours - published) / sqrt(error_ours^2 + error_published^2), infinite over 0.
    smallest_difference is the smallest one that would not be compatible: 3 combined standard errors.
    Other settings of ours that vary between the rows get a column after the keys: otherwise rows could not be told apart.

    Example:
        >>> ours = published().iloc[:1].rename(columns={"mean": "value"}).assign(seed=0)
        >>> compare(ours[["environment", "method", "size", "metric", "seed", "value"]])["verdict"].iloc[0]
        'match'
    """
    _require(results, KEYS[:2])
    table, rows = published(), []
    for group, values in _groups(results):
        fits = _fitting(table, group)
        estimate = _estimate(values)
        interval = (math.nan, math.nan)
        if fits.any():
            interval = share_interval(values) if group.get("metric") == SHARE else bootstrap_interval(values, np.mean)
        for other in table[fits].to_dict("records"):
            theirs = _Estimate(other["mean"], other["standard_error"], other["seeds"])
            keys = {key: other[key] if pd.isna(group.get(key, math.nan)) else group[key] for key in KEYS}
            numbers = (*estimate, *interval, *theirs, *_judge(estimate, theirs))
            rows.append(group | keys | dict(zip(COMPARISON, numbers, strict=True)))
    others = [column for column in _settings(results) if column not in KEYS]
    joined = pd.DataFrame(rows, columns=[*KEYS, *others, *COMPARISON])
    same = [column for column in others if joined[column].nunique(dropna=False) <= 1]
    return joined.drop(columns=same)


def without_counterpart(results: pd.DataFrame) -> pd.DataFrame:
    """The rows for whose environment, method, metric and conditions nothing was published, as `compare` matches them.

    Example:
        >>> ours = published().iloc[:1].rename(columns={"mean": "value"}).assign(seed=0)
        >>> len(without_counterpart(ours)), len(without_counterpart(ours.assign(method="mine")))
        (0, 1)
    """
    table, settings = published(), _settings(results)
    groups = results.groupby(settings, sort=False, dropna=False)
    left: pd.DataFrame = groups.filter(lambda rows: not _fitting(table, dict(rows.iloc[0])).any())
    return left


def _fitting(table: pd.DataFrame, group: Mapping[str, Any]) -> pd.Series:
    """Which published rows a group of seeds is compared with."""
    preset = group.get("preset", PAPER)
    ours = any(not pd.isna(group.get(name, math.nan)) for name in OUR_OWN)
    fits = pd.Series((pd.isna(preset) or preset == PAPER) and not ours, index=table.index)
    for key in KEYS:
        if key in group and not pd.isna(group[key]):
            fits &= table[key].eq(group[key]) | table[key].isna()
    return fits


class _Estimate(NamedTuple):
    """A mean over seeds."""

    mean: float
    standard_error: float
    seeds: int


def _estimate(values: Values) -> _Estimate:
    """The mean with its standard error and the number of values that it is of."""
    return _Estimate(*mean_and_standard_error(values), _present(values).size)


def _judge(ours: _Estimate, theirs: _Estimate) -> tuple[float, float, str]:
    """The difference in combined standard errors, the smallest one that could have been shown, and the verdict."""
    if math.isnan(theirs.mean):
        return math.nan, math.nan, "no published value"
    if math.isnan(ours.mean):
        return math.nan, math.nan, "too few seeds"
    difference = ours.mean - theirs.mean
    error = math.hypot(*(0.0 if math.isnan(e) else e for e in (ours.standard_error, theirs.standard_error)))
    scaled = difference / error if error else math.copysign(math.inf, difference) if difference else 0.0
    smallest = MATCH * error
    if abs(scaled) <= MATCH:
        return scaled, smallest, "match" if smallest <= NARROW * abs(theirs.mean) else "compatible"
    return scaled, smallest, "within 5%" if abs(difference) <= CLOSE * abs(theirs.mean) else "differs"


def _groups(results: pd.DataFrame) -> Iterator[tuple[dict[str, Any], np.ndarray]]:
    """The settings and the values of each group of seeds, in order of first appearance."""
    _require(results, ("metric", "value"))
    settings = _settings(results)
    for group, rows in results.groupby(settings, sort=False, dropna=False):
        yield dict(zip(settings, group, strict=True)), rows["value"].to_numpy(dtype=np.float64)


def _settings(results: pd.DataFrame) -> list[str]:
    """All columns that a group of seeds has in common."""
    return [column for column in results.columns if column not in ("seed", "value")]


def _require(results: pd.DataFrame, columns: Sequence[str]) -> None:
    """Refuses tables without these columns."""
    for column in columns:
        if column not in results.columns:
            raise InputError(f"the results lack the column {column}; they have: {', '.join(map(str, results.columns))}")


def _trimmed_mean(samples: Float[np.ndarray, "*n T"], axis: int = -1) -> Any:
    """The interquartile mean along an axis."""
    from scipy import stats

    return stats.trim_mean(samples, TRIM, axis=axis)


def _row(name: str, values: Values) -> Float[np.ndarray, " T"]:
    """The values as one row of float64 numbers."""
    array = checks.number_array(name, values if isinstance(values, np.ndarray) else list(values))
    if array.ndim != 1:
        raise InputError(f"{name} must be one row of numbers, but the shape is {array.shape}")
    return array.astype(np.float64)


def _present(values: Values) -> Float[np.ndarray, " n"]:
    """The values that are not NaN."""
    row = _row("values", values)
    present: Float[np.ndarray, " n"] = row[~np.isnan(row)]
    return present


def _flags(solved: Values) -> Bool[np.ndarray, " T"]:
    """Whether each episode was solved, from booleans or zeros and ones."""
    row = _row("solved", solved)
    bad = (row != 0.0) & (row != 1.0)
    if bad.any():
        raise InputError(f"solved must hold booleans, but it is {row[bad][0]:g} at {checks.first_place(bad, ('episode',))}")
    flags: Bool[np.ndarray, " T"] = row == 1.0
    return flags
