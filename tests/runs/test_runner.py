"""The engine: same numbers however it is run, nothing lost when it is stopped, others go on when one fails."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from engines import (
    Batched,
    Environment,
    Failing,
    Mortal,
    Pooled,
    Quick,
    Rescued,
    Resumable,
    ResumableInABatch,
    ResumableInProcesses,
    Sleepy,
    WithProcesses,
)
from rich.console import Console

from ubex import __version__
from ubex.runs import runner, store
from ubex.runs.disk import StorageError
from ubex.runs.folder import load_curves, load_results

ROOT = Path(__file__).resolve().parent.parent.parent


def quiet() -> Console:
    return Console(file=io.StringIO(), width=160)


def text(console: Console) -> str:
    return console.file.getvalue()


def test_folder_and_tables(tmp_path: Path) -> None:
    summary = runner.run(Quick(), tmp_path / "run", quiet())
    assert (summary.finished, summary.failed, summary.skipped, summary.exit_code) == (6, 0, 0, 0)
    results, curves = load_results(tmp_path / "run"), load_curves(tmp_path / "run")
    assert list(results.columns) == ["experiment", "environment", "method", "seed", "metric", "value", "size"]
    assert len(results) == 12
    assert results[results["metric"] == "never"]["value"].isna().all()
    assert list(curves[(curves["seed"] == 1) & (curves["size"] == 3)]["step"]) == [1, 2, 3]
    spec = json.loads((tmp_path / "run" / "spec.json").read_text())
    assert spec["settings"] == {"seeds": 2, "sizes": [1, 2, 3]}
    assert {"versions", "machine", "git", "created", "command"} <= spec.keys()
    assert json.loads((tmp_path / "run" / "tables.json").read_text())[0]["title"] == "numbers"
    assert json.loads((tmp_path / "run" / "history.jsonl").read_text().splitlines()[-1])["status"] == "complete"


@pytest.mark.parametrize("kind", [Batched, Pooled])
def test_same_numbers_in_a_batch_and_in_processes(kind: type[Quick], tmp_path: Path) -> None:
    runner.run(Quick(), tmp_path / "a", quiet())
    runner.run(kind(), tmp_path / "b", quiet())
    assert (tmp_path / "a" / "results.csv").read_bytes() == (tmp_path / "b" / "results.csv").read_bytes()
    assert (tmp_path / "a" / "curves.csv").read_bytes() == (tmp_path / "b" / "curves.csv").read_bytes()


def test_workers_have_one_thread_and_the_runner_keeps_its_environment(tmp_path: Path) -> None:
    before = dict(os.environ)
    runner.run(Environment(sizes=(1,), seeds=1), tmp_path, quiet())
    assert dict(os.environ) == before
    assert load_results(tmp_path).set_index("metric")["value"].to_dict() == {"threads": 1.0, "single": 1.0}


def test_a_cell_does_not_depend_on_the_grid_around_it(tmp_path: Path) -> None:
    runner.run(Quick(sizes=(2,)), tmp_path / "alone", quiet())
    runner.run(Quick(), tmp_path / "all", quiet())
    alone, together = load_results(tmp_path / "alone"), load_results(tmp_path / "all")
    together = together[together["size"] == 2].reset_index(drop=True)
    pd.testing.assert_frame_equal(alone, together)
    assert alone["value"].dropna().nunique() == 2


def test_finished_cells_are_skipped_and_said_so(tmp_path: Path) -> None:
    runner.run(Quick(), tmp_path, quiet())
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("metrics.json")}
    console = quiet()
    summary = runner.run(Quick(), tmp_path, console)
    assert (summary.finished, summary.skipped, summary.exit_code) == (0, 6, 0)
    assert "6 finished before" in text(console)
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("metrics.json")}


def test_other_settings_in_the_same_folder_are_refused_and_shown(tmp_path: Path) -> None:
    runner.run(Quick(), tmp_path, quiet())
    with pytest.raises(ValueError, match=r"other settings \(sizes \[1, 2, 3\] there, \[1, 5\] here\)"):
        runner.run(Quick(sizes=(1, 5)), tmp_path, quiet())


@pytest.mark.parametrize("kind", [Quick, Batched])
def test_a_run_can_have_more_seeds_later(kind: type[Quick], tmp_path: Path) -> None:
    runner.run(kind(seeds=2), tmp_path / "grown", quiet())
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("metrics.json")}
    summary = runner.run(kind(seeds=4), tmp_path / "grown", quiet())
    assert (summary.skipped, summary.exit_code) == (6, 0)
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())
    runner.run(kind(seeds=4), tmp_path / "whole", quiet())
    pd.testing.assert_frame_equal(load_results(tmp_path / "grown"), load_results(tmp_path / "whole"))
    spec = json.loads((tmp_path / "grown" / "spec.json").read_text())
    assert (spec["seeds"], spec["settings"]["seeds"]) == (4, 4)


def test_fewer_seeds_and_more_seeds_with_other_settings_are_refused(tmp_path: Path) -> None:
    runner.run(Quick(seeds=2), tmp_path, quiet())
    before = (tmp_path / "spec.json").read_bytes()
    with pytest.raises(ValueError, match=r"other settings \(seeds 2 there, 1 here\)"):
        runner.run(Quick(seeds=1), tmp_path, quiet())
    with pytest.raises(ValueError, match=r"other settings \(sizes \[1, 2, 3\] there, \[1\] here\)"):
        runner.run(Quick(sizes=(1,), seeds=3), tmp_path, quiet())
    assert (tmp_path / "spec.json").read_bytes() == before


def test_seeds_that_are_under_way_together_go_on_together_when_others_join(tmp_path: Path) -> None:
    log = tmp_path / "log"
    runner.run(ResumableInABatch(flag=str(log), sizes=(1,), seeds=2), tmp_path / "grown", quiet())
    again = runner.run(ResumableInABatch(flag=str(log), sizes=(1,), seeds=5, die_at=7), tmp_path / "grown", quiet())
    assert log.read_text().splitlines()[:2] == ["[0, 1] from 0", "[0, 1] from 7"]
    assert (again.finished, again.failed) == (1, 1)  # jobs
    last = runner.run(ResumableInABatch(flag=str(log), sizes=(1,), seeds=5), tmp_path / "grown", quiet())
    assert log.read_text().splitlines()[2:] == ["[2, 3, 4] from 0", "[2, 3, 4] from 7"]
    assert (last.failed, last.skipped) == (0, 2)
    runner.run(ResumableInABatch(flag=str(log), sizes=(1,), seeds=5, die_at=99), tmp_path / "whole", quiet())
    pd.testing.assert_frame_equal(load_results(tmp_path / "grown"), load_results(tmp_path / "whole"))


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(ValueError, match=r"has files in it but no spec\.json"):
        runner.run(Quick(), tmp_path, quiet())
    assert (tmp_path / "thesis.txt").read_text() == "precious"


def test_a_failing_cell_is_reported_and_the_others_go_on(tmp_path: Path) -> None:
    console = quiet()
    summary = runner.run(Failing(), tmp_path, console)
    assert (summary.finished, summary.failed, summary.exit_code) == (4, 2, 1)
    assert "FAILED nowhere nothing size=2, seed 0: RuntimeError: no luck" in text(console)
    assert set(load_results(tmp_path)["size"]) == {1, 3}
    errors = [json.loads(path.read_text()) for path in tmp_path.rglob("error.json")]
    assert len(errors) == 2
    assert "no luck" in errors[0]["traceback"]
    again = runner.run(Failing(), tmp_path, quiet())
    assert (again.finished, again.failed, again.skipped) == (0, 2, 4)


def groups(experiment: Quick, run: Path, workers: int | None) -> list[tuple[int, ...]]:
    """Seeds that would run together."""
    with contextlib.closing(store.Store.open(run, runner.describe(experiment, "now"))) as place:
        return [job.seeds for job in runner.plan(experiment, place, workers)]


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        (None, [(0, 1, 2, 3, 4)] * 2),
        (1, [(0, 1, 2, 3, 4)] * 2),
        (2, [(0, 1, 2, 3, 4)] * 2),
        (4, [(0, 1, 2), (3, 4)] * 2),
        (10, [(seed,) for seed in range(5)] * 2),
        (99, [(seed,) for seed in range(5)] * 2),
    ],
)
def test_workers_divide_the_seeds_that_would_run_together(
    tmp_path: Path, workers: int | None, expected: list[tuple[int, ...]]
) -> None:
    assert groups(Batched(sizes=(1, 2), seeds=5), tmp_path, workers) == expected


def test_seeds_that_were_under_way_together_are_not_divided(tmp_path: Path) -> None:
    experiment = Batched(sizes=(1,), seeds=5)
    with contextlib.closing(store.Store.open(tmp_path, runner.describe(experiment, "now"))) as place:
        place.checkpoint_folder(experiment.cells()[0], (1, 2, 3)).mkdir(parents=True)
    assert groups(experiment, tmp_path, 5) == [(1, 2, 3), (0,), (4,)]


def test_programs_of_several_seeds_run_in_workers_that_have_processes_of_their_own(tmp_path: Path) -> None:
    """As on a GPU, where the processes step environments; the numbers are those of one program."""
    summary = runner.run(WithProcesses(sizes=(1, 2), seeds=4), tmp_path / "divided", quiet(), runner.Options(workers=4))
    assert (summary.finished, summary.failed) == (4, 0)
    runner.run(Quick(sizes=(1, 2), seeds=4), tmp_path / "plain", quiet())
    assert (tmp_path / "divided" / "results.csv").read_bytes() == (tmp_path / "plain" / "results.csv").read_bytes()


def test_a_lost_worker_is_retried(tmp_path: Path) -> None:
    console = quiet()
    summary = runner.run(Mortal(flag=str(tmp_path / "flag")), tmp_path / "run", console, runner.Options(workers=2))
    assert (summary.finished, summary.failed) == (6, 0)
    assert "was lost (attempt 1): trying again" in text(console)
    runner.run(Quick(), tmp_path / "plain", quiet())
    assert (tmp_path / "run" / "results.csv").read_bytes() == (tmp_path / "plain" / "results.csv").read_bytes()


def test_a_job_that_kills_its_worker_every_time_is_given_up(tmp_path: Path) -> None:
    experiment = Mortal(flag=str(tmp_path / "flag"), cursed=True, seeds=1)
    summary = runner.run(experiment, tmp_path / "run", quiet(), runner.Options(workers=2))
    assert (summary.finished, summary.failed, summary.exit_code) == (2, 1, 1)
    error = json.loads(next((tmp_path / "run").rglob("error.json")).read_text())["error"]
    assert "its worker was lost 3 times" in error


def test_resumed_in_the_middle_gives_the_same_numbers(tmp_path: Path) -> None:
    whole = Resumable(flag=str(tmp_path / "log"), die_at=99)
    runner.run(whole, tmp_path / "whole", quiet())
    log = tmp_path / "log2"
    broken = Resumable(flag=str(log))
    assert runner.run(broken, tmp_path / "broken", quiet()).failed == 6
    assert runner.run(broken, tmp_path / "broken", quiet()).failed == 0
    assert log.read_text().split() == ["0"] * 6 + ["7"] * 6  # the second time they started where they had died
    whole_sums, sums = load_results(tmp_path / "whole")["value"], load_results(tmp_path / "broken")["value"]
    pd.testing.assert_series_equal(whole_sums, sums, check_exact=True)
    assert not list((tmp_path / "broken").rglob("*.ckpt"))


@pytest.mark.parametrize("kind", [Resumable, ResumableInProcesses])
def test_a_damaged_checkpoint_costs_only_the_steps_since_the_one_before(kind: type[Resumable], tmp_path: Path) -> None:
    log, console = tmp_path / "log", quiet()
    experiment = kind(flag=str(log), sizes=(1,), seeds=1)
    assert runner.run(experiment, tmp_path / "run", quiet()).failed == 1
    newest = max((tmp_path / "run").rglob("*.ckpt"))
    newest.write_bytes(newest.read_bytes()[:-20])
    assert runner.run(experiment, tmp_path / "run", console).failed == 0
    assert log.read_text().split() == ["0", "6"]
    said = f"nowhere nothing size=1, seed 0: the checkpoint {newest} is damaged: it goes on from 000000000006.ckpt"
    assert text(console).splitlines()[0] == said


def test_another_version_is_said_where_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner.run(Quick(seeds=1), tmp_path, quiet())
    monkeypatch.setattr(runner, "__version__", "99.9")
    for seeds, said in ((1, 0), (2, 1)):
        console = quiet()
        runner.run(Quick(seeds=seeds), tmp_path, console)
        line = f"quick: {tmp_path} was begun with ubex {__version__} and goes on with ubex 99.9, whose numbers may be others"
        assert text(console).splitlines().count(line) == said, "where nothing is left, nothing goes on"


def test_damaged_metrics_are_noticed_and_run_again(tmp_path: Path) -> None:
    runner.run(Quick(), tmp_path, quiet())
    original = (tmp_path / "results.csv").read_bytes()
    victim = sorted(tmp_path.rglob("metrics.json"))[0]
    victim.write_text(victim.read_text()[:-9])
    (tmp_path / "results.csv").write_bytes(original[:50])
    console = quiet()
    summary = runner.run(Quick(), tmp_path, console)
    assert (summary.finished, summary.skipped) == (1, 5)
    assert "are damaged: it is run again" in text(console)
    assert (tmp_path / "results.csv").read_bytes() == original


def full_disk(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """A disk that is full after some forced writes."""
    real, writes = os.fsync, [0]

    def fsync(descriptor: int) -> None:
        writes[0] += 1
        if writes[0] > after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    monkeypatch.setattr(store.os, "fsync", fsync)


@pytest.mark.parametrize("after", [1, 4, 6, 9])
def test_a_full_disk_stops_the_run_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    runner.run(Quick(), tmp_path / "whole", quiet())
    with monkeypatch.context() as patch:
        full_disk(patch, after)
        with pytest.raises(StorageError, match="No space left on device; everything finished before is kept"):
            runner.run(Quick(), tmp_path / "run", quiet())
    assert not list((tmp_path / "run").rglob("*.part"))
    finished = len(list((tmp_path / "run").rglob("done.json")))
    assert finished == (after - 1) // 2
    summary = runner.run(Quick(), tmp_path / "run", quiet())
    assert (summary.skipped, summary.finished) == (finished, 6 - finished)
    assert (tmp_path / "run" / "results.csv").read_bytes() == (tmp_path / "whole" / "results.csv").read_bytes()


def test_a_removed_folder_is_said(tmp_path: Path) -> None:
    class Vandal(Quick):
        def run(self, cell, seeds, context):  # type: ignore[no-untyped-def]
            if cell.settings["size"] == 2:
                shutil.rmtree(tmp_path / "run")
            return super().run(cell, seeds, context)

    with pytest.raises(StorageError, match=r"removed or emptied|No such file"):
        runner.run(Vandal(), tmp_path / "run", quiet())


def start_lines() -> str:
    return (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from pathlib import Path\nfrom rich.console import Console\nfrom ubex.runs import runner\nimport engines\n"
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a test run in the background ignores it
    )


def start(code: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", start_lines() + code, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_for(what: Callable[[], object]) -> None:
    """Until it is so: however slow the machine is, only a test run that hangs ends here."""
    while not what():
        time.sleep(0.05)


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_two_processes_on_one_folder_and_an_interrupt(stop: signal.Signals, tmp_path: Path) -> None:
    first = start("print(runner.run(engines.Sleepy(), Path(sys.argv[1]), Console()).exit_code)", str(tmp_path / "run"))
    try:
        wait_for((tmp_path / "run" / "spec.json").exists)
        with pytest.raises(ValueError, match=f"is in use by process {first.pid} on "):
            runner.run(Sleepy(), tmp_path / "run", quiet())
        first.send_signal(stop)
        output, _ = first.communicate()
    finally:
        first.kill()
        first.wait()
    assert "interrupted: what is finished is kept" in output
    assert output.strip().endswith("130")
    history = (tmp_path / "run" / "history.jsonl").read_text()
    assert json.loads(history.splitlines()[-1])["status"] == "interrupted"


def test_an_interrupt_lets_a_worker_leave_a_checkpoint(tmp_path: Path) -> None:
    script, flag, out = tmp_path / "script.py", tmp_path / "flag", tmp_path / "run"
    code = "if __name__ == '__main__':\n    pool.SAY_SECONDS = 0.0\n"
    code += "    print(runner.run(engines.Rescued(flag=sys.argv[2]), Path(sys.argv[1]), Console(width=200)).exit_code)"
    script.write_text(start_lines() + "from ubex.runs import pool\n" + code)
    command = [sys.executable, str(script), str(out), str(flag)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        wait_for(lambda: list(out.rglob("*.ckpt")))
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate()
    finally:
        process.kill()
        process.wait()
    assert "seed 0: it leaves a checkpoint before it stops; interrupt again to stop it at once" in output
    assert "Traceback" not in output
    assert output.strip().endswith("130")
    assert max(int(path.stem) for path in out.rglob("*.ckpt")) > 1, "the driver's own is of the first step"
    flag.touch()
    runner.run(Rescued(flag=str(flag)), out, quiet())
    assert set(load_results(out)["value"]) == {float(sum(range(2000)))}


def test_an_interrupt_that_python_lost_is_raised_again() -> None:
    """One that is raised inside a finaliser is printed and dropped; the next sign of life brings it back."""

    class Unlucky:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)

    before, found = signal.default_int_handler, signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, before)
    with runner.Interrupt() as interrupt:
        interrupt.check()
        dropped: list[object] = []
        hook, sys.unraisablehook = sys.unraisablehook, dropped.append
        try:
            Unlucky()
        finally:
            sys.unraisablehook = hook
        assert len(dropped) == 1
        with pytest.raises(KeyboardInterrupt):
            interrupt.check()
    assert signal.getsignal(signal.SIGINT) is before
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with runner.Interrupt():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    signal.signal(signal.SIGINT, found)


def test_killing_the_runner_kills_its_workers(tmp_path: Path) -> None:
    code = "if __name__ == '__main__': runner.run(engines.Dozing(), Path(sys.argv[1]), Console(), runner.Options(workers=2))"
    script = tmp_path / "script.py"
    script.write_text(start_lines() + code)
    process = subprocess.Popen([sys.executable, str(script), str(tmp_path / "run")])
    try:
        pids = tmp_path / "run" / "pids"
        wait_for(lambda: pids.exists() and pids.read_text().count("\n") == 2)
        workers = [int(line) for line in pids.read_text().split()]
        assert process.pid not in workers
    finally:
        process.kill()
        process.wait()
    wait_for(lambda: not any(alive(worker) for worker in workers))


def alive(process: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False


def test_what_is_written_for_a_cell_does_not_grow_with_their_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    write = store.write_atomically

    def counted(path: Path, text: str | bytes) -> None:
        written.append(len(text))
        write(path, text)

    monkeypatch.setattr(store, "write_atomically", counted)
    monkeypatch.setattr(runner, "TABLE_SECONDS", math.inf)  # tables are also written by the clock
    per_cell = []
    for cells in (10, 100):
        written.clear()
        runner.run(Quick(sizes=tuple(range(cells)), seeds=1), tmp_path / str(cells), quiet())
        per_cell.append((len(written) / cells, sum(written) / cells))
    assert per_cell[0][0] >= 1.0, "nothing was counted"
    assert per_cell[1][0] <= per_cell[0][0]
    assert per_cell[1][1] <= 1.2 * per_cell[0][1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"backend": "cloud"}, "unknown backend 'cloud'; choose from: local, ray"),
        ({"track": ("paper",)}, "unknown tracker 'paper'; choose from: tensorboard, wandb"),
        ({"workers": 0}, "workers must be at least 1"),
    ],
)
def test_bad_options(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        runner.Options(**settings)
