"""Tabular environments for Gymnasium: `gymnasium.make("ubex/DeepSea-v0", size=10)`; registered by `import ubex`."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ubex.envs import deep_sea as sea
from ubex.envs import n_room as rooms_
from ubex.envs import toy as toy_
from ubex.envs.base import TabularEnv
from ubex.types import InputError


class GymTabular(gymnasium.Env[Any, Any]):
    """A tabular environment as Gymnasium knows it; the terminal state, where there is one, has the last number."""

    def __init__(self, env: TabularEnv) -> None:
        """Takes its transitions from `as_mdp()`."""
        self.env = env
        self.p, self.r = (np.asarray(array) for array in env.as_mdp())
        self.observation_space = spaces.Discrete(self.p.shape[0])
        self.action_space = spaces.Discrete(env.num_actions)
        self.state, self.steps = env.start, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Back to the start."""
        super().reset(seed=seed, options=options)
        self.state, self.steps = self.env.start, 0
        return self.state, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """One step; an episode is cut off at the horizon."""
        if not self.action_space.contains(action):
            raise InputError(f"action must be in 0 to {self.env.num_actions - 1}, but it is {action!r}")
        reward = float(self.r[self.state, action])
        self.state = int(self.np_random.choice(self.p.shape[0], p=self.p[self.state, action]))
        self.steps += 1
        terminated = self.state == self.env.num_states
        return self.state, reward, terminated, not terminated and self.steps >= self.env.horizon, {}


def deep_sea(size: int = 10) -> GymTabular:
    """`ubex/DeepSea-v0`."""
    return GymTabular(sea.deep_sea(size))


def seven_room() -> GymTabular:
    """`ubex/SevenRoom-v0`."""
    return GymTabular(rooms_.seven_room())


def n_room(rooms: int = 7) -> GymTabular:
    """`ubex/NRoom-v0`."""
    return GymTabular(rooms_.n_room(rooms))


def toy(delta: float = 0.65, beta: float = 0.45) -> GymTabular:
    """`ubex/Toy-v0`, by default with the posterior-mean probabilities."""
    return GymTabular(toy_.toy(delta, beta))
