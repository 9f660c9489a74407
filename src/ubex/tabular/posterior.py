"""Conjugate posteriors over tabular MDPs: Dirichlet transitions with Normal or Normal-Gamma rewards.

Section "Tabular implementation" and appendix "Model learning" of the paper. Rows are independent, so the paper's
assumption of independent transitions holds by construction; acyclicity holds only with a `support` that forbids cycles.
The small records are the mathematics; `DirichletNormal` and `DirichletNormalGamma` are what users hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from ubex import checks
from ubex.keys import as_key, named
from ubex.precision import float64
from ubex.tabular.sampling import log_gamma, sample_dirichlet_in_parts
from ubex.types import MDP, InputError, Key, KeyLike, Transitions

TABLE = Float[np.ndarray, "S A"]
SAMPLING_COPIES = 2
"""Memory that drawing samples takes at its peak, in sizes of what is drawn; measured: 1.4."""
INSTEAD = "a SparsePosterior holds successors instead of tables"
AnyPosterior = TypeVar("AnyPosterior", bound="TabularPosterior")


_log_gamma = jax.jit(log_gamma)


class Dirichlet(NamedTuple):
    """Independent Dirichlet rows; entries of `alpha` that are 0 are impossible next states."""

    alpha: Float[np.ndarray, "S A T"]

    def observe(self, counts: Float[np.ndarray, "S A T"]) -> Dirichlet:
        """Adds transition counts."""
        return Dirichlet(self.alpha + counts)

    def mean(self) -> Float[np.ndarray, "S A T"]:
        """Posterior-mean transition probabilities."""
        mean: np.ndarray = self.alpha / self.alpha.sum(axis=-1, keepdims=True)
        return mean


class Normal(NamedTuple):
    """Unknown mean reward with a Normal prior and Normal noise of known precision. Infinite precision means known."""

    loc: TABLE
    precision: TABLE
    noise_precision: float

    def observe(self, count: TABLE, total: TABLE, scatter: TABLE) -> Normal:
        """Conditions on the number and sum of the observed rewards. Where the noise is known, their scatter tells nothing."""
        del scatter
        precision = self.precision + self.noise_precision * count
        weight = np.where(count > 0, self.noise_precision / precision, 0.0)
        return self._replace(loc=self.loc + weight * (total - count * self.loc), precision=precision)

    def mean(self) -> TABLE:
        """Posterior mean of the reward."""
        return self.loc

    def variance(self) -> TABLE:
        """Posterior variance of the mean reward."""
        return 1.0 / self.precision

    def sample(self, key: Key, num_models: int) -> Float[Array, "N S A"]:
        """Draws mean rewards."""
        noise = jax.random.normal(key, (num_models, *self.loc.shape), jnp.float64)
        return jnp.asarray(self.loc)[None] + jnp.sqrt(jnp.asarray(self.variance()))[None] * noise


class NormalGamma(NamedTuple):
    """Unknown mean reward and unknown noise: Normal-Gamma prior. Infinite `kappa` means a known mean."""

    loc: TABLE
    kappa: TABLE
    shape: TABLE
    rate: TABLE

    def observe(self, count: TABLE, total: TABLE, scatter: TABLE) -> NormalGamma:
        """Conditions on the number, the sum and the scatter of the observed rewards: the sum of their squared distances from
        their average. A sum of squares would not do, since a large average leaves no digits of it for the noise."""
        seen = count > 0
        average = np.where(seen, total / np.maximum(count, 1.0), 0.0)
        kappa = self.kappa + count
        shrink = np.where(seen, count / (1.0 + count / self.kappa), 0.0)  # kappa n / (kappa + n), finite for infinite kappa
        rate = self.rate + 0.5 * scatter + 0.5 * shrink * (average - self.loc) ** 2
        loc = self.loc + np.where(seen, count / kappa, 0.0) * (average - self.loc)
        return NormalGamma(loc=loc, kappa=kappa, shape=self.shape + 0.5 * count, rate=rate)

    def mean(self) -> TABLE:
        """Posterior mean of the reward."""
        return self.loc

    def variance(self) -> TABLE:
        """Posterior variance of the mean reward (a Student t): rate / (kappa (shape - 1)), infinite for shape <= 1."""
        heavy = self.shape <= 1.0
        return np.where(
            heavy & np.isfinite(self.kappa), np.inf, self.rate / (self.kappa * np.where(heavy, 1.0, self.shape - 1.0))
        )

    def sample(self, key: Key, num_models: int) -> Float[Array, "N S A"]:
        """Draws mean rewards, each with a noise level of its own."""
        shape = (num_models, *self.loc.shape)
        noise_shape = jnp.asarray(np.broadcast_to(self.shape, shape))
        log_precision = _log_gamma(named(key, "noise"), noise_shape) - np.log(self.rate)[None]
        noise = jax.random.normal(named(key, "mean"), shape, jnp.float64)
        scale = jnp.exp(-0.5 * log_precision) / jnp.sqrt(jnp.asarray(self.kappa))[None]
        return jnp.asarray(self.loc)[None] + noise * scale


@dataclass(frozen=True, eq=False)
class TabularPosterior:
    """Independent transitions and rewards (appendix B), with an optional absorbing terminal state as the last state."""

    transitions: Dirichlet
    rewards: Normal | NormalGamma
    terminal: bool

    @property
    def num_states(self) -> int:
        """Number of states of the modelled MDP, the terminal one included."""
        return int(self.transitions.alpha.shape[0])

    @property
    def num_actions(self) -> int:
        """Number of actions."""
        return int(self.transitions.alpha.shape[1])

    def observe(self: AnyPosterior, transitions: Transitions, repeats: int = 1) -> AnyPosterior:
        """The posterior after seeing transitions, each counted `repeats` times."""
        repeats = checks.whole("repeats", repeats, 1)
        state, action, reward, next_state = self._checked(transitions)
        count = np.zeros(self.transitions.alpha.shape)
        np.add.at(count, (state, action, next_state), float(repeats))
        number, total, scatter = count.sum(axis=-1), np.zeros(count.shape[:2]), np.zeros(count.shape[:2])
        np.add.at(total, (state, action), repeats * reward)
        average = total / np.maximum(number, 1.0)
        np.add.at(scatter, (state, action), repeats * (reward - average[state, action]) ** 2)
        posterior = object.__new__(type(self))
        TabularPosterior.__init__(
            posterior,
            self.transitions.observe(count),
            self.rewards.observe(number, total, scatter),
            self.terminal,
        )
        return posterior

    @float64
    def sample(self, key: KeyLike, num_models: int) -> MDP:
        """Draws MDPs from the posterior, on a leading axis."""
        num_models = checks.whole("num_models", num_models, 1)
        shape = (num_models, *self.transitions.alpha.shape)
        checks.fits("sampling the posterior, with an array", shape, SAMPLING_COPIES, INSTEAD)
        root = as_key(key)
        p = sample_dirichlet_in_parts(named(root, "transitions"), self.transitions.alpha, num_models)
        return MDP(p=p, r=self.rewards.sample(named(root, "rewards"), num_models))

    def mean(self) -> MDP:
        """The posterior-mean MDP (eq. mean_model)."""
        return MDP(p=self.transitions.mean(), r=self.rewards.mean())

    def restored(self: AnyPosterior, transitions: Dirichlet, rewards: Normal | NormalGamma) -> AnyPosterior:
        """This kind of posterior with parameters that were kept elsewhere, such as in a checkpoint."""
        posterior = object.__new__(type(self))  # not through __init__, which makes priors
        TabularPosterior.__init__(posterior, transitions, rewards, self.terminal)
        return posterior

    def _checked(self, transitions: Transitions) -> tuple[np.ndarray, ...]:
        num_states, num_actions = self.num_states, self.num_actions
        if not isinstance(transitions, tuple) or len(transitions) != len(Transitions._fields):
            raise InputError(f"transitions must be a Transitions, but they are {checks.shown(transitions)}")
        rows = [np.atleast_1d(checks.number_array(name, x)) for name, x in zip(Transitions._fields, transitions, strict=True)]
        if len({row.shape for row in rows}) != 1 or rows[0].ndim != 1:
            raise InputError(
                f"state, action, reward and next_state must be lists of one length, not {[row.shape for row in rows]}"
            )
        for name, row, limit in (
            ("state", rows[0], num_states),
            ("action", rows[1], num_actions),
            ("next_state", rows[3], num_states),
        ):
            if row.size and row.dtype.kind not in "iu":
                raise InputError(f"{name} must hold whole numbers, but its type is {row.dtype}")
            bad = (row < 0) | (row >= limit)
            if bad.any():
                raise InputError(f"{name} {row[bad][0]} of transition {bad.argmax()} is out of range: there are {limit}")
        state, action, next_state = (rows[i].astype(np.int64) for i in (0, 1, 3))
        reward = rows[2].astype(np.float64)
        bad = ~(np.abs(reward) <= checks.LARGEST)
        if bad.any():
            raise InputError(f"reward of transition {bad.argmax()} is {reward[bad][0]}, not at most {checks.LARGEST:g}")
        if self.terminal and (state == num_states - 1).any():
            raise InputError(f"transition {(state == num_states - 1).argmax()} starts in the terminal state {num_states - 1}")
        bad = self.transitions.alpha[state, action, next_state] == 0.0
        if bad.any():
            i = bad.argmax()
            raise InputError(f"transition {i} goes from state {state[i]} to {next_state[i]}, which the support rules out")
        return state, action, reward, next_state


class DirichletNormal(TabularPosterior):
    """Posterior with Dirichlet transitions and Normal rewards, the paper's tabular model.

    Example:
        >>> posterior = DirichletNormal(2, 1)
        >>> posterior = posterior.observe(Transitions(state=[0], action=[0], reward=[1.0], next_state=[1]))
        >>> posterior.sample(0, 2).p.shape
        (2, 2, 1, 2)
    """

    def __init__(
        self,
        num_states: int,
        num_actions: int,
        *,
        concentration: ArrayLike | None = None,
        prior_mass: float | None = None,
        support: ArrayLike | None = None,
        terminal: bool = False,
        reward_mean: ArrayLike = 0.0,
        reward_precision: ArrayLike = 1.0,
        noise_precision: float = 1e6,
    ) -> None:
        """Sets the prior.

        Args:
            num_states: S, without the terminal state.
            num_actions: A.
            concentration: Dirichlet parameters, a number or an array that broadcasts to (S, A, S') with S' counting the
                terminal state; 1/sqrt(S) by default, as in the paper.
            prior_mass: instead of `concentration`, the sum of a row's parameters, spread evenly over its possible next states:
                how many visits the prior weighs as much as.
            support: which next states are possible, broadcasts to (S, A, S'); all by default.
            terminal: adds an absorbing state with reward 0, known for certain, as the last state.
            reward_mean: prior mean of the rewards, broadcasts to (S, A).
            reward_precision: prior precision of the rewards, broadcasts to (S, A).
            noise_precision: precision of an observed reward; 1e6 as in the published runs (nearly noise-free).
        """
        transitions = _dirichlet_prior(num_states, num_actions, concentration, prior_mass, support, terminal)
        shape = transitions.alpha.shape[:2]
        loc = _table("reward_mean", reward_mean, shape, terminal, at_terminal=0.0)
        precision = _table("reward_precision", reward_precision, shape, terminal, at_terminal=np.inf, positive=True)
        noise = checks.real("noise_precision", noise_precision, checks.SMALLEST, checks.LARGEST)
        rewards = Normal(loc, precision, noise)
        super().__init__(transitions, rewards, terminal)


class DirichletNormalGamma(TabularPosterior):
    """Posterior with Dirichlet transitions and Normal-Gamma rewards: the noise of the rewards is learned as well.

    Example:
        >>> posterior = DirichletNormalGamma(2, 1)
        >>> posterior = posterior.observe(Transitions(state=[0], action=[0], reward=[1.0], next_state=[1]))
        >>> posterior.sample(0, 2).r.shape
        (2, 2, 1)
    """

    def __init__(
        self,
        num_states: int,
        num_actions: int,
        *,
        concentration: ArrayLike | None = None,
        prior_mass: float | None = None,
        support: ArrayLike | None = None,
        terminal: bool = False,
        reward_mean: ArrayLike = 0.0,
        reward_kappa: ArrayLike = 1.0,
        noise_shape: ArrayLike = 2.0,
        noise_rate: ArrayLike = 1.0,
    ) -> None:
        """Sets the prior: noise precision ~ Gamma(noise_shape, noise_rate), mean ~ Normal(reward_mean, 1/(kappa precision)).

        The transition arguments are those of `DirichletNormal`; the reward arguments broadcast to (S, A).
        """
        transitions = _dirichlet_prior(num_states, num_actions, concentration, prior_mass, support, terminal)
        shape = transitions.alpha.shape[:2]
        rewards = NormalGamma(
            loc=_table("reward_mean", reward_mean, shape, terminal, at_terminal=0.0),
            kappa=_table("reward_kappa", reward_kappa, shape, terminal, at_terminal=np.inf, positive=True),
            shape=_table("noise_shape", noise_shape, shape, terminal, at_terminal=2.0, positive=True),
            rate=_table("noise_rate", noise_rate, shape, terminal, at_terminal=1.0, positive=True),
        )
        super().__init__(transitions, rewards, terminal)


def _dirichlet_prior(
    num_states: int,
    num_actions: int,
    concentration: ArrayLike | None,
    mass: float | None,
    support: ArrayLike | None,
    terminal: bool,
) -> Dirichlet:
    num_states, num_actions = checks.whole("num_states", num_states, 1), checks.whole("num_actions", num_actions, 1)
    total = num_states + checks.flag("terminal", terminal)
    checks.fits("the Dirichlet parameters", (total, num_actions, total), instead=INSTEAD)
    inner = (num_states, num_actions, total)
    possible = checks.number_array("support", True if support is None else support)
    if possible.dtype.kind != "b" and not np.isin(possible, (0, 1)).all():
        raise InputError("support must say true or false of every next state, but it holds other numbers than 0 and 1")
    if mass is not None:
        if concentration is not None:
            raise InputError("concentration and prior_mass say the same in two ways: give one of them")
        mass = checks.real("prior_mass", mass, checks.SMALLEST, checks.LARGEST)
    default = num_states**-0.5
    given = checks.number_array("concentration", default if concentration is None else concentration).astype(np.float64)
    try:
        everywhere = np.broadcast_to(possible.astype(bool), inner)
        np.broadcast_to(given, inner)
    except ValueError:
        raise InputError(f"concentration {given.shape} and support {possible.shape} must broadcast to {inner}") from None
    stuck: np.ndarray = np.logical_not(everywhere.any(axis=-1))
    if stuck.any():
        raise InputError(f"support leaves no next state at {checks.first_place(stuck, ('state', 'action'))}")
    if mass is not None:
        given = mass / everywhere.sum(axis=-1, keepdims=True)
    parameters = np.where(possible.astype(bool), given, 0.0)  # no larger than what was given
    bad = possible.astype(bool) & ~((given >= checks.SMALLEST) & (given <= checks.LARGEST))
    if bad.any():
        where = checks.first_place(np.broadcast_to(bad, inner), ("state", "action", "next state"))
        worst = np.broadcast_to(given, bad.shape)[bad][0]
        raise InputError(f"Dirichlet parameters must be positive, but one is {worst} at {where}")
    alpha = np.zeros((total, num_actions, total))
    alpha[:num_states] = parameters
    if terminal:
        alpha[-1, :, -1] = 1.0
    return Dirichlet(alpha)


def _table(
    name: str, value: ArrayLike, shape: tuple[int, int], terminal: bool, *, at_terminal: float, positive: bool = False
) -> TABLE:
    given = checks.number_array(name, value)
    inner = (shape[0] - bool(terminal), shape[1])
    try:
        table = np.broadcast_to(given, inner).astype(np.float64)
    except ValueError:
        raise InputError(f"{name} must broadcast to {inner}, but it has shape {given.shape}") from None
    low = checks.SMALLEST if positive else -checks.LARGEST
    bad: np.ndarray = np.logical_not((table >= low) & (table <= checks.LARGEST))
    if bad.any():
        kind = "positive and finite" if positive else "finite"
        raise InputError(f"{name} must be {kind}, but it is {table[bad][0]} at {checks.first_place(bad, ('state', 'action'))}")
    return np.concatenate([table, np.full((1, shape[1]), at_terminal)]) if terminal else table
