"""Every field of every kind of settings, with every kind of nonsense: a line that names the field, or a plain value."""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated, Any

import numpy as np
import pytest

from ubex import Agent, InputError, fields
from ubex.deep.config import DeepConfig
from ubex.experiments import EXPERIMENTS
from ubex.fields import OneOf, Within
from ubex.tabular.agents import AgentConfig

pytestmark = pytest.mark.usefixtures("as_users_have_it")
KINDS: dict[str, Any] = {"AgentConfig": AgentConfig, "DeepConfig": DeepConfig} | dict(EXPERIMENTS)
ODD: list[Any] = ["x", "", None, True, [], (), {}, [[1]], ["x"], object(), b"1", 1j, range(3), {1, 2}, [None], lambda: 1]
NUMBERS: list[Any] = [0, -1, 1, 1.5, math.nan, math.inf, -math.inf, 10**400, 2**63, -(2**63), [math.nan], [10**400]]
ARRAYS: list[Any] = [np.uint64(2**63), np.float32(np.nan), np.array(3), np.array([1.0, 2.0]), np.ma.masked]
NONSENSE = [*ODD, *NUMBERS, *ARRAYS, np.ma.masked_array([1, 2], [1, 0])]


def complaint(made: Any, name: str, value: Any) -> tuple[Any, str]:
    """The record with another value, or what was said about it."""
    try:
        return dataclasses.replace(made, **{name: value}), ""
    except InputError as error:
        return None, str(error)


@pytest.mark.parametrize("kind", KINDS)
def test_nonsense_is_refused_in_one_line_or_is_a_plain_value(kind: str) -> None:
    made = KINDS[kind]()
    for field in dataclasses.fields(made):
        for value in NONSENSE:
            changed, said = complaint(made, field.name, value)
            assert "\n" not in said, (field.name, value)
            if changed is None:
                continue
            hash(changed)
            kept = getattr(changed, field.name)
            for one in kept if isinstance(kept, tuple) else (kept,):
                assert one is None or type(one) in (bool, int, float, str), (field.name, value, one)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("critic_hidden", [0], "critic_hidden must be at least 1, but it is 0"),
        ("critic_hidden", 64, "critic_hidden must be a list, but it is 64"),
        ("min_log_var", "x", "min_log_var must be a number, but it is 'x'"),
        ("min_log_var", 3.0, "min_log_var must be at most max_log_var, 0.5, but it is 3.0"),
        ("target_entropy", "x", "target_entropy must be a number, but it is 'x'"),
        ("gain", math.inf, "gain must be finite, but it is inf"),
        ("batch_size", True, "batch_size must be a whole number, but it is True"),
        ("batch_size", 2**60, f"batch_size must be at most {2**53}"),
        ("debias", 1, "debias must be true or false, but it is 1"),
        ("reward_range", (1.0, 2.0, 3.0), "reward_range must be 2 values"),
    ],
)
def test_what_was_once_taken_for_sense(name: str, value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        DeepConfig(**{"rollout_ends": "trusted", name: value})


def test_an_agent_without_hidden_layers_is_refused() -> None:
    with pytest.raises(InputError, match="actor_hidden must have at least 1 value: without hidden layers a network is linear"):
        Agent("sac", "Pendulum-v1", actor_hidden=[])


def test_an_experiment_without_methods_is_refused() -> None:
    with pytest.raises(InputError, match="methods must have at least one value: without one there is nothing to run"):
        EXPERIMENTS["deep-sea"](methods=())


def test_infinity_where_it_is_named() -> None:
    assert AgentConfig(u_min=-math.inf).u_min == -math.inf
    for wrong in (math.inf, math.nan):
        with pytest.raises(InputError, match="u_min must be"):
            AgentConfig(u_min=wrong)


def test_values_become_plain() -> None:
    found = DeepConfig(critic_hidden=[np.int64(8)], gain=np.float32(2), retain=np.int16(3))  # type: ignore[arg-type]
    assert found == DeepConfig(critic_hidden=(8,), gain=2.0, retain=3)
    assert hash(found) == hash(DeepConfig(critic_hidden=(8,), gain=2.0, retain=3))


@dataclasses.dataclass(frozen=True)
class Small:
    word: Annotated[str, OneOf(("a", "b"))] = "a"
    several: Annotated[tuple[float, ...], Within(0.0, 1.0)] | None = None

    def __post_init__(self) -> None:
        fields.check(self)


def test_rules_reach_into_what_may_be_missing() -> None:
    assert Small("b", (0, 1)).several == (0.0, 1.0)
    for settings, message in (
        ({"word": "c"}, "unknown word 'c'; choose from: a, b"),
        ({"several": (0.5, 2.0)}, r"several must be in \[0, 1\], but it is 2.0"),
        ({"several": "ab"}, "several must be a list, but it is 'ab'"),
    ):
        with pytest.raises(InputError, match=message):
            Small(**settings)  # type: ignore[arg-type]
