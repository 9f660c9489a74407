"""The fused critics against the plain ones; the program itself is interpreted, since there is no GPU here."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ubex.deep import critics, fused
from ubex.deep.config import DeepConfig
from ubex.deep.networks import MLP, mlp
from ubex.envs.task import Task

KEY = jax.random.key(0)


def plain(networks: MLP, state: jax.Array, action: jax.Array) -> np.ndarray:
    return np.asarray(jax.vmap(lambda one: one.at_actions(state, action)[..., 0])(networks))


def inputs(rows: int, actions: int, observation_size: int, action_size: int) -> tuple[jax.Array, jax.Array]:
    state, action = jax.random.split(KEY)
    return jax.random.normal(state, (rows, observation_size)), jax.random.uniform(action, (rows, actions, action_size))


@pytest.mark.parametrize(("rows", "actions", "sizes"), [(130, 3, (3, 1)), (130, 2, (7, 5))])
def test_values_are_those_of_critics_with_rounded_weights(rows: int, actions: int, sizes: tuple[int, int]) -> None:
    """Rows that do not fill a block, several action dimensions, biases that are not 0."""
    networks = critics.init(DeepConfig(num_models=2, critic_hidden=(64, 64)), KEY, Task(*sizes))
    networks = MLP(networks.weights, tuple(b + 0.1 * (i + 1) for i, b in enumerate(networks.biases)), jnp.tanh)
    state, action = inputs(rows, actions, *sizes)
    said = np.asarray(fused.at_actions(networks, state, action, interpret=True))
    first, weight, last = networks.weights
    rounded = MLP((first, weight.astype(jnp.float16).astype(jnp.float32), last), networks.biases, jnp.tanh)
    assert said.shape == (2, rows, actions)
    np.testing.assert_allclose(said, plain(rounded, state, action), atol=2e-5)
    np.testing.assert_allclose(said, plain(networks, state, action), atol=2e-2)
    coarse = np.asarray(fused.at_actions(networks, state, action, split=False, interpret=True))
    np.testing.assert_allclose(coarse, said, atol=1e-2)
    assert np.abs(coarse - said).max() > 1e-4, "rounded activations show"


def test_seeds_are_a_leading_axis() -> None:
    networks = critics.init(DeepConfig(num_models=2, critic_hidden=(64, 64)), KEY, Task(3, 1))
    both = jax.tree.map(lambda x: jnp.stack((x, 2.0 * x)), networks)
    state, action = inputs(16, 2, 3, 1)
    run = jax.vmap(lambda one: fused.at_actions(one, state, action, interpret=True))
    doubled = jax.tree.map(lambda x: 2.0 * x, networks)
    np.testing.assert_allclose(run(both)[1], fused.at_actions(doubled, state, action, interpret=True), atol=1e-6)


def test_what_it_is_written_for() -> None:
    def one(hidden: tuple[int, ...], activation: object = jnp.tanh) -> MLP:
        return mlp(KEY, 4, hidden, 1, activation)  # type: ignore[arg-type]

    assert fused.fits(one((256, 256)))
    assert fused.fits(one((64, 64)))
    assert not any(fused.fits(one(hidden)) for hidden in [(64,), (64, 32), (200, 200), (16, 16), (64, 64, 64)])
    assert not fused.fits(one((64, 64), jax.nn.silu))
    assert not fused.available()


def test_one_exponential_is_a_tanh() -> None:
    x = jnp.concatenate((jnp.linspace(-30.0, 30.0, 1001), jnp.asarray([-1e4, 1e4, 1e-3])))
    np.testing.assert_allclose(fused.squashed(x), np.tanh(np.asarray(x, np.float64)), atol=2e-7)


def test_two_halves_hold_an_activation() -> None:
    x = jax.random.uniform(KEY, (1000,), minval=-1.0, maxval=1.0)
    high, low = fused.split16(x)
    both = np.asarray(high, np.float64) + np.asarray(low, np.float64)
    np.testing.assert_allclose(both, x, atol=1.2e-7)
    assert np.abs(np.asarray(high, np.float64) - np.asarray(x)).max() > 1e-4
