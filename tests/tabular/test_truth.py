"""Brute force against what is known exactly: rows, errors of the variance, and dependence between rows and values."""

from __future__ import annotations

import numpy as np
import pytest
from worlds import random_policy

from ubex import DirichletNormal, DirichletNormalGamma, InputError
from ubex.tabular import truth
from ubex.tabular.truth import Chains


def posterior() -> DirichletNormal:
    generator = np.random.default_rng(0)
    return DirichletNormal(
        4,
        2,
        concentration=0.5 + generator.gamma(1.0, size=(4, 2, 4)),
        reward_mean=generator.normal(size=(4, 2)),
        reward_precision=generator.gamma(2.0, size=(4, 2)),
    )


@pytest.mark.parametrize("chunk", [60, 2_000_000])
def test_chains_have_the_moments_of_the_posterior(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truth, "CHUNK_ENTRIES", chunk * 100)
    belief, number = posterior(), 20_001
    p, r = belief.transitions.mean(), belief.rewards.mean()
    variance = p * (1.0 - p) / (belief.transitions.alpha.sum(axis=-1, keepdims=True) + 1.0)
    for policy in (random_policy(0, 4, 2), np.array([0, 1, 1, 0], np.int32)):
        weights = np.eye(2)[policy] if policy.ndim == 1 else policy
        found = truth.sample_chains(belief, policy, 0, number)
        assert found.p.shape == (number, 4, 4)
        np.testing.assert_allclose(found.p.sum(axis=-1), 1.0, rtol=1e-12)
        np.testing.assert_allclose(found.p.mean(axis=0), np.einsum("sa,sat->st", weights, p), atol=0.01)
        np.testing.assert_allclose(found.p.var(axis=0), np.einsum("sa,sat->st", weights**2, variance), rtol=0.08)
        np.testing.assert_allclose(found.r.mean(axis=0), (weights * r).sum(axis=1), atol=0.05)
        np.testing.assert_allclose(found.r.var(axis=0), (weights**2 * belief.rewards.variance()).sum(axis=1), rtol=0.05)
        assert len(np.unique(found.r[:, 0])) == number  # no chunk repeats another


def test_only_the_chosen_actions_remain() -> None:
    actions = np.array([1, 0, 1, 1], np.int32)
    for belief in (posterior(), DirichletNormalGamma(4, 2, reward_mean=np.arange(8.0).reshape(4, 2))):
        found = truth.only(belief, actions)
        assert found.num_actions == 1
        np.testing.assert_array_equal(found.transitions.alpha[:, 0], belief.transitions.alpha[np.arange(4), actions])
        np.testing.assert_array_equal(found.rewards.mean()[:, 0], belief.rewards.mean()[np.arange(4), actions])


def test_the_variance_knows_its_own_error() -> None:
    """For Normal values it is variance sqrt(2 / N), and it is what the variances of repetitions show."""
    generator = np.random.default_rng(1)
    scale = np.array([0.5, 3.0])
    still = np.broadcast_to(np.eye(2), (4000, 2, 2))
    runs = [truth.brute_force(Chains(still, scale * generator.normal(size=(4000, 2))), 0.5) for _ in range(200)]
    exact = (2.0 * scale) ** 2  # V = r / (1 - 0.5)
    np.testing.assert_allclose(np.mean([run.variance for run in runs], axis=0), exact, rtol=0.01)
    np.testing.assert_allclose(np.mean([run.standard_error for run in runs], axis=0), exact * (2 / 4000) ** 0.5, rtol=0.02)
    np.testing.assert_allclose(np.std([run.variance for run in runs], axis=0), exact * (2 / 4000) ** 0.5, rtol=0.15)


def test_values_solve_the_bellman_equation_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truth, "CHUNK_ENTRIES", 16 * 7)
    chains = truth.sample_chains(posterior(), random_policy(0, 4, 2), 3, 50)
    found = truth.brute_force(chains, 0.9)
    np.testing.assert_allclose(found.values, chains.r + 0.9 * np.einsum("nst,nt->ns", chains.p, found.values), rtol=1e-9)
    np.testing.assert_allclose(found.variance, found.values.var(axis=0), rtol=1e-12)


def test_coupling_is_what_a_row_and_the_value_it_leads_to_have_in_common() -> None:
    """A state that stays with an unknown probability: V = 1 / (1 - g p). Without cycles there is none."""
    loop = DirichletNormal(1, 1, terminal=True, concentration=[[[2.0, 2.0]]], reward_mean=1.0, reward_precision=1e12)
    chains = truth.sample_chains(loop, np.zeros(2, np.int32), 0, 5000)
    found = truth.brute_force(chains, 0.9)
    stay = chains.p[:, 0, 0]
    values = 1.0 / (1.0 - 0.9 * stay)
    expected = 0.9 * np.cov(stay, values, ddof=0)[0, 1] / values.std()
    np.testing.assert_allclose(truth.coupling(chains, found, 0.9), [expected, 0.0], rtol=1e-4, atol=1e-9)
    assert expected > 0.1
    chain = DirichletNormal(
        3, 1, terminal=True, support=(np.arange(4) > np.arange(3)[:, None])[:, None], reward_mean=[[1.0], [2.0], [4.0]]
    )
    chains = truth.sample_chains(chain, np.zeros(4, np.int32), 0, 20_000)
    assert truth.coupling(chains, truth.brute_force(chains, 0.9), 0.9).max() < 0.03


def test_one_sample_has_no_variance() -> None:
    with pytest.raises(InputError, match="num_samples must be at least 2"):
        truth.sample_chains(posterior(), np.zeros(4, np.int32), 0, 1)
