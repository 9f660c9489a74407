"""Locomotion: HalfCheetah, Walker2D and Ant in PyBullet, as in the paper (section 5.3 and appendix), and in MuJoCo.

Each is a Gymnasium environment with one thing more: `terminates`, a JAX function that says where an episode ends, which learned
models need. PyBullet's observations come without the feet contacts at their end, MuJoCo's without contact forces.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from ctypes import util
from types import MappingProxyType
from typing import Any, NamedTuple

import gymnasium
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, UInt8

from ubex.envs.task import Terminates, never
from ubex.types import InputError

STANDARD_OUTPUT, STANDARD_ERROR = 1, 2
EPISODE = 1000
"""Steps of an episode, in both physics."""
HEIGHT, PITCH = 0, 7
"""Places in PyBullet's observations; the height is that above the start."""
WALKER_START, WALKER_LOWEST, WALKER_STEEPEST = 1.25, 0.8, 1.0
"""PyBullet's Walker2D: height of its torso at the start, lowest height and steepest pitch."""
ANT_START, ANT_LOWEST = 0.75, 0.26
"""The same of PyBullet's Ant, which has no limit of pitch."""
WALKER_HEIGHTS, WALKER_ANGLES = (0.8, 2.0), (-1.0, 1.0)
"""MuJoCo's Walker2d: open intervals of height and angle, the first two entries of its observations."""
ANT_HEIGHTS = (0.2, 1.0)
"""MuJoCo's Ant: closed interval of the height, the first entry."""


class TaskEntry(NamedTuple):
    """A line of the table."""

    summary: str
    make: Callable[..., Body]
    """Makes it; `render_mode="rgb_array"` for pictures."""


def pybullet_walker(observation: Float[Array, " O"], action: Float[Array, " A"], after: Float[Array, " O"]) -> Bool[Array, ""]:
    """PyBullet's Walker2D has fallen: too low or too steep."""
    return (after[HEIGHT] + WALKER_START <= WALKER_LOWEST) | (jnp.abs(after[PITCH]) >= WALKER_STEEPEST)


def pybullet_ant(observation: Float[Array, " O"], action: Float[Array, " A"], after: Float[Array, " O"]) -> Bool[Array, ""]:
    """PyBullet's Ant scrapes the ground."""
    return after[HEIGHT] + ANT_START <= ANT_LOWEST


def mujoco_walker(observation: Float[Array, " O"], action: Float[Array, " A"], after: Float[Array, " O"]) -> Bool[Array, ""]:
    """MuJoCo's Walker2d is too low, too high or too steep."""
    height, angle = after[0], after[1]
    upright = (height > WALKER_HEIGHTS[0]) & (height < WALKER_HEIGHTS[1])
    return ~(upright & (angle > WALKER_ANGLES[0]) & (angle < WALKER_ANGLES[1]))


def mujoco_ant(observation: Float[Array, " O"], action: Float[Array, " A"], after: Float[Array, " O"]) -> Bool[Array, ""]:
    """MuJoCo's Ant is too low or too high."""
    return ~((after[0] >= ANT_HEIGHTS[0]) & (after[0] <= ANT_HEIGHTS[1]))


class Body(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that knows its own `terminates`, with the last entries of its observations left out, and quiet."""

    def __init__(self, env: gymnasium.Env[Any, Any], name: str, terminates: Terminates, left_out: int = 0) -> None:
        """`left_out` is the number of entries at the end that nobody shall see."""
        super().__init__(env)
        self.name, self.terminates = name, terminates
        seen = env.observation_space
        assert isinstance(seen, gymnasium.spaces.Box)
        self.kept = seen.shape[0] - left_out
        self.observation_space = gymnasium.spaces.Box(seen.low[: self.kept], seen.high[: self.kept], dtype=seen.dtype.type)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """A new episode; PyBullet loads its world here, and says so."""
        with quiet():
            observation, info = self.env.reset(seed=seed, options=options)
        return np.asarray(observation)[: self.kept], info

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One step."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return np.asarray(observation)[: self.kept], float(reward), bool(terminated), bool(truncated), info

    def render(self) -> UInt8[np.ndarray, "H W 3"] | None:
        """The picture of the state, if there is a `render_mode`."""
        try:
            with quiet():
                picture = self.env.render()
        except gymnasium.error.Error:  # not about drawing, such as no reset before it
            raise
        except Exception as error:
            raise InputError(f"{self.name} cannot be drawn here: {type(error).__name__}: {error}. {HOW_TO_DRAW}") from error
        return None if picture is None else np.asarray(picture).astype(np.uint8)

    def close(self) -> None:
        """Gives the physics back."""
        with quiet():
            super().close()


HOW_TO_DRAW = "Without a screen MuJoCo needs the variable MUJOCO_GL=egl and the library libEGL, or osmesa and libOSMesa"


@contextlib.contextmanager
def quiet(*files: int) -> Iterator[None]:
    """Drops what C code writes to standard output, or to these file descriptors, meanwhile.

    PyBullet prints when it is imported, connects and loads. C keeps what it prints in a buffer of its own, so that is emptied
    before the file is given back.
    """
    libc = ctypes.CDLL(None)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()
    libc.fflush(None)
    with contextlib.ExitStack() as restored:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        restored.callback(os.close, nowhere)
        for file in files or (STANDARD_OUTPUT,):
            with contextlib.suppress(OSError):  # a file that is closed needs no care
                saved = os.dup(file)
                restored.callback(os.close, saved)
                restored.callback(os.dup2, saved, file)
                os.dup2(nowhere, file)
        restored.callback(libc.fflush, None)
        yield


def missing(name: str, extra: str, error: Exception) -> InputError:
    """The line that says what to install."""
    module = str(getattr(error, "name", None) or extra).partition(".")[0]
    return InputError(f"{name} needs {module}, which is not installed: pip install 'ubex[{extra}]'")


def load_pybullet() -> None:
    """Makes PyBullet's ids known to Gymnasium; on import it prints, to standard error too."""
    with quiet(STANDARD_OUTPUT, STANDARD_ERROR):
        import pybullet_envs_gymnasium.gym_locomotion_envs  # noqa: F401  (this part of it imports PyBullet itself)


def in_pybullet(name: str, gymnasium_id: str, left_out: int, terminates: Terminates, render_mode: str | None = None) -> Body:
    """A task of `pybullet_envs_gymnasium` without its feet contacts."""
    try:
        load_pybullet()
    except ModuleNotFoundError as error:
        raise missing(name, "pybullet", error) from None
    with quiet():
        env = gymnasium.make(gymnasium_id, render_mode=render_mode, disable_env_checker=True)
        env.reset(seed=0)  # the first episode differs from all others in the last digits of its start
    return Body(env, name, terminates, left_out)


def in_mujoco(name: str, gymnasium_id: str, terminates: Terminates, render_mode: str | None = None, **settings: Any) -> Body:
    """A task of Gymnasium's own."""
    if render_mode is not None:
        draw_without_screen()
    try:
        import mujoco

        with no_log(mujoco):
            env = gymnasium.make(gymnasium_id, render_mode=render_mode, disable_env_checker=True, **settings)
    except (ModuleNotFoundError, gymnasium.error.DependencyNotInstalled) as error:
        raise missing(name, "mujoco", error) from None
    except Exception as error:  # MuJoCo looks for OpenGL on import, and PyOpenGL's errors are of any kind
        if "MUJOCO_GL" not in os.environ:
            raise
        chosen, reason = os.environ["MUJOCO_GL"], str(error).splitlines()[0]
        raise InputError(f"{name} cannot be made with MUJOCO_GL={chosen}: {reason}. {HOW_TO_DRAW}") from error
    return Body(env, name, terminates)


def draw_without_screen() -> None:
    """Where there is no screen MuJoCo shall draw by EGL, if that is installed and nothing else was chosen.

    MuJoCo fails on import where the library that MUJOCO_GL names is missing.
    """
    screen = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if sys.platform == "linux" and not screen and util.find_library("EGL"):
        os.environ.setdefault("MUJOCO_GL", "egl")


@contextlib.contextmanager
def no_log(mujoco: Any) -> Iterator[None]:
    """Keeps what MuJoCo has to say of the files that Gymnasium brings out of the terminal and of a file MUJOCO_LOG.TXT here."""
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda message: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)


def _pybullet(name: str, gymnasium_id: str, left_out: int, terminates: Terminates) -> TaskEntry:
    make = functools.partial(in_pybullet, name, gymnasium_id, left_out, terminates)
    return TaskEntry(f"{gymnasium_id} without feet contacts (ubex[pybullet])", make)


def _mujoco(name: str, gymnasium_id: str, terminates: Terminates, **settings: Any) -> TaskEntry:
    make = functools.partial(in_mujoco, name, gymnasium_id, terminates, **settings)
    return TaskEntry(f"{gymnasium_id}{' without contact forces' if settings else ''} (ubex[mujoco])", make)


LOCOMOTION: Mapping[str, TaskEntry] = MappingProxyType(
    {
        "pybullet-halfcheetah": _pybullet("pybullet-halfcheetah", "HalfCheetahBulletEnv-v0", 6, never),
        "pybullet-walker2d": _pybullet("pybullet-walker2d", "Walker2DBulletEnv-v0", 2, pybullet_walker),
        "pybullet-ant": _pybullet("pybullet-ant", "AntBulletEnv-v0", 4, pybullet_ant),
        "mujoco-halfcheetah": _mujoco("mujoco-halfcheetah", "HalfCheetah-v5", never),
        "mujoco-walker2d": _mujoco("mujoco-walker2d", "Walker2d-v5", mujoco_walker),
        "mujoco-ant": _mujoco("mujoco-ant", "Ant-v5", mujoco_ant, include_cfrc_ext_in_observation=False),
    }
)
