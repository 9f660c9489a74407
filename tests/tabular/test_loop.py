"""The loop: blocks of any length give the same run, and an optimistic agent solves a small DeepSea."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ubex
from ubex.envs.deep_sea import deep_sea
from ubex.experiments.deep_sea import DeepSea
from ubex.tabular.agents import AgentConfig
from ubex.tabular.loop import begin, run_batch, run_episodes

RESULTS = Path(__file__).parents[2] / "results" / "deep-sea"
ENV, CONFIG = deep_sea(4), AgentConfig(u_min=-0.05, repeats=4)
LONGEST = 150
"""Blocks of any length are made by the program of this one."""


def run(episodes: int, block: int, seed: int = 0, config: AgentConfig = CONFIG) -> np.ndarray:
    with jax.enable_x64(True):
        memory, returns = begin(ENV), []
        for start in range(0, episodes, block):
            numbers = jnp.arange(start, start + LONGEST)
            memory, out = run_episodes(ENV, config, jax.random.key(seed), memory, numbers, block)
            returns.append(np.asarray(out.returns)[:block])
        return np.concatenate(returns)


@pytest.mark.parametrize("settings", [{}, {"plan_from": "last"}, {"plan_when": "doubled"}], ids=str)
def test_blocks_change_nothing(settings: dict[str, str]) -> None:
    config = dataclasses.replace(CONFIG, **settings)
    programs = run_episodes._cache_size()
    np.testing.assert_array_equal(run(30, 30, config=config), run(30, 10, config=config))
    assert run_episodes._cache_size() <= programs + 1


def test_a_part_of_the_episodes_is_what_they_are_alone() -> None:
    with jax.enable_x64(True):
        memory, out = run_episodes(ENV, CONFIG, jax.random.key(0), begin(ENV), jnp.arange(LONGEST), 7)
        after, alone = run_episodes(ENV, CONFIG, jax.random.key(0), begin(ENV), jnp.arange(7))
        jax.tree.map(np.testing.assert_array_equal, memory, after)
        jax.tree.map(lambda x, y: np.testing.assert_array_equal(x[:7], y), out, alone)


def test_a_plan_that_goes_on_from_the_last_one_needs_fewer_improvements() -> None:
    """And costs nothing: both solve DeepSea with L = 6 after 11 unsolved episodes."""
    env, found = deep_sea(6), {}
    for plan_from in ("random", "last"):
        config = AgentConfig("closed-form", repeats=6, prior_mass=8.0, plan_from=plan_from)
        with jax.enable_x64(True):
            found[plan_from] = run_episodes(env, config, jax.random.key(0), begin(env), jnp.arange(30))[1]
    unsolved = {name: int((np.asarray(out.returns) < 0.5).sum()) for name, out in found.items()}
    assert max(unsolved.values()) <= 12, unsolved
    assert found["last"].steps[0] == found["random"].steps[0], "the first plan begins with the same random policy"
    assert found["last"].steps[1:].mean() < 0.6 * found["random"].steps[1:].mean()
    assert (found["last"].steps[-3:] == 1).all(), "nothing is left to improve"


@pytest.mark.parametrize(("method", "plan_when"), [("exact-ube", "episode"), ("psrl", "episode"), ("psrl", "doubled")])
def test_a_batch_of_seeds_gives_what_each_gives_alone(method: str, plan_when: str) -> None:
    config = AgentConfig(method=method, u_min=-0.05, repeats=4, plan_when=plan_when)
    with jax.enable_x64(True):
        keys = jnp.stack([jax.random.key(seed) for seed in range(3)])
        memories = jax.tree.map(lambda x: jnp.stack([x] * 3), begin(ENV))
        _, out = run_batch(ENV, config, keys, memories, jnp.arange(60, dtype=jnp.int32))
    for seed in range(3):
        np.testing.assert_array_equal(out.returns[seed], run(60, 60, seed, config))


@pytest.mark.parametrize(("method", "regret", "share"), [("exact-ube", (10, 20), 0.9), ("psrl", (20, 36), 0.8)])
def test_a_small_deep_sea_is_solved(method: str, regret: tuple[int, int], share: float) -> None:
    """Eight seeds gave 13 to 15 unsolved episodes of 150 with exact-ube and 25 to 30 with PSRL, which keeps on trying."""
    solved = run(150, 150, config=AgentConfig(method=method, u_min=-0.05, repeats=4)) >= 0.5
    assert regret[0] <= (~solved).sum() <= regret[1]
    assert solved[-50:].mean() >= share


@pytest.mark.slow
@pytest.mark.parametrize(("method", "run"), [("exact-ube", "10"), ("psrl", "10"), ("closed-form", "closed-form")])
def test_kept_runs_come_out_again(method: str, run: str) -> None:
    """Regret of the first seed on DeepSea with L = 10, of which little is left after 300 of the 1,000 episodes."""
    experiment = DeepSea(sizes=(10,), methods=(method,), seeds=1)
    (cell,) = experiment.cells()
    with jax.enable_x64(True):
        env = deep_sea(10)
        _, out = run_episodes(env, experiment.agent(cell), cell.key(0), begin(env), jnp.arange(300))
    regret = np.cumsum(np.asarray(out.returns) < 0.5)
    curves = ubex.load_curves(RESULTS / run).query(f"method == '{method}' and seed == 0 and size == 10 and episode <= 300")
    assert list(curves["episode"]) == [50, 100, 150, 200, 250, 300]
    assert list(regret[curves["episode"] - 1]) == list(curves["value"])
    if method == "exact-ube":
        assert regret[-1] == pytest.approx(55.0, abs=5), "published: 55.0 with a standard error of 0.45, five seeds"
