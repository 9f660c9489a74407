"""Gamma and Dirichlet draws against SciPy's distributions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from ubex.tabular import sampling

log_gamma = jax.jit(sampling.log_gamma)
sample_dirichlet = jax.jit(sampling.sample_dirichlet, static_argnums=2)


@pytest.mark.parametrize("shape", [0.02, 0.1, 0.7, 1.0, 3.3, 250.0])
def test_gamma_follows_its_distribution(shape: float) -> None:
    """Kolmogorov-Smirnov over several keys: the smallest of eight p-values of a right sampler is rarely below 1e-4."""
    with jax.enable_x64(True):
        draws = [np.asarray(log_gamma(jax.random.key(seed), jnp.full(20_000, shape))) for seed in range(8)]
    assert all(np.isfinite(draw).all() for draw in draws)
    # in logarithms where the variate itself underflows: log G = log G' + log(U) / shape has the law P(log G < x)
    p_values = [stats.kstest(np.exp(draw), stats.gamma(shape).cdf).pvalue for draw in draws if shape >= 0.1]
    p_values += [stats.kstest(draw, stats.loggamma(shape).cdf).pvalue for draw in draws]
    assert min(p_values) > 1e-4
    assert max(p_values) > 0.05


def test_a_shape_five_per_cent_off_is_noticed() -> None:
    with jax.enable_x64(True):
        draws = np.exp(np.asarray(log_gamma(jax.random.key(0), jnp.full(20_000, 0.7 * 1.05))))
    assert stats.kstest(draws, stats.gamma(0.7).cdf).pvalue < 1e-4


def test_rows_are_distributions_and_have_the_right_moments() -> None:
    with jax.enable_x64(True):
        alpha = jnp.array([[0.5, 1.5, 3.0], [4.0, 0.0, 0.1]])
        rows = np.asarray(sample_dirichlet(jax.random.key(1), alpha, 40_000))
    np.testing.assert_allclose(rows.sum(axis=-1), 1.0, atol=1e-12)
    assert (rows[:, 1, 1] == 0.0).all()
    table = np.asarray(alpha)
    total = table.sum(axis=1, keepdims=True)
    mean = table / total
    np.testing.assert_allclose(rows.mean(axis=0), mean, atol=0.005)
    np.testing.assert_allclose(rows.var(axis=0), mean * (1 - mean) / (total + 1), atol=0.003)


def test_tiny_parameters_do_not_underflow() -> None:
    with jax.enable_x64(True):
        rows = np.asarray(sample_dirichlet(jax.random.key(2), jnp.full((100, 50), 1e-3), 3))
    assert np.isfinite(rows).all()
    np.testing.assert_allclose(rows.sum(axis=-1), 1.0, atol=1e-12)


@pytest.mark.parametrize("shape", [0.1, 0.33, 0.7, 2.0])
def test_table_of_quantiles_follows_the_distribution(shape: float) -> None:
    table = sampling.gamma_table(shape)
    draws = [
        np.asarray(
            sampling.sample_gamma(sampling.row_bits(sampling.row_seeds(jax.random.key(seed), (250,)), 400).reshape(-1), table),
            np.float64,
        )
        for seed in range(6)
    ]
    p_values = [stats.kstest(draw, stats.gamma(shape).cdf).pvalue for draw in draws]
    assert min(p_values) > 1e-4
    assert max(p_values) > 0.05
    everything = np.concatenate(draws)
    assert everything.mean() == pytest.approx(shape, rel=0.02)
    assert everything.var() == pytest.approx(shape, rel=0.03)
    high = stats.gamma(shape).isf(1e-4)  # the tail, where a straight line through the last bin would be wrong
    assert (everything > high).mean() == pytest.approx(1e-4, rel=0.4)


def test_hashed_bits_are_as_good_as_random() -> None:
    """Each bit, pairs of bits, neighbours in both directions and two keys; thousands of numbers within 4.5 deviations."""
    rows, columns = 600, 500
    words = np.asarray(sampling.row_bits(sampling.row_seeds(jax.random.key(3), (rows,)), columns))
    other = np.asarray(sampling.row_bits(sampling.row_seeds(jax.random.key(4), (rows,)), columns))
    bits, more = (((w[..., None] >> np.arange(32, dtype=np.uint32)) & 1).astype(np.int8) * 2 - 1 for w in (words, other))
    number = rows * columns
    sums = [bits.sum(axis=(0, 1)) / np.sqrt(number)]
    flat = bits.reshape(number, 32).astype(np.float32)
    for shifted, size in (
        (flat, number),
        (more.reshape(number, 32).astype(np.float32), number),
        (np.roll(bits, 1, axis=1).reshape(number, 32).astype(np.float32), number),
        (np.roll(bits, 1, axis=0).reshape(number, 32).astype(np.float32), number),
        (np.roll(bits, columns // 2, axis=1).reshape(number, 32).astype(np.float32), number),
    ):
        products = flat.T @ shifted / np.sqrt(size)
        sums.append(products[~np.eye(32, dtype=bool)] if shifted is flat else products.ravel())
    scores = np.concatenate(sums)
    assert np.abs(scores).max() < 4.5
    assert scores.std() == pytest.approx(1.0, abs=0.05)
    per_row = bits.astype(np.int32).sum(axis=1) / np.sqrt(columns)  # streams of single rows and columns
    per_column = bits.astype(np.int32).sum(axis=0) / np.sqrt(rows)
    for scores in (per_row, per_column):
        assert np.abs(scores).max() < 5.0
        assert scores.std() == pytest.approx(1.0, abs=0.03)
    counts = np.bincount((words >> 16).ravel(), minlength=2**16)
    assert stats.chisquare(counts.reshape(-1, 64).sum(axis=1)).pvalue > 1e-4


def test_ends_of_the_table() -> None:
    value, slope = sampling.gamma_quantiles(0.5)
    assert (np.diff(value[: sampling.BINS]) >= 0).all()
    last = value[2 * sampling.BINS :]
    assert (np.diff(last) >= 0).all()
    assert last[0] >= value[sampling.BINS - 1]
    assert last[-1] == pytest.approx(stats.gamma(0.5).isf(0.5 / 2**32), rel=1e-5)
    assert slope[0] == slope[-1] == 0.0


def test_many_at_once_equals_one_by_one_for_vectorised_seeds() -> None:
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(3), 4)
        alpha = jnp.full((6, 6), 0.3)
        together = jax.vmap(lambda key: sample_dirichlet(key, alpha, 2))(keys)
        alone = jnp.stack([sample_dirichlet(key, alpha, 2) for key in keys])
    np.testing.assert_allclose(together, alone, rtol=1e-12)


def test_parts_have_the_bits_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """With parts that end within a member, rounds that leave some rejected, and parameters below and above 1 and of 0."""
    monkeypatch.setattr(sampling, "RETRY_SHARE", 64)
    monkeypatch.setattr(sampling, "MIN_RETRY", 1)
    alpha = np.random.default_rng(0).choice([0.0, 0.3, 0.9, 1.0, 2.5, 40.0], (7, 5, 13))
    alpha[..., 0] = 0.2
    with jax.enable_x64(True):
        drawn = jax.jit(sampling.sample_dirichlet, static_argnums=2)(jax.random.key(5), jnp.asarray(alpha), 6)
        monkeypatch.setattr(sampling, "WHOLE", 1)
        monkeypatch.setattr(sampling, "PART", 13 * 11)
        np.testing.assert_array_equal(sampling.sample_dirichlet_in_parts(jax.random.key(5), alpha, 6), drawn)


def test_keys_of_another_kind_are_drawn_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "WHOLE", 1)
    key, alpha = jax.random.key(5, impl="rbg"), np.full((3, 4), 0.7)
    with jax.enable_x64(True):
        parts = sampling.sample_dirichlet_in_parts(key, alpha, 2)
        np.testing.assert_array_equal(parts, sample_dirichlet(key, jnp.asarray(alpha), 2))
