"""Our environments in Gymnasium's registry, by its own checker, and what they do there."""

from __future__ import annotations

import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import ubex
from ubex.envs import gymnasium_id

SMALL = {"deep-sea": {"size": 4}, "n-room": {"rooms": 2}, "toy": {"delta": 0.7}}
"""Settings that are quicker than the defaults, or that only a test has."""


@pytest.mark.parametrize("name", ubex.ENVS)
def test_gymnasium_is_content_with_every_line_of_the_table(name: str) -> None:
    check_env(gymnasium.make(gymnasium_id(name), **SMALL.get(name, {})).unwrapped, skip_render_check=True)


def test_ids_are_those_that_people_know() -> None:
    known = {"ubex/Toy-v0", "ubex/DeepSea-v0", "ubex/NRoom-v0", "ubex/SevenRoom-v0", "ubex/SparsePendulum-v0"}
    known |= {"ubex/RiverSwim-v0", "ubex/Chain-v0", "ubex/Loop-v0"}
    assert known <= {gymnasium_id(name) for name in ubex.ENVS} == {name for name in gymnasium.registry if "ubex/" in name}


def test_what_is_not_drawn_says_so() -> None:
    with pytest.raises(ubex.InputError, match="deep-sea draws no pictures"):
        gymnasium.make("ubex/DeepSea-v0", render_mode="rgb_array")
    with pytest.raises(ubex.InputError, match="unknown render_mode 'human'; choose from: rgb_array"):
        gymnasium.make("ubex/SparsePendulum-v0", render_mode="human")


def test_the_right_way_through_deep_sea() -> None:
    env = gymnasium.make("ubex/DeepSea-v0", size=5)
    state, _ = env.reset(seed=0)
    states, total, terminated = [state], 0.0, False
    while not terminated:
        state, reward, terminated, truncated, _ = env.step(1)
        states.append(state)
        total += float(reward)
        assert not truncated
    assert states == [0, 6, 12, 18, 24, 25]
    assert total == pytest.approx(0.99)


def test_seven_room_is_cut_off_and_follows_its_seed() -> None:
    def walk(seed: int) -> list[int]:
        env = gymnasium.make("ubex/SevenRoom-v0")
        states = [env.reset(seed=seed)[0]]
        while True:
            state, _, terminated, truncated, _ = env.step(len(states) % 4)
            states.append(state)
            assert not terminated
            if truncated:
                return states

    assert len(walk(3)) == 41
    assert walk(3) == walk(3)
    assert walk(3) != walk(4)


def test_frequencies() -> None:
    env = gymnasium.make("ubex/Toy-v0", delta=0.7, beta=0.4).unwrapped
    seen = []
    env.reset(seed=1)
    for _ in range(2000):
        env.reset()
        seen.append(env.step(0)[0])
    assert np.mean(np.array(seen) == 2) == pytest.approx(0.7, abs=0.04)


def test_an_action_out_of_range_is_refused() -> None:
    env = gymnasium.make("ubex/Toy-v0").unwrapped
    env.reset(seed=0)
    with pytest.raises(ubex.InputError, match="action must be in 0 to 0, but it is 1"):
        env.step(1)


WITHOUT = """
import sys
from importlib import util
find = util.find_spec
util.find_spec = lambda name, package=None: None if name == "gymnasium" else find(name, package)
sys.modules["gymnasium"] = None
import ubex
print(len(ubex.ENVS))
"""


def test_ubex_works_without_gymnasium() -> None:
    out = subprocess.run([sys.executable, "-c", WITHOUT], check=True, capture_output=True, text=True).stdout
    assert int(out) == len(ubex.ENVS)
