"""PyBullet's three tasks: `make test-pybullet` installs what they need and runs this; elsewhere they are skipped."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from walking import endings, stopped_and_continued

from ubex.envs import adapter, locomotion, resolve
from ubex.envs.locomotion import LOCOMOTION
from ubex.experiments.locomotion import Locomotion

with locomotion.quiet(1, 2):
    pytest.importorskip("pybullet_envs_gymnasium")

SIZES = {"pybullet-halfcheetah": (20, 6, 26), "pybullet-walker2d": (20, 6, 22), "pybullet-ant": (24, 8, 28)}


@pytest.mark.parametrize(("name", "sizes"), SIZES.items())
def test_observations_have_everything_but_the_feet_contacts(name: str, sizes: tuple[int, int, int]) -> None:
    env = LOCOMOTION[name].make()
    hosted = adapter.hosted(env)
    assert (hosted.task.observation_size, hosted.task.action_size) == sizes[:2]
    hosted.reset(0, 1)
    contacts = 0
    for step in range(60):
        seen = hosted.step(np.full(sizes[1], (-1.0) ** (step // 8), np.float32), step, step).observation
        whole = env.unwrapped.robot.calc_state()
        assert whole.shape == sizes[2:]
        np.testing.assert_array_equal(seen, whole[: sizes[0]])
        contacts += int(whole[sizes[0] :].any())
        assert set(whole[sizes[0] :]) <= {0.0, 1.0}
    assert contacts > 0
    env.close()


@pytest.mark.parametrize("name", sorted(SIZES))
def test_the_models_end_episodes_where_pybullet_does(name: str) -> None:
    env = LOCOMOTION[name].make()

    def disturb(step: int) -> None:
        if name == "pybullet-ant" and step % 60 == 59:  # random actions seldom bring it down
            physics, body = env.unwrapped._p, env.unwrapped.robot.robot_body
            place = [*body.pose().xyz()[:2], 0.255]  # on its back
            physics.resetBasePositionAndOrientation(body.bodies[body.bodyIndex], place, [1.0, 0.0, 0.0, 0.0])

    told, ended = endings(env, 600, disturb)
    np.testing.assert_array_equal(told, ended)
    assert ended.any() == (name != "pybullet-halfcheetah")


def test_the_height_at_the_start_is_the_one_that_the_termination_assumes() -> None:
    for name, start in (("pybullet-walker2d", locomotion.WALKER_START), ("pybullet-ant", locomotion.ANT_START)):
        env = LOCOMOTION[name].make()
        for seed in range(5):
            env.reset(seed=seed)
            assert env.unwrapped.robot.initial_z == pytest.approx(start, abs=1e-3)
        env.close()


@pytest.mark.parametrize("name", sorted(SIZES))
def test_a_seed_gives_the_same_episode_whatever_was_before(name: str) -> None:
    """A run that goes on makes the episode under way again, in a process that knows nothing of the ones before."""

    def episode(env: locomotion.Body, seed: int) -> np.ndarray:
        actions = np.random.default_rng(seed).uniform(-1.0, 1.0, (40, SIZES[name][1])).astype(np.float32)
        first = env.reset(seed=seed)[0]
        return np.stack([first, *(env.step(action)[0] for action in actions)])

    used, fresh = LOCOMOTION[name].make(), LOCOMOTION[name].make()
    others = [episode(used, seed) for seed in (1, 2)]
    again = episode(used, 7)
    np.testing.assert_array_equal(again, episode(fresh, 7))
    assert abs(again[0] - others[0][0]).max() > 0.01
    used.close()
    fresh.close()


def test_pybullets_own_ids_work_and_show_everything() -> None:
    env = resolve.by_name("Walker2DBulletEnv-v0", {})
    assert env.observation_space.shape == (22,)
    assert not adapter.knows_its_ends(env)
    assert adapter.knows_its_ends(LOCOMOTION["pybullet-walker2d"].make())


SCRIPT = """
from ubex.envs.locomotion import LOCOMOTION
for name in ("pybullet-halfcheetah", "pybullet-walker2d", "pybullet-ant"):
    env = LOCOMOTION[name].make(render_mode="rgb_array")
    env.reset(seed=0)
    env.step(env.action_space.sample())
    env.reset()
    picture = env.render()
    assert picture.dtype == "uint8" and picture.std() > 1.0, picture.std()
    env.close()
print("end")
"""


def test_nothing_is_printed() -> None:
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}  # C then buffers too
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, env=buffered)
    assert done.stdout == "end\n"
    assert done.stderr == ""


@pytest.mark.parametrize(("task", "method"), [("halfcheetah", "exact-ube"), ("walker2d", "ensemble-mean"), ("ant", "sac")])
def test_a_run_is_stopped_goes_on_and_leaves_a_film(task: str, method: str, tmp_path: Path) -> None:
    experiment = Locomotion(methods=(method,), tasks=(task,), steps=60, preset="smoke", num_models=2, horizon=10, seeds=1)
    assert experiment.cells()[0].environment == f"pybullet-{task}"
    found = stopped_and_continued(experiment, tmp_path)
    assert list(found.curves["return"].index)[-3:] == [40, 50, 60]
