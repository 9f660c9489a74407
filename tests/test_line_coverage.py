"""The tool behind `make coverage`, in a process of its own: it must not disturb one that is being measured."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from line_coverage import executable, ranges

ROOT = Path(__file__).resolve().parent.parent
SOURCE = '''"""A module."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os


def half(x):
    """Of x."""
    if x < 0:
        return 0
    return x / 2


def never():
    return 1
'''
MEASURE = """
import sys, threading
from pathlib import Path
sys.path[:0] = [sys.argv[1], sys.argv[2]]
import line_coverage
package, notes = Path(sys.argv[2]) / "small", Path(sys.argv[2]) / "notes"
recorder = line_coverage.Recorder(package)
recorder.start()
from small import half
thread = threading.Thread(target=half.half, args=(1,))
thread.start()
thread.join()
recorder.stop()
half.half(-1)
recorder.write(notes)
share, lines = line_coverage.report(package, notes)
print(round(share), lines[1])
"""


def test_what_ran_is_reached_and_the_rest_is_named(tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "__init__.py").write_text("")
    (tmp_path / "small" / "half.py").write_text(SOURCE)
    command = [sys.executable, "-c", MEASURE, str(ROOT / "tools"), str(tmp_path)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert said[1:] == ["half.py", "7", "71.4%", "12,", "17"]


def test_lines_that_cannot_run_do_not_count() -> None:
    assert executable(SOURCE) == {3, 9, 11, 12, 13, 16, 17}
    assert list(ranges({3, 5, 6, 7, 12})) == ["3", "5-7", "12"]
