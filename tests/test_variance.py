"""The public call: what it takes, what it returns, what it refuses, and what it leaves untouched."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import cyclic_variance, random_ensemble, random_policy, slipping_grid

import ubex
from ubex import MDP, DirichletNormal, InputError, checks, value_variance
from ubex.calls import members
from ubex.envs import toy
from ubex.tabular.truth import brute_force, sample_chains

S, A, N = 4, 2, 3


@pytest.fixture
def ensemble() -> MDP:
    return random_ensemble(seed=0, num_models=N, num_states=S, num_actions=A)


POLICY = random_policy(seed=1, num_states=S, num_actions=A)


def test_table_1() -> None:
    samples, policy = toy.posterior_samples(), np.ones((5, 1))
    exact = value_variance(samples, policy, 1.0, estimator="exact-ube", u_min=-np.inf)
    bound = value_variance(samples, policy, 1.0, estimator="pombu")
    for found, expected in (
        (exact.local[0, 0], -0.5625),
        (bound.local[0, 0], 5.0625),
        (bound.v[0], 21.3125),
        (exact.v[0], 15.6875),
        (exact.local[2, 0], 25.0),
        (bound.local[2, 0], 25.0),
        (bound.v[2], 25.0),
        (exact.v[2], 25.0),
    ):
        assert found == pytest.approx(expected, abs=1e-9)
    np.testing.assert_allclose(exact.v[[1, 3, 4]], 0.0, atol=1e-12)


def test_printed_table_entry_that_needs_discount_099() -> None:
    bound = value_variance(toy.posterior_samples(), np.ones((5, 1)), 0.99, estimator="pombu")
    w = bound.local[0, 0] / 0.99**2
    assert w == pytest.approx(4.96, abs=0.005)


def test_inputs_may_be_numpy_jax_or_lists(ensemble: MDP) -> None:
    expected = value_variance(ensemble, POLICY, 0.9)
    lists = MDP(np.asarray(ensemble.p).tolist(), np.asarray(ensemble.r).tolist())
    np.testing.assert_array_equal(value_variance(lists, POLICY.tolist(), 0.9).q, expected.q)
    with jax.enable_x64(True):
        on_device = MDP(jnp.asarray(ensemble.p), jnp.asarray(ensemble.r))
    np.testing.assert_array_equal(value_variance(on_device, POLICY, 0.9).q, expected.q)
    single = MDP(jnp.asarray(np.asarray(ensemble.p, np.float32)), jnp.asarray(np.asarray(ensemble.r, np.float32)))
    np.testing.assert_allclose(value_variance(single, POLICY.astype(np.float32), 0.9).q, expected.q, rtol=1e-3)


def test_known_rewards_may_be_given_once(ensemble: MDP) -> None:
    r = np.asarray(ensemble.r)[0]
    once = value_variance(MDP(ensemble.p, r), POLICY, 0.9)
    repeated = value_variance(MDP(ensemble.p, np.stack([r] * N)), POLICY, 0.9)
    np.testing.assert_array_equal(once.q, repeated.q)


def test_v_is_not_the_policy_average_of_q() -> None:
    """One decision, two independent rewards of variance 1, uniform policy: Var[V] = 1/2, while both Var[Q] = 1."""
    p = np.zeros((4, 2, 2, 2))
    p[..., 1] = 1.0
    r = np.zeros((4, 2, 2))
    r[:, 0] = [[1, 1], [1, -1], [-1, 1], [-1, -1]]
    result = value_variance(MDP(p, r), np.full((2, 2), 0.5), 1.0, estimator="exact-ube")
    np.testing.assert_allclose(result.q[0], [1.0, 1.0], atol=1e-12)
    assert result.v[0] == pytest.approx(0.5, abs=1e-12)


def test_variances_divide_by_n_unless_asked_otherwise(ensemble: MDP) -> None:
    population = value_variance(ensemble, POLICY, 0.9, estimator="ensemble-var")
    sample = value_variance(ensemble, POLICY, 0.9, estimator="ensemble-var", ddof=1)
    np.testing.assert_allclose(sample.q, population.q * N / (N - 1), rtol=1e-12)


def test_negative_variance_is_reported(ensemble: MDP) -> None:
    posterior = DirichletNormal(10, 3, terminal=True)
    policy = np.full((11, 3), 1.0 / 3.0)
    assert cyclic_variance(posterior, policy, 0.9, estimator="exact-ube", key=0, u_min=-np.inf).v.min() < -0.1
    assert cyclic_variance(posterior, policy, 0.9, estimator="exact-ube", key=0).v.min() >= 0.0


def test_by_default_a_grid_whose_moves_slip_has_nearly_the_variance_of_brute_force() -> None:
    posterior, policy = slipping_grid(4)
    samples = posterior.sample(0, 600)
    true = brute_force(sample_chains(posterior, policy, 1, 4000), 0.97).variance[:-1]
    for source, name, tolerance in ((posterior, "closed-form", 0.15), (samples, "ensemble-var", 0.2)):
        found = value_variance(source, policy, 0.97)
        assert found.estimator == name
        np.testing.assert_allclose(found.v[:-1], true, rtol=tolerance)
    with pytest.warns(ubex.UbexWarning, match=r"exact-ube .* u was below u_min at \d+% .* better: estimator='ensemble-var'"):
        exact = value_variance(samples, policy, 0.97, estimator="exact-ube")
    assert exact.v[:-1].max() < 0.5 * true.max()
    with pytest.warns(ubex.UbexWarning, match="better: estimator='closed-form'"):
        value_variance(posterior, policy, 0.97, estimator="pombu", key=0)


def test_the_estimator_that_is_chosen_answers_the_question() -> None:
    """With a horizon the closed form takes fresh rows at every step: it is asked for, never chosen."""
    posterior, policy = DirichletNormal(S, A), POLICY
    with pytest.raises(ubex.InputError, match="key="):
        value_variance(posterior, policy, 0.9, horizon=5)
    found = value_variance(posterior, policy, 0.9, key=0, horizon=5)
    asked = value_variance(posterior, policy, 0.9, estimator="ensemble-var", key=0, num_models=100, horizon=5)
    assert found.estimator == asked.estimator == "ensemble-var"
    np.testing.assert_array_equal(found.v, asked.v)
    own = ubex.Estimator("zero", direct=lambda members, ddof: 0.0 * members[0])
    assert value_variance(posterior, policy, 0.9, estimator=own, key=0).estimator == "zero"


def test_nobody_is_warned_without_cycles() -> None:
    for name in ubex.ESTIMATORS:
        found = value_variance(toy.posterior_samples(), np.ones((5, 1)), 1.0, estimator=name, u_min=-np.inf)
        assert found.estimator == name


def test_a_clip_that_makes_variances_too_large_says_so() -> None:
    """A state leads to one of fifty others, each of which pays an unknown reward: the more of them, the less they matter."""
    p = np.zeros((52, 1, 52))
    p[0, 0, 1:51], p[1:, 0, 51] = 0.02, 1.0  # the last state is the end
    r = np.zeros((400, 52, 1))
    r[:, 1:51] = np.random.default_rng(0).normal(size=(400, 50, 1))
    samples = ubex.MDP(np.broadcast_to(p, (400, *p.shape)), r)
    exact = value_variance(samples, np.zeros(52, int), 0.9, estimator="exact-ube", u_min=-np.inf).v[0]
    truth = (0.9 * r[:, 1:51, 0].mean(axis=1)).var()
    assert exact == pytest.approx(truth, rel=1e-9)
    said = "u was below u_min at 2% of states and actions and was raised to it, so the variances are too large; u_min=-np.inf"
    with pytest.warns(ubex.UbexWarning, match=said):
        assert value_variance(samples, np.zeros(52, int), 0.9, estimator="exact-ube").v[0] > 40.0 * truth


def test_a_closed_form_that_does_not_converge_says_so() -> None:
    sticky = DirichletNormal(1, 1, terminal=True, concentration=[[[0.5, 0.001]]], reward_mean=1.0)
    with pytest.warns(ubex.UbexWarning, match="did not converge, .* better: estimator=.ensemble-var. with num_models=1000"):
        value_variance(sticky, [0, 0], 0.999)


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    ensemble = random_ensemble(seed=5, num_models=7, num_states=S, num_actions=A)
    for name in ubex.ESTIMATORS:
        whole = cyclic_variance(ensemble, POLICY, 0.9, estimator=name, u_min=-np.inf)
        with monkeypatch.context() as patch:
            patch.setattr(members, "CHUNK_BYTES", 300)
            assert len(members.chunk_slices(7, np.asarray(ensemble.p).nbytes)) > 2
            parts = cyclic_variance(ensemble, POLICY, 0.9, estimator=name, u_min=-np.inf)
        np.testing.assert_allclose(parts.q, whole.q, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(parts.v, whole.v, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("count", [1, 2, 5, 7, 16, 17, 1000])
def test_chunks_cover_every_member_once(count: int) -> None:
    covered = np.concatenate([np.arange(count)[part] for part in members.chunk_slices(count, 10**9)])
    np.testing.assert_array_equal(covered, np.arange(count))


def test_posterior_needs_a_key_and_the_key_decides() -> None:
    posterior = DirichletNormal(S, A)
    sampled = functools.partial(value_variance, posterior, POLICY, 0.9, estimator="ensemble-var")
    with pytest.raises(ValueError, match="key="):
        sampled()
    first = sampled(key=0)
    np.testing.assert_array_equal(first.q, sampled(key=jax.random.key(0)).q)
    np.testing.assert_array_equal(first.q, sampled(key=jax.random.PRNGKey(0)).q)
    assert not np.array_equal(first.q, sampled(key=1).q)


def test_posterior_mean_values_are_those_of_the_mean_mdp() -> None:
    posterior = DirichletNormal(S, A, reward_mean=np.arange(S * A).reshape(S, A))
    result = value_variance(posterior, POLICY, 0.9, estimator="ensemble-var", key=0)
    p, r = (np.asarray(array) for array in posterior.mean())
    rows = np.einsum("sa,sat->st", POLICY, p)
    np.testing.assert_allclose(result.v_mean, np.linalg.solve(np.eye(S) - 0.9 * rows, (POLICY * r).sum(1)), rtol=1e-12)


@pytest.mark.usefixtures("as_users_have_it")
@pytest.mark.parametrize(
    ("changed", "line"),
    [
        (
            {"mean": MDP(np.full((7, S, A, S), 1 / S), np.ones((S, A)))},
            r"mean must have shape \(4, 2, 4\).* shape \(7, 4, 2, 4\)",
        ),
        ({"mean": MDP(np.full((3, A, 3), 1 / 3), np.ones((3, A)))}, r"as in its samples, but it has shape \(3, 2, 3\)"),
        ({"mean": (1.0, 2.0)}, "mean of a posterior must return an MDP, but it returned a tuple"),
        ({"sample": (1.0, 2.0)}, "sample of a posterior must return an MDP, but it returned a tuple"),
    ],
)
def test_a_posterior_of_your_own_is_checked(ensemble: MDP, changed: dict[str, Any], line: str) -> None:
    class Own:
        """Returns what it is told to."""

        def sample(self, key: object, num_models: int) -> MDP:
            return returned["sample"]

        def mean(self) -> MDP:
            return returned["mean"]

    average = MDP(np.asarray(ensemble.p).mean(axis=0), np.asarray(ensemble.r).mean(axis=0))
    returned: dict[str, Any] = {"sample": ensemble, "mean": average}
    assert value_variance(Own(), POLICY, 0.9, key=0).v.shape == (S,)
    returned |= changed
    with pytest.raises(InputError, match=line):
        value_variance(Own(), POLICY, 0.9, key=0)


def bad_p(ensemble: MDP, place: tuple[int, ...], value: float) -> MDP:
    p = np.array(ensemble.p)
    p[place] = value
    return MDP(p, ensemble.r)


def test_rows_that_do_not_sum_to_one_name_state_and_action(ensemble: MDP) -> None:
    with pytest.raises(ValueError, match=r"instead of 1 at member 1, state 2, action 0"):
        value_variance(bad_p(ensemble, (1, 2, 0, 3), 0.999), POLICY, 0.9)


@pytest.mark.parametrize(("value", "kind"), [(-0.1, "negative"), (np.nan, "NaN")])
def test_negative_and_nan_probabilities(ensemble: MDP, value: float, kind: str) -> None:
    with pytest.raises(ValueError, match=f"{kind} probability at member 0, state 1, action 1, next state 2"):
        value_variance(bad_p(ensemble, (0, 1, 1, 2), value), POLICY, 0.9)


def test_bad_rewards(ensemble: MDP) -> None:
    r = np.array(ensemble.r)
    r[2, 3, 1] = np.inf
    with pytest.raises(ValueError, match="r is inf at member 2, state 3, action 1"):
        value_variance(MDP(ensemble.p, r), POLICY, 0.9)
    r[2, 3, 1] = np.nan
    with pytest.raises(ValueError, match="r is nan at member 2, state 3, action 1, and must be a finite number"):
        value_variance(MDP(ensemble.p, r), POLICY, 0.9)
    with pytest.raises(ValueError, match=r"r must have shape \(3, 4, 2\) or \(4, 2\)"):
        value_variance(MDP(ensemble.p, np.zeros((S,))), POLICY, 0.9)


def test_rows_in_low_precision_are_divided_by_their_sums(ensemble: MDP) -> None:
    """A row that sums to 1.0003 would let the values grow where the discount is near 1."""

    def whole(rows: np.ndarray) -> np.ndarray:
        return rows.astype(np.float64) / rows.sum(axis=-1, keepdims=True, dtype=np.float64)

    for kind, discount in ((np.float32, 0.999999), (np.float16, 0.999)):
        p, policy = np.asarray(ensemble.p).astype(kind), POLICY.astype(kind)
        found = value_variance(MDP(p, ensemble.r), policy, discount, estimator="ensemble-var")
        expected = value_variance(MDP(whole(p), ensemble.r), whole(policy), discount, estimator="ensemble-var")
        np.testing.assert_allclose(found.v_mean, expected.v_mean, rtol=1e-9)
        np.testing.assert_allclose(found.v, expected.v, rtol=1e-6)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (np.ones((S, A + 1)) / (A + 1), r"policy must have shape \(4, 2\), but it has shape \(4, 3\)"),
        (np.ones((S, A)), "policy sums to 2 instead of 1 at state 0"),
        (np.array([[1.5, -0.5]] * S), "policy has the probability -0.5 at state 0, action 1"),
        (np.full((S, A), np.nan), "policy has the probability nan"),
        (np.array([0, 1, 2, 0]), "policy takes action 2 at state 2, but there are 2"),
        (np.array([0, 1]), "one action for each of 4 states"),
        ([[1.0, 0.0], [1.0]], "policy is not a rectangular array"),
        (np.ma.masked_array(np.ones((2, 2)), [[True, False], [False, False]]), "policy is masked in places"),
    ],
)
def test_bad_policies(ensemble: MDP, policy: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        value_variance(ensemble, policy, 0.9)


@pytest.mark.parametrize("discount", [-0.1, 1.0001, float("inf")])
def test_discount_outside_the_unit_interval(ensemble: MDP, discount: float) -> None:
    with pytest.raises(ValueError, match=r"discount must be in \[0, 1\]"):
        value_variance(ensemble, POLICY, discount)


def test_discount_one_needs_an_absorbing_state(ensemble: MDP) -> None:
    with pytest.raises(ValueError, match="discount 1 needs every state to reach an absorbing state with reward 0, but state 0"):
        value_variance(ensemble, POLICY, 1.0)
    samples = toy.posterior_samples()
    trapped = np.array(samples.p)
    trapped[2, 1] = np.eye(5)[1]  # in member 2 state 1 stays where it is, but pays nothing there and is not terminal elsewhere
    with pytest.raises(ValueError, match="state 1 does not in member 2"):
        value_variance(MDP(trapped, samples.r), np.ones((5, 1)), 1.0)
    paid = np.array(samples.r)
    paid[:, 4] = 1.0
    with pytest.raises(ValueError, match="discount 1 needs"):
        value_variance(MDP(samples.p, paid), np.ones((5, 1)), 1.0)


@pytest.mark.parametrize("estimator", ["closed-form", "ensemble-var", "exact-ube"])
def test_an_end_that_is_next_to_never_reached_is_none_at_discount_one(estimator: str) -> None:
    """Otherwise the value is no number: 1 - 1e-300 is 1."""
    p = np.array([[[1.0, 1e-300]], [[0.0, 1.0]]])
    with pytest.raises(ValueError, match=r"discount 1 needs every state to reach .* but state 0 does not in member 0"):
        value_variance(MDP(np.stack([p, p]), [[1.0], [0.0]]), [0, 0], 1.0, estimator=estimator)
    seldom = np.array([[[1.0 - 1e-6, 1e-6]], [[0.0, 1.0]]])
    found = value_variance(MDP(np.stack([seldom, seldom]), [[1.0], [0.0]]), [0, 0], 1.0, estimator="closed-form")
    assert found.v_mean[0] == pytest.approx(1e6)


def test_ensembles_that_are_too_small(ensemble: MDP) -> None:
    with pytest.raises(ValueError, match="the ensemble is empty"):
        value_variance(MDP(np.zeros((0, S, A, S)), np.zeros((0, S, A))), POLICY, 0.9)
    one = MDP(np.asarray(ensemble.p)[:1], np.asarray(ensemble.r)[:1])
    with pytest.raises(ValueError, match=r"members \(estimator 'ensemble-var'\) must be at least 2, but it is 1"):
        value_variance(one, POLICY, 0.9)
    assert value_variance(one, POLICY, 0.9, estimator="ensemble-mean").v.max() == 0.0
    with pytest.raises(ValueError, match="one MDP without a sample axis"):
        value_variance(MDP(np.asarray(ensemble.p)[0], np.asarray(ensemble.r)[0]), POLICY, 0.9)
    with pytest.raises(ValueError, match="ddof must be smaller"):
        value_variance(ensemble, POLICY, 0.9, ddof=N)


def test_unknown_estimator_lists_the_choices(ensemble: MDP) -> None:
    with pytest.raises(ValueError, match="unknown estimator 'ube'; choose from: exact-ube, exact-ube-1"):
        value_variance(ensemble, POLICY, 0.9, estimator="ube")


def test_huge_shapes_are_refused_before_anything_is_allocated() -> None:
    huge = np.broadcast_to(np.float64(0.0), (10, 2**20, 4, 2**20))
    with pytest.raises(ValueError, match="GiB and this machine has"):
        value_variance(MDP(huge, np.broadcast_to(0.0, huge.shape[:-1])), POLICY, 0.9)
    with pytest.raises(ValueError, match="GiB and this machine has"):
        DirichletNormal(2**40, 2**20)
    with pytest.raises(ValueError, match="GiB and this machine has"):
        value_variance(DirichletNormal(S, A), POLICY, 0.9, estimator="ensemble-var", key=0, num_models=2**50)


@pytest.mark.parametrize("gib", [3, 16])
def test_a_large_posterior_is_refused_before_the_work_starts(gib: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 states and 4 actions: the closed form needs 17.9 GiB, and 5 samples 44.7."""
    posterior = DirichletNormal(S, A)
    huge = np.broadcast_to(np.float64(1.0), (10_000, 4, 10_000))
    posterior = posterior.restored(posterior.transitions._replace(alpha=huge), posterior.rewards)
    monkeypatch.setattr("ubex.checks.memory", lambda: gib * 2**30)
    said = rf"of shape \(10000, 4, 10000\) would take 17.9 GiB and this machine has {gib}.0 GiB; a SparsePosterior"
    with pytest.raises(InputError, match=said):
        value_variance(posterior, np.zeros(10_000, int), 0.9)
    with pytest.raises(InputError, match=rf"would take 44.7 GiB and this machine has {gib}.0 GiB; a SparsePosterior"):
        value_variance(posterior, np.zeros(10_000, int), 0.9, estimator="ensemble-var", key=0, num_models=5)
    with pytest.raises(InputError, match=rf"would take 34.3 GiB and this machine has {gib}.0 GiB; a SparsePosterior"):
        ubex.policy_difference(posterior, np.zeros(10_000, int), np.ones(10_000, int), 0.9)


def test_limits_of_a_container_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "none").write_text("max\n")
    (tmp_path / "some").write_text("12345\n")
    monkeypatch.setattr(checks, "LIMITS", (tmp_path / "none", tmp_path / "absent", tmp_path / "some"))
    assert checks.memory() == 12345


def test_bad_clip(ensemble: MDP) -> None:
    with pytest.raises(ValueError, match="u_min must be finite or -inf, but it is inf"):
        value_variance(ensemble, POLICY, 0.9, u_min=np.inf)


@pytest.mark.usefixtures("as_users_have_it")
@pytest.mark.parametrize("name", ["discount", "u_min"])
@pytest.mark.parametrize("given", [None, float("nan")])
def test_what_is_no_number_is_shown_as_it_was_given(ensemble: MDP, name: str, given: Any) -> None:
    with pytest.raises(InputError, match=f"{name} must be a number, but it is {given}"):
        value_variance(ensemble, POLICY, **{"discount": 0.9, name: given})


ISOLATION = """
import jax, jax.numpy as jnp, numpy as np, warnings
warnings.simplefilter("error")
def state():
    return {name: getattr(jax.config, name) for name in dir(jax.config) if name.startswith("jax_")}
before = state()
import ubex
assert state() == before, "import changed a setting"
x = jnp.ones(3) * 0.1
step = jax.jit(lambda y: jnp.sin(y) + x)
mine = step(x)
samples = ubex.DirichletNormal(3, 2).sample(0, 4)
out = ubex.value_variance(samples, np.full((3, 2), 0.5), 0.9)
assert out.v.dtype == np.float64
assert state() == before, "a call changed a setting"
again = step(x)
assert again.dtype == mine.dtype == jnp.float32 and bool((again == mine).all())
assert jnp.asarray(out.v).dtype == jnp.float32  # their results enter 32-bit code without a warning
assert (jnp.arange(3.0) / 3).dtype == jnp.float32
print("isolated")
"""


def test_import_and_calls_leave_jax_as_it_was() -> None:
    done = subprocess.run([sys.executable, "-c", ISOLATION], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "isolated", done.stderr
