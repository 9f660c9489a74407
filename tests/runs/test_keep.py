"""`ubex keep`: the small part of a run in its place, nothing of the machine in it, and no other run's results overwritten."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ubex import cli, load_curves, load_results
from ubex.experiments.deep_sea import DeepSea
from ubex.runs import folder, keep, store
from ubex.runs.checkpoint import CheckpointFolder
from ubex.runs.records import SO_FAR, Curve, Outcome, as_text
from ubex.runs.runner import describe
from ubex.runs.store import Store
from ubex.types import InputError

METHODS = ("exact-ube", "pombu")


def write_run(place: Path, seeds: int = 2, created: str = "2026-01-01", sizes: Sequence[int] = (10, 11), **more: Any) -> Path:
    """A run with made-up numbers, made or continued."""
    experiment = DeepSea(methods=METHODS, sizes=tuple(sizes), seeds=seeds)
    store = Store.open(place, {**describe(experiment, created), **more})
    for number, cell in enumerate(experiment.cells()):
        curves = {name: Curve("episode", [1, 2], [0.1 + number, 1 / 3]) for name in ("regret", "loss", "speed")}
        outcomes = {
            seed: Outcome({"total_regret": 100 / 3 + seed + 10 * number, "other": float(number)}, curves, {5: {"other": 7.0}})
            for seed in range(seeds)
        }
        store.finish(cell, outcomes, 1.0)
    store.write_tables()
    store.close()
    (place / "tables.json").write_text("[]")
    return place


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_run(Path("runs/some-run"))


def texts(place: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in place.iterdir()}


def test_a_run_goes_to_the_folder_of_its_experiment(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["keep", str(run)]) == 0
    kept = Path("results/deep-sea/some-run")
    assert capsys.readouterr().out.strip() == str(kept)
    assert sorted(texts(kept)) == ["curves.csv", "results.csv", "spec.json", "tables.json"]
    for name in ("curves.csv", "results.csv", "tables.json"):
        assert (kept / name).read_bytes() == (run / name).read_bytes()
    found = folder.read(kept)
    assert (found.done, found.total, found.place) == (8, 8, "deep-sea/some-run")
    assert cli.run(["keep", str(run), "elsewhere/here"]) == 0
    assert texts(Path("elsewhere/here")) == texts(kept)


def test_the_spec_has_the_command_as_one_would_type_it_and_nothing_of_the_machine(tmp_path: Path) -> None:
    words = ["/home/me/bin/ubex", "run", "deep-sea", "--out", "/home/me/runs/a", "--sizes", "10", "--out=/home/me/b"]
    words += ["--backend", "ray", "--address", "my-host:1234", "--address=my-host:1", "--no-report"]
    clean = {"commit": "abc", "dirty": False}
    for name, git in (("clean", clean), ("dirty", {"commit": "abc", "dirty": True}), ("unknown", None)):
        run = write_run(tmp_path / name, command=words, git=git)
        spec = json.loads((keep.keep(run, tmp_path / "kept" / name) / "spec.json").read_text())
        assert spec["command"] == ["ubex", "run", "deep-sea", "--sizes", "10", "--backend", "ray", "--no-report"]
        assert spec.get("git") == (clean if name == "clean" else None)
        same = {
            key: value for key, value in json.loads((run / "spec.json").read_text()).items() if key not in ("command", "git")
        }
        assert {key: value for key, value in spec.items() if key not in ("command", "git")} == same


def test_some_columns_of_the_curves(run: Path) -> None:
    assert cli.run(["keep", str(run), "--columns", "loss", "regret"]) == 0
    kept, whole = load_curves("results/deep-sea/some-run"), load_curves(run)
    assert set(kept["metric"]) == {"loss", "regret"}
    pd.testing.assert_frame_equal(kept, whole[whole["metric"] != "speed"].reset_index(drop=True))
    lines = (run / "curves.csv").read_text().splitlines()
    assert set(Path("results/deep-sea/some-run/curves.csv").read_text().splitlines()) < set(lines)  # not a digit is lost


def test_the_wide_form_has_one_line_per_cell_and_seed_and_the_report_reads_it(run: Path) -> None:
    assert cli.run(["keep", str(run)]) == 0
    assert cli.run(["keep", str(run), "--wide"]) == 0
    kept = Path("results/deep-sea/some-run")
    assert sorted(texts(kept)) == ["spec.json", "wide.csv"]  # what the first call kept is gone
    wide = pd.read_csv(kept / "wide.csv")
    assert list(wide.columns) == ["method", "seed", "size", "episodes", "total_regret", "other"]
    assert len(wide) == 2 * 8  # and one more each for the number after five episodes
    assert wide["total_regret"].dropna().tolist()[0] == 33.33
    found, whole = folder.read(kept), load_results(run)
    assert (found.done, found.total, found.problems) == (8, 8, [])
    keys = ["experiment", "environment", "method", "seed", "metric", *DeepSea(methods=METHODS).cells()[0].settings]
    assert set(found.results.columns) == {*keys, "value"}
    ours, theirs = (table.sort_values(keys).reset_index(drop=True) for table in (found.results, whole))
    pd.testing.assert_frame_equal(ours[keys], theirs[keys], check_dtype=False)
    np.testing.assert_allclose(ours["value"], theirs["value"], rtol=1e-3)
    pd.testing.assert_frame_equal(load_results(kept), found.results)
    assert texts(keep.keep(kept, Path("again"))) == texts(kept)  # what was kept can be kept


def test_a_wide_table_that_is_broken_is_said(run: Path) -> None:
    kept = keep.keep(run, wide=True)
    (kept / "wide.csv").write_text("")
    found = folder.read(kept)
    assert found.results.empty
    assert "wide.csv cannot be read" in found.problems[0]


def test_the_same_run_with_more_seeds_takes_the_place_of_what_was_kept(run: Path) -> None:
    keep.keep(run)
    write_run(run, seeds=3, created="2026-02-02")  # a continued run keeps the day on which it began
    kept = keep.keep(run)
    assert load_results(kept)["seed"].nunique() == 3
    assert json.loads((kept / "spec.json").read_text())["seeds"] == 3


def test_what_cannot_be_kept_is_one_line_and_changes_nothing(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep.keep(run)
    before = texts(Path("results/deep-sea/some-run"))
    write_run(Path("a/some-run"), sizes=(10,))
    write_run(Path("b/some-run"), created="2026-01-02")
    for name in ("empty", "full", "broken", "early"):
        Path(name).mkdir()
    Path("full/mine.txt").write_text("mine")
    Path("broken/spec.json").write_text('{"experiment": "deep-sea"}')
    write_run(Path("early/run"))
    for name in ("results.csv", "curves.csv"):
        Path("early/run", name).unlink()
    shutil.rmtree("early/run/cells")
    for words, said in {
        ("nowhere",): "nowhere is not a run folder: it has no spec.json",
        ("empty",): "empty is not a run folder: it has no spec.json",
        ("broken",): "broken/spec.json is not a run's spec: it has no settings",
        ("early/run",): "no seed of early/run has finished: there is nothing to keep",
        ("a/some-run",): "holds the results of another run (sizes [10, 11] there, [10] here): give another TARGET",
        ("b/some-run",): "holds the results of another run (created 2026-01-01 there, 2026-01-02 here)",
        (str(run), "full"): "full has files in it but no spec.json: give another TARGET",
        (str(run), "full/mine.txt"): "full/mine.txt is a file, not a folder",
        (str(run), str(run)): "is the run folder itself",
        (str(run), "broken"): "broken/spec.json is not a run's spec",
        (str(run), "x", "--columns", "los"): "unknown column 'los'; choose from: regret, loss, speed",
        (str(run), "x", "--wide", "--columns", "loss"): "--columns chooses curves and --wide keeps none",
    }.items():
        assert cli.run(["keep", *words]) == 2, words
        error = capsys.readouterr().err.strip()
        assert said in error, error
        assert len(error.splitlines()) == 1
    assert texts(Path("results/deep-sea/some-run")) == before
    assert not Path("x").exists()
    assert texts(Path("full")) == {"mine.txt": "mine"}


def test_unfinished_seeds_are_kept_as_far_as_they_have_come(tmp_path: Path) -> None:
    place, spec = write_run(tmp_path / "run"), folder.read_spec(tmp_path / "run")
    cell, other = store.cells_of(spec)[:2]
    (place / "cells" / cell.id / "seed-1" / "done.json").unlink()
    shown = Outcome({"total_regret": 3.0, "other": 4.0}, {"loss": Curve("episode", [1], [0.5])}, {1: {"other": 2.0}})
    for one, seeds in ((cell, [1]), (other, [0, 1])):
        beside = CheckpointFolder(place / "cells" / one.id / f"checkpoints-{'-'.join(map(str, seeds))}")
        beside.root.mkdir(parents=True)
        beside.leave(SO_FAR, as_text({seed: shown.until(9, "episodes") for seed in seeds}))
    kept = keep.keep(place, tmp_path / "kept", ["loss"], unfinished=True)
    before, after = folder.load_results(place), folder.load_results(kept)
    names = ["environment", "method", "seed", "metric", "episodes", "value"]
    of_seed = (after["seed"] == 1) & (after["episodes"].isin([1, 9]))
    assert {tuple(row) for row in after[of_seed][names[3:]].to_numpy()} == {
        ("other", 1, 2.0),
        ("total_regret", 9, 3.0),
        ("other", 9, 4.0),
    }, "what has finished counts, and not what it had shown before"
    assert len(after) == len(before), "three rows in place of three"
    curves = folder.load_curves(kept)
    assert set(curves["metric"]) == {"loss"}
    assert len(curves) == 2 * len(spec["cells"]) * 2 - 1
    plain = folder.load_results(keep.keep(place, tmp_path / "plain"))
    assert len(plain) == len(before), "the tables as they stand"
    (place / "results.csv").unlink()
    plain = folder.load_results(keep.keep(place, tmp_path / "plain"))
    assert len(plain) == len(before) - 3, "what has finished of a run that was killed before it wrote its tables"
    earlier = CheckpointFolder(place / "cells" / cell.id / "checkpoints-0-1-2")
    earlier.root.mkdir()
    earlier.leave(SO_FAR, as_text({seed: shown.until(8, "episodes") for seed in (0, 1)}))
    again = folder.load_results(keep.keep(place, tmp_path / "kept", unfinished=True))
    assert again.equals(after), "of a seed that ran in several groups the newest counts"
    curve = {"unit": "episode", "index": [1], "values": [0.5]}
    good = {"scalars": {}, "curves": {"loss": curve}, "earlier": {"9": {"other": 4.0}}}
    for broken in (
        {"1": {**good, "curves": {"loss": {**curve, "values": [0.5, 0.6]}}}},
        {"1": {**good, "curves": {"loss": {**curve, "index": None}}}},
        {"1": {**good, "earlier": {"9": {"other": "four"}}}},
        {"1": {**good, "earlier": {}}},
        {"-3": good},
        [],
    ):
        (beside.root / SO_FAR).write_text(json.dumps(broken))
        with pytest.raises(InputError, match=r"so-far.json is damaged: continue the run, which makes it anew"):
            keep.keep(place, tmp_path / "kept", unfinished=True)
    for text in ("{", "[" * 10**5):
        (beside.root / SO_FAR).write_text(text)
        with pytest.raises(InputError, match=r"so-far.json is damaged: continue the run, which makes it anew"):
            keep.keep(place, tmp_path / "kept", unfinished=True)
    with pytest.raises(InputError, match="--wide has one line per seed, and --unfinished several: give one of the two"):
        keep.keep(place, tmp_path / "kept", unfinished=True, wide=True)


def test_a_run_without_a_finished_seed_is_refused(tmp_path: Path) -> None:
    made = Store.open(tmp_path / "run", describe(DeepSea(), "2026-01-01"))
    made.write_tables()
    made.close()
    with pytest.raises(InputError, match=r"no seed of .*run has finished: there is nothing to keep"):
        keep.keep(tmp_path / "run", tmp_path / "kept")
    beside = CheckpointFolder(tmp_path / "run" / "cells" / made.cells[0].id / "checkpoints-0")
    beside.root.mkdir(parents=True)
    beside.leave(SO_FAR, as_text({0: Outcome({"other": 1.0}).until(9, "episodes")}))
    with pytest.raises(InputError, match=r"no seed of .*run has finished: --unfinished keeps what they had shown"):
        keep.keep(tmp_path / "run", tmp_path / "kept")
    (beside.root / SO_FAR).write_text("[" * 10**5)
    with pytest.raises(InputError, match=r"no seed of .*run has finished: there is nothing to keep"):
        keep.keep(tmp_path / "run", tmp_path / "kept")
