"""The deep experiments: resumed runs, failing seeds, pictures, and clear lines for what cannot be."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ubex.deep.config import DeepConfig
from ubex.envs.continuous import ContinuousEnv, ContinuousStep
from ubex.experiments import deep_cells
from ubex.experiments.pendulum import Pendulum
from ubex.experiments.spec import Outcome, SeedError
from ubex.runs.checkpoint import CheckpointFolder
from ubex.runs.jobs import Finished, Job, JobContext, execute
from ubex.types import InputError

SMALL: dict[str, Any] = {
    "method": "sac",
    "num_models": 2,
    "updates_per_step": 1,
    "rollouts_per_step": 1,
    "retrain_every": 3,
    "rollout_length": 1,
    "initial_steps": 20,
    "batch_size": 4,
    "critic_hidden": (4,),
    "actor_hidden": (4,),
    "model_hidden": (4,),
    "max_epochs": 1,
}


def still(reward: float = 0.0) -> ContinuousEnv:
    """Nothing moves; pays the same at every step."""

    def step(key: Any, state: Any, action: Any) -> ContinuousStep:
        return ContinuousStep(state, jnp.asarray(reward, jnp.float32), jnp.asarray(False))

    def never(observation: Any, action: Any, after: Any) -> Any:
        return jnp.asarray(False)

    zero = jnp.zeros(1, jnp.float32)
    return ContinuousEnv("still", 1, 1, 3, (-1.0,), (1.0,), lambda key: zero, step, lambda state: state, never)


def context(folder: Path) -> JobContext:
    return JobContext(CheckpointFolder(folder / "checkpoints"), lambda done, total, unit: None, folder / "artifacts")


KEYS = [jax.random.key(0), jax.random.key(1)]


class Killed(Exception):
    """Stands for a kill."""


def test_a_killed_run_gives_the_same_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deep_cells, "CHECKPOINT_SECONDS", 0.0)
    env, config = still(1.0), DeepConfig(**SMALL)
    whole = deep_cells.learn(KEYS, env, config, 4, context(tmp_path / "a"), lambda *_: None)

    def kill(episode: int, *_: object) -> None:
        if episode == 3:
            raise Killed

    with pytest.raises(Killed):
        deep_cells.learn(KEYS, env, config, 4, context(tmp_path / "b"), kill)
    again = deep_cells.learn(KEYS, env, config, 4, context(tmp_path / "b"), lambda *_: None)
    np.testing.assert_array_equal(again.values, whole.values)
    np.testing.assert_allclose(whole.values[:, :, 0], 3.0)
    other = DeepConfig(**{**SMALL, "critic_hidden": (5,)})
    with pytest.raises(InputError, match="other settings"):
        deep_cells.learn(KEYS, env, other, 4, context(tmp_path / "b"), lambda *_: None)


def test_a_seed_whose_losses_are_not_finite_is_reported_and_the_others_are_kept(tmp_path: Path) -> None:
    found = deep_cells.outcomes([4, 5], deep_cells.Curves(np.zeros((2, 3, len(deep_cells.COLUMNS))), np.asarray([7, -1])))
    assert found[4] == SeedError("seed 4: a loss is not finite at step 7")
    assert isinstance(found[5], Outcome)

    class Broken(Pendulum):
        def run(self, cell: Any, seeds: Any, context: Any) -> Any:
            return found

    experiment = Broken(methods=("sac",), noises=(0.0,), seeds=6)
    job = Job(experiment, experiment.cells()[0], (4, 5), tmp_path / "c", tmp_path / "d")
    result = execute(job, lambda done, total, unit: None)
    assert isinstance(result, Finished)
    assert list(result.outcomes) == [5]
    assert list(result.errors) == [4]


def test_an_infinite_reward_stops_the_seed(tmp_path: Path) -> None:
    env, config = still(float("inf")), DeepConfig(**SMALL)
    found = deep_cells.learn(KEYS[:1], env, config, 5, context(tmp_path), lambda *_: None)
    assert found.bad[0] == 0
    assert found.values.shape[1] == 1, "nothing is run after all seeds broke"


def test_a_full_device_gets_one_line() -> None:
    with pytest.raises(InputError, match="10 seeds") as caught, deep_cells.out_of_memory(10):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1 bytes.")
    assert "\n" not in str(caught.value)
    for other in ("INTERNAL: something else", "RESOURCE_EXHAUSTED: Shared memory size limit exceeded"):
        with pytest.raises(jax.errors.JaxRuntimeError), deep_cells.out_of_memory(10):
            raise jax.errors.JaxRuntimeError(other)


def test_keys_do_not_depend_on_the_precision() -> None:
    pairs = [Pendulum(precision=precision, methods=("sac",)) for precision in ("float32", "tf32")]
    keys = [jax.random.key_data(one.key(one.cells()[0], 3)) for one in pairs]
    np.testing.assert_array_equal(*keys)
    assert pairs[0].cells()[0].id != pairs[1].cells()[0].id


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": ("psrl",)}, "sac"),
        ({"noises": (-1.0,)}, "noise"),
        ({"num_models": (1,)}, "num_models"),
        ({"preset": "huge"}, "laptop"),
        ({"precision": "half"}, "tf32"),
        ({"episodes": 0}, "episodes"),
    ],
)
def test_fields_that_make_no_sense_get_one_line(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Pendulum(**change)


def test_a_cell_leaves_curves_and_pictures(tmp_path: Path) -> None:
    experiment = Pendulum().smoke()
    cell = experiment.cells()[0]
    found = experiment.run(cell, [0], context(tmp_path))[0]
    assert isinstance(found, Outcome)
    assert -81.0 <= found.scalars["final_return"] <= 400.0
    assert {"return", "training_return", "critic_std", "alpha", "entropy"} <= set(found.curves)
    with np.load(io.BytesIO((tmp_path / "artifacts/seed-0/maps-1.npz").read_bytes())) as maps:
        assert list(maps["names"]) == ["mean value", "sd over critics"]
        assert np.isfinite(maps["maps"]).all()
    assert (tmp_path / "artifacts/seed-0/last-evaluation.gif").stat().st_size > 1000
