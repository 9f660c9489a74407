"""Conjugate updates against formulas by hand, and samples against closed-form moments."""

from __future__ import annotations

import numpy as np
import pytest

from ubex import DirichletNormal, DirichletNormalGamma, Posterior, Transitions, value_variance

SEEN = Transitions(state=[0, 0, 0, 1], action=[1, 1, 1, 0], reward=[1.0, 2.0, 6.0, -1.0], next_state=[2, 2, 0, 1])


def test_counts_are_added() -> None:
    prior = DirichletNormal(3, 2)
    posterior = prior.observe(SEEN)
    assert prior.transitions.alpha[0, 1, 2] == pytest.approx(3**-0.5)
    added = posterior.transitions.alpha - prior.transitions.alpha
    expected = np.zeros((3, 2, 3))
    expected[0, 1, 2], expected[0, 1, 0], expected[1, 0, 1] = 2.0, 1.0, 1.0
    np.testing.assert_allclose(added, expected, atol=1e-15)
    np.testing.assert_allclose(prior.observe(SEEN, repeats=4).transitions.alpha - prior.transitions.alpha, 4 * expected)


def test_observing_nothing_changes_nothing() -> None:
    prior = DirichletNormal(3, 2)
    nothing = Transitions([], [], [], [])
    np.testing.assert_array_equal(prior.observe(nothing).mean().p, prior.mean().p)


def test_normal_rewards() -> None:
    posterior = DirichletNormal(3, 2, reward_mean=0.5, reward_precision=2.0, noise_precision=4.0).observe(SEEN)
    assert posterior.rewards.precision[0, 1] == pytest.approx(2.0 + 3 * 4.0)
    assert posterior.mean().r[0, 1] == pytest.approx((2.0 * 0.5 + 4.0 * 9.0) / 14.0)
    assert posterior.mean().r[2, 0] == 0.5
    assert posterior.rewards.variance()[0, 1] == pytest.approx(1.0 / 14.0)


def test_normal_gamma_rewards() -> None:
    posterior = DirichletNormalGamma(3, 2, reward_mean=1.0, reward_kappa=2.0, noise_shape=3.0, noise_rate=4.0).observe(SEEN)
    rewards = posterior.rewards
    deviation = (1 - 3.0) ** 2 + (2 - 3.0) ** 2 + (6 - 3.0) ** 2
    assert rewards.loc[0, 1] == pytest.approx((2.0 * 1.0 + 9.0) / 5.0)
    assert rewards.kappa[0, 1] == 5.0
    assert rewards.shape[0, 1] == 4.5
    assert rewards.rate[0, 1] == pytest.approx(4.0 + 0.5 * deviation + 0.5 * (2.0 * 3.0 / 5.0) * (3.0 - 1.0) ** 2)
    assert rewards.variance()[0, 1] == pytest.approx(rewards.rate[0, 1] / (5.0 * 3.5))


def test_a_large_reward_leaves_the_digits_of_its_noise() -> None:
    """Rewards of a billion that differ by a thousandth: squares have no room for that."""
    rewards = 1e9 + np.array([0.0, 0.25, 0.5, 0.25])
    seen = Transitions([0] * 4, [0] * 4, rewards, [0] * 4)
    found = DirichletNormalGamma(1, 1, reward_mean=1e9, noise_rate=1e-3).observe(seen).rewards
    near = DirichletNormalGamma(1, 1, reward_mean=0.0, noise_rate=1e-3).observe(seen._replace(reward=rewards - 1e9)).rewards
    np.testing.assert_allclose(found.rate, near.rate, rtol=1e-6)


@pytest.mark.parametrize("kind", [DirichletNormal, DirichletNormalGamma])
def test_two_batches_equal_one(kind: type) -> None:
    prior = kind(3, 2)
    first = Transitions(*(np.asarray(x)[:2] for x in SEEN))
    second = Transitions(*(np.asarray(x)[2:] for x in SEEN))
    one, two = prior.observe(SEEN), prior.observe(first).observe(second)
    np.testing.assert_allclose(two.mean().r, one.mean().r, rtol=1e-12)
    np.testing.assert_allclose(two.rewards.variance(), one.rewards.variance(), rtol=1e-12)
    np.testing.assert_allclose(two.mean().p, one.mean().p, rtol=1e-14)
    assert isinstance(two, kind)


def row_covariance(alpha: np.ndarray) -> np.ndarray:
    """Covariance matrices of Dirichlet rows: (diag(p) - p p^T) / (alpha_0 + 1)."""
    total = alpha.sum(axis=-1)[..., None]
    p = alpha / total
    return (p[..., None] * np.eye(p.shape[-1]) - p[..., None] * p[..., None, :]) / (total[..., None] + 1.0)


@pytest.mark.parametrize("kind", [DirichletNormal, DirichletNormalGamma])
def test_samples_have_the_closed_form_moments(kind: type) -> None:
    settings = {"noise_precision": 0.5} if kind is DirichletNormal else {"noise_shape": 6.0}
    posterior = kind(3, 2, **settings).observe(SEEN)
    samples = posterior.sample(1, 40_000)
    assert isinstance(posterior, Posterior)
    assert isinstance(samples.p, np.ndarray)
    assert samples.p.dtype == samples.r.dtype == np.float64
    x = np.array([1.0, -2.0, 0.5])
    np.testing.assert_allclose(samples.p.mean(axis=0), posterior.mean().p, atol=0.008)
    covariance = row_covariance(posterior.transitions.alpha)
    np.testing.assert_allclose((samples.p @ x).var(axis=0), covariance @ x @ x, rtol=0.05)
    np.testing.assert_allclose(np.cov(samples.p[:, 0, 1], rowvar=False), covariance[0, 1], atol=0.002)
    np.testing.assert_allclose(samples.r.mean(axis=0), posterior.mean().r, atol=0.03)
    np.testing.assert_allclose(samples.r.var(axis=0), posterior.rewards.variance(), rtol=0.08)


def test_heavy_tails_have_infinite_variance() -> None:
    assert np.isinf(DirichletNormalGamma(2, 1, noise_shape=1.0).rewards.variance()).all()


@pytest.mark.filterwarnings("ignore::ubex.UbexWarning")
@pytest.mark.parametrize("kind", [DirichletNormal, DirichletNormalGamma])
def test_terminal_state_is_absorbing_and_certain(kind: type) -> None:
    posterior = kind(3, 2, terminal=True)
    assert posterior.num_states == 4
    posterior = posterior.observe(Transitions([0], [0], [5.0], [3]))
    samples = posterior.sample(0, 50)
    assert (samples.p[:, 3, :, 3] == 1.0).all()
    assert (samples.r[:, 3] == 0.0).all()
    assert (posterior.mean().p[3, :, 3] == 1.0).all()
    assert (posterior.mean().r[3] == 0.0).all()
    assert posterior.mean().r[0, 0] > 2.0
    result = value_variance(posterior, np.full((4, 2), 0.5), 1.0, key=0)
    assert result.v[3] == 0.0
    assert np.isfinite(result.v).all()
    with pytest.raises(ValueError, match="starts in the terminal state 3"):
        posterior.observe(Transitions([3], [0], [0.0], [3]))


def test_default_concentration_counts_environment_states_only() -> None:
    assert DirichletNormal(16, 2, terminal=True).transitions.alpha[0, 0, 16] == pytest.approx(0.25)


def test_a_mass_is_spread_over_the_next_states_that_are_possible() -> None:
    support = np.triu(np.ones((3, 3), dtype=bool))[:, None, :]
    alpha = DirichletNormal(3, 2, support=support, prior_mass=6.0).transitions.alpha
    np.testing.assert_array_equal(alpha[:, 0], [[2.0, 2.0, 2.0], [0.0, 3.0, 3.0], [0.0, 0.0, 6.0]])


def test_support_forbids_transitions() -> None:
    support = np.triu(np.ones((3, 3), dtype=bool))[:, None, :]
    posterior = DirichletNormal(3, 2, support=support)
    assert (posterior.sample(0, 20).p[:, 2, :, :2] == 0.0).all()
    with pytest.raises(ValueError, match="goes from state 2 to 0, which the support rules out"):
        posterior.observe(Transitions([2], [0], [0.0], [0]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"concentration": 0.0},
            "Dirichlet parameters must be positive, but one is 0.0 at state 0, action 0, next state 0",
        ),
        ({"concentration": -1.0}, "Dirichlet parameters must be positive"),
        ({"concentration": np.nan}, "Dirichlet parameters must be positive"),
        ({"concentration": np.ones((7,))}, "must broadcast to"),
        ({"prior_mass": 0.0}, "prior_mass must be in"),
        ({"prior_mass": 2.0, "concentration": 1.0}, "concentration and prior_mass say the same in two ways: give one of them"),
        ({"support": np.zeros((3, 2, 3))}, "support leaves no next state at state 0, action 0"),
        ({"reward_precision": 0.0}, "reward_precision must be positive"),
        ({"noise_precision": -1.0}, "noise_precision must be in"),
        ({"reward_mean": np.inf}, "reward_mean must be finite"),
        ({"reward_mean": np.zeros((9, 9))}, "reward_mean must broadcast"),
    ],
)
def test_bad_priors(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DirichletNormal(3, 2, **settings)


@pytest.mark.parametrize(("states", "actions", "name"), [(0, 2, "num_states"), (-1, 2, "num_states"), (3, 0, "num_actions")])
def test_bad_sizes(states: int, actions: int, name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at least 1"):
        DirichletNormal(states, actions)


@pytest.mark.parametrize(
    ("transitions", "message"),
    [
        (Transitions([0], [0], [0.0], [3]), "next_state 3 of transition 0 is out of range: there are 3"),
        (Transitions([0, -1], [0, 0], [0.0, 0.0], [1, 1]), "state -1 of transition 1 is out of range"),
        (Transitions([0], [2], [0.0], [1]), "action 2 of transition 0 is out of range"),
        (Transitions([0], [0], [np.nan], [1]), "reward of transition 0 is nan"),
        (Transitions([0.5], [0], [0.0], [1]), "state must hold whole numbers"),
        (Transitions([0, 1], [0], [0.0], [1]), "lists of one length"),
    ],
)
def test_bad_transitions(transitions: Transitions, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DirichletNormal(3, 2).observe(transitions)


def test_same_key_same_samples() -> None:
    posterior = DirichletNormal(3, 2)
    np.testing.assert_array_equal(posterior.sample(7, 3).p, posterior.sample(7, 3).p)
    assert not np.array_equal(posterior.sample(7, 3).p, posterior.sample(8, 3).p)
