"""The public calls with odd arguments: an answer without NaN, or one line; never anything else."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import hypothesis
import jax
import numpy as np
import pytest
from odd import Calls, Loud, campaign, odd_calls, refusal

import ubex
from ubex import MDP, DirichletNormal, DirichletNormalGamma, Estimator, Transitions

N, S, A = 3, 3, 2
drawn = np.random.default_rng(0)
P, R = drawn.dirichlet(np.ones(S), (N, S, A)), drawn.normal(size=(N, S, A))
POLICY, OTHER = drawn.dirichlet(np.ones(A), (2, S))
POSTERIOR = DirichletNormal(S, A)
BASE = {"policy": POLICY, "discount": 0.9, "ddof": 0, "horizon": None}
SAMPLED = {"key": 0, "num_models": 3, **BASE}
ROWS = {
    "concentration": np.ones((S, A, S)),
    "support": np.ones((S, A, S), bool),
    "terminal": False,
    "reward_mean": np.zeros((S, A)),
}
SIZES = {"num_states": S, "num_actions": A}
SEEN = {
    "state": np.array([0, 1, 2]),
    "action": np.array([0, 1, 0]),
    "reward": np.array([0.5, 1.0, 0.0]),
    "next_state": np.array([1, 2, 0]),
}
TABLE = np.ones((S, A))


def quietly(call: Callable[..., Any]) -> Callable[..., Any]:
    """The arrays and posteriors here have cycles and few data, and that is not the point."""

    def called(*source: Any, **arguments: Any) -> Any:
        with warnings.catch_warnings(action="ignore", category=ubex.UbexWarning):
            return call(*source, **arguments)

    return called


variance, covariance, difference = map(quietly, (ubex.value_variance, ubex.value_covariance, ubex.policy_difference))


CALLS: Calls = {
    "variance of samples": (
        lambda p, r, **rest: variance(MDP(p, r), **rest),
        {"p": P, "r": R, "estimator": "exact-ube", "u_min": 0.0, **BASE},
    ),
    "variance of a posterior": (variance, {"source": POSTERIOR, "estimator": "pombu", "u_min": 0.0, **SAMPLED}),
    "closed form of samples": (
        lambda p, r, **rest: covariance(MDP(p, r), **rest),
        {"p": P, "r": R, "estimator": "closed-form", **BASE},
    ),
    "closed form of a posterior": (covariance, {"source": POSTERIOR, "estimator": "closed-form", **SAMPLED}),
    "covariance of members": (covariance, {"source": POSTERIOR, "estimator": "ensemble-var", **SAMPLED}),
    "difference": (difference, {"source": POSTERIOR, "other": OTHER, "estimator": "closed-form", **SAMPLED}),
    "DirichletNormal": (
        lambda **prior: DirichletNormal(**prior).sample(0, 2),
        {**SIZES, **ROWS, "reward_precision": TABLE, "noise_precision": 1e6},
    ),
    "prior mass": (lambda **prior: DirichletNormal(**prior).sample(0, 2), {**SIZES, "prior_mass": 2.0, "terminal": True}),
    "DirichletNormalGamma": (
        lambda **prior: DirichletNormalGamma(**prior).sample(0, 2),
        {**SIZES, **ROWS, "reward_kappa": TABLE, "noise_shape": 2.0 * TABLE, "noise_rate": TABLE},
    ),
    "observe": (lambda repeats, **seen: POSTERIOR.observe(Transitions(**seen), repeats).mean(), {"repeats": 1, **SEEN}),
    "observe anything": (lambda seen: POSTERIOR.observe(seen).mean(), {"seen": Transitions(**SEEN)}),
    "sample": (POSTERIOR.sample, {"key": 0, "num_models": 2}),
}


@pytest.mark.usefixtures("as_users_have_it")
@campaign(0.3)
@hypothesis.given(odd_calls(CALLS))
def test_odd_arguments_are_refused_in_one_line_or_have_an_answer(call: tuple[str, dict[str, Any]]) -> None:
    name, arguments = call
    found, line = refusal(lambda: CALLS[name][0](**arguments))
    if not line:
        for leaf in jax.tree.leaves(found):
            assert isinstance(leaf, str) or np.isfinite(leaf).all(), (name, arguments)


ONCE: list[tuple[str, dict[str, Any], str]] = [
    ("variance of samples", {"estimator": 7}, "estimator must be a name or an Estimator, but it is 7"),
    ("variance of samples", {"estimator": Estimator("x", local=3)}, "local of an Estimator must be a function, but it is 3"),  # type: ignore[arg-type]
    ("variance of samples", {"p": np.ma.masked_array(P, P > 0.5)}, "p is masked in places"),
    (
        "variance of samples",
        {"r": 1e308 * TABLE},
        "r is 1e+308 at state 0, action 0, and must be at most 1e+100",
    ),
    ("variance of samples", {"r": [Loud()]}, "r is not an array: of its own making"),
    ("variance of samples", {"discount": "0.9"}, "discount must be a number, but it is '0.9'"),
    ("variance of samples", {"discount": True}, "discount must be a number, but it is True"),
    ("variance of samples", {"discount": np.complex64(0.5)}, "discount must be a number"),
    ("variance of samples", {"horizon": 2**31}, "horizon must be at most 1000000, but it is 2147483648"),
    ("difference", {"horizon": 2**31}, "horizon must be at most 1000000, but it is 2147483648"),
    ("variance of a posterior", {"policy": jax.random.key(0)}, "policy is not an array: "),
    ("variance of a posterior", {"key": np.zeros((3, 2))}, "key must be a JAX key or a whole number, but it is array("),
    (
        "variance of a posterior",
        {"key": jax.random.split(jax.random.key(0))},
        "key must be one JAX key, but it is an array of keys of shape (2,)",
    ),
    (
        "closed form of samples",
        {"estimator": "pombu"},
        "unknown estimator 'pombu'; choose from: closed-form, first-order, ensemble-var",
    ),
    ("DirichletNormal", {"terminal": np.ones(2)}, "terminal must be true or false"),
    ("DirichletNormal", {"support": 0.5}, "support must say true or false of every next state"),
    ("DirichletNormal", {"concentration": 10**400}, "concentration must hold real numbers"),
    (
        "DirichletNormal",
        {"concentration": np.float32("nan")},
        "Dirichlet parameters must be positive, but one is nan at state 0",
    ),
    ("DirichletNormal", {"reward_precision": 5e-324}, "reward_precision must be positive and finite, but it is 5e-324"),
    ("DirichletNormal", {"num_states": 10**7}, "(10000000, 2, 10000000) would take 1,490,116.1 GiB"),
    ("prior mass", {"prior_mass": b"1"}, "prior_mass must be a number, but it is b'1'"),
    ("observe anything", {"seen": None}, "transitions must be a Transitions, but they are None"),
    ("observe", {"reward": [1e200, 0.0, 0.0]}, "reward of transition 0 is 1e"),
]


@pytest.mark.usefixtures("as_users_have_it")
@pytest.mark.parametrize(("name", "changed", "line"), ONCE, ids=[f"{name}-{'-'.join(changed)}" for name, changed, _ in ONCE])
def test_what_once_came_through(name: str, changed: dict[str, Any], line: str) -> None:
    call, good = CALLS[name]
    assert line in refusal(lambda: call(**{**good, **changed}))[1]
