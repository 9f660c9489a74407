"""What the tabular exploration experiments share: one agent on one environment, block by block, resumable between blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from ubex.envs.base import TabularEnv
from ubex.experiments.spec import Cell, Context
from ubex.tabular.agents import AgentConfig
from ubex.tabular.belief import Belief
from ubex.tabular.loop import begin, run_episodes

BLOCK = 50
"""Episodes between two checkpoints."""


class Progress(NamedTuple):
    """What a run needs to go on."""

    belief: Belief
    score: Float[np.ndarray, " E"]
    """One number an episode; NaN for those to come."""
    steps: Int[np.ndarray, " E"]
    """Improvements of the update before each episode."""


Score = Callable[[Float[np.ndarray, " B"], Int[np.ndarray, "B S"]], Float[np.ndarray, " B"]]
"""(returns, executed policies) of a block -> the number that the experiment keeps of each episode."""


def explore(
    cell: Cell, seed: int, env: TabularEnv, config: AgentConfig, episodes: int, context: Context, score: Score
) -> Progress:
    """Runs an agent for a number of episodes and returns the score of each."""
    with jax.enable_x64(True):
        state = Progress(begin(env), np.full(episodes, np.nan), np.zeros(episodes, np.int32))
        first, saved = 0, context.checkpoints.load(state)
        if saved is not None:
            first, state, _ = saved
        for start in range(first, episodes, BLOCK):
            numbers = np.arange(start, min(start + BLOCK, episodes), dtype=np.int32)
            belief, out = run_episodes(env, config, cell.key(seed), state.belief, jnp.asarray(numbers))
            scores, steps = state.score.copy(), state.steps.copy()
            scores[numbers] = score(np.asarray(out.returns, np.float64), np.asarray(out.policies))
            steps[numbers] = np.asarray(out.steps)
            state = Progress(belief, scores, steps)
            done = int(numbers[-1]) + 1
            context.progress(done, episodes)
            if done < episodes:
                context.checkpoints.save(done, state, {"seed": seed})
    return state


def agent_config(cell: Cell, **fixed: Any) -> AgentConfig:
    """The agent of a cell."""
    settings: Mapping[str, Any] = cell.settings
    names = ("num_models", "gain", "u_min", "ties", "clip_sum", "discount")
    return AgentConfig(method=cell.method, **{name: settings[name] for name in names if name in settings}, **fixed)
