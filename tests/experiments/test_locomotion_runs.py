"""The locomotion experiments: the paper's settings, what is compared with the published means, and a run that is stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from walking import mujoco_draws, stopped_and_continued

from ubex import Agent, cli, load_results
from ubex.experiments.locomotion import FILM, MARKS, Locomotion, last_mean, summed_up
from ubex.experiments.spec import Curve, Outcome
from ubex.experiments.train_deep import AGENT_FILE
from ubex.runs import metrics
from ubex.runs.checkpoint import CheckpointFolder
from ubex.runs.jobs import JobContext
from ubex.runs.records import from_json, to_json
from ubex.runs.store import Store
from ubex.types import InputError


def test_the_paper_preset_is_the_papers_table() -> None:
    paper = Locomotion.of("paper")
    cells = paper.cells()
    assert len(cells) == 15
    assert {cell.environment: cell.settings["steps"] for cell in cells} == {
        "pybullet-halfcheetah": 200_000,
        "pybullet-walker2d": 300_000,
        "pybullet-ant": 300_000,
    }
    course = paper.course(cells[0])
    assert (course.horizon, course.evaluate_every, course.evaluation_episodes) == (1000, 1000, 1)
    settings = course.parsed("settings")
    chosen = ("updates_per_step", "retrain_every", "retain", "rollout_length", "regularisation", "model_scale", "num_models")
    assert [settings[name] for name in chosen] == [10, 250, 10, 1, 0.0, 1.0, 5]
    assert settings["actor_hidden"] == [128, 128]
    assert {cell.environment for cell in Locomotion.of("mujoco").cells()} == {f"mujoco-{task}" for task in paper.tasks}


def outcome(steps: int, every: int = 1000) -> Outcome:
    """A run whose n-th evaluation returns n."""
    marks = range(every, steps + 1, every)
    evaluation = Curve("step", list(marks), [float(mark // every) for mark in marks])
    return Outcome({"mean_return_last_10": 7.0}, {"evaluation": evaluation})


def test_means_are_over_the_last_ten_evaluations_up_to_each_mark() -> None:
    found = summed_up(outcome(60_000), 1000, 60_000)
    assert found.earlier == {20_000: {"mean_return_last_10": 15.5}, 50_000: {"mean_return_last_10": 45.5}}
    assert found.scalars["mean_return_last_10"] == 55.5
    assert found.scalars["training_return_last_10"] == 7.0
    assert found.scalars["final_return"] == 60.0
    assert found.curves["smoothed_return"].values[29] == 25.5
    assert from_json(to_json(found)) == found
    assert last_mean([(5000, 1.0)], 4999) != last_mean([(5000, 1.0)], 4999)  # NaN: nothing yet


def test_means_at_fewer_steps_are_rows_with_those_steps(tmp_path: Path) -> None:
    experiment = Locomotion.of("paper", tasks=("halfcheetah",), methods=("exact-ube",), steps=60_000, seeds=1)
    (cell,) = experiment.cells()
    one = {"environment": cell.environment, "method": cell.method, "settings": cell.settings, "id": cell.id}
    spec = {"format": 1, "experiment": experiment.name, "settings": {}, "cells": [one], "seeds": 1}
    store = Store.open(tmp_path, spec)
    store.finish(cell, {0: summed_up(outcome(60_000), 1000, 60_000)}, 1.0)
    store.write_tables()
    store.close()
    table = load_results(tmp_path)
    rows = table[table["metric"] == "mean_return_last_10"]
    assert dict(zip(rows["steps"], rows["value"], strict=True)) == {60_000: 55.5, 20_000: 15.5, 50_000: 45.5}
    compared = metrics.compare(rows)
    assert dict(zip(compared["steps"], compared["published_mean"], strict=True)) == {20_000: 655.73, 50_000: 1273.88}


def test_a_run_that_was_stopped_has_the_means_that_it_came_to() -> None:
    experiment = Locomotion.of("paper", tasks=("halfcheetah",), methods=("sac",))
    shown = {"evaluation": [(step, float(step)) for step in range(1000, 101_000, 1000)], "return": [(900, 7.0)]}
    found = experiment.course(experiment.cells()[0]).given(shown, 100_000).until(100_000, "steps")
    means = {mark: scalars["mean_return_last_10"] for mark, scalars in found.earlier.items()}
    assert means == {20_000: 15_500.0, 50_000: 45_500.0, 100_000: 95_500.0}
    assert found.scalars == {}, "nothing of 200,000 steps"
    assert set(found.curves) == {"return", "smoothed_return", "training_return"}


def test_evaluations_at_odd_steps_come_on_a_common_grid() -> None:
    odd = Outcome({}, {"evaluation": Curve("step", [1013, 2950, 3000], [1.0, 2.0, 3.0])})
    found = summed_up(odd, 1000, 3000)
    assert (list(found.curves["return"].index), list(found.curves["return"].values)) == ([2000, 3000], [1.0, 3.0])


def test_published_means_are_found_by_steps() -> None:
    rows = [
        {"experiment": "locomotion", "environment": cell.environment, "method": cell.method, "seed": 0, "value": 1000.0}
        | {"metric": "mean_return_last_10", **cell.settings, "steps": mark}
        for cell in Locomotion.of("paper", tasks=("halfcheetah",)).cells()
        for mark in MARKS
    ]
    table = metrics.compare(pd.DataFrame(rows))
    assert len(table) == 25
    exact = table[(table["method"] == "exact-ube") & (table["steps"] == 50_000)]
    assert exact["published_mean"].tolist() == [1273.88]


def test_wrong_fields_and_a_missing_extra_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match="unknown task 'hopper'; choose from: halfcheetah, walker2d, ant"):
        Locomotion(tasks=("hopper",))
    with pytest.raises(InputError, match="unknown preset 'desk'"):
        Locomotion(preset="desk")
    with pytest.raises(InputError, match="num_models"):
        Locomotion(num_models=0)
    monkeypatch.setitem(__import__("sys").modules, "pybullet_envs_gymnasium", None)
    assert cli.run(["run", "locomotion", "--out", str(tmp_path / "x")]) == 2
    assert "pip install 'ubex[pybullet]'" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(("task", "method"), [("walker2d", "ensemble-mean"), ("halfcheetah", "pombu"), ("ant", "ensemble-var")])
def test_a_run_in_mujoco_is_stopped_goes_on_and_leaves_an_agent_and_a_film(task: str, method: str, tmp_path: Path) -> None:
    few: dict[str, Any] = {"methods": (method,), "tasks": (task,), "num_models": 2, "seeds": 1}
    experiment = Locomotion.of("mujoco", preset="smoke", steps=60, horizon=10, **few)
    stopped_and_continued(experiment, tmp_path, mujoco_draws())
    agent = Agent.load(tmp_path / "seed-0" / AGENT_FILE)
    assert agent.steps == 60
    if not mujoco_draws():
        return
    returns, again = agent.film(1, 0)
    assert again == (tmp_path / "seed-0" / FILM).read_bytes()
    assert returns == pytest.approx(agent.evaluate(1, seed=0))


def test_a_gpu_takes_all_seeds_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here on a CPU, where seeds are processes unless somebody asks for several."""
    few: dict[str, Any] = {"methods": ("sac",), "tasks": ("halfcheetah",), "num_models": 2, "seeds": 2}
    experiment = Locomotion.of("mujoco", preset="smoke", steps=60, horizon=20, **few)
    assert experiment.mode == "processes"
    monkeypatch.setattr("jax.default_backend", lambda: "gpu")
    assert experiment.mode == "batched"
    monkeypatch.undo()
    (cell,) = experiment.cells()
    both = experiment.run(cell, [0, 1], JobContext(CheckpointFolder(tmp_path / "c"), lambda *_: None, tmp_path))
    for seed in (0, 1):
        found = both[seed]
        assert isinstance(found, Outcome)
        assert list(found.curves["return"].index) == [20, 40, 60]
        assert Agent.load(tmp_path / f"seed-{seed}" / AGENT_FILE).steps == 60
    assert len(list(tmp_path.glob(f"seed-*/{FILM}"))) == int(mujoco_draws()), "of the better one"
