"""Agents: every method plans, the fast way is the slow way, and settings are checked."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ubex import MDP, DirichletNormal, Transitions, value_variance
from ubex.envs.base import rollout
from ubex.envs.deep_sea import deep_sea
from ubex.envs.n_room import n_room
from ubex.tabular import agents
from ubex.tabular.agents import METHODS, AgentConfig
from ubex.tabular.belief import mean_model, observe, prior, reward_posterior
from ubex.tabular.models import Dense
from ubex.tabular.planner import Plan, policy_iteration
from ubex.types import Key


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize(("method", "branching"), [*((method, 1) for method in METHODS), ("exact-ube", 3), ("psrl", 3)])
def test_every_method_plans(method: str, branching: int) -> None:
    plan = jax.jit(agents.update, static_argnums=0)(AgentConfig(method=method), jax.random.key(0), prior(9, 2, branching))
    assert plan.policy.shape == (10,)
    assert set(np.unique(plan.policy)) <= {0, 1}
    assert 1 <= int(plan.steps) <= 40


@pytest.mark.parametrize("method", ["exact-ube", "psrl"])
def test_the_fast_way_plans_what_factorisations_plan(method: str) -> None:
    """The model of a deterministic belief and the same model as tables, on the same samples."""
    config, env = AgentConfig(method=method, u_min=-0.05), deep_sea(6)

    @jax.jit
    def plans(key: Key) -> tuple[Plan, Plan]:
        belief = prior(36, 2, 1)
        for episode in range(4):
            policy = jax.random.randint(jax.random.key(episode), (37,), 0, 2, jnp.int32)
            belief = observe(belief, rollout(env, key, policy), 6)
        reward, deviation = reward_posterior(belief, 1.0, 1e6)
        fast = agents.planning_model(config, key, belief, mean_model(belief, reward), deviation)
        one = (
            MDP(jnp.asarray(fast.samples.p)[0], jnp.asarray(fast.samples.r)[0]) if method == agents.PSRL else fast.mean.dense()
        )
        first = jax.random.randint(key, (37,), 0, 2, jnp.int32)
        slow = Dense(fast.samples, one)
        return tuple(policy_iteration(config.optimism(), key, model, first) for model in (fast, slow))  # type: ignore[return-value]

    for seed in range(8):
        fast, slow = plans(jax.random.key(seed))
        np.testing.assert_array_equal(fast.policy, slow.policy)
        assert int(fast.steps) == int(slow.steps)


@pytest.mark.filterwarnings("ignore::ubex.UbexWarning")
@pytest.mark.parametrize("branching", [1, 2])
@pytest.mark.parametrize("name", ["closed-form", "first-order"])
def test_the_closed_form_plans_with_the_variance_of_the_public_call(name: str, branching: int) -> None:
    env, belief, posterior = deep_sea(4), prior(16, 2, branching), DirichletNormal(16, 2, terminal=True)
    for episode in range(5):
        policy = np.random.default_rng(episode).integers(2, size=17)
        seen = rollout(env, jax.random.key(episode), jnp.asarray(policy, jnp.int32))
        belief = observe(belief, seen, 4)
        steps = Transitions(*(np.asarray(x) for x in (seen.state, seen.action, seen.reward, seen.next_state)))
        posterior = posterior.observe(steps, repeats=4)
    reward, deviation = reward_posterior(belief, 1.0, 1e6)
    model = agents.planning_model(AgentConfig(method=name), jax.random.key(0), belief, mean_model(belief, reward), deviation)
    for seed in range(3):
        policy = np.random.default_rng(seed).integers(2, size=17)
        average, variance = model.evaluate(jnp.asarray(policy, jnp.int32), 0.99, name == "first-order")
        expected = value_variance(posterior, policy, 0.99, estimator=name)
        np.testing.assert_allclose(average.q[:-1], expected.q_mean[:-1], rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(variance[:-1], expected.q[:-1], rtol=1e-6)


@pytest.mark.parametrize("planner", agents.PLANNERS)
def test_the_closed_form_of_a_deterministic_world_has_no_table_of_two_states_by_two(planner: str) -> None:
    states = 1601
    config = AgentConfig(method="closed-form", planner=planner)
    update = jax.jit(agents.update, static_argnums=(0, 3))
    compiled = update.lower(config, jax.random.key(0), prior(states - 1, 2, 1), 0).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < states**2


def test_policy_iteration_on_the_closed_form_ends_where_rows_are_met_again() -> None:
    """Three rooms: without the part of the variance that counts these rows twice, it cycles with each of these beliefs."""
    env, config = n_room(3), AgentConfig(method="closed-form", prior_mass=2.0)
    belief = prior(env.num_states, env.num_actions, 2)
    for episode in range(4):
        policy = np.random.default_rng(episode).integers(env.num_actions, size=env.num_states + 1)
        belief = observe(belief, rollout(env, jax.random.key(episode), jnp.asarray(policy, jnp.int32)), 1)
        reward, deviation = reward_posterior(belief, 1.0, 1e6)
        model = agents.planning_model(config, jax.random.key(0), belief, mean_model(belief, reward, 2.0), deviation)
        first = jnp.zeros(env.num_states + 1, jnp.int32)
        assert policy_iteration(config.optimism(), jax.random.key(1), model, first).converged, episode


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "magic"}, "unknown method 'magic'; choose from: .*psrl"),
        ({"num_models": 1}, "num_models must be at least 2"),
        ({"gain": -1.0}, "gain must be in"),
        ({"discount": 1.5}, "discount must be in"),
        ({"ties": "coin"}, "unknown ties 'coin'; choose from: first, random"),
        ({"planner": "oracle"}, "unknown planner 'oracle'; choose from: policy-iteration, start"),
        ({"planner": "start"}, "planner 'start' needs the method closed-form or first-order, but the method is exact-ube"),
        ({"planner": "start", "method": "psrl"}, "but the method is psrl"),
        ({"planner": "start", "method": "closed-form", "plan_when": "doubled"}, "plan_when must be 'episode' with it"),
        ({"plan_when": "always"}, "unknown plan_when 'always'; choose from: episode, doubled"),
        ({"repeats": 0}, "repeats must be at least 1"),
        ({"max_improvements": 0}, "max_improvements must be at least 1"),
        ({"max_improvements": 10**9}, "max_improvements must be at most 10000"),
        ({"prior_mass": 0.0}, "prior_mass must be in"),
        ({"prior_mass": float("nan")}, "prior_mass must be a number, but it is nan"),
        ({"reward_precision": -1.0}, "reward_precision must be in"),
    ],
)
def test_bad_settings(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AgentConfig(**settings)


@pytest.mark.parametrize("method", METHODS)
def test_agents_need_a_discount_below_1(method: str) -> None:
    with pytest.raises(ValueError, match=r"discount must be in \[0, 1\), but it is 1: agents plan without an end"):
        AgentConfig(method=method, discount=1)
