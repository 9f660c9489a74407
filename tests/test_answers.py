"""What people ask of an answer next: a table, an interval, a picture, and how probable it is that one policy is better."""

from __future__ import annotations

import numpy as np
import pytest

from ubex import (
    ESTIMATORS,
    DirichletNormal,
    InputError,
    PolicyDifference,
    SparsePosterior,
    Transitions,
    ValueVariance,
    policy_difference,
    value_variance,
)

FOUND = ValueVariance(
    v=np.array([4.0, 0.0, -1.0]),
    q=np.array([[4.0, 1.0], [0.0, 0.0], [1.0, 9.0]]),
    v_mean=np.array([1.0, 2.0, 3.0]),
    q_mean=np.arange(6.0).reshape(3, 2),
    local=np.zeros((3, 2)),
)
CHAIN = SparsePosterior([[[0, 1]], [[1, 2]], [[2, 2]]], [[[3.0, 1.0]], [[1.0, 1.0]], [[1.0, 0.0]]], [[1.0], [5.0], [0.0]])


def test_an_interval_is_that_of_a_normal_distribution() -> None:
    low, high = FOUND.interval(0.95)
    np.testing.assert_allclose(high - 1.0, [2 * 1.959964, 1.0, np.nan], rtol=1e-6)
    np.testing.assert_allclose((low + high)[:2], 2 * FOUND.v_mean[:2])
    assert np.isnan(low[2]), "a negative variance does not say that all is certain"


@pytest.mark.parametrize(("variance", "deviation"), [(-1e-10, 0.0), (-1e-8, np.nan), (np.nan, np.nan), (-np.inf, np.nan)])
def test_only_rounding_counts_as_no_variance(variance: float, deviation: float) -> None:
    v = np.array([1.0, np.inf, variance])
    np.testing.assert_array_equal(FOUND._replace(v=v).frame()["deviation"], [1.0, np.inf, deviation])
    probability = PolicyDifference(np.ones(3), v, True).probability
    np.testing.assert_allclose(probability, [0.8413447, 0.5, 1.0 + deviation], rtol=1e-6)


def test_variances_that_are_all_negative_have_a_picture() -> None:
    found = FOUND._replace(v=np.full(3, -80.0))
    assert np.isnan(found.frame()[["deviation", "low", "high"]]).all(axis=None)
    for picture in (found.plot(), found.plot(shape=(1, 3))):
        assert picture._repr_png_()[:4] == b"\x89PNG"  # type: ignore[attr-defined]


def test_a_table_has_a_line_per_state_or_per_action() -> None:
    states, actions = FOUND.frame(), FOUND.frame(actions=True)
    np.testing.assert_array_equal(states["deviation"], [2.0, 0.0, np.nan])
    assert list(states["variance"]) == [4.0, 0.0, -1.0], "as it was found"
    assert actions.loc[(2, 1), ["mean", "deviation"]].tolist() == [5.0, 3.0]
    np.testing.assert_allclose(states["low"], FOUND.interval()[0])
    assert states.index.tolist() == [0, 1, 2]
    assert states.index.name == "state"


def test_the_states_that_were_asked_for_keep_their_numbers() -> None:
    every = value_variance(CHAIN, [0, 0, 0], 0.9, estimator="first-order")
    some = value_variance(CHAIN, [0, 0, 0], 0.9, estimator="first-order", starts=[1, 0])
    assert every.states is None
    assert some.frame().index.tolist() == [1, 0]
    for actions in (False, True):
        table = some.frame(actions=actions)
        np.testing.assert_allclose(table, every.frame(actions=actions).loc[table.index], rtol=1e-9, atol=1e-12)
    (axes,) = some.plot().axes
    assert axes.lines[0].get_xdata().tolist() == [1, 0]
    assert {tick % 1 for tick in axes.get_xticks()} == {0.0}, "between states is none"
    with pytest.raises(InputError, match="shape is for an answer about all states, but this one is about 2 of starts="):
        some.plot(shape=(1, 2))


def test_pictures_show_the_states_or_a_grid_of_them() -> None:
    (axes,) = FOUND.plot().axes
    assert axes.get_xlabel() == "state"
    maps = FOUND._replace(v=np.array([4.0, 0.0, 9.0])).plot(shape=(1, 3)).axes
    np.testing.assert_array_equal(maps[0].images[0].get_array(), [[1.0, 2.0, 3.0]])
    np.testing.assert_array_equal(maps[1].images[0].get_array(), [[2.0, 0.0, 3.0]])


@pytest.mark.filterwarnings("ignore::ubex.UbexWarning")
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_grid_may_leave_out_a_terminal_state_alone(estimator: str) -> None:
    ending, endless = (
        value_variance(
            DirichletNormal(states, 2, reward_mean=1.0, terminal=states == 3), [0] * 4, 0.9, estimator=estimator, key=0
        )
        for states in (3, 4)
    )
    maps = ending.plot(shape=(1, 3)).axes
    np.testing.assert_array_equal(maps[0].images[0].get_array(), [ending.v_mean[:3]])
    with pytest.raises(InputError, match="shape 1 x 3 leaves out the last of 4 states, but its means and variances are not"):
        endless.plot(shape=(1, 3))


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
