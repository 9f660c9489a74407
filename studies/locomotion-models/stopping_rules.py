"""When the training of the models stops, on PyBullet's HalfCheetah: what they learn from the same data, and what an agent does.

python studies/locomotion-models/stopping_rules.py models '{"patience_steps": 100}'
python studies/locomotion-models/stopping_rules.py agent '{"patience_steps": 100}' --key 0 --steps 10000

`models` plays random actions, trains two models of the paper's size after every 250 steps, and asks them about the next 250.
`agent` is ensemble-mean with three models of that size, and a small actor and small critics, so that a core is enough.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import ubex
from ubex.callbacks import Evaluate, Info
from ubex.deep import dynamics, steps
from ubex.deep.buffer import unpack
from ubex.deep.presets import LOCOMOTION
from ubex.envs.locomotion import LOCOMOTION as TASKS
from ubex.learn.deep_agent import DeepBackend

TASK = "pybullet-halfcheetah"
EVERY, FIRST = 250, 1000
SMALL: dict[str, Any] = {
    **{"num_models": 3, "rollouts_per_step": 40, "batch_size": 64, "critic_rate": 1e-3, "actor_rate": 1e-3},
    **{"critic_hidden": (64, 64), "actor_hidden": (64, 64)},
}
BEFORE: dict[str, Any] = {"patience_steps": 0, "model_rate": 3e-4}
"""The published rule of the pendulum, one epoch without improvement, and its learning rate."""
KEPT = ("value", "critic_std", "model_epochs", "model_error")


def random_play(number: int) -> Float[np.ndarray, "R D"]:
    """Transitions under noise."""
    env, generator = TASKS[TASK].make(), np.random.default_rng(0)
    observation, _ = env.reset(seed=0)
    rows = []
    for _ in range(number):
        action = np.clip(generator.normal(0.0, 0.6, env.action_space.shape), -1.0, 1.0).astype(np.float32)
        after, reward, terminated, truncated, _ = env.step(action)
        rows.append(np.concatenate((observation, action, [reward], after, [terminated])))
        observation = env.reset()[0] if terminated or truncated else after
    env.close()
    return np.array(rows, np.float32)


def models(settings: dict[str, Any], number: int) -> None:
    """Errors over the variance of what is predicted, of observations and of rewards, and what they cost."""
    backend = ubex.Agent("ensemble-mean", TASK, preset="paper", **settings, num_models=2).backend
    assert isinstance(backend, DeepBackend)
    config, task = backend.config, backend.env.task
    rows = random_play(number + EVERY)
    data, keys = jnp.asarray(rows[None]), jax.random.split(jax.random.key(0), 1)
    model = jax.tree.map(lambda x: x[None], dynamics.init(config, jax.random.key(1), task))
    variance = np.asarray(jnp.var(dynamics.targets(unpack(data[0], task.observation_size)), axis=0))

    @jax.jit
    def errors(model: dynamics.Dynamics, rows: Float[Array, "R D"]) -> Float[Array, " Y"]:
        batch = unpack(rows, task.observation_size)
        said = dynamics.predict_all(config, jax.tree.map(lambda x: x[0], model), batch.observation, batch.action)
        return jnp.mean((said.mean - dynamics.targets(batch)[None]) ** 2, axis=(0, 1))

    cost = 0
    for segment, held in enumerate(range(FIRST, number + 1, EVERY)):
        model, fitted = steps.fit(config, task, keys, model, data, np.int32(segment))
        cost += int(fitted.epochs[0]) * -(-held // config.model_batch)
        error = np.asarray(errors(model, data[0, held : held + EVERY]))
        state, reward = error[:-1].sum() / variance[:-1].sum(), error[-1] / variance[-1]
        print(f"{held} rows: {int(fitted.epochs[0])} epochs, {cost} steps so far, error {state:.2f}, of rewards {reward:.2f}")


def agent(settings: dict[str, Any], key: int, number: int) -> None:
    """Evaluations of a small agent after every 500 steps."""
    made = ubex.Agent("ensemble-mean", TASK, preset="paper", horizon=1000, key=key, **settings, **SMALL)

    def note(info: Info) -> None:
        inside = ", ".join(f"{name} {info.losses[name]:.3g}" for name in KEPT if name in info.losses)
        print(f"step {info.step}: return {info.reward:.0f}, {inside}", flush=True)

    made.learn(number, Evaluate(every=500, episodes=1, env=TASKS[TASK].make(), then=note))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("models", "agent"))
    parser.add_argument("settings", type=json.loads)
    parser.add_argument("--key", type=int, default=0)
    parser.add_argument("--steps", type=int, default=2_000)
    given = parser.parse_args()
    chosen = {**LOCOMOTION["paper"], **BEFORE, **given.settings}
    if given.what == "models":
        models(chosen, given.steps)
    else:
        agent({name: value for name, value in chosen.items() if name not in SMALL}, given.key, given.steps)
