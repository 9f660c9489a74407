"""Deep agents on environments of this package: the compiled loop, all seeds together, segment by segment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int, PRNGKeyArray, Shaped

from ubex.deep import loop, refills
from ubex.deep.buffer import ModelBuffer
from ubex.deep.config import DeepConfig
from ubex.deep.loop import RunState, Segment
from ubex.deep.refills import Refill
from ubex.envs.continuous import ContinuousEnv
from ubex.learn.driver import Learner


class SegmentState(NamedTuple):
    """What a run of K seeds carries on."""

    seeds: RunState
    refills: tuple[Refill, ...]
    """What made the rows in the model-generated buffers; nothing for agents without a model."""
    segment: int
    """Segments so far."""
    bad: Int[np.ndarray, " K"]
    """The step at which a seed's losses stopped being finite; -1 for those that are well."""
    buffers: ModelBuffer | None = None
    """Made again by a run that goes on; None for agents without a model."""


@dataclass(frozen=True)
class SegmentLearner(Learner[SegmentState, Segment]):
    """A deep agent; an episode is one segment with an evaluation after it."""

    config: DeepConfig
    env: ContinuousEnv
    keys: Shaped[PRNGKeyArray, " K"]
    segments: int
    """Of the whole run, for which programs are compiled."""

    def blank(self, notes: Mapping[str, Any]) -> SegmentState:
        """After the first steps in the environment, with as many refills as the notes say."""
        seeds, history = loop.begin(self.config, self.env, self.keys, self.segments), tuple[Refill, ...]()
        if seeds.dynamics is not None and notes.get("refills", 0):
            written = np.zeros((len(self.keys), self.config.num_buffers), np.int32)
            history = (refills.recorded(0, written, seeds.dynamics, seeds.agent.actor),) * int(notes["refills"])
        return SegmentState(seeds, history, 0, np.full(len(self.keys), -1, np.int64))

    def done(self, state: SegmentState) -> int:
        """Segments."""
        return state.segment

    def notes(self, state: SegmentState) -> dict[str, Any]:
        """The number of refills."""
        return {"refills": len(state.refills)}

    def kept(self, state: SegmentState) -> SegmentState:
        """Everything but the buffers, which are too large."""
        return state._replace(buffers=None)

    def restore(self, kept: SegmentState) -> SegmentState:
        """With buffers."""
        if not self.config.model_based:
            return kept
        return kept._replace(buffers=loop.refilled(self.config, self.env, self.keys, kept.seeds.data, kept.refills))

    def advance(self, state: SegmentState, goal: int) -> tuple[SegmentState, Segment]:
        """One segment; the state is used up."""
        known = (state.seeds, state.buffers, state.segment)
        seeds, buffers, shown = loop.advance(self.config, self.env, self.keys, *known)
        history = state.refills
        if shown.refill is not None:
            assert buffers is not None
            history = refills.needed((*history, shown.refill), buffers)
        step = np.asarray(shown.learned.bad_step)
        bad = np.where((state.bad < 0) & (step >= 0), state.segment * self.config.retrain_every + step, state.bad)
        return SegmentState(seeds, history, state.segment + 1, bad, buffers), shown
