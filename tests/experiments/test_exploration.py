"""Exploration experiments: the same numbers alone, in a batch and resumed; what their cells and scalars are."""

from __future__ import annotations

import dataclasses
import io
import json
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ubex import InputError
from ubex.experiments import EXPERIMENTS
from ubex.experiments.deep_sea import DeepSea
from ubex.experiments.exploration import GAIN_METHODS, Exploration, best_gains
from ubex.experiments.seven_room import EARLIER, SevenRoom
from ubex.experiments.train import Train
from ubex.runs import metrics
from ubex.runs.checkpoint import CheckpointFolder
from ubex.runs.jobs import JobContext
from ubex.runs.records import SO_FAR, Outcome, from_json, settings_of, to_json

EXPERIMENT = DeepSea(methods=("exact-ube",), sizes=(4,), episodes=120)


def context(folder: Path, stop_at: int = -1) -> JobContext:
    def progress(done: int, total: int, unit: str) -> None:
        if done == stop_at:
            raise KeyboardInterrupt

    return JobContext(CheckpointFolder(folder), progress)


def so_far(folder: Path) -> dict[int, Outcome]:
    return {int(seed): from_json(one) for seed, one in json.loads((folder / SO_FAR).read_text()).items()}


def test_training_says_how_far_it_has_come(tmp_path: Path) -> None:
    task = Train(env="deep-sea", agent="psrl", episodes=30, env_args='{"size": 3}')
    (cell,) = task.cells()
    with pytest.raises(KeyboardInterrupt):
        task.run(cell, [4], context(tmp_path, stop_at=30))
    shown = so_far(tmp_path)[4]
    whole = task.run(cell, [4], context(tmp_path))[4]
    assert shown.curves["return"].values == whole.curves["return"].values[:25]
    assert shown.earlier[25]["mean_return"] == pytest.approx(np.mean(shown.curves["return"].values))


def test_alone_batched_and_resumed_are_the_same(tmp_path: Path) -> None:
    (cell,) = EXPERIMENT.cells()
    alone = {seed: EXPERIMENT.run(cell, [seed], context(tmp_path / f"alone{seed}"))[seed] for seed in (0, 1)}
    assert EXPERIMENT.run(cell, [0, 1], context(tmp_path / "batch")) == alone
    for name, seeds in (("one", [1]), ("two", [0, 1])):
        with pytest.raises(KeyboardInterrupt):
            EXPERIMENT.run(cell, seeds, context(tmp_path / name, stop_at=100))
        for seed, shown in so_far(tmp_path / name).items():
            assert (shown.scalars, list(shown.earlier)) == ({}, [50]), "the newest checkpoint"
            regret = alone[seed].curves["regret"].values[:1]
            assert shown.curves["regret"].values == [shown.earlier[50]["total_regret"]] == regret
        assert list(so_far(tmp_path / name)) == seeds
        resumed = EXPERIMENT.run(cell, seeds, context(tmp_path / name))
        assert resumed == {seed: alone[seed] for seed in seeds}
    assert 5 < alone[0].scalars["total_regret"] < 60
    assert alone[0].curves["regret"].index == [50, 100]


def test_maps_show_where_the_agent_was_and_change_no_number(tmp_path: Path) -> None:
    watched = dataclasses.replace(EXPERIMENT, pictures=(10, 60))
    (cell,), kept = watched.cells(), {}
    assert EXPERIMENT.cells() == [cell], "pictures are no setting of a cell"
    outcomes = EXPERIMENT.run(cell, [1, 0], context(tmp_path / "plain"))
    for name, seeds in (("alone", [0]), ("together", [1, 0])):
        artifacts = tmp_path / f"{name}-files"
        shown = dataclasses.replace(context(tmp_path / name), artifacts=artifacts)
        assert watched.run(cell, seeds, shown) == {seed: outcomes[seed] for seed in seeds}
        kept[name] = {path.name: path.read_bytes() for path in artifacts.rglob("maps-*.npz")}
    assert kept["alone"] == kept["together"]
    assert set(kept["alone"]) == {"maps-10.npz", "maps-60.npz"}
    early, late = (np.load(io.BytesIO(kept["alone"][f"maps-{episode}.npz"])) for episode in (10, 60))
    visits, mean, deviation = late["maps"]
    assert (np.isnan(visits[::-1]) == np.triu(np.ones((4, 4), bool), 1)).all(), "no episode gets right of the diagonal"
    assert np.nansum(visits[3]) == pytest.approx(1.0), "every episode begins in the first row"
    assert np.nansum(visits, axis=1) == pytest.approx(np.ones(4))
    assert mean[3, 0] > 0.5, "it has found the reward"
    assert np.nanmean(deviation) < np.nanmean(early["maps"][2])


@pytest.mark.parametrize("kind", [DeepSea, SevenRoom])
def test_every_setting_that_varies_is_a_column_of_the_tables(kind: type[DeepSea] | type[SevenRoom]) -> None:
    planners = ("policy-iteration", "start")
    experiment = kind(methods=("closed-form",), gains=(1.0, 2.0), prior_masses=(4.0, 8.0), planners=planners)
    names = ("total_regret", "total_regret_true_optimum", "learning_time")
    head = {"experiment": kind.name, "environment": kind.environment, "method": "closed-form", "seed": 0}
    rows = [{**head, "metric": name, "value": 1.0, **cell.settings} for cell in experiment.cells() for name in names]
    best, *tables = experiment.tables(pd.DataFrame(rows))
    assert len(best.rows) == len(experiment.cells()) / 2
    for table in (best, *tables):
        assert {"prior_mass", "planner"} <= set(table.columns)
        places = [place for place, column in enumerate(table.columns) if column in ("prior_mass", "planner")]
        assert {tuple(row[place] for place in places) for row in table.rows} == set(product(("4", "8"), planners))
        assert len({tuple(row) for row in table.rows}) == len(table.rows)
    plain = kind(methods=("closed-form",), prior_masses=(4.0,))
    (row, *_) = [{**head, "metric": name, "value": 1.0, **plain.cells()[0].settings} for name in names]
    assert "prior_mass" not in plain.tables(pd.DataFrame([row, {**row, "metric": names[1]}]))[0].columns


def test_cells_of_the_ablations() -> None:
    assert len(DeepSea.of("ensemble").cells()) == 2 * 4 * 3
    assert len(DeepSea.of("gain").cells()) == 2 * 3 * 3
    assert {cell.settings["gain"] for cell in DeepSea.of("gain").cells()} == {1.0, 2.0, 3.0}
    assert {cell.method for cell in DeepSea.of("forms").cells()} == {"exact-ube", "exact-ube-1", "exact-ube-2"}
    assert {(cell.method, cell.settings["gain"]) for cell in SevenRoom.of("gain").cells()} == {
        (method, gain) for method in GAIN_METHODS for gain in (0.03, 0.1, 0.3, 1.0, 3.0)
    }
    for experiment in (entry() for entry in EXPERIMENTS.values()):
        if isinstance(experiment, Exploration):
            assert experiment.mode in ("processes", "batched")


def test_regret_on_seven_room_is_against_both_optima_and_also_after_1001_episodes() -> None:
    experiment = SevenRoom()
    env = experiment.environment_of(experiment.cells()[0])
    score = np.concatenate([np.zeros(1000), np.full(2000, 20.0)])
    outcome = experiment.outcome(env, score, np.ones(3000, np.int32))
    assert outcome.scalars["total_regret"] == 19_000.0
    assert outcome.scalars["total_regret_true_optimum"] == pytest.approx(1000 * 20.2947 + 2000 * 0.2947, rel=1e-4)
    assert outcome.earlier[EARLIER[0]]["total_regret"] == metrics.value_regret(score[:1001], 19.0)
    assert from_json(to_json(outcome)).earlier == outcome.earlier


def test_best_gain_of_every_method() -> None:
    regrets = {("exact-ube", 0.3): [4.0, 6.0], ("exact-ube", 1.0): [3.0, 5.0], ("pombu", 0.3): [2.0], ("pombu", 1.0): [np.nan]}
    lines = [(*cell, seed, value) for cell, values in regrets.items() for seed, value in enumerate(values)]
    results = pd.DataFrame(lines, columns=["method", "gain", "seed", "value"]).assign(metric="total_regret", episodes=7)
    table = best_gains(results, ("episodes",))
    assert table.rows == [["exact-ube", "7", "1", "4.00 (1.00)", "2", "0.3, 1"], ["pombu", "7", "0.3", "2.00", "1", "0.3"]]
    assert len(table.columns) == len(table.rows[0])


def test_bad_fields() -> None:
    with pytest.raises(InputError, match="size must be at least 2"):
        DeepSea(sizes=(1,))
    with pytest.raises(InputError, match="unknown method"):
        DeepSea.of("gain", methods=("magic",))
    with pytest.raises(InputError, match="num_models must be at least 2"):
        DeepSea.of("ensemble", num_models=(1,))


def test_the_mass_of_the_prior_and_the_planner_are_axes_where_they_are_given() -> None:
    plain = DeepSea(sizes=(3,), methods=("first-order",))
    swept = dataclasses.replace(plain, prior_masses=(2.0, 4.0), planners=("start",))
    assert not any({"prior_mass", "planner"} & set(cell.settings) for cell in plain.cells()), "random keys would change"
    assert [swept.agent(cell).prior_mass for cell in swept.cells()] == [2.0, 4.0]
    assert {swept.agent(cell).planner for cell in swept.cells()} == {"start"}
    assert settings_of(swept)["prior_masses"] == (2.0, 4.0)
    limited = dataclasses.replace(plain, max_improvements=7)
    assert [limited.agent(cell).max_improvements for cell in (*limited.cells(), *plain.cells())] == [7, 40]
    assert "max_improvements" not in plain.cells()[0].settings, "random keys would change"
    with pytest.raises(InputError, match="planner 'start' needs the method"):
        DeepSea(planners=("start",))
    with pytest.raises(InputError, match="prior_mass must be in"):
        DeepSea(prior_masses=(0.0,))


def test_stochastic_deep_sea_is_judged_by_what_policies_return_on_average() -> None:
    experiment = DeepSea(methods=("closed-form",), sizes=(4,), repeats=(1, 4), stochastic=True, noise_precision=1.0)
    cells = experiment.cells()
    assert {experiment.agent(cell).noise_precision for cell in cells} == {1.0}
    assert [cell.settings["repeats"] for cell in cells] == [experiment.agent(cell).repeats for cell in cells] == [1, 4]
    env = experiment.environment_of(cells[0])
    assert env.branching == 2
    right, left = np.ones(env.num_states, np.int32), np.zeros(env.num_states, np.int32)
    noisy = np.array([-3.0, 5.0])
    score = experiment.score(env)(noisy, np.stack((right, left)))
    reached = 0.75**3  # three moves to the last column, of which none may fail
    np.testing.assert_allclose(score, [reached - 0.01, 0.0], atol=1e-12)
    assert score[0] < env.best_return < reached, "after a move that failed, the best policy saves the cost of the others"
    found = experiment.outcome(env, np.array([0.0, 0.49, 0.51, 1.0]) * env.best_return, np.ones(4, np.int32))
    assert found.scalars["total_regret"] == 2.0


def test_deep_sea_is_deterministic_and_counts_transitions_as_published_unless_told() -> None:
    experiment = DeepSea(methods=("closed-form",), sizes=(4,))
    (cell,) = experiment.cells()
    assert not {"repeats", "stochastic", "noise_precision"} & set(cell.settings), "random keys would change"
    assert (experiment.agent(cell).repeats, experiment.agent(cell).noise_precision) == (4, 1e6)
    env, returns = experiment.environment_of(cell), np.array([0.99, -0.01])
    assert env.branching == 1
    np.testing.assert_array_equal(experiment.score(env)(returns, np.zeros((2, env.num_states), np.int32)), returns)
    with pytest.raises(InputError, match="repeats"):
        DeepSea(repeats=(0,))
