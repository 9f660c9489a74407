"""Files that a cell leaves while it runs: the same in every mode, still there at the end, one line where it cannot be."""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from engines import Keeping, KeepingInABatch, KeepingInProcesses
from rich.console import Console

from ubex.runs import jobs, runner, store
from ubex.runs.checkpoint import CheckpointFolder
from ubex.runs.disk import StorageError
from ubex.runs.records import Context
from ubex.types import InputError

ON_RAY = """
import sys
from pathlib import Path
from engines import Keeping
from rich.console import Console
from ubex.runs import runner
summary = runner.run(Keeping(sizes=(1,)), Path(sys.argv[1]), Console(), runner.Options(backend="ray", workers=1))
sys.exit(summary.exit_code)
"""


def quiet() -> Console:
    return Console(file=io.StringIO(), width=160)


def files(run: Path) -> dict[str, bytes]:
    """Everything in the folder of kept files, by its place in there."""
    root = run / "artifacts"
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def context(folder: Path | None) -> Context:
    return jobs.JobContext(CheckpointFolder(Path("nowhere")), lambda *_: None, folder)


def expected(sizes: tuple[int, ...] = (1, 2, 3)) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for size, cell in zip(sizes, Keeping(sizes=sizes).cells(), strict=True):
        for seed in (0, 1):
            found[f"{cell.id}/seed-{seed}/picture.png"] = f"size {size}, seed {seed}".encode()
            found[f"{cell.id}/seed-{seed}/maps-1.npz"] = bytes(range(256))
    return found


@pytest.mark.parametrize("kind", [Keeping, KeepingInABatch, KeepingInProcesses])
def test_files_are_in_their_place_in_every_mode_and_survive_the_end(kind: type[Keeping], tmp_path: Path) -> None:
    assert runner.run(kind(), tmp_path, quiet(), runner.Options(workers=2)).exit_code == 0
    assert files(tmp_path) == expected()
    assert not list(tmp_path.rglob("*.ckpt"))  # checkpoints go at the end, files stay
    assert runner.run(kind(), tmp_path, quiet()).skipped == 6
    assert files(tmp_path) == expected()


def test_on_ray(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ON_RAY, str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}  # the workers have to find the experiment too
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert files(tmp_path) == expected((1,))


def test_files_of_a_cell_that_failed_stay_and_are_written_again(tmp_path: Path) -> None:
    failing = Keeping(fail=True)
    assert runner.run(failing, tmp_path, quiet()).failed == 6
    assert files(tmp_path) == expected()
    victim = next((tmp_path / "artifacts").rglob("picture.png"))
    victim.write_bytes(b"of an earlier version")
    assert runner.run(failing, tmp_path, quiet()).failed == 6
    assert files(tmp_path) == expected()


BAD_NAMES = ["", ".", "..", ".hidden", "a/b", "../x.png", "a b", "ä.png", "a\n", "a" * 101, "a\\b", "%2e"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_bad_names_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="letters, digits") as caught:
        context(tmp_path / "a").keep(0, name, b"")
    assert repr(name) in str(caught.value)
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError, match="seed must be at least 0"):
        context(tmp_path / "a").keep(-1, "x.png", b"")


@pytest.mark.parametrize("name", ["a.png", "maps-010.npz", "A_b-c.0.1.gif", "-", "a" * 100])
def test_good_names(name: str, tmp_path: Path) -> None:
    context(tmp_path).keep(3, name, b"data")
    assert (tmp_path / "seed-3" / name).read_bytes() == b"data"
    context(None).keep(3, name, b"data")  # without a folder it is dropped


def test_a_bad_name_fails_the_cell_with_a_line(tmp_path: Path) -> None:
    assert runner.run(Keeping(file="../../spec.json"), tmp_path, quiet()).failed == 6
    error = json.loads(next(tmp_path.rglob("error.json")).read_text())["error"]
    assert error.startswith("InputError: a file to keep needs a name")
    assert not (tmp_path / "artifacts").exists()


@pytest.mark.parametrize("after", [2, 3])
def test_a_full_disk_stops_the_run_and_leaves_whole_files(after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, writes = os.fsync, [0]

    def fsync(descriptor: int) -> None:
        writes[0] += 1
        if writes[0] > after:  # the spec and the checkpoint are written before
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(store.os, "fsync", fsync)
        with pytest.raises(StorageError, match="No space left on device; everything finished"):
            runner.run(Keeping(), tmp_path, quiet())
    assert set(files(tmp_path).values()) <= {b"first"}
    assert not list(tmp_path.rglob("*.part"))
    runner.run(Keeping(), tmp_path, quiet())
    assert files(tmp_path) == expected()


def test_the_file_that_did_not_fit_is_named_and_the_one_before_it_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context(tmp_path).keep(0, "x.png", b"before")

    def fsync(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(store.os, "fsync", fsync)
    with pytest.raises(StorageError, match=r"cannot write .*seed-0/x\.png: No space left on device"):
        context(tmp_path).keep(0, "x.png", b"after")
    assert [path.name for path in (tmp_path / "seed-0").iterdir()] == ["x.png"]
    assert (tmp_path / "seed-0" / "x.png").read_bytes() == b"before"


def test_a_folder_that_cannot_be_made_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match="cannot make"):
        context(tmp_path / "file").keep(0, "x.png", b"")
