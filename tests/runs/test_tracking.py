"""Trackers write the same metrics as the store."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from engines import Quick, Telling, TellingPool
from rich.console import Console

from ubex.runs import cluster, runner, tracking
from ubex.runs.folder import load_curves, load_results
from ubex.runs.jobs import Job
from ubex.runs.records import Cell, Curve, Outcome

READ_EVENTS = """
import sys, json
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1]); events.Reload()
print(json.dumps({tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}))
"""


def ubex(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "ubex", *arguments], capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def tracked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tracked") / "run"
    done = ubex(
        *("run", "shrinkage", "--smoke", "--no-report", "--workers", "1"),
        *("--track", "tensorboard", "wandb", "--out", str(out)),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return out


def events(folder: Path) -> dict[str, list[list[float]]]:
    """Steps and values of every metric in a folder, as TensorBoard reads them."""
    output = subprocess.run([sys.executable, "-c", READ_EVENTS, str(folder)], capture_output=True, text=True, check=True).stdout
    found: dict[str, list[list[float]]] = json.loads(output.strip().splitlines()[-1])
    return found


def test_tensorboard_has_the_same_metrics(tracked: Path) -> None:
    folders = sorted((tracked / "tensorboard").glob("exact-ube-*/seed-1"))
    assert len(folders) == 1
    found = events(folders[0])
    curve = load_curves(tracked)
    curve = curve[(curve["method"] == "exact-ube") & (curve["seed"] == 1)]
    assert [step for step, _ in found["variance"]] == list(curve["episode"])
    assert [value for _, value in found["variance"]] == pytest.approx(list(curve["value"]), rel=1e-6)
    scalars = load_results(tracked)
    final = scalars[(scalars["method"] == "exact-ube") & (scalars["seed"] == 1) & (scalars["metric"] == "final_variance")]
    assert found["final_variance"][0][1] == pytest.approx(final["value"].item(), rel=1e-6)


def test_wandb_writes_offline_runs(tracked: Path) -> None:
    runs = list((tracked / "wandb").glob("offline-run-*/run-*.wandb"))
    assert len(runs) == 4
    content = b"".join(path.read_bytes() for path in runs)
    assert b"final_variance" in content
    assert b"variance" in content


CELL = Cell("x", "somewhere", "something", {"size": 1})
OUTCOME = Outcome({"last": 3.0}, {"return": Curve("step", [5, 9], [1.0, 3.0]), "smooth": Curve("step", [9], [2.0])})


def test_tensorboard_is_written_while_it_runs(tmp_path: Path) -> None:
    tracker = tracking.TensorBoard(tmp_path, "x")
    tracker.point(CELL, 4, 5, "step", {"return": 1.0, "w": 0.5})
    folder = tmp_path / "tensorboard" / f"something-{CELL.id}" / "seed-4"
    assert events(folder) == {"return": [[5, 1.0]], "w": [[5, 0.5]]}, "before the seed has ended"
    tracker.point(CELL, 4, 9, "step", {"return": 3.0})
    tracker.log(CELL, 4, OUTCOME)
    assert events(folder) == {"return": [[5, 1.0], [9, 3.0]], "w": [[5, 0.5]], "last": [[0, 3.0]], "smooth": [[9, 2.0]]}


class Weights:
    """Stands for the module wandb and for its runs."""

    def __init__(self) -> None:
        self.rows, self.axes, self.summary, self.open = list[Any](), dict[str, str](), dict[str, float](), 0

    def Settings(self, **_: Any) -> None:
        """Taken."""

    def init(self, **_: Any) -> Weights:
        self.open += 1
        return self

    def define_metric(self, name: str, step_metric: str) -> None:
        self.axes[name] = step_metric

    def log(self, row: Mapping[str, float]) -> None:
        self.rows.append(dict(row))

    def finish(self) -> None:
        self.open -= 1


def test_wandb_is_written_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = Weights()
    monkeypatch.setitem(sys.modules, "wandb", weights)
    tracker = tracking.WandB(tmp_path, "x")
    tracker.point(CELL, 4, 5, "step", {"return": 1.0})
    tracker.point(CELL, 4, 9, "step", {"return": 3.0})
    assert (weights.rows, weights.open) == ([{"step": 5, "return": 1.0}, {"step": 9, "return": 3.0}], 1)
    tracker.log(CELL, 4, OUTCOME)
    assert weights.rows[2:] == [{"step": 9, "smooth": 2.0}]
    assert (weights.axes, weights.summary, weights.open) == ({"return": "step", "smooth": "step"}, {"last": 3.0}, 0)


class Notes:
    """Remembers what it is told, in order."""

    def __init__(self, out: Path, name: str) -> None:
        self.seen = list[tuple[Any, ...]]()

    def point(self, cell: Cell, seed: int, place: int, unit: str, values: Mapping[str, float]) -> None:
        self.seen.append((seed, place, unit, values["loss"]))

    def log(self, cell: Cell, seed: int, outcome: Outcome) -> None:
        self.seen.append((seed, outcome.scalars["number"]))


@pytest.mark.parametrize("experiment", [Telling(seeds=1), TellingPool(seeds=1)], ids=["inline", "processes"])
def test_what_a_cell_shows_reaches_the_trackers_before_its_outcome(
    experiment: Quick, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = Notes(tmp_path, "")
    monkeypatch.setattr(runner, "TRACKERS", {"notes": lambda out, name: notes})
    runner.run(experiment, tmp_path / "run", Console(file=io.StringIO()), runner.Options(track=("notes",), workers=1))
    assert notes.seen[:3] == [(0, step, "step", 10.0 * step) for step in (1, 2, 3)]
    assert len(notes.seen) == 4


def test_on_a_cluster_a_board_passes_it_on(tmp_path: Path) -> None:
    class Remote:
        """A method of an actor, or an actor, that is here."""

        def __init__(self, thing: Any) -> None:
            self.remote = thing

    class Ray:
        exceptions = type("exceptions", (), {"RayError": OSError})

        @staticmethod
        def get(answer: Any, timeout: float) -> Any:
            return answer

    class Ear:
        """Hears all that is said of jobs."""

        def __init__(self) -> None:
            self.heard = list[tuple[Any, ...]]()

        def __getattr__(self, method: str) -> Any:
            return lambda job, *words: self.heard.append((method, *words))

    board, ear = cluster.Board(), Ear()
    near: Any = type("Near", (), {name: Remote(getattr(board, name)) for name in ("put", "tell", "take")})()
    experiment = Telling(seeds=1)
    job = Job(experiment, experiment.cells()[0], (0,), tmp_path, tmp_path)
    assert cluster.run_remotely(job, 7, near)[0] == "ended"
    cluster.relay(Ray, near, {7: job}, set(), ear)  # type: ignore[arg-type]
    assert [said[:4] for said in ear.heard] == [("started",), *(("measured", 0, step, "step") for step in (1, 2, 3))]
    assert board.take() == ({}, []), "nothing is said twice"


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from ubex.runs.tracking import TRACKERS

    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto", None)
    for name in TRACKERS:
        with pytest.raises(ValueError, match=rf"pip install ubex\[{name}\]"):
            TRACKERS[name](tmp_path, "x")
