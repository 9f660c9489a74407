"""Conformance: what every line of the table of estimators must do."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from worlds import cyclic_variance, random_ensemble, random_policy

from ubex import ESTIMATORS, MDP, Estimator, cli, load_results, value_variance

NAMES = sorted(ESTIMATORS)


@pytest.fixture(scope="module")
def ensemble() -> MDP:
    return random_ensemble(seed=3, num_models=6, num_states=5, num_actions=3)


@pytest.fixture(scope="module")
def policy() -> np.ndarray:
    return random_policy(seed=4, num_states=5, num_actions=3)


@pytest.mark.parametrize("name", NAMES)
def test_record_is_complete(name: str) -> None:
    estimator = ESTIMATORS[name]
    assert sum(way is not None for way in (estimator.local, estimator.direct, estimator.closed)) == 1
    assert estimator.summary
    assert "\n" not in estimator.summary


@pytest.mark.parametrize("name", NAMES)
def test_finite_with_cycles(name: str, ensemble: MDP, policy: np.ndarray) -> None:
    result = cyclic_variance(ensemble, policy, 0.9, estimator=name, u_min=-np.inf)
    assert all(np.isfinite(field).all() and field.dtype == np.float64 for field in result[:5])
    assert result.estimator == name


@pytest.mark.parametrize("name", NAMES)
def test_identical_members_give_zero(name: str, ensemble: MDP, policy: np.ndarray) -> None:
    same = MDP(*(np.repeat(np.asarray(array)[:1], 4, axis=0) for array in ensemble))
    result = cyclic_variance(same, policy, 0.9, estimator=name, u_min=-np.inf)
    rounding = 1e-15 * float(np.max(result.q_mean**2))  # two forms are differences of second moments
    np.testing.assert_allclose(result.v, 0.0, atol=rounding)
    np.testing.assert_allclose(result.q, 0.0, atol=rounding)


@pytest.mark.parametrize("name", NAMES)
def test_relabelling_states_and_actions_commutes(name: str, ensemble: MDP, policy: np.ndarray) -> None:
    generator = np.random.default_rng(0)
    s, a = generator.permutation(5), generator.permutation(3)
    p, r = np.asarray(ensemble.p), np.asarray(ensemble.r)
    moved = MDP(p[:, s][:, :, a][..., s], r[:, s][:, :, a])
    before = cyclic_variance(ensemble, policy, 0.9, estimator=name, u_min=-np.inf)
    after = cyclic_variance(moved, policy[s][:, a], 0.9, estimator=name, u_min=-np.inf)
    np.testing.assert_allclose(after.v, before.v[s], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(after.q, before.q[s][:, a], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(after.local, before.local[s][:, a], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_order_of_members_does_not_matter(name: str, ensemble: MDP, policy: np.ndarray) -> None:
    turned = MDP(*(np.asarray(array)[::-1] for array in ensemble))
    before = cyclic_variance(ensemble, policy, 0.9, estimator=name, u_min=-np.inf)
    after = cyclic_variance(turned, policy, 0.9, estimator=name, u_min=-np.inf)
    np.testing.assert_allclose(after.q, before.q, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_one_hot_and_integer_policies_agree(name: str, ensemble: MDP) -> None:
    actions = np.array([0, 2, 1, 1, 0])
    gathered = cyclic_variance(ensemble, actions, 0.9, estimator=name, u_min=-np.inf)
    nearly = np.full((5, 3), 1e-13)  # not recognised as deterministic, so it takes the stochastic path
    nearly[np.arange(5), actions] = 1.0 - 2e-13
    averaged = cyclic_variance(ensemble, nearly, 0.9, estimator=name, u_min=-np.inf)
    one_hot = cyclic_variance(ensemble, np.eye(3)[actions], 0.9, estimator=name, u_min=-np.inf)
    np.testing.assert_allclose(averaged.q, gathered.q, rtol=1e-8, atol=1e-9)
    np.testing.assert_array_equal(one_hot.q, gathered.q)


def test_an_estimator_of_your_own_by_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`module:name` serves in calls, in `ubex train` and in tabular experiments."""
    (tmp_path / "my_estimators.py").write_text(
        "from ubex import ESTIMATORS, Estimator\n"
        "half = Estimator('half', local=lambda m, ddof: 0.5 * ESTIMATORS['pombu'].local(m, ddof), own_values=False)\n"
        "number = 3\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    name, out = "my_estimators:half", ["--no-report", "--out"]
    few = ["--truth-samples", "50", "--num-models", "5", "--kinds", "acyclic-observed", "--size", "4", "--seeds", "1"]
    small = ["--env", "deep-sea", "--env-args", '{"size": 3}', "--episodes", "3"]
    assert cli.run(["train", *small, "--agent", name, *out, "train"]) == 0
    assert cli.run(["evaluate", "train"]) == 2
    assert "left no agent: `ubex train` does, except for an agent of your own, module:name" in capsys.readouterr().err
    assert cli.run(["run", "calibration", "--preset", "small", "--methods", name, *few, *out, "mdp"]) == 0
    assert set(load_results("mdp")["method"]) == set(load_results("train")["method"]) == {name}
    for wrong, message in (("my_estimators:number", "is not an Estimator, but a int"), ("my_estimators:no", "has no 'no'")):
        assert cli.run(["train", *small, "--agent", wrong, *out, "wrong"]) == 2
        assert message in capsys.readouterr().err


def test_an_estimator_of_your_own_needs_nothing_else(ensemble: MDP, policy: np.ndarray) -> None:
    half = Estimator(summary="half of pombu", local=lambda moments, ddof: 0.5 * ESTIMATORS["pombu"].local(moments, ddof))
    known = MDP(ensemble.p, np.asarray(ensemble.r)[0])
    mine = value_variance(known, policy, 0.9, estimator=half)
    theirs = cyclic_variance(known, policy, 0.9, estimator="pombu")
    np.testing.assert_allclose(mine.q, 0.5 * theirs.q, rtol=1e-12)
