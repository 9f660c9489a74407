"""The study behind "which estimate explores best, and why": an unchanged variant is the agent, and changes change one thing."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import cyclic_variance

from ubex import DirichletNormal, Transitions
from ubex.envs.deep_sea import deep_sea
from ubex.envs.n_room import seven_room
from ubex.tabular.agents import AgentConfig
from ubex.tabular.belief import Belief
from ubex.tabular.loop import begin, run_episodes

ENV = deep_sea(3)
CONFIG = AgentConfig("closed-form", u_min=-0.05, repeats=3)


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    file = Path(__file__).resolve().parents[2] / "studies" / "explore-why" / "explore_why.py"
    spec = importlib.util.spec_from_file_location("explore_why", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def after_episodes(number: int) -> Belief:
    memory, _ = run_episodes(ENV, CONFIG, jax.random.key(1), begin(ENV), jnp.arange(number, dtype=jnp.int32))
    return memory.belief


def test_an_unchanged_variant_is_the_agent(tool: ModuleType) -> None:
    key, numbers = jax.random.key(3), jnp.arange(8, dtype=jnp.int32)
    _, theirs = run_episodes(ENV, CONFIG, key, begin(ENV), numbers)
    _, mine = tool.block(ENV, CONFIG, tool.VARIANTS["closed-form"], tool.update, key, begin(ENV).belief, numbers)
    np.testing.assert_array_equal(mine.policy, theirs.policies)
    np.testing.assert_array_equal(mine.reward, theirs.returns)


def test_variants_change_what_they_say(tool: ModuleType) -> None:
    belief, policy, key = after_episodes(2), jnp.asarray([0, 1] * 5, jnp.int32), jax.random.key(5)
    makers = {name: tool.VARIANTS[name] for name in ("closed-form", "closed-form, noise 1", "pombu-closed")}
    makers["level"] = tool.scaled(tool.CLOSED, tool.pombu_closed)
    found = jax.jit(lambda: {name: make(CONFIG, key, belief)(policy) for name, make in makers.items()})()
    mean, deviation = found["closed-form"]
    level = found["level"][1]
    assert float(level.sum()) == pytest.approx(float(found["pombu-closed"][1].sum()))
    known = np.asarray(deviation) > 1e-9
    assert np.ptp(np.asarray(level)[known] / np.asarray(deviation)[known]) < 1e-9
    factors = np.asarray(found["closed-form, noise 1"][1])[known] / np.asarray(deviation)[known]
    assert np.std(np.log(factors)) > 0.3
    for other, _ in found.values():
        np.testing.assert_allclose(other, mean, atol=1e-9)


def test_pombu_closed_is_pombu_with_many_samples(tool: ModuleType) -> None:
    seen = after_episodes(3)
    policy = np.array([0, 1] * 5)
    _, deviation = jax.jit(lambda: tool.pombu_closed(CONFIG, jax.random.key(0), seen)(jnp.asarray(policy, jnp.int32)))()
    state, action, place = np.nonzero(np.asarray(seen.counts))
    times = np.asarray(seen.counts)[state, action, place].astype(int)
    after, pay = np.asarray(seen.successors)[state, action, place], (np.asarray(seen.rewards)[state, action] / times)
    rows = [np.repeat(column, times) for column in (state, action, pay, after)]
    posterior = DirichletNormal(9, 2, terminal=True).observe(Transitions(*rows))
    sampled = cyclic_variance(posterior, policy, 0.99, estimator="pombu", key=0, num_models=4000)
    np.testing.assert_allclose(np.asarray(deviation)[:9] ** 2, sampled.q[:9], rtol=0.15, atol=1e-3)


def test_no_planner_finds_more_than_there_is(tool: ModuleType) -> None:
    belief, key = after_episodes(2), jax.random.key(0)
    moments = jax.jit(lambda policy: tool.CLOSED(CONFIG, key, belief)(policy))

    def optimism(policy: jax.Array) -> float:
        mean, deviation = moments(policy)
        return float(mean[0, policy[0]] + deviation[0, policy[0]])

    bits = [[number >> state & 1 for state in range(9)] + [0] for number in range(2**9)]
    best = max(optimism(jnp.asarray(policy, jnp.int32)) for policy in bits)
    own, pombu, searched, for_the_start = map(float, tool.optimism_of_plans(ENV, CONFIG, key, belief))
    assert pombu - 1e-9 <= searched <= best + 1e-9
    assert max(own, for_the_start) <= best + 1e-9
    assert for_the_start > 0.8 * best


def test_rooms_of_states(tool: ModuleType) -> None:
    rooms = tool.rooms_of_states()
    assert rooms.shape == (181,)
    assert [rooms[state] for state in (52, seven_room().start, 152)] == [0, 3, 6]
    assert np.bincount(rooms).sum() == 7 * 25 + 6
