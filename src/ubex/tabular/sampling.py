"""Fast draws from Dirichlet rows. `jax.random.loggamma` runs one rejection loop per element; here one loop serves the array.

Marsaglia and Tsang (2000), "A simple method for generating gamma variables": a proposal is accepted with probability above
0.95 for shapes of at least 1, and smaller shapes are boosted by one. The few rejected entries are gathered and drawn again.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt32

from ubex.keys import can_skip, named, skipping
from ubex.types import Key

WHOLE, PART = 2**21, 2**16
"""Entries of a table of samples: up to so many are drawn at once, and of more so many. Drawing takes about nine times the
memory of what is drawn."""
RETRY_SHARE = 16
"""A retry draws for up to 1/16 of the entries, a little more than the share that is rejected."""
MIN_RETRY = 256


def sample_dirichlet(key: Key, alpha: Float[Array, "*n T"], num_models: int) -> Float[Array, "N *n T"]:
    """Draws rows from Dirichlet(alpha); a parameter of 0 means that the next state is impossible.

    Gamma variates are normalised in logarithms: with small parameters they underflow, and rows would become 0/0.
    """
    possible = alpha > 0
    shape = jnp.broadcast_to(jnp.where(possible, alpha, 1.0)[None], (num_models, *alpha.shape))
    return jax.nn.softmax(jnp.where(possible[None], log_gamma(key, shape), -jnp.inf), axis=-1)


def sample_dirichlet_in_parts(key: Key, alpha: Float[np.ndarray, "*n T"], num_models: int) -> Float[np.ndarray, "N *n T"]:
    """What `sample_dirichlet` draws, to the last bit, as a host array that is filled part by part.

    Few entries are drawn at once, and so are those of keys of another kind than JAX's default.
    """
    if num_models * alpha.size <= WHOLE or not can_skip(key):
        return np.asarray(_sample_dirichlet(key, jnp.asarray(alpha), num_models))
    rows = alpha.reshape(-1, alpha.shape[-1])
    found = np.empty((num_models, *rows.shape))
    step = max(1, PART // rows.shape[1])
    parts = [(member, slice(row, row + step)) for member in range(num_models) for row in range(0, len(rows), step)]
    rejected: list[np.ndarray] = []
    for member, part in parts:
        first = (member * len(rows) + part.start) * rows.shape[1]
        found[member, part], accepted = _propose_part(key, 0, first, rows[part])
        rejected.append(first + np.flatnonzero(~np.asarray(accepted)))
    _retry_in_parts(key, rows.ravel(), found.reshape(-1), np.concatenate(rejected))
    for member, part in parts:
        first = (member * len(rows) + part.start) * rows.shape[1]
        found[member, part] = _normalise_part(key, first, rows[part], found[member, part])
    return found.reshape(num_models, *alpha.shape)


def _retry_in_parts(key: Key, alpha: Float[np.ndarray, " R"], found: Float[np.ndarray, " M"], rejected: np.ndarray) -> None:
    """The loop of `_log_gamma_above_one`: as many are drawn again in a round as there, and those that are left come first."""
    most = retry_size(found.size)
    round_ = 1
    while rejected.size:
        now, left = rejected[:most], []
        for first in range(0, now.size, PART):
            places = now[first : first + PART]
            shape = np.ones(min(PART, most))
            shape[: places.size] = alpha[places % alpha.size]
            new, accepted = _propose_part(key, round_, first, shape)
            found[places] = np.asarray(new)[: places.size]
            left.append(places[~np.asarray(accepted)[: places.size]])
        rejected, round_ = np.concatenate([*left, rejected[most:]]), round_ + 1


@jax.jit
def _propose_part(
    key: Key, round_: Int[Array, ""], first: Int[Array, ""], alpha: Float[Array, "*n"]
) -> tuple[Float[Array, "*n"], Bool[Array, "*n"]]:
    shape = boosted(jnp.where(alpha > 0, alpha, 1.0))
    return _propose(skipping(jax.random.fold_in(key, round_), first), shape)


@jax.jit
def _normalise_part(
    key: Key, first: Int[Array, ""], alpha: Float[Array, "R T"], above_one: Float[Array, "R T"]
) -> Float[Array, "R T"]:
    shape = jnp.where(alpha > 0, alpha, 1.0)
    logs = above_one + log_boost(skipping(key, first), shape)
    return jax.nn.softmax(jnp.where(alpha > 0, logs, -jnp.inf), axis=-1)


def log_gamma(key: Key, shape: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """Logarithms of Gamma(shape, 1) variates, one for each entry of `shape`, all positive."""
    flat = shape.reshape(-1)
    return (_log_gamma_above_one(key, boosted(flat)) + log_boost(key, flat)).reshape(shape.shape)


def boosted(shape: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """The shapes, those below 1 one larger."""
    return jnp.where(shape < 1.0, shape + 1.0, shape)


def log_boost(key: Key, shape: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """What turns a variate of a boosted shape into one of the shape itself, as a logarithm."""
    boost = jnp.log1p(-jax.random.uniform(named(key, "boost"), shape.shape, shape.dtype)) / shape
    return jnp.where(shape < 1.0, boost, 0.0)


def retry_size(size: int) -> int:
    """Entries that are drawn again in a round."""
    return min(size, max(MIN_RETRY, size // RETRY_SHARE))


def _log_gamma_above_one(key: Key, shape: Float[Array, " M"]) -> Float[Array, " M"]:
    size = shape.shape[0]
    value, accepted = _propose(jax.random.fold_in(key, 0), shape)

    def retry(
        state: tuple[Array, Float[Array, " M"], Bool[Array, " M"]],
    ) -> tuple[Array, Float[Array, " M"], Bool[Array, " M"]]:
        round_, value, accepted = state
        (places,) = jnp.nonzero(~accepted, size=retry_size(size), fill_value=size)
        new, good = _propose(jax.random.fold_in(key, round_), shape.at[places].get(mode="fill", fill_value=1.0))
        value = value.at[places].set(new, mode="drop")
        return round_ + 1, value, accepted.at[places].set(good, mode="drop")

    return jax.lax.while_loop(lambda state: ~jnp.all(state[2]), retry, (jnp.asarray(1, jnp.int32), value, accepted))[1]


def _propose(key: Key, shape: Float[Array, "*n"]) -> tuple[Float[Array, "*n"], Bool[Array, "*n"]]:
    """One proposal for every entry: log(d v) with v = (1 + c x)^3, and whether it is accepted. A NaN is."""
    d = shape - 1.0 / 3.0
    x = jax.random.normal(named(key, "normal"), shape.shape, shape.dtype)
    root = 1.0 + x / jnp.sqrt(9.0 * d)
    positive = root > 0.0
    log_v = 3.0 * jnp.log(jnp.where(positive, root, 1.0))
    log_u = jnp.log1p(-jax.random.uniform(named(key, "uniform"), shape.shape, shape.dtype))
    accepted = positive & (log_u < 0.5 * x**2 + d - d * root**3 + d * log_v)
    return jnp.log(d) + log_v, accepted | jnp.isnan(d)


_sample_dirichlet = jax.jit(sample_dirichlet, static_argnames="num_models")


class GammaTable(NamedTuple):
    """Quantiles of Gamma(shape, 1) for one shape, to turn 32 random bits into a variate with two look-ups.

    The upper 16 bits choose one of 65,536 equally likely bins and the lower 16 a point in it. Inner bins interpolate linearly;
    the first and the last bin, where a straight line would be wrong, have a quantile for each of their 65,536 points.
    """

    value: Float[Array, " V"]
    """Left ends of the bins, then the points of the first bin, then those of the last."""
    slope: Float[Array, " 65536"]
    """Width of each bin's values; 0 for the first and the last."""


BINS = 2**16


@functools.lru_cache(maxsize=16)
def gamma_quantiles(shape: float) -> tuple[np.ndarray, np.ndarray]:
    """The arrays of a `GammaTable`, on the host; a fraction of a second, kept for the next run of the same size."""
    from scipy import special

    ends = special.gammaincinv(shape, np.arange(BINS) / BINS)
    points = (np.arange(BINS) + 0.5) / BINS**2
    tails = special.gammaincinv(shape, points), special.gammainccinv(shape, points[::-1])
    slope = np.append(np.diff(ends), 0.0)
    slope[0] = 0.0
    return np.concatenate([ends, *tails]).astype(np.float32), slope.astype(np.float32)


def gamma_table(shape: float) -> GammaTable:
    """The table for one shape."""
    value, slope = gamma_quantiles(shape)
    return GammaTable(jnp.asarray(value), jnp.asarray(slope))


def sample_gamma(bits: UInt32[Array, "*n"], table: GammaTable) -> Float[Array, "*n"]:
    """Gamma variates of the table's shape, in float32: 24 bits are plenty for a random number."""
    bins, point = (bits >> 16).astype(jnp.int32), (bits & 0xFFFF).astype(jnp.int32)
    place = jnp.where(bins == 0, BINS + point, jnp.where(bins == BINS - 1, 2 * BINS + point, bins))
    left, slope = (array.at[i].get(mode="promise_in_bounds") for array, i in ((table.value, place), (table.slope, bins)))
    return left + slope * (point.astype(jnp.float32) * (1.0 / BINS))


def row_seeds(key: Key, rows: tuple[int, ...]) -> UInt32[Array, "*n 2"]:
    """Two random numbers for every row, by JAX's generator."""
    return jax.random.bits(key, (*rows, 2), jnp.uint32)


def row_bits(seeds: UInt32[Array, "*n 2"], columns: int) -> UInt32[Array, "*n T"]:
    """32 random bits for every entry: a hash of its row's two numbers and its column.

    The hash is Wellons's three-multiplication permutation of 32 bits, twice, with one number before each pass. JAX's own
    generator (20 rounds of Threefry per entry) takes longer on a CPU than everything else that an update does.
    """
    before, between = jnp.moveaxis(seeds, -1, 0)
    column = jax.lax.broadcasted_iota(jnp.uint32, (*before.shape, columns), before.ndim)
    return _scramble(_scramble(column + before[..., None]) + between[..., None])


def _scramble(x: UInt32[Array, "*n"]) -> UInt32[Array, "*n"]:
    for shift, factor in ((17, 0xED5AD4BB), (11, 0xAC4C1B51), (15, 0x31848BAB)):
        x = (x ^ (x >> jnp.uint32(shift))) * jnp.uint32(factor)
    last: UInt32[Array, "*n"] = x ^ (x >> jnp.uint32(14))
    return last


def sample_flat_dirichlet(
    key: Key,
    concentration: float,
    places: Int[Array, "S A B"],
    counts: Float[Array, "S A B"],
    num_models: int,
    small: bool = False,
) -> Float[Array, "N S A S"]:
    """Draws rows from Dirichlet(concentration + counts), where the prior is flat and counts are known by their places.

    Gamma(c + n) is Gamma(c) plus an independent Gamma(n), so the prior's part comes from a table and only the visited entries
    need the rejection sampler. One member after another: together they would need three times the memory of the result.
    Where c is `small`, nearly all of Gamma(c) is below the smallest float, so logarithms are drawn, and cost an exponential.
    """
    num_states, num_actions, _ = counts.shape
    rows = (num_models, num_states, num_actions)
    seeds = row_seeds(named(key, "flat"), rows)
    more = row_seeds(named(key, "small"), rows) if small else None
    drawn = log_gamma(named(key, "visited"), jnp.broadcast_to(counts[None], (num_models, *counts.shape)))
    extra = jnp.where(counts[None] > 0, drawn, jnp.log(counts)[None])  # nothing where nothing was seen, and NaN stays NaN
    state, action = (i[..., None] for i in jnp.ix_(jnp.arange(num_states), jnp.arange(num_actions)))
    table = gamma_table(1.0 + concentration if small else concentration)

    def one(member: tuple[Array, Array | None, Array]) -> Float[Array, "S A S"]:
        seeds, more, extra = member
        flat = sample_gamma(row_bits(seeds, num_states), table)
        if more is not None:
            logs = log_boosted(flat, row_bits(more, num_states), concentration).astype(counts.dtype)
            most = jnp.maximum(jnp.max(logs, axis=-1, keepdims=True), jnp.max(extra, axis=-1, keepdims=True))
            flat, extra = jnp.exp(logs - most), extra - most
        total = _kept(_kept(flat).astype(counts.dtype).at[state, action, places].add(jnp.exp(extra)))
        return total * (1.0 / jnp.sum(total, axis=-1, keepdims=True))

    found: Float[Array, "N S A S"] = jax.lax.map(one, (seeds, more, extra))
    return found


def log_boosted(above: Float[Array, "*n"], bits: UInt32[Array, "*n"], shape: float) -> Float[Array, "*n"]:
    """Logarithms of Gamma(shape) variates, from Gamma(1 + shape) variates: those times U^(1 / shape), with U uniform."""
    uniform = (bits.astype(jnp.float32) + 0.5) * 2.0**-32
    return jnp.log(above) + jnp.log(uniform) / shape


def _kept(x: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """The same array, which the compiler has to make once rather than again in each place that uses it."""
    kept: Float[Array, "*n"] = jax.lax.optimization_barrier(x)  # type: ignore[no-untyped-call]
    return kept
