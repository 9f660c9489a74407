"""Trackers write the same metrics as the store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ubex.runs.folder import load_curves, load_results

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


def test_tensorboard_has_the_same_metrics(tracked: Path) -> None:
    import json

    folders = sorted((tracked / "tensorboard").glob("exact-ube-*/seed-1"))
    assert len(folders) == 1
    output = subprocess.run(
        [sys.executable, "-c", READ_EVENTS, str(folders[0])], capture_output=True, text=True, check=True
    ).stdout
    found = json.loads(output.strip().splitlines()[-1])
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


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from ubex.runs.tracking import TRACKERS

    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto", None)
    for name in TRACKERS:
        with pytest.raises(ValueError, match=rf"pip install ubex\[{name}\]"):
            TRACKERS[name](tmp_path, "x")
