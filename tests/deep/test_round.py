from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deep.tiny import config, constant_critics
from ubex.deep import actor, agents, critics, dynamics, uncertainty
from ubex.deep.buffer import Batch
from ubex.deep.config import DeepConfig
from ubex.deep.methods import DEEP_METHODS
from ubex.deep.networks import MLP
from ubex.deep.round import (
    Bounds,
    Goals,
    Noise,
    backed_up,
    draw_noise,
    fitted_to,
    gradient_round,
    largest_variance,
    losses,
    targets,
    value_bounds,
)
from ubex.envs.task import Task

KEY = jax.random.key(0)
TASK = Task(2, 1)
FREE = (jnp.asarray(-jnp.inf), jnp.asarray(jnp.inf))


def batch(*leading: int) -> Batch:
    shapes = ((*leading, 2), (*leading, 1), leading, (*leading, 2))
    parts = [jax.random.normal(jax.random.fold_in(KEY, i), shape) for i, shape in enumerate(shapes)]
    return Batch(*parts, jnp.zeros(leading))


def unet_of(values: MLP) -> MLP:
    """The last of the networks, which is the U-net of agents that have one."""
    last: MLP = jax.tree.map(lambda x: x[-1], values)
    return last


def with_critics(agent: agents.AgentState, critics: MLP) -> agents.AgentState:
    """The agent with these critics in its targets, beside its U-net if it has one."""
    if len(agent.values.biases[0]) > len(critics.biases[0]):
        critics = agents.beside(critics, unet_of(agent.values))
    return agent._replace(values_target=critics)


def goals_of(
    settings: DeepConfig,
    noise: Any,
    agent: agents.AgentState,
    shared: Batch,
    own: Batch,
    alpha: float = 0.0,
    bounds: Bounds = FREE,
    task: Task = TASK,
    local: uncertainty.Local | None = None,
) -> Goals:
    """What critics are fitted to, with this noise for their next actions; and the U-net, of which the noise is 0."""
    size = shared.reward.shape[0]
    none = jnp.zeros(size)
    drawn = Noise(uncertainty.Noise(none, none), jnp.zeros((size, noise.shape[-1])), noise, none)
    told = local or uncertainty.Local(none, none, none, none)
    return targets(settings, task, drawn, agent, shared, own, jnp.asarray(alpha), bounds, told)


@functools.cache
def rounds(settings: DeepConfig) -> tuple[agents.AgentState, agents.AgentState, list[agents.Info]]:
    """An agent before and after a few rounds on the same batch."""
    first = agents.init(settings, KEY, TASK)
    model = dynamics.init(settings, KEY, TASK) if settings.model_based else None
    shared, own = batch(settings.batch_size), batch(settings.num_models, settings.batch_size)

    @jax.jit
    def step(agent: agents.AgentState, key: Any) -> tuple[agents.AgentState, agents.Info]:
        noise = draw_noise(settings, TASK, key)
        return gradient_round(settings, TASK, noise, agent, model, shared, own)

    agent, seen = first, []
    TRAILS[settings] = []
    for i in range(30):
        agent, info = step(agent, jax.random.fold_in(KEY, i))
        seen.append(info)
        TRAILS[settings].append(agent)
    return first, agent, seen


TRAILS: dict[DeepConfig, list[agents.AgentState]] = {}


def trail(settings: DeepConfig) -> list[agents.AgentState]:
    """The agent after each of these rounds."""
    rounds(settings)
    return TRAILS[settings]


@pytest.mark.parametrize("method", DEEP_METHODS)
def test_a_round_moves_every_part_and_keeps_the_structure(method: str) -> None:
    settings = config(method=method, critic_rate=1e-2)
    first, last, seen = rounds(settings)
    described = [jax.tree.map(lambda x: (x.shape, x.dtype, x.aval.weak_type), agent) for agent in (first, last)]
    assert described[0] == described[1]  # a weakly typed scalar would make a loop compile again
    for name in ("actor", "values", "values_target"):
        moved = jax.tree.map(lambda a, b: jnp.abs(a - b), getattr(first, name), getattr(last, name))
        one_by_one = 1 if name == "actor" else settings.num_critics + settings.has_unet
        for part in jax.tree.leaves(moved):
            assert float(part.reshape(one_by_one, -1).max(axis=1).min()) > 0.0, name
    assert float(last.log_alpha) != 0.0
    assert float(seen[-1].critic_loss) < float(seen[0].critic_loss)
    finite = {name for name, value in seen[-1]._asdict().items() if np.isfinite(value)}
    missing = set(agents.Info._fields) - finite
    if settings.has_unet:
        assert not missing - ({"gap"} if method == "pombu" else set())
    else:
        assert missing == {"u_loss", "w", "gap", "u"} | ({"variance"} if method != "ensemble-var" else set())


def test_the_targets_follow_by_polyak() -> None:
    first, last, _ = rounds(config(method="sac", critic_rate=1e-2))
    again = [first.values_target]
    for agent in trail(config(method="sac", critic_rate=1e-2)):
        again.append(jax.tree.map(lambda old, new: 0.995 * old + 0.005 * new, again[-1], agent.values))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), again[-1], last.values_target)


def test_critic_targets_are_soft_and_each_their_own() -> None:
    settings = config(method="ensemble-mean", critic_hidden=(), discount=0.5)
    agent = with_critics(agents.init(settings, KEY, TASK), constant_critics([10.0, 20.0]))
    own, noise = batch(2, 8), jax.random.normal(KEY, (2, 8, 1))
    goal = goals_of(settings, noise, agent, batch(8), own, 0.2).value
    log_prob = actor.sample(agent.actor, own.next_observation, noise, settings.density_floor).log_prob
    expected = own.reward + 0.5 * (jnp.asarray([[10.0], [20.0]]) - 0.2 * log_prob)
    np.testing.assert_allclose(goal, expected, atol=1e-5)


def test_an_averaged_actor_follows_and_takes_the_actions_of_the_targets() -> None:
    settings = config(method="ensemble-mean", critic_rate=1e-2, actor_average=0.1)
    average = rounds(settings)[0].actor
    for agent in trail(settings):
        average = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new, average, agent.actor)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), average, agent.actor_average)
    own, noise = batch(2, 8), jax.random.normal(KEY, (2, 8, 1))
    goal = goals_of(settings, noise, agent, batch(8), own, 0.2).value
    for used, same in ((agent.actor_average, True), (agent.actor, False)):
        acted = actor.sample(used, own.next_observation, noise, settings.density_floor)
        later = critics.own_values(agent.values_target, own.next_observation, acted.action) - 0.2 * acted.log_prob
        assert np.allclose(goal, backed_up(settings, own, later), atol=1e-4) == same
    assert rounds(config(method="ensemble-mean", critic_rate=1e-2))[1].actor_average is None


def test_twins_share_the_smaller_target() -> None:
    settings = config(method="mbpo", critic_hidden=(), discount=0.5)
    agent = with_critics(agents.init(settings, KEY, TASK), constant_critics([10.0, 20.0]))
    shared, noise = batch(8), jax.random.normal(KEY, (1, 8, 1))
    goal = goals_of(settings, noise, agent, shared, shared).value
    np.testing.assert_allclose(goal, jnp.stack([shared.reward + 5.0] * 2), atol=1e-5)


def test_critics_of_a_model_share_the_smallest_target() -> None:
    """The first critics of both models say 10 and 40, the second ones 20 and 30."""
    settings = config(num_models=2, critics_per_model=2, critic_hidden=(), discount=0.5)
    agent = with_critics(agents.init(settings, KEY, TASK), constant_critics([10.0, 40.0, 20.0, 30.0]))
    own, noise = batch(2, 8), jax.random.normal(KEY, (2, 8, 1))
    found = goals_of(settings, noise, agent, batch(8), own)
    np.testing.assert_array_equal(
        found.observation, jnp.concatenate((own.observation, own.observation, batch(8).observation[None]))
    )
    smallest = own.reward + jnp.asarray([[5.0], [15.0]])
    np.testing.assert_allclose(found.value[:4], jnp.concatenate((smallest, smallest)), atol=1e-5)


def test_a_round_asks_the_first_critics_for_w_and_gap() -> None:
    """Critics that come after those are moved, and w, gap and u of the round stay."""
    settings = config(num_models=2, critics_per_model=2)
    agent, model = agents.init(settings, KEY, TASK), dynamics.init(settings, KEY, TASK)
    assert agent.values.weights[0].shape[0] == 4 + 1
    noise, shared, own = draw_noise(settings, TASK, KEY), batch(settings.batch_size), batch(2, settings.batch_size)

    def moved(number: int) -> agents.Info:
        values = jax.tree.map(lambda x: x.at[number].multiply(2.0), agent.values)
        return gradient_round(settings, TASK, noise, agent._replace(values=values), model, shared, own)[1]

    first, second, third = moved(1), moved(2), moved(3)
    assert (second.w, second.gap) == (third.w, third.gap)
    assert first.w != second.w
    assert second.critic_loss != third.critic_loss, "and they are trained"


def bounded(method: str) -> Any:
    return config(method=method, critic_hidden=(), discount=0.5, rollout_ends="trusted", reward_range=(-0.2, 1.0))


def test_values_are_bounded_by_what_rewards_can_add_up_to() -> None:
    """Two steps' worth of rewards from -0.2 to 1, and what an entropy term of temperature 0.1 adds, by hand."""
    settings = bounded("exact-ube")
    task = Task(2, 3)
    model = dynamics.init(settings, KEY, task)
    model = model._replace(support=model.support._replace(rewards=jnp.asarray([-0.2, 1.0])))
    low, high = value_bounds(settings, task, model, jnp.asarray(0.1))
    np.testing.assert_allclose((low, high), (2.0 * (-0.2 - 0.3), 2.0 * (1.0 + 0.3 * np.log(2.0))), rtol=1e-6)
    positive = model._replace(support=model.support._replace(rewards=jnp.asarray([0.5, 1.0])))
    assert float(value_bounds(settings, task, positive, jnp.asarray(0.0))[0]) == 0.0, "an episode may end"
    for free in (
        dataclasses.replace(settings, rollout_ends="alone", reward_range=None),
        dataclasses.replace(settings, discount=1.0),
    ):
        assert value_bounds(free, task, model, jnp.asarray(0.1)) == (-jnp.inf, jnp.inf)
    assert float(largest_variance(jnp.asarray(-1.0), jnp.asarray(3.0))) == 4.0


@pytest.mark.parametrize("method", ["exact-ube", "mbpo"])
def test_bootstrapped_values_stay_within_their_bounds(method: str) -> None:
    settings = bounded(method)
    agent = with_critics(agents.init(settings, KEY, TASK), constant_critics([100.0, 200.0]))
    shared, own = batch(8), batch(8) if settings.twin else batch(2, 8)
    noise = jnp.zeros((1 if settings.twin else 2, 8, 1))
    found = goals_of(settings, noise, agent, shared, own, bounds=(jnp.asarray(-1.0), jnp.asarray(2.0)))
    goal = found.value[: settings.num_critics]
    np.testing.assert_allclose(goal, jnp.broadcast_to((own.reward + 0.5 * 2.0), goal.shape), atol=1e-5)


def test_noise_has_the_shapes_that_a_round_needs() -> None:
    noise = draw_noise(config(sampled_states=True, w_actions=2), TASK, KEY)
    assert noise.local.actions.shape == (1, 8, 3, 1)
    assert noise.local.states.shape == (2, 8, 3, 2)
    assert (noise.unet.shape, noise.critics.shape, noise.actor.shape) == ((8, 1), (2, 8, 1), (8, 1))


@pytest.mark.parametrize("precision", ["float32", "split16"])
def test_the_precisions_tell_nearly_equal_models_apart(precision: str) -> None:
    """Critics near 100 and models that nearly agree: w, gap and u are within 1% of float64."""
    sizes: dict[str, Any] = {
        "batch_size": 64,
        "gap_actions": 9,
        "w_actions": 9,
        "critic_hidden": (64, 64),
        "model_hidden": (64,),
    }
    settings = config(num_models=5, u_min=-np.inf, precision=precision, **sizes)
    agent, model, seen = agents.init(settings, KEY, TASK), dynamics.init(settings, KEY, TASK), batch(64)
    networks = MLP(agent.values.weights, (*agent.values.biases[:-1], agent.values.biases[-1] + 100.0), jnp.tanh)
    close = jax.tree.map(lambda x: x[:1] + 1e-2 * (x - x[:1]), model.networks)
    shapes = uncertainty.noise_shapes(settings, TASK)
    noise = uncertainty.Noise(*(jax.random.normal(jax.random.fold_in(KEY, i), shape) for i, shape in enumerate(shapes)))
    given = (noise, model._replace(networks=close, optimiser=None), networks, agent.actor, seen)

    def found(kind: Any) -> uncertainty.Local:
        cast = jax.tree.map(lambda x: jnp.asarray(np.asarray(x), kind), given)
        with jax.numpy_dtype_promotion("standard"), agents.precision(settings):
            used = settings if kind == jnp.float32 else dataclasses.replace(settings, precision="float32")
            return jax.jit(lambda *parts: uncertainty.local(used, TASK, *parts))(*cast)

    single = found(jnp.float32)
    with jax.enable_x64(True):
        double = [np.asarray(x) for x in found(jnp.float64)]
    assert float(jnp.mean(critics.values(networks, seen.observation, seen.action))) > 80.0
    assert 0.0 < float(jnp.mean(single.w)) < 1.0
    for a, b in zip(single, double, strict=True):
        assert np.linalg.norm(np.asarray(a, np.float64) - b) < 0.01 * np.linalg.norm(b)


@pytest.mark.parametrize("size", [1e-12, 1.0, 1e6])
def test_slopes_of_any_size_survive_rounding_to_sixteen_bits(size: float) -> None:
    network = critics.init(config(critic_hidden=(64, 64)), KEY, TASK)
    x, error = jax.random.normal(KEY, (2, 16, 3)), jax.random.normal(jax.random.key(1), (2, 16)) * jnp.asarray([[1.0], [1e-9]])
    found = {}
    for precision in ("float32", "split16"):
        settings = config(critic_hidden=(64, 64), precision=precision)
        outputs = lambda nets: critics.own_values(nets, x[..., :2], x[..., 2:])  # noqa: E731
        found[precision] = fitted_to(settings, network, outputs, lambda said: (size * jnp.sum(said * error), None))[1]
    for ours, true in zip(jax.tree.leaves(found["split16"]), jax.tree.leaves(found["float32"]), strict=True):
        for one, right in zip(np.asarray(ours, np.float64), np.asarray(true, np.float64), strict=True):
            assert np.linalg.norm(one - right) < 5e-3 * np.linalg.norm(right), "each network has slopes of its own size"


def test_the_target_ends_with_the_episode() -> None:
    seen = batch(2)._replace(reward=jnp.asarray([1.0, 2.0]), terminated=jnp.asarray([0.0, 1.0]))
    np.testing.assert_allclose(backed_up(config(discount=0.5), seen, jnp.asarray([10.0, 10.0])), [6.0, 2.0])


def test_every_critic_is_fitted_to_its_own_targets_alone() -> None:
    settings = config(num_models=3)
    networks = critics.init(settings, KEY, TASK)
    own = batch(3, 5)
    target = critics.own_values(networks, own.observation, own.action)
    moved = target + jnp.asarray([[0.0], [2.0], [0.0]]) * jnp.ones((1, 5))
    loss, slope = fitted_to(
        settings,
        networks,
        lambda nets: critics.own_values(nets, own.observation, own.action),
        lambda said: (jnp.sum((said - moved) ** 2),) * 2,
    )
    np.testing.assert_allclose(loss, 5 * 2.0**2, rtol=1e-5)
    size = [float(jnp.abs(slope.weights[0][i]).max()) for i in range(3)]
    assert size[0] == size[2] == 0.0
    assert size[1] > 0.0


CHOICE = Task(2, 3, discrete=True)
Q = np.array([[1.0, 2.0, 0.5], [3.0, 1.0, -1.0]], np.float32)
"""What two critics say of three actions, wherever they are."""


def choosing(method: str, **changes: Any) -> tuple[DeepConfig, agents.AgentState]:
    settings = config(method=method, critic_hidden=(), discount=0.5, **changes)
    weight = jnp.concatenate((jnp.zeros((2, 2, 1)), jnp.asarray(Q)[..., None]), axis=1)
    says = MLP((weight,), (jnp.zeros((2, 1)),), jnp.tanh)
    agent = with_critics(agents.init(settings, KEY, CHOICE), says)
    return settings, agent._replace(values=agent.values_target)


def chosen(*leading: int) -> Batch:
    number = jnp.arange(int(np.prod(leading))).reshape(leading) % 3
    return batch(*leading)._replace(action=jax.nn.one_hot(number, 3, dtype=jnp.float32))


@pytest.mark.parametrize("method", ["ensemble-mean", "mbpo"])
def test_with_discrete_actions_targets_are_exact_and_soft(method: str) -> None:
    settings, agent = choosing(method)
    shared, own = chosen(8), chosen(2, 8)
    noise = draw_noise(settings, CHOICE, KEY).critics
    assert noise.size == 0
    goal = goals_of(settings, noise, agent, shared, own, 0.2, task=CHOICE).value
    used = shared if settings.twin else own
    policy = np.asarray(jax.nn.softmax(agent.actor(used.next_observation)))
    values = Q.min(axis=0)[None] if settings.twin else Q[:, None]
    soft = np.sum(policy * (values - 0.2 * np.log(policy)), axis=-1)
    np.testing.assert_allclose(goal, np.broadcast_to(used.reward + 0.5 * soft, (2, 8)), rtol=1e-5, atol=1e-5)
    assert float(goal.mean() - used.reward.mean() - 0.5 * (policy * values).sum(axis=-1).mean()) > 0.05, (
        "entropy is worth something"
    )


def test_with_discrete_actions_rounds_find_the_softmax_of_the_values() -> None:
    """Critics that stay as they are, and a temperature that has no reason to move from 1: the best policy is softmax(Q)."""
    best = np.exp(Q.mean(axis=0)) / np.exp(Q.mean(axis=0)).sum()
    entropy = float(-(best @ np.log(best)))
    settings, agent = choosing("ensemble-mean", critic_rate=0.0, actor_rate=0.01, target_entropy=entropy)
    model, shared, own = dynamics.init(settings, KEY, CHOICE), chosen(8), chosen(2, 8)

    @jax.jit
    def many(agent: agents.AgentState) -> tuple[agents.AgentState, agents.Info]:
        def one(agent: agents.AgentState, key: Any) -> tuple[agents.AgentState, agents.Info]:
            return gradient_round(settings, CHOICE, draw_noise(settings, CHOICE, key), agent, model, shared, own)

        return jax.lax.scan(one, agent, jax.random.split(KEY, 600))

    agent, info = many(agent)
    policy = jax.nn.softmax(agent.actor(shared.observation))
    np.testing.assert_allclose(policy, np.broadcast_to(best, (8, 3)), atol=0.03)
    assert float(info.entropy[-1]) == pytest.approx(entropy, abs=0.03)
    assert float(info.value[-1]) == pytest.approx(best @ Q.mean(axis=0), abs=0.05)


def variance_by(settings: DeepConfig, values: MLP, observation: Any, action: Any) -> Any:
    """U by the last of these networks, without the others."""
    return uncertainty.variance(settings, unet_of(values)(jnp.concatenate((observation, action), axis=-1))[:, 0])


def some_local(size: int) -> uncertainty.Local:
    nothing, every = jnp.zeros(size), jnp.arange(float(size))
    return uncertainty.Local(0.5 + every, 2.0 - every, nothing, nothing)


def test_with_discrete_actions_the_variance_of_the_next_step_is_its_average() -> None:
    """With bounds of the values from -1 to 0.5 no variance is above 0.75^2, of each action for itself."""
    settings, agent = choosing("exact-ube")
    agent = agent._replace(values_target=jax.tree.map(lambda x: 2.0 * x, agent.values))
    seen, own, said = chosen(8), chosen(2, 8), some_local(8)
    bounds = (jnp.asarray(-1.0), jnp.asarray(0.5))
    found = goals_of(settings, jnp.zeros((2, 8, 0)), agent, seen, own, bounds=bounds, task=CHOICE, local=said)
    policy = np.asarray(jax.nn.softmax(agent.actor(seen.next_observation)))
    every = [np.tile(row, (8, 1)).astype(np.float32) for row in np.eye(3)]
    u = [variance_by(settings, agent.values_target, seen.next_observation, jnp.asarray(one)) for one in every]
    assert 0 < sum(float(x) > 0.5625 for x in np.stack(u).ravel()) < 24, "the bound matters, and not everywhere"
    later = np.sum(policy * np.minimum(np.stack(u, axis=-1), 0.5625), axis=-1)
    np.testing.assert_allclose(found.value[-1], said.reward_variance + 0.25 * (said.u + later), rtol=1e-5)


def test_the_unet_is_fitted_to_the_uncertainty_of_the_next_step_at_the_shared_batch() -> None:
    """z = Var[r] + discount^2 (u + U(s', a')), by its own target network, and without U where the episode ends."""
    settings = config(discount=0.5)
    agent = agents.init(settings, KEY, TASK)
    agent = agent._replace(values_target=jax.tree.map(lambda x: 2.0 * x, agent.values))
    shared, own, said = batch(8), batch(2, 8), some_local(8)
    shared = shared._replace(terminated=jnp.arange(8.0) % 2)
    found = goals_of(settings, jax.random.normal(KEY, (2, 8, 1)), agent, shared, own, 0.3, local=said)
    action = actor.sample(agent.actor, shared.next_observation, jnp.zeros((8, 1))).action
    later = variance_by(settings, agent.values_target, shared.next_observation, action)
    z = said.reward_variance + 0.25 * (said.u + (1.0 - shared.terminated) * later)
    np.testing.assert_allclose(found.value[-1], z, rtol=1e-5)
    np.testing.assert_array_equal(found.observation[-1], shared.observation)
    np.testing.assert_array_equal(found.action[-1], shared.action)
    np.testing.assert_array_equal(found.observation[:2], own.observation)


def test_the_losses_of_critics_and_unet_add_up() -> None:
    settings = config(regularisation=0.5, floor=0.1)
    said, goal = jax.random.normal(KEY, (3, 4)), jax.random.normal(jax.random.key(1), (3, 4))
    whole, (critic_loss, u_loss) = losses(settings, said, goal)
    np.testing.assert_allclose(critic_loss, np.sum((said[:2] - goal[:2]) ** 2), rtol=1e-6)
    error = np.asarray(goal[2] - np.log1p(np.exp(said[2])) - 0.1)
    np.testing.assert_allclose(u_loss, np.sum(error**2) + 0.5 * np.sum(np.maximum(0.1 - said[2], 0.0) ** 2), rtol=1e-5)
    assert float(whole) == pytest.approx(float(critic_loss + u_loss))
    alone, (same, nothing) = losses(config(method="ensemble-mean"), said[:2], goal[:2])
    assert alone == same == critic_loss
    assert np.isnan(nothing)
