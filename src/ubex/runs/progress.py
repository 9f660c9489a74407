"""What a person sees while an experiment runs: bars on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from ubex.runs.jobs import Failed, Job, Result

ENOUGH = 0.005
"""Share of a run from which its end can be guessed: before it, most of the time went into compiling."""
MEASURED_SECONDS = 2.0
"""Time from which it can be guessed where compiling is over, however small the share."""
ENOUGH_JOBS = 0.1
"""Share of the jobs from which the rest can be guessed, where jobs do not say how far they are."""
LINE_SECONDS = 10.0
"""Shortest time between two lines where there is no terminal, so that a log stays readable."""
MAX_ROWS = 8
SLOW = 0.5
"""Speed below which the time of one is said, and not how many are done in a second."""


@dataclass
class Pace:
    """How far a job has come, and since when its speed counts."""

    begun: float = field(default_factory=lambda: time.monotonic())
    done: int = 0
    total: int = 0
    unit: str = ""
    since: float = 0.0
    """Time at which its speed began to count, if it was not when the job began."""
    first: int = 0
    """What was done then."""
    compiling: bool = False

    @property
    def preparing(self) -> float:
        """What passed before its speed counted: starting and compiling."""
        return max(self.since - self.begun, 0.0)

    @property
    def share(self) -> float:
        """Of the job."""
        return self.done / self.total if self.total else 0.0

    def speed(self) -> float:
        """What is done in a second."""
        return (self.done - self.first) / max(time.monotonic() - (self.since or self.begun), 1e-9)

    def rate(self) -> str:
        """The speed in words, after a comma; nothing where nothing was done since it began to count."""
        speed = self.speed()
        if speed < SLOW:
            return f", {duration(1.0 / speed)} each" if speed else ""
        return f", {speed:.1f}/s"

    def seconds(self) -> float | None:
        """What the whole job takes at this speed; None before it can be guessed."""
        measured = self.since and time.monotonic() - self.since >= MEASURED_SECONDS
        known = self.total and self.done - self.first > (0 if measured else ENOUGH * self.total)
        return self.total / self.speed() if known and not self.compiling else None


class Display:
    """Cells done, what runs now and how fast, and the time left."""

    def __init__(self, console: Console, name: str, total: int) -> None:
        """For `total` jobs of the experiment `name`."""
        self.console, self.name, self.total = console, name, total
        self.done = self.failed = 0
        self._start = self._last_line = time.monotonic()
        self._running: dict[Job, Pace] = {}
        self._took = list[float]()
        self._rows: dict[Job, TaskID] = {}
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[detail]}"),
        )
        self._bars = Progress(*columns, console=console, disable=not console.is_terminal, transient=True)
        self._overall = self._bars.add_task(f"[bold]{escape(name)}[/bold]", total=total, detail="")

    def __enter__(self) -> Display:
        """Starts drawing."""
        self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stops drawing and says in one line how it went."""
        self._bars.stop()
        if self.total:
            failures = f", {self.failed} failed" if self.failed else ""
            self.say(f"{self.name}: {self.done} of {self.total} done{failures} in {duration(time.monotonic() - self._start)}")

    def say(self, line: str) -> None:
        """A line that stays."""
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def started(self, job: Job) -> None:
        """A worker has the job."""
        self._running[job] = Pace()
        if self.console.is_terminal and job not in self._rows and len(self._rows) < MAX_ROWS:
            self._rows[job] = self._bars.add_task(f"  {escape(job.label)}", total=None, detail="")

    def progressed(self, job: Job, done: int, total: int, unit: str) -> None:
        """How far it has come."""
        pace = self._running.setdefault(job, Pace())
        pace.done, pace.total, pace.unit = done, total, unit
        if job in self._rows:
            self._bars.update(self._rows[job], completed=done, total=total, detail=f"{unit}s{pace.rate()}")
        self._refresh()

    def compiling(self, job: Job, begins: bool) -> None:
        """Begins, or ends: its speed counts from there, and from what it had done last."""
        pace = self._running.setdefault(job, Pace())
        pace.compiling, pace.since, pace.first = begins, time.monotonic(), pace.done

    def ended(self, job: Job, result: Result) -> None:
        """It finished or failed."""
        pace = self._running.pop(job, None)
        if pace is not None:
            self._took.append(time.monotonic() - pace.begun)
        if job in self._rows:
            self._bars.remove_task(self._rows.pop(job))
        if isinstance(result, Failed):
            self.failed += 1
            self.say(f"FAILED {job.label}: {result.error.splitlines()[0]}")
        elif result.errors:
            self.failed += 1
            for error in result.errors.values():
                self.say(f"FAILED {job.cell.label}: {error}")
        else:
            self.done += 1
        self._refresh()

    def lost(self, job: Job, attempt: int) -> None:
        """Its worker died; it is tried again."""
        self.say(f"the worker of {job.label} was lost (attempt {attempt}): trying again")

    def seconds_left(self) -> float | None:
        """Time left: jobs that run go on at their speed, and those that wait take as long as those that ended, or as those
        that run will have taken, compiling included. None while too little is known: the first jobs tell little of many."""
        running = self._running.values()
        guesses = [pace.preparing + found for pace in running if (found := pace.seconds()) is not None]
        if not guesses and len(self._took) < max(1.0, ENOUGH_JOBS * self.total):
            return None
        known = self._took or guesses
        usual = sum(known) / len(known)
        waiting = (self.total - self.done - self.failed - len(running)) * usual
        begun = sum((1.0 - pace.share) * (pace.seconds() or usual) for pace in running)
        return (waiting + begun) / max(len(running), 1)

    def _refresh(self) -> None:
        left = self.seconds_left()
        remaining = f"{duration(left)} left" if left is not None else ""
        failures = [f"{self.failed} failed"] if self.failed else []
        ahead = [remaining] if remaining else []
        self._bars.update(self._overall, completed=self.done + self.failed, detail=", ".join(failures + ahead))
        now = time.monotonic()
        if not self.console.is_terminal and now - self._last_line >= LINE_SECONDS:
            self._last_line = now
            parts = [f"{self.name}: {self.done}/{self.total} done", *failures, *ahead]
            for job, pace in list(self._running.items())[:1]:
                far = f", {pace.unit} {pace.done}/{pace.total}{pace.rate()}" if pace.total else ""
                parts.append(f"now {job.label}{far}" + (", compiling" if pace.compiling else ""))
            self.say(", ".join(parts))


def duration(seconds: float) -> str:
    """A length of time for people."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"
