"""What may happen while an agent learns. A callback is any callable of an `Info`; returning False stops the run.

Callbacks are called when an episode has ended and the next one has not begun, so they may use the agent's own environment.
`Evaluate` is also called in the middle of an episode, at its steps, where it has another environment.
"""

from __future__ import annotations

import collections
import io
import math
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TextIO, TypeAlias

import numpy as np

from ubex import checks


class Info(NamedTuple):
    """What a callback learns.

    Example:
        >>> def shout(info: Info) -> bool:
        ...     return info.episode < 1  # False stops the run
        >>> ubex.Agent("psrl", "deep-sea", env_args={"size": 3}).learn(9, shout).episodes
        2
    """

    agent: Any
    """The `ubex.Agent`."""
    kind: str
    """"episode" of training, or "evaluation"."""
    step: int
    """Steps in the environment so far."""
    goal: int
    """Steps at which this call of `learn` ends."""
    episode: int
    """Number of the episode, counted from 0."""
    reward: float
    """Return of the episode; of an evaluation, the mean over its episodes."""
    length: int
    """Steps of the episode; of an evaluation, its episodes."""
    losses: Mapping[str, float]
    """Averages over the last gradient rounds, and how the models are, by the names in docs/deep.md; empty before training."""


Callback: TypeAlias = Callable[[Info], bool | None]


class Checkpoint:
    """Saves the agent every so many steps, and when `learn` ends, even by an error of the environment or an interrupt.

    Example:
        >>> agent = ubex.Agent("psrl", "deep-sea", env_args={"size": 3}).learn(3, Checkpoint("agent.npz"))
        >>> ubex.Agent.load("agent.npz").steps
        3
    """

    def __init__(self, path: str | Path, every: int = 10_000) -> None:
        """`path` is the file, overwritten each time in one step."""
        self.path, self.every = Path(path), checks.whole("every", every, 1)
        self._next = self.every

    def __call__(self, info: Info) -> None:
        """After an episode."""
        if info.step >= self._next:
            self.save(info.agent)
            self._next = info.step + self.every

    def save(self, agent: Any) -> None:
        """Now."""
        agent.save(self.path)


class Evaluate:
    """Plays episodes with the mean action after every so many steps, or as the agent acts while it learns.

    A deep agent is evaluated at just these steps if there is another environment to do it in: `env`, or one that the agent
    makes again by its name. If there is none, and for tabular agents, it is at the first end of an episode after them.

    Example:
        >>> watch = Evaluate(every=3, episodes=1)
        >>> agent = ubex.Agent("psrl", "deep-sea", env_args={"size": 3}).learn(6, watch)
        >>> [step for step, mean, deviation in watch.history]
        [3, 6]
    """

    def __init__(
        self,
        every: int = 5_000,
        episodes: int = 5,
        env: Any = None,
        best: str | Path | None = None,
        then: Callback | None = None,
        deterministic: bool = True,
    ) -> None:
        """In `env`, or the agent's own; saves the best agent so far to `best`; `then` is called after each evaluation.

        `deterministic=False` draws actions from the policy. Where the mean of good actions is a bad one, that is a fairer test.
        """
        self.every, self.episodes = checks.whole("every", every, 1), checks.whole("episodes", episodes, 1)
        self.env, self.best, self.then = env, None if best is None else Path(best), then
        self.deterministic = checks.flag("deterministic", deterministic)
        self.history: list[tuple[int, float, float]] = []
        """Step, mean and standard deviation of the returns."""
        self._passed, self._highest = 0, -math.inf

    def begin(self, step: int) -> None:
        """Evaluations before this step are over."""
        self._passed = step // self.every

    def due(self, step: int) -> bool:
        """Whether this step is the first that is seen after one at which it should evaluate."""
        return step // self.every > self._passed

    def __call__(self, info: Info, env: Any = None) -> bool | None:
        """After an episode, or in the middle of one, in another environment."""
        if not self.due(info.step):
            return None
        self.begin(info.step)
        returns = info.agent.evaluate(self.episodes, self.env if env is None else env, self.deterministic)
        mean = float(np.mean(returns))
        self.history.append((info.step, mean, float(np.std(returns))))
        if mean > self._highest:
            self._highest = mean
            if self.best is not None:
                info.agent.save(self.best)
        if self.then is None:
            return None
        return self.then(info._replace(kind="evaluation", reward=mean, length=self.episodes))


class StopOnReward:
    """Stops when the mean of the last returns is high enough; `Evaluate(then=StopOnReward(200.0, 1))` looks at evaluations.

    Example:
        >>> agent = ubex.Agent("psrl", "deep-sea", env_args={"size": 3})
        >>> agent.learn(30, StopOnReward(-1.0, episodes=2)).episodes
        2
    """

    def __init__(self, threshold: float, episodes: int = 10) -> None:
        """The mean is over this many episodes, or evaluations."""
        self.threshold = checks.real("threshold", threshold)
        self._last: collections.deque[float] = collections.deque(maxlen=checks.whole("episodes", episodes, 1))

    def __call__(self, info: Info) -> bool:
        """After an episode."""
        self._last.append(info.reward)
        return len(self._last) < (self._last.maxlen or 1) or float(np.mean(self._last)) < self.threshold


class Progress:
    """Prints a line now and then, with the time that is left as soon as gradient rounds have been measured.

    A deep agent does not train in its first `initial_steps`, and the lines say so.

    Example:
        >>> agent = ubex.Agent("psrl", "deep-sea", env_args={"size": 3})
        >>> agent.learn(3, Progress(file=sys.stdout)).steps
        step 3 of 3, episode 0, return ...
        3
    """

    def __init__(self, seconds: float = 2.0, file: io.TextIOBase | TextIO | None = None) -> None:
        """At most one line in this many seconds, to standard error by default."""
        self.seconds, self.file = checks.real("seconds", seconds, 0.0), file
        self._last, self._since = -math.inf, (math.inf, 0, False)

    def __call__(self, info: Info) -> None:
        """After an episode."""
        from ubex.runs.progress import duration  # here, because it draws bars too, which takes long to import

        now, trains = time.monotonic(), bool(info.losses)
        began, first, trained = self._since
        if began > now or info.step <= first or trains != trained:  # a new run, or its programs were compiled just now
            self._since = (now, info.step, trains)
        if now - self._last < self.seconds:
            return
        self._last, speed = now, ""
        if self._since[0] < now and info.step > self._since[1]:
            rate = (info.step - first) / (now - began)
            speed = f", {rate:.3g} steps/s" + (f", {duration((info.goal - info.step) / rate)} left" if trains else "")
        waits = "" if trains or getattr(info.agent, "kind", "") != "deep" else ", not training yet"
        line = f"step {info.step} of {info.goal}, {info.kind} {info.episode}, return {info.reward:.6g}{speed}{waits}"
        out = self.file or sys.stderr
        out.write(f"{line}\n")
        out.flush()
