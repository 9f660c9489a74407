"""Our environments for Gymnasium: `gymnasium.make("ubex/DeepSea-v0", size=10)`; registered by `import ubex`."""

from __future__ import annotations

import functools
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Bool, Float, UInt8, UInt32

from ubex import checks
from ubex.envs import ENVS
from ubex.envs.base import TabularEnv
from ubex.envs.continuous import ContinuousEnv, State
from ubex.types import InputError

SEEDS = 2**32
"""Seeds of episodes, drawn from Gymnasium's generator."""


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


class GymContinuous(gymnasium.Env[Any, Any]):
    """A continuous environment as Gymnasium knows it; actions out of bounds are clipped, as the environment itself does."""

    def __init__(self, env: ContinuousEnv, render_mode: str | None = None) -> None:
        """Bounds of observations, pictures and their speed are in the environment's record."""
        modes = [] if env.draw is None else ["rgb_array"]
        self.metadata = {"render_modes": modes, "render_fps": env.frames_per_second}
        if render_mode is not None:
            checks.one_of("render_mode", render_mode, modes)
        self.env, self.render_mode = env, render_mode
        high = np.array(env.observation_high or (np.inf,) * env.observation_size, np.float32)
        self.observation_space = spaces.Box(-high, high, dtype=np.float32)
        low, high = (np.array(bounds, np.float32) for bounds in (env.action_low, env.action_high))
        self.action_space = spaces.Box(low, high, dtype=np.float32)
        self.episode, self.steps, self.action = np.uint32(0), 0, np.zeros(env.action_size, np.float32)
        self.state, _ = begin(env, self.episode)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float[np.ndarray, " O"], dict[str, Any]]:
        """A new episode."""
        super().reset(seed=seed, options=options)
        self.episode, self.steps, self.action = np.uint32(self.np_random.integers(SEEDS)), 0, np.zeros_like(self.action)
        self.state, observation = begin(self.env, self.episode)
        return np.array(observation), {}

    def step(self, action: Any) -> tuple[Float[np.ndarray, " O"], float, bool, bool, dict[str, Any]]:
        """One step; an episode is cut off at the horizon."""
        given = checks.number_array("action", action)
        if given.shape != self.action.shape or not np.isfinite(given).all():
            raise InputError(f"action must be {self.env.action_size} finite number(s), but it is {action!r}")
        self.action = given.astype(np.float32)
        self.steps += 1
        self.state, observation, reward, over = advance(self.env, self.episode, np.uint32(self.steps), self.state, self.action)
        terminated = bool(over)
        return np.array(observation), float(reward), terminated, not terminated and self.steps >= self.env.horizon, {}

    def render(self) -> UInt8[np.ndarray, "H W 3"] | None:
        """The picture of the state, if `render_mode` is "rgb_array"."""
        return None if self.render_mode is None or self.env.draw is None else self.env.draw(self.state, self.action)


@functools.partial(jax.jit, static_argnames="env")
def begin(env: ContinuousEnv, seed: UInt32[Any, ""]) -> tuple[State, Float[Array, " O"]]:
    """First state and observation of the episode with that seed."""
    state = env.reset(jax.random.key(seed))
    return state, env.observe(state)


@functools.partial(jax.jit, static_argnames="env")
def advance(
    env: ContinuousEnv, seed: UInt32[Any, ""], steps: UInt32[Any, ""], state: State, action: Float[Any, " A"]
) -> tuple[State, Float[Array, " O"], Float[Array, ""], Bool[Array, ""]]:
    """State, observation, reward and termination after step number `steps`, counted from 1, of the episode with that seed."""
    out = env.step(jax.random.fold_in(jax.random.key(seed), steps), state, jnp.asarray(action))
    return out.state, env.observe(out.state), out.reward, out.terminated


def made(name: str, render_mode: str | None = None, **settings: Any) -> GymTabular | GymContinuous:
    """The environment of that name in `ENVS`, with these settings."""
    env = ENVS[name].make(**settings)
    if isinstance(env, ContinuousEnv):
        return GymContinuous(env, render_mode)
    if render_mode is not None:
        raise InputError(f"{name} draws no pictures, so there is no video of it: leave out render_mode")
    return GymTabular(env)
