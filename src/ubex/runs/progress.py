"""What a person sees while an experiment runs: bars on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from ubex.runs.jobs import Failed, Job, Result

ENOUGH = 0.005
"""Share of a run from which its end can be guessed: before it, most of the time went into compiling."""
LINE_SECONDS = 10.0
"""Shortest time between two lines where there is no terminal, so that a log stays readable."""
MAX_ROWS = 8


class Display:
    """Cells done, what runs now and how fast, and the time left."""

    def __init__(self, console: Console, name: str, total: int) -> None:
        """For `total` jobs of the experiment `name`."""
        self.console, self.name, self.total = console, name, total
        self.done = self.failed = 0
        self._start = self._last_line = time.monotonic()
        self._running: dict[Job, tuple[float, int, int, str]] = {}
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
        self._running[job] = (time.monotonic(), 0, 0, "")
        if self.console.is_terminal and job not in self._rows and len(self._rows) < MAX_ROWS:
            self._rows[job] = self._bars.add_task(f"  {escape(job.label)}", total=None, detail="")

    def progressed(self, job: Job, done: int, total: int, unit: str) -> None:
        """How far it has come."""
        begun = self._running.get(job, (time.monotonic(), 0, 0, ""))[0]
        self._running[job] = (begun, done, total, unit)
        if job in self._rows:
            speed = done / max(time.monotonic() - begun, 1e-9)
            self._bars.update(self._rows[job], completed=done, total=total, detail=f"{unit}s, {speed:.1f}/s")
        self._refresh()

    def ended(self, job: Job, result: Result) -> None:
        """It finished or failed."""
        self._running.pop(job, None)
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
        """Time left at the speed so far, counting what running jobs have already done; None while that is next to nothing."""
        partial = sum(done / total for _, done, total, _ in self._running.values() if total)
        complete = self.done + self.failed + partial
        elapsed = time.monotonic() - self._start
        return elapsed * (self.total - complete) / complete if complete > ENOUGH * self.total else None

    def _refresh(self) -> None:
        left = self.seconds_left()
        remaining = f"{duration(left)} left" if left is not None else ""
        self._bars.update(self._overall, completed=self.done + self.failed, detail=remaining)
        now = time.monotonic()
        if not self.console.is_terminal and now - self._last_line >= LINE_SECONDS:
            self._last_line = now
            parts = [f"{self.name}: {self.done + self.failed}/{self.total} done"]
            parts += [f"{self.failed} failed"] if self.failed else []
            parts += [remaining] if remaining else []
            for job, (begun, done, total, unit) in list(self._running.items())[:1]:
                speed = done / max(now - begun, 1e-9)
                parts.append(f"now {job.label}" + (f", {unit} {done}/{total}, {speed:.1f}/s" if total else ""))
            self.say(", ".join(parts))


def duration(seconds: float) -> str:
    """A length of time for people."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"
