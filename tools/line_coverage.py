"""Which lines of src/ubex the tests reach. A pytest plugin and a report, with the standard library alone.

`make coverage` runs it. The plugin notes every line of the package that runs, in this process and in those of pytest-xdist,
and leaves them in build/coverage. JAX runs a compiled function's Python once, when it traces it: that counts as reached.
What only a child process runs (workers of the pool, of Ray, commands) is not seen.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "ubex"
NOTES = ROOT / "build" / "coverage"
GOAL = 90.0
"""Percent of lines."""


class Recorder:
    """Notes lines of the package while it is on."""

    def __init__(self, package: Path) -> None:
        """Nothing is noted yet."""
        self.prefix = f"{package}{os.sep}"
        self.lines: dict[str, set[int]] = {}

    def start(self) -> None:
        """From now on: by sys.monitoring, which costs next to nothing, or by tracing before Python 3.12."""
        monitoring: Any = getattr(sys, "monitoring", None)
        if monitoring is None:
            threading.settrace(self._call)
            sys.settrace(self._call)
            return
        monitoring.use_tool_id(monitoring.COVERAGE_ID, "ubex")
        monitoring.register_callback(monitoring.COVERAGE_ID, monitoring.events.LINE, self._monitored)
        monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.LINE)

    def stop(self) -> None:
        """No more."""
        monitoring: Any = getattr(sys, "monitoring", None)
        if monitoring is None:
            sys.settrace(None)
            threading.settrace(None)
        else:
            monitoring.free_tool_id(monitoring.COVERAGE_ID)

    def _monitored(self, code: CodeType, line: int) -> Any:
        if code.co_filename.startswith(self.prefix):
            self.lines.setdefault(code.co_filename, set()).add(line)
        return sys.monitoring.DISABLE  # type: ignore[attr-defined,unused-ignore]

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(self.prefix):
            return None
        seen = self.lines.setdefault(file, set())
        seen.add(frame.f_lineno)

        def line(inner: FrameType, event: str, argument: Any) -> Any:
            seen.add(inner.f_lineno)
            return line

        return line

    def write(self, folder: Path) -> Path:
        """Leaves what was noted, in a file of this process."""
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"{os.getpid()}.json"
        names = {str(Path(file).relative_to(self.prefix)): sorted(lines) for file, lines in self.lines.items()}
        target.write_text(json.dumps(names), encoding="utf-8")
        return target


def executable(source: str) -> set[int]:
    """Lines that can run: those with code, less docstrings and what only type checkers read."""
    idle: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        says = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)  # docstrings, and `...` of protocols
        typing = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        if isinstance(node, ast.stmt) and (says or typing):
            idle |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    found: set[int] = set()
    pending = [compile(source, "source", "exec")]
    while pending:
        code = pending.pop()
        found |= {line for _, _, line in code.co_lines() if line}
        pending += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return found - idle


def merged(folder: Path) -> dict[str, set[int]]:
    """What all processes noted."""
    lines: dict[str, set[int]] = {}
    for path in folder.glob("*.json"):
        for file, seen in json.loads(path.read_text(encoding="utf-8")).items():
            lines.setdefault(file, set()).update(seen)
    return lines


def ranges(numbers: Iterable[int]) -> Iterator[str]:
    """Numbers as 3, 5-8, 12."""
    run: list[int] = []
    for number in [*sorted(numbers), None]:
        if run and number != run[-1] + 1:
            yield str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}"
            run = []
        run += [] if number is None else [number]


def report(package: Path, folder: Path) -> tuple[float, list[str]]:
    """The share of lines that were reached, in percent, and a line for each file with what was not."""
    seen, reached, total, lines = merged(folder), 0, 0, []
    for path in sorted(package.rglob("*.py")):
        name = str(path.relative_to(package))
        all_lines = executable(path.read_text(encoding="utf-8"))
        missed = all_lines - seen.get(name, set())
        reached, total = reached + len(all_lines) - len(missed), total + len(all_lines)
        share = 100.0 * (1.0 - len(missed) / max(len(all_lines), 1))
        lines.append(f"{name:<40}{len(all_lines):>6}{share:>8.1f}%  {', '.join(ranges(missed))}".rstrip())
    return 100.0 * reached / max(total, 1), lines


RECORDER = Recorder(PACKAGE)


def pytest_configure() -> None:
    """Starts before the first import of ubex."""
    RECORDER.start()


def pytest_unconfigure() -> None:
    """Leaves the notes."""
    RECORDER.stop()
    RECORDER.write(NOTES)


def main() -> None:
    """Prints the report, or clears old notes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--clear", action="store_true", help="forget earlier runs")
    if parser.parse_args().clear:
        for path in NOTES.glob("*.json"):
            path.unlink()
        return
    share, lines = report(PACKAGE, NOTES)
    print(f"{'file':<40}{'lines':>6}{'reached':>9}  not reached")
    print("\n".join(lines))
    print(f"\ncoverage: {share:.1f}% of the lines in src/ubex; the goal is {GOAL:g}%")


if __name__ == "__main__":
    main()
