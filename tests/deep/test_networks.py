from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ubex.deep.networks import (
    MLP,
    mlp,
    orthogonal_ensemble,
    product,
    rounded_product,
    sixteen_bit_product,
    sixteen_bits,
    split16_product,
    truncated_ensemble,
    with_split_weights,
)

KEY = jax.random.key(0)


def test_a_network_is_layers_of_products() -> None:
    network = mlp(KEY, 3, (4, 5), 2, jnp.tanh)
    network = MLP(network.weights, tuple(b + 0.1 * (i + 1) for i, b in enumerate(network.biases)), jnp.tanh)
    x = np.random.default_rng(0).normal(size=(7, 3))
    w, b = ([np.asarray(part, np.float64) for part in parts] for parts in (network.weights, network.biases))
    expected = np.tanh(np.tanh(x @ w[0] + b[0]) @ w[1] + b[1]) @ w[2] + b[2]
    np.testing.assert_allclose(network(jnp.asarray(x, jnp.float32)), expected, atol=1e-5)


def test_several_actions_for_a_state_are_several_inputs() -> None:
    network = mlp(KEY, 5, (6, 6), 1, jnp.tanh)
    state, action = jax.random.normal(KEY, (4, 3)), jax.random.normal(KEY, (4, 7, 2))
    inputs = jnp.concatenate((jnp.repeat(state[:, None], 7, axis=1), action), axis=-1)
    np.testing.assert_allclose(network.at_actions(state, action), network(inputs), atol=1e-6)


def test_members_of_an_orthogonal_ensemble_have_nothing_in_common() -> None:
    networks = orthogonal_ensemble(KEY, 5, 4, (16, 16), 1, jnp.tanh, 10.0)
    for weight in networks.weights:
        flat = np.asarray(weight).reshape(5, -1)
        np.testing.assert_allclose(flat @ flat.T, 100.0 * np.eye(5), atol=1e-3)


@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_truncated_weights_have_the_stated_size_and_end(scale: float) -> None:
    weight = np.asarray(truncated_ensemble(KEY, 3, 100, (400,), 2, jax.nn.silu, scale).weights[0])
    parent = scale / (2.0 * np.sqrt(100))
    assert np.abs(weight).max() <= 2.0 * parent
    assert weight.std() == pytest.approx(0.8796 * parent, rel=0.01)  # of a normal cut at two standard deviations


@pytest.mark.parametrize(("inputs", "outputs"), [(3, 8), (16, 8), (64, 64), (9, 1)])
def test_products_of_all_sizes_have_the_slopes_of_a_product(inputs: int, outputs: int) -> None:
    """Of both factors, for several batch axes and for an ensemble."""
    x, w = jax.random.normal(KEY, (4, 5, 6, inputs)), jax.random.normal(jax.random.key(1), (4, inputs, outputs))
    weigh = jax.random.normal(jax.random.key(2), (4, 5, 6, outputs))
    ours = jax.grad(lambda x, w: jnp.sum(weigh * jax.vmap(product)(x, w)), (0, 1))(x, w)
    np.testing.assert_allclose(ours[0], np.einsum("nbco,nio->nbci", weigh, w), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(ours[1], np.einsum("nbco,nbci->nio", weigh, x), rtol=1e-4, atol=1e-4)


def test_products_of_halves_keep_sixteen_bits() -> None:
    x, w = jax.random.normal(KEY, (200, 128)), jax.random.normal(jax.random.key(1), (128, 96))
    exact = np.asarray(x, np.float64) @ np.asarray(w, np.float64)
    error = np.linalg.norm(np.asarray(jax.jit(split16_product)(x, w)) - exact) / np.linalg.norm(exact)
    coarse = np.linalg.norm(np.asarray(x.astype(jnp.bfloat16).astype(jnp.float32) @ w) - exact) / np.linalg.norm(exact)
    assert error < 2e-5
    assert coarse > 1e-3  # what one half alone would give: the other was not optimised away


def test_rounded_products_keep_eleven_bits_and_do_not_overflow() -> None:
    x, w = jax.random.normal(KEY, (200, 128)), jax.random.normal(jax.random.key(1), (128, 96))
    exact = np.asarray(x, np.float64) @ np.asarray(w, np.float64)
    error = np.linalg.norm(np.asarray(rounded_product(x, w)) - exact) / np.linalg.norm(exact)
    assert 1e-5 < error < 5e-4
    assert bool(jnp.all(jnp.isfinite(rounded_product(x * 1e6, w))))


def test_sixteen_bits_round_large_products_and_their_slopes_while_they_are_asked_for() -> None:
    x, w = jax.random.normal(KEY, (200, 128)), jax.random.normal(jax.random.key(1), (128, 96))
    out = jax.random.normal(jax.random.key(2), (200, 96))

    def slopes(x: jax.Array, w: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        return jax.value_and_grad(lambda x, w: jnp.sum(product(x, w) * out), argnums=(0, 1))(x, w)

    with sixteen_bits():
        value, rounded = slopes(x, w)
        small = product(x[:, :32], w[:32])
    plain, exact = slopes(x, w)
    assert float(value) == pytest.approx(float(plain), rel=1e-2)
    for ours, true in zip(rounded, exact, strict=True):
        assert 1e-5 < float(jnp.linalg.norm(ours - true) / jnp.linalg.norm(true)) < 1e-3
    np.testing.assert_array_equal(small, product(x[:, :32], w[:32]))  # only large ones
    np.testing.assert_array_equal(product(x, w), x @ w)  # and only inside


def test_sixteen_bits_of_several_networks_are_those_of_each() -> None:
    x, w = jax.random.normal(KEY, (3, 20, 64)), jax.random.normal(jax.random.key(1), (3, 64, 64))
    slope = jax.grad(lambda w, x: jnp.sum(sixteen_bit_product(x, w) ** 2))
    together = jax.vmap(slope)(w, x)
    np.testing.assert_allclose(together, jnp.stack([slope(w[i], x[i]) for i in range(3)]), rtol=1e-3, atol=1e-2)


def test_stacked_weights_give_the_same_products() -> None:
    network = mlp(KEY, 3, (64, 64), 2, jnp.tanh)
    prepared, x = with_split_weights(network), jax.random.normal(KEY, (5, 3))
    assert [w.dtype for w in prepared.weights] == [jnp.float32, jnp.float16, jnp.float32]
    np.testing.assert_array_equal(prepared(x, split16_product), network(x, split16_product))
