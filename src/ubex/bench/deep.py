"""Speed of the deep agents: gradient rounds, training and rollouts of the model, and the floor that arithmetic sets."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ubex import checks
from ubex.deep import agents, dynamics, loop, steps, uncertainty
from ubex.deep.agents import precision
from ubex.deep.buffer import ModelBuffer, unpack, width
from ubex.deep.config import PRECISIONS, DeepConfig
from ubex.deep.methods import DEEP_METHODS
from ubex.deep.networks import MLP
from ubex.deep.networks import sizes as layer_sizes
from ubex.deep.presets import LAPTOP
from ubex.envs.sparse_pendulum import sparse_pendulum
from ubex.envs.task import Task

PAPER_METHODS = ("exact-ube", "pombu", "ensemble-var", "ensemble-mean", "sac")
SEGMENTS = 75
"""Segments of a whole pendulum run, for the amount of data that the model is trained on."""
OFFSET, AGREEMENT = 100.0, 1e-2
"""Values of the critics, and the share of their difference that models keep, where errors are measured."""
HALF_LOG = 0.5 * math.log(2.0 * math.pi * math.e)
"""Entropy of a normal distribution of standard deviation 1."""
MATRIX = 4096
"""Size of the square matrices that measure what the device can do."""


@dataclass(frozen=True)
class Deep:
    """Measure the gradient rounds of the deep agents, their models, and the floor that arithmetic sets."""

    methods: tuple[str, ...] = PAPER_METHODS
    """The agents to measure."""
    seeds: tuple[int, ...] = ()
    """The numbers of seeds that are trained at once. By default they are 1 and 10 on a GPU, and 1 on a CPU."""
    precision: str = "float32"
    """How matrices are multiplied on a GPU: float32, split16 or tf32."""
    preset: str = "paper"
    """The sizes of networks and batches: paper or laptop."""
    steps: int = 0
    """The number of steps, with their gradient rounds, per measurement. By default it is 20 on a GPU, and 1 on a CPU."""
    no_model: bool = False
    """Leave out the training and the rollouts of the model."""
    json: bool = False
    """Print one line of JSON instead of a list."""

    def __post_init__(self) -> None:
        """Refuses values that make no sense."""
        for method in self.methods:
            checks.one_of("method", method, DEEP_METHODS)
        for number in self.seeds:
            checks.whole("seeds", number, 1)
        checks.one_of("precision", self.precision, PRECISIONS)
        checks.one_of("preset", self.preset, ("paper", "laptop"))
        checks.whole("steps", self.steps, 0)

    def __call__(self, say: Callable[[str], None]) -> dict[str, Any]:
        """All measurements, one after the other."""
        on_cpu = jax.default_backend() == "cpu"
        found = []
        for method in self.methods:
            for number in self.seeds or ((1,) if on_cpu else (1, 10)):
                say(f"{method}, seeds at once: {number}")
                found.append(measure(self, method, number, self.steps or (1 if on_cpu else 20)))
        return {"deep": found}


def measure(settings: Deep, method: str, seeds: int, steps: int) -> dict[str, Any]:
    """One agent with this many seeds at once, on the sparse pendulum."""
    base = DeepConfig(method=method, precision=settings.precision, **(LAPTOP if settings.preset == "laptop" else {}))
    env = sparse_pendulum(0.0)
    short = replace(base, retrain_every=steps, rollouts_per_step=max(1, base.rollouts // steps))  # buffers of the same size
    keys = jax.random.split(jax.random.key(0), seeds)
    index = jnp.asarray(0, jnp.int32)
    state = loop.begin(short, env, keys, 1)
    model: dict[str, float] = {}
    buffers = filled(loop.begin_buffers(short, env, seeds)) if base.model_based else None
    rounds = steps * short.updates_per_step

    def learn() -> None:
        nonlocal state
        state, out = loop.learn(short, env, keys, state, buffers, index)
        jax.block_until_ready(out)  # type: ignore[no-untyped-call]

    first, each = timed(learn)
    if buffers is not None and not settings.no_model:
        del buffers
        model = measure_model(base, keys)
    spent = each / rounds
    operations = round_operations(base, env.task)
    rate = matrix_rate(base)
    whole = {
        "rounds": spent * base.retrain_every * base.updates_per_step,
        "fit": model.get("fit_seconds", 0.0),
        "rollouts": model.get("rollout_seconds", 0.0),
    }
    return {
        "method": method,
        "seeds": seeds,
        "precision": base.precision,
        "preset": settings.preset,
        "device": jax.devices()[0].device_kind,
        "seed_rounds_per_second": seeds / spent,
        "seconds_per_round": spent,
        "compile_seconds": first - each,
        "operations_per_seed_round": operations,
        "operations_per_second": rate,
        "rounds_per_second_if_only_arithmetic": rate / operations,
        **errors(base, env.task),
        **model,
        **{f"share_{name}": value / sum(whole.values()) for name, value in whole.items()},
    }


def filled(buffers: ModelBuffer) -> ModelBuffer:
    """Buffers full of random rows, on which rounds take as long as on any."""
    rows = jax.random.normal(jax.random.key(1), buffers.rows.shape, jnp.float32)
    return ModelBuffer(rows.at[..., -1].set(0.0), jnp.full_like(buffers.written, buffers.rows.shape[-2]))


def measure_model(config: DeepConfig, keys: Any) -> dict[str, float]:
    """Training with all the data of half a run, and a whole phase of rollouts."""
    env = sparse_pendulum(0.0)
    state = loop.begin(config, env, keys, SEGMENTS)
    half = jnp.asarray(SEGMENTS // 2, jnp.int32)
    rows = state.data[:, : config.initial_steps]
    repeated = jnp.tile(rows, (1, -(-state.data.shape[1] // config.initial_steps), 1))[:, : state.data.shape[1]]
    state = state._replace(data=repeated)
    buffers = loop.begin_buffers(config, env, len(keys))
    epochs: list[float] = []

    def fit() -> None:
        out = steps.fit(config, env.task, keys, state.dynamics, state.data, half)[1]
        epochs.append(float(np.max(np.asarray(out.epochs))))

    def rollouts() -> None:
        nonlocal buffers
        buffers, _ = steps.refill(config, env.task, keys, state.dynamics, state.agent.actor, state.data, buffers, half)
        jax.block_until_ready(buffers)  # type: ignore[no-untyped-call]

    return {"fit_seconds": timed(fit, 1)[1], "fit_epochs": epochs[-1], "rollout_seconds": timed(rollouts, 1)[1]}


def timed(function: Callable[[], None], repeats: int = 3) -> tuple[float, float]:
    """Seconds of the first call, and the median of the calls after it."""
    spent = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        function()
        spent.append(time.perf_counter() - start)
    return spent[0], float(np.median(spent[1:]))


def errors(config: DeepConfig, task: Task) -> dict[str, float]:
    """Relative error of w, gap and u against float64, in the norm of a batch, of agents that have them.

    The critics are near 100, and the models nearly agree. Actions vary as much as the target entropy makes them.
    """
    if not config.has_unet:
        return {}
    config, key = replace(config, u_min=-np.inf), jax.random.key(0)
    agent, model = agents.init(config, key, task), dynamics.init(config, key, task)
    lifted = (*agent.values.biases[:-1], agent.values.biases[-1] + OFFSET)
    narrow = (*agent.actor.biases[:-1], agent.actor.biases[-1].at[task.action_size :].add(-1.0 - HALF_LOG))
    close = jax.tree.map(lambda x: x[:1] + AGREEMENT * (x - x[:1]), model.networks)
    rows = jax.random.normal(key, (config.batch_size, width(task.observation_size, task.action_size)), jnp.float32)
    batch = unpack(rows.at[:, -1].set(0.0), task.observation_size)
    shapes = uncertainty.noise_shapes(config, task)
    noise = uncertainty.Noise(*(jax.random.normal(jax.random.fold_in(key, i), s, jnp.float32) for i, s in enumerate(shapes)))
    critics = MLP(agent.values.weights, lifted, agent.values.activation)
    actor = MLP(agent.actor.weights, narrow, agent.actor.activation)
    given = (noise, model._replace(networks=close, optimiser=None), critics, actor, batch)

    def local(used: DeepConfig, kind: Any) -> list[np.ndarray]:
        cast = jax.tree.map(lambda x: jnp.asarray(np.asarray(x), kind), given)
        with jax.numpy_dtype_promotion("standard"), precision(used):
            found = jax.jit(functools.partial(uncertainty.local, used, task))(*cast)
        return [np.asarray(x, np.float64) for x in (found.w, found.gap, found.u)]

    ours = local(config, jnp.float32)
    with jax.enable_x64(True):
        truth = local(replace(config, precision="float32"), jnp.float64)
    found = zip(("w", "gap", "u"), ours, truth, strict=True)
    return {f"error_{name}": float(np.linalg.norm(a - b) / np.linalg.norm(b)) for name, a, b in found if np.any(b)}


def layers(inputs: int, hidden: Sequence[int], outputs: int) -> int:
    """Operations of one network on one input, forward."""
    return sum(2 * a * b for a, b in layer_sizes(inputs, hidden, outputs))


def round_operations(config: DeepConfig, task: Task) -> int:
    """Multiplications and additions in the matrix products of one gradient round; a backward pass counts as two forward."""
    batch, critics = config.batch_size, config.num_critics
    observation_size, action_size = task.observation_size, task.action_size
    value = layers(observation_size + action_size, config.critic_hidden, 1)
    actor = layers(observation_size, config.actor_hidden, 2 * action_size)
    total = batch * critics * value * (3 + 1)  # fitting, and the targets
    total += batch * actor * (critics // config.rivals)  # actions at the critics' next states
    total += batch * (actor * 3 + critics * value * 2)  # the actor, through the critics
    if config.has_unet:
        model = layers(observation_size + action_size, config.model_hidden, 2 * (observation_size + 1))
        actions = config.gap_actions if config.estimator.own_values else config.w_actions
        total += batch * config.num_models * (model + actor + config.num_models * actions * value)  # uncertainty rewards
        total += batch * (actor + value * (3 + 1 + 2))  # fitting, targets, and the actor through it
    return total


def matrix_rate(config: DeepConfig) -> float:
    """Operations a second that the device makes in a large matrix product of this precision."""
    a = jax.random.normal(jax.random.key(0), (MATRIX, MATRIX) if jax.default_backend() != "cpu" else (1024, 1024), jnp.float32)

    def product() -> None:
        with precision(config):
            jax.block_until_ready(multiply(a, a))  # type: ignore[no-untyped-call]

    multiply = jax.jit(lambda x, y: x @ y)
    return float(2.0 * a.shape[0] ** 3 / timed(product, 10)[1])
