"""The paper's pendulum swing-up with a sparse reward (after Curi et al., 2020): it pays near the top at rest, torque costs.

Angle 0 is up and is not wrapped; the start hangs down at rest. Torque 1 is too weak to lift the pendulum at once, so it has to
be swung up. Explicit Euler: angle and velocity both move by their rates before the step, and noise falls on the angle. The
reward is that of the state before the step and the clipped torque. Observation: cosine and sine of the angle, velocity.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, UInt8

from ubex import checks
from ubex.envs import canvas
from ubex.envs.continuous import ContinuousEnv, ContinuousStep
from ubex.types import Key

MASS, LENGTH, FRICTION, GRAVITY = 0.3, 0.5, 0.005, 9.81
INERTIA = MASS * LENGTH**2
STEPS_PER_SECOND = 80
STEP = 1.0 / STEPS_PER_SECOND
HORIZON = 400
MAX_TORQUE = 1.0
MAX_SPEED = 200.0
"""An episode terminates above it: the speed at which friction balances the full torque, out of reach within the horizon."""
UPRIGHT, UPRIGHT_MARGIN = (0.95, 1.0), 0.1
"""Cosines that pay in full, and how soon it fades outside."""
AT_REST, AT_REST_MARGIN = (-0.5, 0.5), 0.5
"""Velocities that pay in full."""
FREE_TORQUE, FREE_TORQUE_MARGIN = (-0.1, 0.1), 0.1
"""Torques that cost nothing."""
VALUE_AT_MARGIN = 0.1
LARGEST = 100.0
"""Limit of the settings: far beyond any use, and finite in float32."""

ROD, RIM, TORQUE_RADIUS = 0.7, 0.92, 0.36
"""Radii in the picture, whose half width is 1."""
LONGEST_ARC = 2.0
"""Length of the arc for the full torque, in radians."""
BACKGROUND, GOAL_COLOUR, TORQUE_COLOUR = (250, 250, 247), (120, 190, 130), (214, 122, 40)
ROD_COLOUR, BOB_COLOUR, PIVOT_COLOUR = (62, 84, 120), (30, 52, 92), (40, 40, 40)


class PendulumState(NamedTuple):
    """Where the pendulum is."""

    angle: Float[Array, ""]
    velocity: Float[Array, ""]


def tolerance(x: Float[Array, ""], bounds: tuple[float, float], margin: float) -> Float[Array, ""]:
    """1 within the bounds; outside, a Gaussian of the distance that falls to 0.1 at one margin.

    Example:
        >>> tolerance(jnp.asarray(0.5), (0.0, 1.0), 0.1).item()
        1.0
    """
    low, high = bounds
    distance = jnp.maximum(jnp.maximum(low - x, x - high), 0.0) / margin
    return jnp.exp(math.log(VALUE_AT_MARGIN) * distance**2)


def sparse_pendulum(noise: float = 0.0, action_cost: float = 0.2) -> ContinuousEnv:
    """The pendulum, with the standard deviation of the angle's noise (the paper has 0, 0.01 and 0.02) and the price of torque.

    Example:
        >>> env = sparse_pendulum(noise=0.01)
        >>> env.observe(env.reset(jax.random.key(0))).shape
        (3,)
    """
    return _made(checks.real("noise", noise, 0.0, LARGEST), checks.real("action_cost", action_cost, 0.0, LARGEST))


@functools.lru_cache(maxsize=32)
def _made(noise: float, action_cost: float) -> ContinuousEnv:
    """The record for these settings, the same one each time, however `sparse_pendulum` was called."""

    def reset(key: Key) -> PendulumState:
        del key
        return PendulumState(jnp.asarray(math.pi, jnp.float32), jnp.asarray(0.0, jnp.float32))

    def observe(state: PendulumState) -> Float[Array, " 3"]:
        return jnp.stack([jnp.cos(state.angle), jnp.sin(state.angle), state.velocity])

    def reward(state: PendulumState, torque: Float[Array, ""]) -> Float[Array, ""]:
        upright = tolerance(jnp.cos(state.angle), UPRIGHT, UPRIGHT_MARGIN)
        at_rest = tolerance(state.velocity, AT_REST, AT_REST_MARGIN)
        return upright * at_rest + action_cost * (tolerance(torque, FREE_TORQUE, FREE_TORQUE_MARGIN) - 1.0)

    def step(key: Key, state: PendulumState, action: Float[Array, " 1"]) -> ContinuousStep:
        torque = jnp.clip(action[0], -MAX_TORQUE, MAX_TORQUE)
        angle, velocity = state
        acceleration = GRAVITY / LENGTH * jnp.sin(angle) + (torque - FRICTION * velocity) / INERTIA
        after = PendulumState(angle + STEP * velocity, velocity + STEP * acceleration)
        if noise > 0.0:
            after = after._replace(angle=after.angle + noise * jax.random.normal(key, dtype=jnp.float32))
        return ContinuousStep(after, reward(state, torque), too_fast(after.velocity))

    def terminates(
        observation: Float[Array, " 3"], action: Float[Array, " 1"], next_observation: Float[Array, " 3"]
    ) -> Bool[Array, ""]:
        del observation, action
        return too_fast(next_observation[2])

    return ContinuousEnv(
        name="sparse-pendulum",
        observation_size=3,
        action_size=1,
        horizon=HORIZON,
        action_low=(-MAX_TORQUE,),
        action_high=(MAX_TORQUE,),
        reset=reset,
        step=step,
        observe=observe,
        terminates=terminates,
        reward_range=(-action_cost, 1.0),
        observation_high=(1.0, 1.0, MAX_SPEED),
        draw=draw,
        frames_per_second=STEPS_PER_SECOND,
    )


def too_fast(velocity: Float[Array, ""]) -> Bool[Array, ""]:
    """Whether the episode terminates.

    Example:
        >>> bool(too_fast(jnp.asarray(2.0 * MAX_SPEED)))
        True
    """
    return jnp.abs(velocity) > MAX_SPEED


def draw(state: PendulumState, action: Float[np.ndarray, " 1"]) -> UInt8[np.ndarray, "H W 3"]:
    """The picture of a state and of the action that led to it.

    Example:
        >>> draw(PendulumState(0.0, 0.0), np.zeros(1)).shape
        (240, 240, 3)
    """
    return render(state, float(action[0]))


def render(state: tuple[Any, Any], torque: float = 0.0, size: int = 240) -> UInt8[np.ndarray, "H W 3"]:
    """A picture of (angle, velocity), with the part of the circle that pays and the torque as an arc from the top.

    Example:
        >>> render((0.0, 0.0), torque=0.5, size=32).shape
        (32, 32, 3)
    """
    angle, torque = float(state[0]), min(max(float(torque), -MAX_TORQUE), MAX_TORQUE)
    picture = canvas.Canvas(checks.whole("size", size, 16), BACKGROUND)
    paying = math.acos(UPRIGHT[0])
    picture.arc(RIM, -paying, paying, 0.05, GOAL_COLOUR)
    sweep = torque / MAX_TORQUE * LONGEST_ARC
    picture.arc(TORQUE_RADIUS, 0.0, sweep, 0.05, TORQUE_COLOUR)
    picture.disc(canvas.at(TORQUE_RADIUS, sweep), 0.05, TORQUE_COLOUR)
    end = canvas.at(ROD, angle)
    picture.line((0.0, 0.0), end, 0.06, ROD_COLOUR)
    picture.disc(end, 0.12, BOB_COLOUR)
    picture.disc((0.0, 0.0), 0.06, PIVOT_COLOUR)
    return picture.pixels()
