"""Locomotion: where episodes end, what is seen and left out, silence, and what a missing extra says. PyBullet: tests/bullet."""

from __future__ import annotations

import os
import subprocess
import sys
from ctypes import util
from pathlib import Path
from typing import Any

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from walking import endings

from ubex.envs import adapter, locomotion, resolve
from ubex.envs.locomotion import LOCOMOTION, quiet
from ubex.types import InputError

MUJOCO = {"mujoco-halfcheetah": (17, 6), "mujoco-walker2d": (17, 6), "mujoco-ant": (27, 8)}
ENDED = (
    (locomotion.never, {0: -9.0, 7: 9.0}, False),
    (locomotion.pybullet_walker, {}, False),
    (locomotion.pybullet_walker, {0: -0.44}, False),
    (locomotion.pybullet_walker, {0: -0.46}, True),
    (locomotion.pybullet_walker, {7: 0.99}, False),
    (locomotion.pybullet_walker, {7: 1.01}, True),
    (locomotion.pybullet_walker, {7: -1.01}, True),
    (locomotion.pybullet_walker, {6: -1.01}, False),
    (locomotion.pybullet_ant, {0: -0.48, 7: 2.0}, False),
    (locomotion.pybullet_ant, {0: -0.5}, True),
    (locomotion.mujoco_walker, {0: 0.81, 1: 0.99}, False),
    (locomotion.mujoco_walker, {0: 1.99, 1: -0.99}, False),
    (locomotion.mujoco_walker, {0: 0.79}, True),
    (locomotion.mujoco_walker, {0: 2.01}, True),
    (locomotion.mujoco_walker, {0: 1.25, 1: 1.01}, True),
    (locomotion.mujoco_walker, {0: 1.25, 1: -1.01}, True),
    (locomotion.mujoco_ant, {0: 0.21, 1: 5.0}, False),
    (locomotion.mujoco_ant, {0: 0.99}, False),
    (locomotion.mujoco_ant, {0: 0.19}, True),
    (locomotion.mujoco_ant, {0: 1.01}, True),
)


@pytest.mark.parametrize(("terminates", "entries", "ended"), ENDED)
def test_episodes_end_where_the_body_falls(terminates: locomotion.Terminates, entries: dict[int, float], ended: bool) -> None:
    before, after = np.zeros(20, np.float32), np.zeros(20, np.float32)
    for place, value in entries.items():
        after[place] = value
    assert bool(terminates(jnp.asarray(before), jnp.zeros(6), jnp.asarray(after))) is ended


@pytest.mark.parametrize("name", sorted(MUJOCO))
def test_the_models_end_episodes_where_mujoco_does(name: str) -> None:
    env = LOCOMOTION[name].make()

    def disturb(step: int) -> None:
        if name == "mujoco-ant" and step % 50 == 49:  # random actions seldom lift it high enough
            position = env.unwrapped.data.qpos.copy()
            position[2] = 1.5
            env.unwrapped.set_state(position, env.unwrapped.data.qvel.copy())

    told, ended = endings(env, 400, disturb)
    np.testing.assert_array_equal(told, ended)
    assert ended.any() == (name != "mujoco-halfcheetah")


@pytest.mark.parametrize(("name", "sizes"), MUJOCO.items())
def test_mujoco_is_quiet_and_the_adapter_takes_it(
    name: str, sizes: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    env = resolve.by_name(name, {})
    hosted = adapter.hosted(env)
    assert (hosted.task.observation_size, hosted.task.action_size) == sizes
    assert hosted.reset(0, 3).shape == sizes[:1]
    assert not hosted.step(np.zeros(sizes[1], np.float32), 0, 0).terminated
    assert env.spec.max_episode_steps == locomotion.EPISODE
    assert list(tmp_path.iterdir()) == []  # MuJoCo would leave a log
    assert capfd.readouterr() == ("", "")


def test_the_model_knows_where_episodes_end_unless_something_is_wrapped_around() -> None:
    env = LOCOMOTION["mujoco-walker2d"].make()
    fallen, upright = (jnp.asarray([height, *[0.0] * 16], jnp.float32) for height in (0.1, 1.2))
    inside = adapter.hosted(env).task.terminates
    assert adapter.knows_its_ends(env)
    assert bool(inside(upright, jnp.zeros(6), fallen))
    assert not bool(inside(upright, jnp.zeros(6), upright))
    halved = gymnasium.wrappers.TransformObservation(env, lambda seen: seen / 2.0, env.observation_space)
    assert adapter.hosted(halved).task.terminates is adapter.never
    assert not adapter.knows_its_ends(halved)


def test_mujoco_draws_without_a_screen_where_egl_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL"):
        monkeypatch.delenv(name, raising=False)
    LOCOMOTION["mujoco-halfcheetah"].make().close()
    assert "MUJOCO_GL" not in os.environ  # nothing is to be drawn
    if util.find_library("EGL") is None:
        pytest.skip("there is no libEGL")
    monkeypatch.setenv("MUJOCO_GL", "egl")  # for monkeypatch to know of it
    monkeypatch.delenv("MUJOCO_GL")
    env = LOCOMOTION["mujoco-halfcheetah"].make(render_mode="rgb_array")
    assert os.environ["MUJOCO_GL"] == "egl"
    env.reset(seed=0)
    picture = env.render()
    assert picture is not None
    assert picture.std() > 10.0
    env.close()


def test_egl_is_not_chosen_where_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """MuJoCo would fail on import."""
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setattr(util, "find_library", lambda name: None)
    locomotion.draw_without_screen()
    assert "MUJOCO_GL" not in os.environ


def test_a_wrong_choice_of_opengl_is_one_line() -> None:
    words = "from ubex.envs.locomotion import LOCOMOTION\nLOCOMOTION['mujoco-ant'].make()"
    chosen = {**os.environ, "MUJOCO_GL": "crayons"}
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=False, env=chosen)
    assert "InputError: mujoco-ant cannot be made with MUJOCO_GL=crayons: " in done.stderr.splitlines()[-1]
    assert "MUJOCO_GL=egl" in done.stderr.splitlines()[-1]


def test_a_picture_that_fails_says_how_to_draw() -> None:
    class Broken(gymnasium.Env[Any, Any]):
        observation_space = gymnasium.spaces.Box(-1.0, 1.0, (3,))

        def render(self) -> None:
            raise RuntimeError("no context")

    with pytest.raises(InputError, match=r"x cannot be drawn here: RuntimeError: no context\. Without a screen"):
        locomotion.Body(Broken(), "x", locomotion.never).render()


@pytest.mark.parametrize(
    ("name", "module", "extra"), [("mujoco-ant", "mujoco", "mujoco"), ("pybullet-ant", "pybullet_envs_gymnasium", "pybullet")]
)
def test_a_missing_extra_is_named(name: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=rf"^{name} needs {module}, which is not installed: pip install 'ubex\[{extra}\]'$"):
        resolve.by_name(name, {})


PRINTS = """
import ctypes, os
from ubex.envs.locomotion import quiet
libc = ctypes.CDLL(None)
libc.puts(b"before, in C's buffer")
print("before")
with quiet():
    libc.puts(b"noise in C's buffer")
    os.write(1, b"noise")
    os.write(2, b"an error")
libc.puts(b"after, in C's buffer")
print("after")
libc.fflush(None)
"""


def test_what_c_prints_is_dropped_and_nothing_else() -> None:
    """In a process whose C buffers its output, as it does unless Python is told not to buffer its own."""
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run([sys.executable, "-c", PRINTS], capture_output=True, text=True, check=True, env=buffered)
    assert sorted(done.stdout.splitlines()) == ["after", "after, in C's buffer", "before", "before, in C's buffer"]
    assert done.stderr == "an error"


def test_standard_output_comes_back_after_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    def fails() -> None:
        with quiet():
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        fails()
    os.write(1, b"here\n")
    assert capfd.readouterr().out == "here\n"
