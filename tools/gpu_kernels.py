"""Counts the GPU kernels of a gradient round, and of a gradient step of the models, as XLA compiles them. No GPU is needed.

    pip install 'jax[cuda13]'        # brings the compiler, of the version of JAX that is installed
    JAX_PLATFORMS=cpu JAX_SKIP_CUDA_CONSTRAINTS_CHECK=1 python tools/gpu_kernels.py exact-ube 5

The first word is the method and the second one the number of seeds, with the paper's sizes on HalfCheetah and `split16`. Where
kernels are as small as these, a GPU spends its time on their number. Matrix products are not tuned without a GPU, so one or two
kernels may differ there.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

from ubex.deep import buffer, fused, presets, seeds, steps
from ubex.envs.task import Task
from ubex.learn.deep_agent import configured

H200 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
  shared_memory_per_block: 49152 shared_memory_per_core: 233472 shared_memory_per_block_optin: 232448
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 4800000000000 l2_cache_size: 62914560 clock_rate_ghz: 1.98 device_memory_size: 150000000000
  cuda_compute_capability { major: 9 minor: 0 } runtime_version: "13.0.0" driver_version: "13.0.0"
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 }
device_description_str: "NVIDIA H200"
"""
NO_KERNEL = {"get-tuple-element", "tuple", "parameter", "constant", "bitcast", "after-all", "while", "conditional", "call"}
ROWS, TASK = 200_000, Task(observation_size=20, action_size=6)


def kernels(program: str) -> dict[str, int]:
    """The number of kernels in every loop of a compiled program that starts some, by the loop's name."""
    loops, counted, name = set(re.findall(r"\bbody=%?([\w.\-]+)", program)), dict[str, int](), ""
    for line in program.splitlines():
        begins = re.match(r"(?:ENTRY )?%?([\w.\-]+) \(.*\{$", line)
        name = begins.group(1) if begins else name
        operation = re.match(r"\s+(?:ROOT )?%?[\w.\-]+ = .*?\s([a-z][\w\-]*)\(", line)
        if operation and name in loops and operation.group(1) not in NO_KERNEL:
            counted[name] = counted.get(name, 0) + 1
    return counted


def programs(method: str, number: int) -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    """Name, function and arguments of what is compiled."""
    config = configured(method, "paper", {**presets.LOCOMOTION["paper"], "precision": "split16"})
    state, key = seeds.begin(config, TASK, jax.random.key(0)), jax.random.key(0)

    def all_of(tree: Any) -> Any:
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (number, *x.shape)), tree)

    rounds, fit, row = vars(steps)["rounds_after"], vars(steps)["fit"], buffer.width(TASK.observation_size, TASK.action_size)
    agent, model, count = all_of(state.agent), all_of(state.dynamics), jnp.asarray(ROWS, jnp.int32)
    buffers = buffer.empty(config, row, (number, config.num_buffers)) if config.model_based else None
    data, keys = jnp.zeros((number, ROWS, row), jnp.float32), jax.random.split(key, number)
    drawn = jax.random.split(key, (number, config.retrain_every, config.updates_per_step, 2))
    known = (drawn, count, agent, model, buffers, data, count, None)
    yield "gradient round", lambda *given: rounds.__wrapped__(config, TASK, *given), known
    if config.model_based:
        training = fit.__wrapped__.__wrapped__
        given = (keys, model, data, count)
        yield "training of the models", lambda *given: training(config.beside_rounds, TASK, *given), given


def main(method: str, number: str) -> None:
    """Prints the counts."""
    setattr(fused, "available", lambda: True)  # noqa: B010  (a GPU would have it)
    topology: Any = topologies.get_topology_desc("1x1x1", "cuda", topology="1x1x1", target_config=H200)
    device = SingleDeviceSharding(topology.devices[0])
    for name, function, arguments in programs(method, int(number)):
        shapes = jax.eval_shape(lambda given=arguments: given)
        traced = jax.jit(function, in_shardings=device, out_shardings=device).trace(*shapes)
        program = traced.lower(lowering_platforms=("cuda",)).compile().as_text()
        print(f"{name}: {', '.join(map(str, kernels(program).values()))} kernels per turn of its loops")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("gpu_kernels: two arguments, the method and the number of seeds")
    main(*sys.argv[1:])
