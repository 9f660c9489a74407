"""The types that every part of ubex speaks: MDPs, observed transitions, and the paper's next-value moments.

An ensemble of MDPs (samples of a posterior) is one `MDP` whose arrays have a leading axis N.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    from jaxtyping import Array, Float, PRNGKeyArray

    Key: TypeAlias = PRNGKeyArray
    """An explicit JAX random key."""

    KeyLike: TypeAlias = int | PRNGKeyArray | np.ndarray
    """What the public functions take as a key: a JAX key, or an integer seed."""
else:

    def __getattr__(name: str) -> Any:
        """`Key` and `KeyLike`, which JAX has to be imported for; checks of input and the command line do without it."""
        if name not in ("Key", "KeyLike"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from jaxtyping import PRNGKeyArray

        return PRNGKeyArray if name == "Key" else int | PRNGKeyArray | np.ndarray


class InputError(ValueError):
    """Bad input from the caller: one line that names the problem and the place.

    Example:
        >>> try:
        ...     ubex.value_variance(ubex.MDP(p=[[[1.0]]], r=[[0.0]]), [0], 0.9)
        ... except ubex.InputError as error:
        ...     print(error)
        p has shape (1, 1, 1), one MDP without a sample axis: a variance needs samples, (N, S, A, S)
    """


class UbexWarning(UserWarning):
    """An answer that may be far off, such as that of an estimator whose assumptions do not hold; it names a better way.

    Example:
        >>> import warnings
        >>> loop = ubex.MDP(p=[[[[0.9, 0.1]], [[0.0, 1.0]]], [[[0.5, 0.5]], [[0.0, 1.0]]]], r=[[1.0], [0.0]])
        >>> with warnings.catch_warnings(action="error", category=UbexWarning):
        ...     try:
        ...         ubex.value_variance(loop, [0, 0], 0.9, estimator="pombu")
        ...     except UbexWarning as warning:
        ...         print(str(warning).split(",")[0])
        pombu assumes that no state is visited twice
    """


class AgentEntry(NamedTuple):
    """A line of a table of agents, tabular or deep.

    Example:
        >>> AgentEntry("greedy in the mean MDP").summary
        'greedy in the mean MDP'
    """

    summary: str


class MDP(NamedTuple):
    """One MDP, or N of them on a leading axis.

    Example:
        >>> mdp = MDP(p=[[[0.0, 1.0]], [[0.0, 1.0]]], r=[[1.0], [0.0]])
    """

    p: ArrayLike
    """Transition probabilities, shape `(*n, S, A, S)`."""
    r: ArrayLike
    """Rewards, shape `(*n, S, A)`; with samples in `p`, shape (S, A) means that the rewards are known."""


class Transitions(NamedTuple):
    """Observed transitions, one per row, each field of shape (T,); a posterior conditions on them.

    Example:
        >>> seen = Transitions(state=[0], action=[0], reward=[1.0], next_state=[1])
        >>> ubex.DirichletNormal(2, 1).observe(seen).mean().r[0, 0].round(3)
        np.float64(1.0)
    """

    state: ArrayLike
    action: ArrayLike
    reward: ArrayLike
    next_state: ArrayLike


@runtime_checkable
class Posterior(Protocol):
    """Anything that can stand for a posterior over MDPs.

    Example:
        >>> isinstance(ubex.DirichletNormal(2, 1), Posterior)
        True
    """

    def sample(self, key: KeyLike, num_models: int) -> MDP:
        """Draws MDPs, on a leading axis. Calls give a JAX key, also where they were given an integer."""
        ...

    def mean(self) -> MDP:
        """Returns the posterior-mean MDP."""
        ...


class NextValues(NamedTuple):
    """Moments of the values at the next step: everything the paper's local uncertainties are made of.

    The trailing shape is `S A` or `S` where they are computed exactly (tabular) and `B` where they are estimated by
    sampling (deep). "Mean" values are those of the posterior mean; "own" values are those of member i.

    Example:
        >>> x = jnp.zeros((5, 3, 2))  # N = 5 members, trailing shape S A = 3 2
        >>> moments = NextValues(x, x, x, x, total=x[0], chi_square=x, value_bound=jnp.asarray(0.0))
        >>> ubex.ESTIMATORS["pombu"].local(moments, 0).shape
        (3, 2)
    """

    mean_bar: Float[Array, "N *sa"]
    """Expectation under p_i and the policy of the mean value at the next step; for an estimator with `centred`, minus that
    under the mean model."""
    var_bar: Float[Array, "N *sa"]
    """Variance under p_i and the policy of the mean value."""
    var_member: Float[Array, "N *sa"]
    """Variance under p_i and the policy of member i's own value."""
    var_gap: Float[Array, "N *sa"]
    """Variance under p_i and the policy of (own value - mean value)."""
    total: Float[Array, "*sa"]
    """Variance under the mean model and the policy of the mean value."""
    chi_square: Float[Array, "N *sa"]
    """Sum over next states of (p_i - p_bar)^2 / p_bar; only the 2018 bound uses it, and only the tabular side has it."""
    value_bound: Float[Array, ""]
    """A bound on the absolute value of any member; only the 2018 bound uses it."""
    drop: Float[Array, "N *sa"] | None = None
    """total - var_bar, without that subtraction; only for an estimator with `centred`."""
    rise: Float[Array, "N *sa"] | None = None
    """var_member - var_bar, without that subtraction; only for an estimator with `centred`."""
