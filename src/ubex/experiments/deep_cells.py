"""What the deep experiments share: one agent on one environment, all seeds together, resumable between segments."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from ubex.deep import loop
from ubex.deep.agents import Agent, Info
from ubex.deep.buffer import ModelBuffer
from ubex.deep.config import DeepConfig
from ubex.deep.loop import Evaluation, Seed, Segment
from ubex.envs.continuous import ContinuousEnv
from ubex.experiments.spec import Context, Curve, Outcome, SeedError
from ubex.types import InputError, Key

SOLVED = 150.0
"""A seed with more than this in the mean of its last ten episodes counts as solved, as in the published numbers."""
LAST = 10
CHECKPOINT_SECONDS = 30.0
"""Least time between two checkpoints: those of ten seeds are 130 MB, which takes about a second."""
MEMORY = "RESOURCE_EXHAUSTED"
"""How XLA's message begins when a device has no memory left."""
TRAINING = ("training_return", "model_epochs", "model_error")
COLUMNS = ("return", *TRAINING, *Info._fields)
"""What is kept of every episode; the last ones are averages over its gradient rounds."""


class Progress(NamedTuple):
    """What a run of K seeds needs to go on."""

    seeds: Seed
    buffers: ModelBuffer | None
    """Kept only where they outlive a retraining."""
    curves: Float[np.ndarray, "K E M"]
    """`COLUMNS` after every episode; NaN for those to come."""
    bad: Int[np.ndarray, " K"]
    """The step at which a seed's losses stopped being finite; -1 for those that are well."""


Watch = Callable[[int, Agent, Evaluation], None]
"""(episode, agents, their evaluation) -> nothing: leaves pictures."""


def learn(
    keys: Sequence[Key],
    env: ContinuousEnv,
    config: DeepConfig,
    episodes: int,
    context: Context,
    watch: Watch,
) -> Progress:
    """Runs an agent for a number of episodes with all keys together. An episode is one segment with an evaluation after it."""
    stacked = jnp.stack(keys)
    number = len(keys)
    with out_of_memory(number):
        seeds = loop.begin(config, env, stacked, episodes)
        buffers = loop.begin_buffers(config, env, number) if config.model_based else None
        kept = config.retain > 1
        curves = np.full((number, episodes, len(COLUMNS)), np.nan)
        state = Progress(seeds, buffers if kept else None, curves, np.full(number, -1, np.int64))
        first, saved = 0, context.checkpoints.load(state)
        if saved is not None:
            first, state, _ = saved
            buffers = state.buffers if kept else buffers
        last = -math.inf
        for index in range(first, episodes):
            seeds, buffers, segment = loop.advance(config, env, stacked, state.seeds, buffers, index)
            curves = state.curves.copy()
            curves[:, index] = columns(segment)
            step = np.asarray(segment.learned.bad_step)
            bad = np.where((state.bad < 0) & (step >= 0), index * config.retrain_every + step, state.bad)
            state = Progress(seeds, buffers if kept else None, curves, bad)
            watch(index + 1, seeds.agent, segment.evaluation)
            context.progress(index + 1, episodes)
            if (bad >= 0).all():
                break
            if index + 1 < episodes and time.monotonic() - last >= CHECKPOINT_SECONDS:
                context.checkpoints.save(index + 1, state, {})
                last = time.monotonic()
    return state


def columns(segment: Segment) -> Float[np.ndarray, "K M"]:
    """One row of `COLUMNS` for each seed."""
    returns = np.asarray(segment.evaluation.returns, np.float64)
    nothing = np.full_like(returns, np.nan)
    fitted = (nothing, nothing)
    if segment.fitted is not None:
        fitted = (np.asarray(segment.fitted.epochs), np.asarray(segment.fitted.error).mean(axis=-1))
    parts = (returns, np.asarray(segment.learned.reward), *fitted, *segment.learned.info)
    return np.stack([np.asarray(part, np.float64) for part in parts], axis=-1)


@contextlib.contextmanager
def out_of_memory(number: int) -> Iterator[None]:
    """Turns a device that has no memory left for this many seeds at once into one clear line."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if MEMORY not in str(error):
            raise
        raise InputError(
            f"the device has too little memory for {number} seeds at once: take fewer seeds, a smaller batch_size, "
            "or fewer rollouts_per_step; the last checkpoint is kept"
        ) from None


def outcomes(seeds: Sequence[int], state: Progress) -> Mapping[int, Outcome | SeedError]:
    """What each seed gives: its curves and their summary, or the step at which it failed."""
    return {
        seed: SeedError(f"seed {seed}: a loss is not finite at step {state.bad[k]}")
        if state.bad[k] >= 0
        else outcome(state.curves[k])
        for k, seed in enumerate(seeds)
    }


def outcome(curves: Float[np.ndarray, "E M"]) -> Outcome:
    """The curves of one seed, and their summary."""
    returns = curves[:, 0]
    last = float(returns[-LAST:].mean())
    scalars = {
        "final_return": float(returns[-1]),
        "mean_return_last_10": last,
        "mean_return": float(returns.mean()),
        "solved_share": float(last > SOLVED),
    }
    if len(returns) >= 30:
        scalars["mean_return_episodes_21_30"] = float(returns[20:30].mean())
    index = list(range(1, len(returns) + 1))
    shown = [(name, curves[:, i]) for i, name in enumerate(COLUMNS) if not np.isnan(curves[:, i]).all()]
    return Outcome(scalars, {name: Curve("episode", index, [float(x) for x in values]) for name, values in shown})
