"""What people read while it runs."""

from __future__ import annotations

import io

import pytest
from engines import Quick
from rich.console import Console

from ubex.runs import progress
from ubex.runs.jobs import Failed, Finished, Job
from ubex.runs.progress import Display, duration


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.04, "0.0 s"), (59.0, "59.0 s"), (119.9, "2 min 00 s"), (3600.0, "1 h 00 min"), (200_000.0, "55 h 33 min")],
)
def test_durations(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def jobs(number: int, tmp_path: object) -> list[Job]:
    experiment = Quick(sizes=tuple(range(number)), seeds=1)
    return [Job(experiment, cell, (0,), tmp_path, tmp_path) for cell in experiment.cells()]


def test_without_a_terminal_there_are_few_lines(tmp_path: object) -> None:
    console = Console(file=io.StringIO(), width=200)
    with Display(console, "quick", 100) as display:
        for job in jobs(100, tmp_path):
            display.started(job)
            display.progressed(job, 1, 2, "episode")
            display.ended(job, Finished({}, 0.1))
    lines = console.file.getvalue().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("quick: 100 of 100 done in ")


def test_a_line_tells_what_runs_and_how_long_it_takes(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    console = Console(file=io.StringIO(), width=200)
    first, second = jobs(2, tmp_path)
    with Display(console, "quick", 2) as display:
        display.started(first)
        display.progressed(first, 3, 10, "episode")
        display.ended(first, Failed("RuntimeError: no", ""))
        display.started(second)
        display.lost(second, 1)
    said = console.file.getvalue()
    assert "now nowhere nothing size=0, seed 0, episode 3/10" in said
    assert "quick: 0/2 done, 1 failed" in said, "what failed is not done"
    assert "FAILED nowhere nothing size=0, seed 0: RuntimeError: no" in said
    assert "the worker of nowhere nothing size=1, seed 0 was lost (attempt 1): trying again" in said
    assert said.splitlines()[-1].startswith("quick: 0 of 2 done, 1 failed in ")


def test_the_time_left_is_not_guessed_from_the_first_steps(tmp_path: object) -> None:
    display = Display(Console(file=io.StringIO()), "quick", 1)
    (job,) = jobs(1, tmp_path)
    display.progressed(job, 1, 1000, "step")
    assert display.seconds_left() is None
    display.progressed(job, 10, 1000, "step")
    assert display.seconds_left() is not None


def test_partial_jobs_count_towards_the_time_left(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    display = Display(Console(file=io.StringIO()), "quick", 2)
    assert display.seconds_left() is None
    (first, _) = jobs(2, tmp_path)
    display.started(first)
    display.progressed(first, 5, 10, "episode")
    now += 7.0
    assert display.seconds_left() == pytest.approx(21.0)


def test_slow_runs_say_how_long_one_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    pace = progress.Pace(done=50, total=400, since=100.0, first=50)
    now += 10.0
    assert pace.rate() == ""
    for done, says in ((52, ", 5.0 s each"), (55, ", 0.5/s"), (650, ", 60.0/s")):
        pace.done = done
        assert pace.rate() == says


def test_compiling_does_not_count(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    console = Console(file=io.StringIO(), width=200)
    display, (job, *_) = Display(console, "quick", 3), jobs(3, tmp_path)
    display.started(job)
    display.compiling(job, True)
    now += 1.0
    display.progressed(job, 900, 10_000, "step")  # steps before training are fast
    assert display.seconds_left() is None
    assert console.file.getvalue().splitlines()[-1].endswith("step 900/10000, 900.0/s, compiling")
    now += 1000.0
    display.progressed(job, 1000, 10_000, "step")
    display.compiling(job, False)
    assert display.seconds_left() is None, "nothing is measured yet"
    now += 5.0
    display.progressed(job, 1010, 10_000, "step")
    left = 2 * (1001.0 + 5000.0) + 0.899 * 5000.0
    assert display.seconds_left() == pytest.approx(left), "two steps a second, however few, and compiling for those that wait"
    assert "4 h 34 min left, now" in console.file.getvalue()
    now += 4495.0
    display.progressed(job, 10_000, 10_000, "step")
    display.ended(job, Finished({}, 5500.0))
    assert display.seconds_left() == pytest.approx(2 * 5501.0), "the others will be compiled too"


def test_the_first_of_many_quick_jobs_tell_nothing(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    display = Display(Console(file=io.StringIO()), "quick", 40)
    for number, job in enumerate(jobs(40, tmp_path)[:4]):
        assert display.seconds_left() is None, number
        display.started(job)
        now += 5.0 if number == 0 else 1.0
        display.ended(job, Finished({}, 0.1))
    assert display.seconds_left() == pytest.approx(36 * 2.0)


def test_on_a_terminal_there_are_bars(tmp_path: object) -> None:
    console = Console(file=io.StringIO(), width=120, force_terminal=True)
    job, other = jobs(2, tmp_path)
    with Display(console, "quick", 2) as display:
        display.started(job)
        display.progressed(job, 4, 8, "episode")
        display._bars.refresh()
        display.ended(job, Finished({}, 0.1))
        display.ended(other, Failed("RuntimeError: no", ""))
        display._bars.refresh()
    said = console.file.getvalue()
    assert "episodes" in said
    assert "2/2\x1b[0m 1 failed" in said
    assert "1 of 2 done, 1 failed" in said
