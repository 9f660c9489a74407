"""What the calls answer with: NumPy arrays by name, and what people ask of them next: a table, an interval, a picture.

Intervals and probabilities take the posterior of a value for a normal distribution with its mean and variance. For the variance
no such assumption is made.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ubex import checks
from ubex.types import InputError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CONFIDENCE = 0.9
ROUNDING = 1e-9
"""A negative variance is rounding, and counts as 0, where it is not below minus this share of the largest one."""


class ValueVariance(NamedTuple):
    """What `value_variance` returns: float64 NumPy arrays. Nothing is clamped: with `u_min=-inf` variances can be negative.

    Example:
        >>> found = ubex.value_variance(ubex.DirichletNormal(2, 1, prior_mass=200.0), [0, 0], 0.9)
        >>> found.v.shape, found.q.shape, found.local.shape
        ((2,), (2, 1), (2, 1))
        >>> list(found.frame().columns)
        ['mean', 'variance', 'deviation', 'low', 'high']
    """

    v: Float[np.ndarray, " S"]
    """Variance of the state values, by the V form of the equation."""
    q: Float[np.ndarray, "S A"]
    """Variance of the action values, by the Q form. Its policy average is not `v`."""
    v_mean: Float[np.ndarray, " S"]
    """State values of the mean MDP."""
    q_mean: Float[np.ndarray, "S A"]
    """Action values of the mean MDP."""
    local: Float[np.ndarray, "S A"]
    """The uncertainty rewards that were propagated (Q form); 0 for estimators that propagate nothing."""
    estimator: str = ""
    """The name of the estimator, be it asked for or chosen; the summary of one that has no name."""
    states: Int[np.ndarray, " S"] | None = None
    """The states that the arrays are about, line by line, where `starts` named them; None where they are about all."""

    def interval(self, confidence: float = CONFIDENCE) -> tuple[Float[np.ndarray, " S"], Float[np.ndarray, " S"]]:
        """Where the value of each state lies with this probability, if it is normally distributed: the low and the high end.

        It is NaN where the variance is negative, but for rounding.

        Example:
            >>> low, high = ubex.value_variance(ubex.DirichletNormal(2, 1, prior_mass=200.0), [0, 0], 0.9).interval(0.9)
            >>> bool((low <= high).all())
            True
        """
        return _interval(self.v_mean, self.v, confidence)

    def frame(self, confidence: float = CONFIDENCE, *, actions: bool = False) -> pd.DataFrame:
        """A table with a line per state, or with `actions` per state and action: mean, variance, deviation and interval.

        Where a variance is negative, but for rounding, there is no deviation: NaN.

        Example:
            >>> found = ubex.value_variance(ubex.DirichletNormal(2, 3, prior_mass=200.0), [0, 0], 0.9)
            >>> found.frame(actions=True).index.names, len(found.frame(actions=True))
            (FrozenList(['state', 'action']), 6)
        """
        import pandas as pd

        mean, variance = (self.q_mean, self.q) if checks.flag("actions", actions) else (self.v_mean, self.v)
        low, high = _interval(mean, variance, confidence)
        columns = {"mean": mean, "variance": variance, "deviation": _deviation(variance), "low": low, "high": high}
        states = pd.RangeIndex(len(mean), name="state") if self.states is None else pd.Index(self.states, name="state")
        index = pd.MultiIndex.from_product([states, range(mean.shape[1])], names=["state", "action"]) if actions else states
        return pd.DataFrame({name: array.ravel() for name, array in columns.items()}, index=index)

    def plot(self, shape: tuple[int, int] | None = None, confidence: float = CONFIDENCE) -> Figure:
        """A picture: values of the states with their intervals; with the `shape` of a grid, maps of means and deviations.

        A grid is for an answer about all states. It may leave out the last one where that is terminal: absorbing and without
        reward, so that all there is about it is 0.

        Example:
            >>> found = ubex.value_variance(ubex.DirichletNormal(6, 2, prior_mass=200.0), [0] * 6, 0.9)
            >>> len(found.plot().axes), len(found.plot(shape=(2, 3)).axes)
            (1, 4)
        """
        from ubex.calls.picture import Picture

        if shape is None:
            figure = Picture(figsize=(7.0, 3.2), layout="constrained")
            states = np.arange(self.v.size) if self.states is None else self.states
            draw_states(figure.subplots(), states, self.v_mean, *self.interval(confidence))
            return figure
        rows, columns = (checks.whole("shape", one, 1) for one in checks.pair("shape", shape))
        if self.states is not None:
            raise InputError(f"shape is for an answer about all states, but this one is about {self.v.size} of starts=")
        left_out = self.v.size - rows * columns
        if left_out not in (0, 1):
            raise InputError(f"shape {rows} x {columns} has {rows * columns} places, but there are {self.v.size} states")
        if left_out and any(np.any(array[-1]) for array in (self.v, self.q, self.v_mean, self.q_mean)):
            raise InputError(
                f"shape {rows} x {columns} leaves out the last of {self.v.size} states, "
                "but its means and variances are not all 0, as those of a terminal state are"
            )
        figure = Picture(figsize=(8.0, 3.6), layout="constrained")
        maps = (("mean value", self.v_mean), ("standard deviation", _deviation(self.v)))
        for axes, (title, values) in zip(figure.subplots(1, 2), maps, strict=True):
            image = axes.imshow(
                values[: rows * columns].reshape(rows, columns), cmap="viridis" if values is self.v_mean else "magma"
            )
            axes.set_title(title)
            axes.set_xticks([])
            axes.set_yticks([])
            figure.colorbar(image, ax=axes, shrink=0.8)
        return figure


class ValueCovariance(NamedTuple):
    """What `value_covariance` returns, as NumPy arrays.

    Example:
        >>> found = ubex.value_covariance(ubex.DirichletNormal(3, 2, concentration=20.0), [0, 0, 0], 0.9)
        >>> found.covariance.shape, found.mean.shape, found.converged
        ((3, 3), (3,), True)
    """

    covariance: Float[np.ndarray, "S S"]
    """Posterior covariance of the values of any two states."""
    mean: Float[np.ndarray, " S"]
    """Values in the mean MDP."""
    converged: bool
    """Whether the fixed point was reached; otherwise the covariance is of first order, and too small. True without one."""
    estimator: str = ""
    """The name of what estimated it."""


class PolicyDifference(NamedTuple):
    """What `policy_difference` returns: of V under the first policy minus V under the second.

    Example:
        >>> found = ubex.policy_difference(ubex.DirichletNormal(3, 2, concentration=20.0), [0, 0, 0], [0, 0, 0], 0.9)
        >>> found.mean.shape, bool(found.variance.max() < 1e-9), found.probability.tolist()
        ((3,), True, [0.5, 0.5, 0.5])
    """

    mean: Float[np.ndarray, " S"]
    """Of the members, for `ensemble-var`; else the difference in the mean MDP, which is not quite the posterior's mean."""
    variance: Float[np.ndarray, " S"]
    converged: bool
    estimator: str = ""

    @property
    def probability(self) -> Float[np.ndarray, " S"]:
        """How probable it is that the first policy is better in each state, if the difference is normally distributed.

        Where nothing is uncertain it is 1, 0, or a half for policies that are equally good.
        """
        from scipy.special import ndtr

        deviation = _deviation(self.variance)
        certain = np.heaviside(self.mean, 0.5)
        score = np.divide(self.mean, deviation, out=np.zeros_like(self.mean), where=deviation != 0)
        found: np.ndarray = np.where(deviation != 0, ndtr(score), certain)
        return found


def draw_states(
    axes: Axes,
    states: Int[np.ndarray, " S"],
    mean: Float[np.ndarray, " S"],
    low: Float[np.ndarray, " S"],
    high: Float[np.ndarray, " S"],
) -> None:
    """A point per state, and its interval."""
    axes.errorbar(states, mean, [mean - low, high - mean], fmt="o", markersize=4, capsize=2, linewidth=1)
    axes.locator_params(axis="x", integer=True, min_n_ticks=1)  # no ticks between states
    axes.set_xlabel("state")
    axes.set_ylabel("value")


def _deviation(variance: Float[np.ndarray, "*sa"]) -> Float[np.ndarray, "*sa"]:
    """The root; NaN of what is negative, but for rounding."""
    largest = np.max(np.abs(variance), where=np.isfinite(variance), initial=0.0)
    found: np.ndarray = np.sqrt(np.where(variance < -ROUNDING * largest, np.nan, np.maximum(variance, 0.0)))
    return found


def _interval(
    mean: Float[np.ndarray, "*sa"], variance: Float[np.ndarray, "*sa"], confidence: float
) -> tuple[Float[np.ndarray, "*sa"], Float[np.ndarray, "*sa"]]:
    share = checks.real("confidence", confidence)
    if not 0.0 < share < 1.0:
        raise InputError(f"confidence must be between 0 and 1, but it is {share!r}")
    reach = NormalDist().inv_cdf(0.5 + 0.5 * share) * _deviation(variance)
    return mean - reach, mean + reach
