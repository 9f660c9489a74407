"""What the deep experiments share: one agent on one environment, all seeds together, resumable between segments."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from ubex.deep.agents import AgentState, Info
from ubex.deep.config import DeepConfig
from ubex.deep.loop import Evaluation, Segment
from ubex.deep.rollout import Outlook
from ubex.envs.continuous import ContinuousEnv
from ubex.experiments.spec import Context, Curve, Outcome, SeedError
from ubex.learn import driver
from ubex.learn.deep import SegmentLearner, SegmentState
from ubex.types import InputError, Key

SOLVED = 150.0
"""A seed with more than this in the mean of its last ten episodes counts as solved, as in the published numbers."""
LAST = 10
CHECKPOINT_SECONDS = 30.0
"""Least time between two checkpoints: those of ten seeds are 130 MB, which takes about a second."""
MEMORY = "RESOURCE_EXHAUSTED"
"""How XLA's message begins when a device has no memory left."""
ON_CHIP = "shared memory"
"""In that message where one program asks for too much of the chip's own memory, which fewer seeds would not help."""
TRAINING = ("training_return", "model_epochs", "model_error")
COLUMNS = ("return", *TRAINING, *Outlook._fields, *Info._fields)
"""What is kept of every episode: shares of rollouts are means over buffers, and the last ones averages over gradient rounds."""


class Curves(NamedTuple):
    """What a run of K seeds showed, of as many episodes as it made."""

    values: Float[np.ndarray, "K E M"]
    """`COLUMNS` after every episode."""
    bad: Int[np.ndarray, " K"]
    """The step at which a seed's losses stopped being finite; -1 for those that are well."""


Watch = Callable[[int, AgentState, Evaluation], None]
"""(episode, agents, their evaluation) -> nothing: leaves pictures."""


def learn(
    keys: Sequence[Key],
    env: ContinuousEnv,
    config: DeepConfig,
    episodes: int,
    context: Context,
    watch: Watch,
    seeds: Sequence[int] = (),
) -> Curves:
    """Runs an agent for a number of episodes with all keys together, or until the losses of all stopped being finite.

    With the numbers of their seeds, trackers see every episode as it ends.
    """

    def record(state: SegmentState, segment: Segment) -> tuple[driver.Rows, bool]:
        watch(state.segment, state.seeds.agent, segment.evaluation)
        values = columns(segment)
        for seed, row in zip(seeds, values, strict=False):
            shown = {name: float(x) for name, x in zip(COLUMNS, row, strict=True) if not np.isnan(x)}
            context.measure(seed, state.segment, "episode", shown)
        return {"values": values[None]}, bool((state.bad < 0).any())

    def so_far(history: driver.Rows) -> Mapping[int, Outcome]:
        episode = len(history["values"])
        return {seed: outcome(history["values"][:, k]).until(episode, "episodes") for k, seed in enumerate(seeds)}

    with out_of_memory(len(keys)):
        learner = SegmentLearner(config, env, jnp.stack(keys), episodes)
        run = driver.run(learner, episodes, context, record, CHECKPOINT_SECONDS, so_far=so_far)
    return Curves(np.ascontiguousarray(np.swapaxes(run.history["values"], 0, 1)), run.state.bad)


def columns(segment: Segment) -> Float[np.ndarray, "K M"]:
    """One row of `COLUMNS` for each seed."""
    returns = np.asarray(segment.evaluation.returns, np.float64)
    nothing = np.full_like(returns, np.nan)
    fitted, outlook = (nothing,) * 2, (nothing,) * len(Outlook._fields)
    if segment.fitted is not None and segment.outlook is not None:
        fitted = (np.asarray(segment.fitted.epochs), np.asarray(segment.fitted.error).mean(axis=-1))
        seen = segment.outlook
        means = (np.mean(np.asarray(x), axis=-1) for x in seen[:3])
        outlook = (*means, np.min(np.asarray(seen.reward_low), axis=-1), np.max(np.asarray(seen.reward_high), axis=-1))
    parts = (returns, np.asarray(segment.learned.reward), *fitted, *outlook, *segment.learned.info)
    return np.stack([np.asarray(part, np.float64) for part in parts], axis=-1)


@contextlib.contextmanager
def out_of_memory(number: int) -> Iterator[None]:
    """Turns a device that has no memory left for this many seeds at once into one clear line."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if MEMORY not in str(error) or ON_CHIP in str(error).lower():
            raise
        raise InputError(
            f"the device has too little memory for {number} seeds at once: take fewer seeds, a smaller batch_size, "
            "or fewer rollouts_per_step; the last checkpoint is kept"
        ) from None


def outcomes(seeds: Sequence[int], found: Curves) -> Mapping[int, Outcome | SeedError]:
    """What each seed gives: its curves and their summary, or the step at which it failed."""
    return {
        seed: SeedError(f"seed {seed}: a loss is not finite at step {found.bad[k]}")
        if found.bad[k] >= 0
        else outcome(found.values[k])
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
