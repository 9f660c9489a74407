"""Actions of environments and the vectors that agents have for them."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from ubex.envs import actions
from ubex.envs.actions import Bounded, Numbered
from ubex.types import InputError

BOX = Bounded(np.array([0.0, -1.0], np.float32), np.array([4.0, 1.0], np.float32), np.dtype(np.float64))
FEW = Numbered(3, 5)


@pytest.mark.parametrize(("space", "given"), [(BOX, [1.0, 0.5]), (BOX, [[1.0, 0.5], [4.0, -1.0]]), (FEW, 6), (FEW, [7, 5])])
def test_an_action_comes_back(space: actions.Actions, given: Any) -> None:
    vectors = space.inward("action", given)
    assert vectors.shape == (*np.shape(given)[: vectors.ndim - 1], space.size)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(space.outward(vectors), given)


def test_a_discrete_action_is_a_whole_number() -> None:
    assert FEW.outward(np.array([0.0, 1.0, 0.0], np.float32)) == 6
    assert type(FEW.outward(np.zeros(3, np.float32))) is int
    np.testing.assert_array_equal(FEW.inward("action", 7), [0.0, 0.0, 1.0])


@pytest.mark.parametrize("given", [4, 8, 5.0, True, [5, 9], [[5]], "left", np.nan])
def test_what_is_no_discrete_action_is_one_line(given: Any) -> None:
    with pytest.raises(InputError, match="action must "):
        FEW.inward("action", given)


def test_functions_see_the_environments_own_actions() -> None:
    at = jnp.zeros(2, jnp.float32)
    number = FEW.seen_by(lambda observation, action, after: action)(at, jnp.array([0.0, 0.0, 1.0], jnp.float32), at)
    assert (int(number), number.shape, number.dtype) == (7, (), jnp.int32)
    inside = BOX.seen_by(lambda observation, action, after: action)(at, jnp.array([1.0, 0.0], jnp.float32), at)
    np.testing.assert_allclose(inside, [4.0, 0.0])


@pytest.mark.parametrize("space", [BOX, FEW])
def test_a_file_holds_all_of_it(space: actions.Actions) -> None:
    assert repr(actions.from_file(space.described())) == repr(space)
