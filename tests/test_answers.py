"""What people ask of an answer next: a table, an interval, a picture, and how probable it is that one policy is better."""

from __future__ import annotations

import numpy as np
import pytest

from ubex import DirichletNormal, InputError, PolicyDifference, Transitions, ValueVariance, policy_difference

FOUND = ValueVariance(
    v=np.array([4.0, 0.0, -1.0]),
    q=np.array([[4.0, 1.0], [0.0, 0.0], [1.0, 9.0]]),
    v_mean=np.array([1.0, 2.0, 3.0]),
    q_mean=np.arange(6.0).reshape(3, 2),
    local=np.zeros((3, 2)),
)


def test_an_interval_is_that_of_a_normal_distribution() -> None:
    low, high = FOUND.interval(0.95)
    np.testing.assert_allclose(high - 1.0, [2 * 1.959964, 1.0, 2.0], rtol=1e-6)
    np.testing.assert_allclose(low + high, 2 * FOUND.v_mean)
    assert low[2] == high[2] == 3.0, "a negative variance counts as none"


def test_a_table_has_a_line_per_state_or_per_action() -> None:
    states, actions = FOUND.frame(), FOUND.frame(actions=True)
    assert list(states["deviation"]) == [2.0, 0.0, 0.0]
    assert list(states["variance"]) == [4.0, 0.0, -1.0], "as it was found"
    assert actions.loc[(2, 1), ["mean", "deviation"]].tolist() == [5.0, 3.0]
    np.testing.assert_allclose(states["low"], FOUND.interval()[0])


def test_pictures_show_the_states_or_a_grid_of_them() -> None:
    (axes,) = FOUND.plot().axes
    assert axes.get_xlabel() == "state"
    maps = FOUND.plot(shape=(1, 2)).axes  # the last state is the terminal one
    np.testing.assert_array_equal(maps[0].images[0].get_array(), [[1.0, 2.0]])
    np.testing.assert_array_equal(maps[1].images[0].get_array(), [[2.0, 0.0]])


def test_a_picture_is_shown_by_a_notebook_that_knows_nothing_of_matplotlib() -> None:
    for picture in (FOUND.plot(), FOUND.plot(shape=(1, 3))):
        assert picture._repr_png_()[:4] == b"\x89PNG"  # type: ignore[attr-defined]


def test_the_probability_that_a_policy_is_better() -> None:
    found = PolicyDifference(np.array([1.0, 0.0, -2.0, 3.0]), np.array([1.0, 0.0, 0.0, 0.0]), True)
    np.testing.assert_allclose(found.probability, [0.8413447, 0.5, 0.0, 1.0], rtol=1e-6)


def test_the_probability_against_samples_of_the_posterior() -> None:
    """Two actions of one state, seen a few times: how often the first is better among samples."""
    seen = Transitions(state=[0] * 6, action=[0, 1] * 3, reward=[1.0, 0.8, 0.4, 0.9, 1.2, 0.1], next_state=[0] * 6)
    posterior = DirichletNormal(1, 2, noise_precision=1.0).observe(seen)
    found = policy_difference(posterior, [0], [1], 0.5)
    rewards = np.asarray(posterior.sample(0, 20_000).r)
    assert found.probability[0] == pytest.approx(np.mean(rewards[:, 0, 0] > rewards[:, 0, 1]), abs=0.015)


@pytest.mark.parametrize(
    ("ask", "line"),
    [
        (lambda: FOUND.interval(1.0), "confidence must be between 0 and 1, but it is 1.0"),
        (lambda: FOUND.interval("a lot"), "confidence must be a number, but it is 'a lot'"),  # type: ignore[arg-type]
        (lambda: FOUND.plot(shape=(2, 2)), "shape 2 x 2 has 4 places, but there are 3 states"),
        (lambda: FOUND.plot(shape=3), "shape must be two numbers, but it is 3"),  # type: ignore[arg-type]
        (lambda: FOUND.frame(actions=1), "actions must be true or false, but it is 1"),  # type: ignore[arg-type]
    ],
)
@pytest.mark.usefixtures("as_users_have_it")
def test_what_makes_no_sense_is_one_line(ask: object, line: str) -> None:
    assert callable(ask)
    with pytest.raises(InputError, match=line):
        ask()
