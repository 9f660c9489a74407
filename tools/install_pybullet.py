"""Installs PyBullet, as requirements-pybullet.lock pins it, into .venv; where there is no wheel, pip builds it.

A build takes many minutes; pip keeps the wheel in its cache, so the next one takes seconds.
Standard library only.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements-pybullet.lock"
EVERY = 15.0
"""Seconds between two lines while nothing else is printed."""
LAST_LINES = 25


def command(python: str) -> list[str]:
    """Only what the lock names: the rest of the environment stays as requirements.lock made it."""
    words = ("-m", "pip", "--disable-pip-version-check", "install", "--no-deps", "--progress-bar", "off", "-r", str(LOCK))
    return [python, *words]


def install(words: list[str], every: float = EVERY) -> int:
    """Runs pip, shows what it is at, and its last lines when it fails."""
    log, began = ROOT / ".venv" / "pybullet.log", time.monotonic()
    log.parent.mkdir(exist_ok=True)
    with log.open("w", encoding="utf-8") as out, subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT) as process:
        shown = ""
        while process.poll() is None:
            try:
                process.wait(timeout=every)
            except subprocess.TimeoutExpired:
                shown = stage(log.read_text(encoding="utf-8", errors="replace")) or shown
                print(f"pybullet: {shown or 'looking for it'}, {time.monotonic() - began:.0f} s so far", flush=True)
    if process.returncode:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        print("\n".join(lines[-LAST_LINES:]), file=sys.stderr)
        print(f"pybullet: pip could not install it (exit code {process.returncode}); see above", file=sys.stderr)
    else:
        print(f"pybullet: in place after {time.monotonic() - began:.0f} s", flush=True)
    return process.returncode


def stage(text: str) -> str:
    """What pip is at, from what it printed."""
    for words, meaning in (
        ("Installing collected", "unpacking"),
        ("Building wheel for pybullet", "building from source (minutes)"),
        ("Downloading", "downloading"),
        ("Collecting", "downloading"),
    ):
        if words in text:
            return meaning
    return ""


if __name__ == "__main__":
    sys.exit(install(command(sys.executable)))
