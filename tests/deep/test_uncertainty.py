from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from deep.test_rollout import BINARY, linear_models
from deep.tiny import LINE, config
from ubex.deep import uncertainty
from ubex.deep.buffer import Batch
from ubex.deep.config import DeepConfig
from ubex.deep.networks import MLP, descend
from ubex.deep.round import u_target, unet_loss
from ubex.tabular import bellman
from ubex.types import MDP

SURE: dict[str, Any] = {"min_log_var": -60.0, "max_log_var": -50.0, "model_hidden": (), "critic_hidden": ()}
KEY = jax.random.key(0)


def linear_critics(state: list[float], action: list[float], level: list[float]) -> MLP:
    """Critic i says state_i s + action_i a + level_i."""
    weight = jnp.asarray([[[s], [a]] for s, a in zip(state, action, strict=True)])
    return MLP((weight,), (jnp.asarray(level)[:, None],), jnp.tanh)


def constant_policy(mean: float, log_std: float) -> MLP:
    return MLP((jnp.zeros((1, 2)),), (jnp.asarray([mean, log_std]),), jnp.tanh)


def batch_at(states: list[float]) -> Batch:
    number = len(states)
    x = jnp.asarray(states)[:, None]
    return Batch(x, jnp.zeros((number, 1)), jnp.zeros(number), x, jnp.zeros(number))


def noise_of(settings: DeepConfig, seed: int = 0) -> uncertainty.Noise:
    shapes = uncertainty.noise_shapes(settings, LINE)
    return uncertainty.Noise(*(jax.random.normal(jax.random.key(seed + i), shape) for i, shape in enumerate(shapes)))


def test_the_moments_are_the_tabular_ones_on_a_tiny_mdp() -> None:
    """Three states, two actions, models that move for sure: the sampled moments, with each action half the time."""
    actions = 400
    settings = config(num_models=3, batch_size=3, gap_actions=actions, w_actions=actions, **SURE)
    slopes, s_weights, a_weights = [0.0, 1.0, -0.5], [2.0, 1.0, -1.0], [0.5, -1.0, 3.0]
    levels = [0.0, 4.0, -2.0]
    half = jnp.where(jnp.arange(actions) < actions // 2, -50.0, 50.0).reshape(1, 1, -1, 1)
    noise = uncertainty.Noise(jnp.broadcast_to(half, (1, 3, actions, 1)), jnp.zeros((3, 3, 0, 1)))
    states = [0.0, 2.0, 4.0]
    seen = uncertainty.next_values(
        settings,
        LINE,
        noise,
        linear_models(slopes, [0.0] * 3, [0.0, 1.0, 2.0]),
        linear_critics(s_weights, a_weights, levels),
        constant_policy(0.0, 0.0),
        batch_at(states),
    )
    places = sorted({s * (1.0 + slope) for s in states for slope in slopes})
    p = np.zeros((3, len(places), 2, len(places)))
    p[..., 0] = 1.0
    for model, slope in enumerate(slopes):
        for s in states:
            p[model, places.index(s)] = np.eye(len(places))[places.index(s * (1.0 + slope))]
    q = np.asarray(
        [
            [[w * s + v * a + c for a in (-1.0, 1.0)] for s in places]
            for w, v, c in zip(s_weights, a_weights, levels, strict=True)
        ]
    )
    with jax.enable_x64(True):
        policy = jnp.full((len(places), 2), 0.5)
        own = bellman.Values(jnp.asarray(q.mean(axis=-1)), jnp.asarray(q))
        mean = bellman.Values(jnp.asarray(q.mean(axis=(0, 2))), jnp.asarray(q.mean(axis=0)))
        mdp = MDP(jnp.asarray(p), jnp.zeros((3, len(places), 2)))
        exact = bellman.next_values(mdp, own, jnp.asarray(p.mean(axis=0)), mean, policy, False)
        exact_q = jax.tree.map(np.asarray, exact.q)
    at = [places.index(s) for s in states]
    unbiased = actions / (actions - 1.0)
    np.testing.assert_allclose(seen.moments.mean_bar, exact_q.mean_bar[:, at, 0], atol=1e-4)
    for name in ("var_bar", "var_member", "var_gap"):
        expected = unbiased * np.asarray(getattr(exact_q, name))[:, at, 0]
        np.testing.assert_allclose(getattr(seen.moments, name), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(seen.rewards, [[0.0] * 3, [1.0] * 3, [2.0] * 3], atol=1e-5)


def test_identical_models_leave_nothing_to_learn() -> None:
    settings = config(num_models=3, w_actions=3, **SURE)
    models = linear_models([0.3] * 3, [0.1] * 3, [1.0] * 3)
    critics = linear_critics([2.0, 1.0, -1.0], [0.5, -1.0, 3.0], [0.0, 4.0, -2.0])
    found = uncertainty.local(
        settings, LINE, noise_of(settings), models, critics, constant_policy(0.1, 0.0), batch_at([1.0] * 8)
    )
    np.testing.assert_array_equal(found.w, 0.0)
    np.testing.assert_array_equal(found.u, 0.0)
    np.testing.assert_array_equal(found.reward_variance, 0.0)
    published = config(num_models=3, **SURE)
    leaked = uncertainty.local(
        published, LINE, noise_of(published), models, critics, constant_policy(0.1, 0.0), batch_at([1.0] * 8)
    )
    assert float(leaked.w.min()) > 0.0  # one action for each model: the policy's noise counts as ignorance


def test_without_uncertainty_the_variance_shrinks_to_its_floor() -> None:
    settings = config(critic_hidden=(16,), discount=0.9, regularisation=0.0)
    unet = uncertainty.init(settings, KEY, LINE)
    target, optimiser = unet, optax.adam(1e-2)
    state, batch = optimiser.init(unet), batch_at([-1.0, 0.0, 1.0, 2.0])
    nothing = uncertainty.Local(*(jnp.zeros(4) for _ in range(4)))

    def raw(unet: MLP, at: Any) -> Any:
        return unet(jnp.concatenate((at, batch.action), axis=-1))[:, 0]

    @jax.jit
    def step(unet: MLP, target: MLP, state: Any) -> tuple[MLP, MLP, Any]:
        later = uncertainty.variance(settings, raw(target, batch.next_observation))
        goal = u_target(settings, nothing, batch, later)
        slope = jax.grad(lambda net: unet_loss(settings, raw(net, batch.observation), goal))(unet)
        unet, state = descend(optimiser, slope, state, unet)
        return unet, jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, target, unet), state

    for _ in range(600):
        unet, target, state = step(unet, target, state)
    before = uncertainty.variance(settings, raw(uncertainty.init(settings, KEY, LINE), batch.observation))
    assert float(before.min()) > 0.3
    np.testing.assert_allclose(uncertainty.variance(settings, raw(unet, batch.observation)), settings.floor, atol=0.05)


@pytest.mark.parametrize("sampled", [False, True])
def test_a_sure_policy_in_sure_models_leaves_no_gap(sampled: bool) -> None:
    settings = config(num_models=3, sampled_states=sampled, **SURE)
    critics = linear_critics([2.0, 1.0, -1.0], [0.5, -1.0, 3.0], [0.0, 4.0, -2.0])
    models = linear_models([0.3, 0.1, 0.0], [0.1] * 3, [1.0, 2.0, 3.0])
    sure = constant_policy(0.2, -20.0)
    found = uncertainty.local(settings, LINE, noise_of(settings), models, critics, sure, batch_at([1.0, 2.0] * 4))
    np.testing.assert_allclose(found.gap, 0.0, atol=1e-8)
    assert float(found.w.min()) > 0.0


def test_the_gap_filters_transition_noise_only_where_states_are_sampled() -> None:
    loose: dict[str, Any] = {"min_log_var": -0.01, "max_log_var": 0.01, "model_hidden": (), "critic_hidden": ()}
    critics = linear_critics([2.0, -2.0], [0.0, 0.0], [0.0, 0.0])
    models, sure = linear_models([0.0, 0.1], [0.0] * 2, [0.0] * 2), constant_policy(0.0, -20.0)
    gaps = []
    for sampled in (False, True):
        settings = config(num_models=2, gap_actions=4000, sampled_states=sampled, **loose)
        gaps.append(uncertainty.local(settings, LINE, noise_of(settings), models, critics, sure, batch_at([1.0] * 8)).gap)
    np.testing.assert_allclose(gaps[0], 0.0, atol=1e-8)
    np.testing.assert_allclose(gaps[1], 4.0, rtol=0.1)  # own - mean is 2 s' or -2 s', and s' has variance 1


def test_debiasing_takes_the_noise_of_few_actions_out_of_w() -> None:
    """Models that end in different places with critics whose slope there differs: few actions add noise to w."""

    def average(debias: bool, actions: int) -> float:
        settings = config(num_models=2, gap_actions=max(actions, 2), w_actions=actions, debias=debias, batch_size=4000, **SURE)
        critics = MLP(
            (jnp.asarray([[[1.0, 0.0], [0.0, 1.0]]] * 2), jnp.asarray([[[4.0], [3.0]]] * 2)),
            (jnp.zeros((2, 2)), jnp.zeros((2, 1))),
            jnp.square,
        )
        policy = MLP((jnp.asarray([[1.0, 0.0]]),), (jnp.zeros(2),), jnp.tanh)
        models = linear_models([0.0, -1.0], [0.0] * 2, [0.0] * 2)
        found = uncertainty.local(settings, LINE, noise_of(settings), models, critics, policy, batch_at([1.0] * 4000))
        return float(jnp.mean(found.w))

    truth = average(False, 200)
    assert average(False, 2) > 1.03 * truth
    assert average(True, 2) == pytest.approx(truth, rel=0.02)


def test_values_end_where_a_model_says_that_the_episode_does() -> None:
    settings = config(num_models=2, **SURE)
    critics = linear_critics([0.0, 0.0], [0.0, 0.0], [10.0, 10.0])
    models = linear_models([0.0, 1.0], [0.0] * 2, [0.0] * 2)

    def large(observation: Any, action: Any, after: Any) -> Any:
        return after[0] > 1.5

    seen = uncertainty.next_values(
        settings,
        LINE._replace(terminates=large),
        noise_of(settings),
        models,
        critics,
        constant_policy(0.0, 0.0),
        batch_at([1.0] * 8),
    )
    np.testing.assert_allclose(seen.moments.mean_bar, [[10.0] * 8, [0.0] * 8])


@pytest.mark.parametrize("sampled", [False, True])
def test_values_are_asked_at_numbers_that_there_can_be(sampled: bool) -> None:
    settings = config(num_models=2, sampled_states=sampled, **SURE)
    models, critics = (
        linear_models([-0.4, -0.6], [0.0] * 2, [0.0] * 2, BINARY),
        linear_critics([10.0] * 2, [0.0] * 2, [0.0] * 2),
    )
    known = (LINE, noise_of(settings), models, critics, constant_policy(0.0, 0.0), batch_at([1.0] * 8))
    seen = uncertainty.next_values(settings, *known).moments
    np.testing.assert_allclose(seen.mean_bar, [[10.0] * 8, [0.0] * 8])  # 0.6 is nearer to 1, and 0.4 to 0
    np.testing.assert_allclose(seen.total, 25.0)


def test_the_target_and_the_penalty_are_those_of_the_page() -> None:
    settings = config(discount=0.5, regularisation=5.0, **SURE)
    local = uncertainty.Local(jnp.asarray([1.0]), jnp.asarray([2.0]), jnp.zeros(1), jnp.zeros(1))
    batch = batch_at([0.0])
    assert float(u_target(settings, local, batch, jnp.asarray([4.0]))[0]) == pytest.approx(1.0 + 0.25 * 6.0)
    expected = (3.0 - np.log1p(np.exp(-1.0)) - 0.1) ** 2 + 5.0 * 1.1**2
    assert float(unet_loss(settings, jnp.asarray([-1.0]), jnp.asarray([3.0]))) == pytest.approx(expected, rel=1e-5)


def test_models_differ_in_a_known_reward_as_far_as_they_differ_in_the_next_state() -> None:
    settings = config(num_models=2, batch_size=2, **SURE)
    models, critics = linear_models([0.0, 1.0], [0.0] * 2, [5.0, 9.0]), linear_critics([0.0] * 2, [0.0] * 2, [0.0] * 2)
    known = (noise_of(settings), models, critics, constant_policy(0.0, 0.0), batch_at([1.0, 2.0]))
    seen = uncertainty.local(settings, LINE._replace(reward=lambda observation, action, after: 3.0 * after[0]), *known)
    np.testing.assert_allclose(seen.reward_variance, [4.5, 18.0], rtol=1e-4)  # of 3 and 6, and of 6 and 12, with N - 1
    np.testing.assert_allclose(uncertainty.local(settings, LINE, *known).reward_variance, 8.0, rtol=1e-4)


CHOICE = LINE._replace(action_size=2, discrete=True)
"""One number observed, and two actions."""


def uneven_policy(logit: float) -> MLP:
    """Action 1 with the odds e^logit everywhere."""
    return MLP((jnp.zeros((1, 2)),), (jnp.asarray([0.0, logit]),), jnp.tanh)


def chosen_at(states: list[float]) -> Batch:
    return batch_at(states)._replace(action=jnp.broadcast_to(jnp.asarray([[1.0, 0.0]]), (len(states), 2)))


def two_inputs(models: Any) -> Any:
    """Models of two action inputs, which they do not look at."""
    wide = jnp.zeros_like(models.networks.weights[0][:, :1])
    networks = MLP((jnp.concatenate((models.networks.weights[0], wide), axis=1),), models.networks.biases, jnp.tanh)
    normaliser = models.normaliser._replace(mean=jnp.zeros(3), std=jnp.ones(3))
    return models._replace(networks=networks, normaliser=normaliser)


@pytest.mark.parametrize("method", ["exact-ube", "pombu"])
def test_with_discrete_actions_the_moments_are_exact(method: str) -> None:
    """Three models and critics, two actions with probabilities 1/4 and 3/4: w and gap by hand, whatever the noise is."""
    settings = config(method=method, num_models=3, batch_size=3, u_min=-np.inf, **SURE)
    slopes, s_weights, levels = [0.0, 1.0, -0.5], [2.0, 1.0, -1.0], [0.0, 4.0, -2.0]
    q = np.array([[0.5, -1.0], [2.0, 3.0], [-4.0, 0.0]])
    weight = jnp.asarray([[[s], [a], [b]] for s, (a, b) in zip(s_weights, q, strict=True)], jnp.float32)
    critics = MLP((weight,), (jnp.asarray(levels)[:, None],), jnp.tanh)
    models = two_inputs(linear_models(slopes, [0.0] * 3, [0.0, 1.0, 2.0]))
    shapes = uncertainty.noise_shapes(settings, CHOICE)
    noise = uncertainty.Noise(*(jnp.zeros(shape) for shape in shapes))
    assert noise.actions.size == noise.states.size == 0
    known = (noise, models, critics, uneven_policy(float(np.log(3.0))), chosen_at([0.0, 2.0, 4.0]))
    found = uncertainty.local(settings, CHOICE, *known)
    after = np.array([0.0, 2.0, 4.0])[None] * (1.0 + np.array(slopes)[:, None])
    values = np.array(s_weights)[None, :, None, None] * after[:, None, :, None]
    values = values + q[None, :, None] + np.array(levels)[None, :, None, None]  # model, critic, state, action
    probability, mean = np.array([0.25, 0.75]), values.mean(axis=1)
    w = (mean @ probability).var(axis=0, ddof=1)
    excess = np.einsum("iisa->isa", values) - mean
    gap = (((excess - (excess @ probability)[..., None]) ** 2) @ probability).mean(axis=0)
    np.testing.assert_allclose(found.w, w, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found.u, w if method == "pombu" else w - gap, rtol=1e-4, atol=1e-4)
    assert gap.min() > 0.5


def test_with_discrete_actions_identical_models_leave_no_w() -> None:
    settings = config(num_models=2, debias=True, w_actions=2, sampled_states=True, **SURE)
    models = two_inputs(linear_models([0.3] * 2, [0.1] * 2, [1.0] * 2))
    critics = MLP((jnp.asarray([[[2.0], [1.0], [5.0]], [[-1.0], [0.0], [3.0]]]),), (jnp.zeros((2, 1)),), jnp.tanh)
    shapes = uncertainty.noise_shapes(settings, CHOICE)
    noise = uncertainty.Noise(*(jax.random.normal(KEY, shape) for shape in shapes))
    found = uncertainty.local(settings, CHOICE, noise, models, critics, uneven_policy(0.4), chosen_at([1.0] * 8))
    np.testing.assert_array_equal(found.w, 0.0)
    odds = np.exp(0.4) / (
        1.0 + np.exp(0.4)
    )  # own - mean is plus or minus (1.5 s + 0.5 or 1): the gap is debiased by N / (N - 1)
    np.testing.assert_allclose(found.gap, 2.0 * 0.25 * odds * (1.0 - odds), rtol=1e-3)
