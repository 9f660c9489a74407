"""The paper's functions on numbers computed by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ubex import ube
from ubex.types import NextValues


@pytest.fixture
def moments() -> NextValues:
    """Two members, one state-action pair."""
    with jax.enable_x64(True):
        return NextValues(
            mean_bar=jnp.array([[3.0], [7.0]]),
            var_bar=jnp.array([[2.0], [4.0]]),
            var_member=jnp.array([[5.0], [9.0]]),
            var_gap=jnp.array([[1.0], [3.0]]),
            total=jnp.array([11.0]),
            chi_square=jnp.array([[0.5], [1.5]]),
            value_bound=jnp.array(10.0),
        )


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (ube.total, 11.0),
        (ube.epistemic, 4.0),  # variance of 3 and 7
        (ube.aleatoric, 3.0),
        (ube.average_aleatoric, 7.0),
        (ube.gap_difference, 4.0),  # 7 - 3
        (ube.gap, 2.0),
        (ube.exact_1, 4.0),  # 11 - 7
        (ube.exact_2, 0.0),  # 4 - 4
        (ube.exact_3, 2.0),  # 4 - 2
        (ube.transition_bound, 100.0),  # 10^2 * 1
    ],
)
def test_by_hand(moments: NextValues, function: object, expected: float) -> None:
    with jax.enable_x64(True):
        np.testing.assert_allclose(np.asarray(function(moments)), [expected], atol=1e-12)


def test_ddof_divides_by_n_minus_one(moments: NextValues) -> None:
    with jax.enable_x64(True):
        assert float(ube.epistemic(moments, 1)[0]) == pytest.approx(8.0)
        assert float(ube.exact_3(moments, 1)[0]) == pytest.approx(6.0)
        assert float(ube.exact_2(moments, 1)[0]) == pytest.approx(4.0)


def test_clip() -> None:
    with jax.enable_x64(True):
        u = jnp.array([-2.0, -0.05, 0.0, 3.0])
        assert ube.clip(u, 0.0).tolist() == [0.0, 0.0, 0.0, 3.0]
        assert ube.clip(u, -0.1).tolist() == [-0.1, -0.05, 0.0, 3.0]
        assert ube.clip(u, -np.inf).tolist() == u.tolist()


def test_uncertainty_reward() -> None:
    with jax.enable_x64(True):
        reward = ube.uncertainty_reward(jnp.array([2.0]), jnp.array([0.5]), 0.5)
        assert reward.tolist() == [1.0]


def test_identical_members_have_variance_exactly_zero() -> None:
    with jax.enable_x64(True):
        member = jnp.array([0.1, 1e9 / 3.0, -7e-13])
        assert ube.member_variance(jnp.stack([member] * 7)).tolist() == [0.0, 0.0, 0.0]
