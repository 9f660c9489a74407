"""Makes .venv from the pinned lock and installs ubex into it. Standard library only; safe to run twice or after a kill.

A stamp inside .venv holds a hash of everything the environment was made from. It is written last, so an
environment whose installation was interrupted has no stamp and is completed by the next call.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / ".ubex-stamp"
LOCK = ROOT / "requirements.lock"
MIN_PYTHON = (3, 11)
BAR_WIDTH = 28


def fingerprint() -> str:
    digest = hashlib.sha256(sys.version.encode() + str(ROOT).encode())
    for path in (LOCK, ROOT / "pyproject.toml", Path(__file__)):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def is_current() -> bool:
    return STAMP.is_file() and STAMP.read_text() == fingerprint() and venv_python().exists()


def venv_python() -> Path:
    return VENV / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def bar(done: int, total: int, what: str) -> None:
    """One line that rewrites itself on a terminal; a line every ten steps elsewhere."""
    filled = BAR_WIDTH * done // max(total, 1)
    line = f"  [{'#' * filled}{'.' * (BAR_WIDTH - filled)}] {done:3d}/{total} {what}"
    if sys.stdout.isatty():
        print(f"\r{line[:100]:<100}", end="\n" if done >= total else "", flush=True)
    elif done % 10 == 0 or done >= total:
        print(line, flush=True)


def pip(*arguments: str) -> list[str]:
    return [str(venv_python()), "-m", "pip", "--disable-pip-version-check", *arguments]


def install_lock() -> None:
    """Runs pip on the lock and turns its log into a bar: every package is announced once as collected or present."""
    names = [line for line in LOCK.read_text().splitlines() if line[:1].isalnum()]
    total, seen, log = len(names), 0, []
    command = pip("install", "--progress-bar", "off", "-r", str(LOCK))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            log.append(line)
            words = line.split()
            if line.startswith(("Collecting", "Requirement already satisfied", "Ignoring")):
                seen = min(seen + 1, total - 1)
                bar(seen, total, words[1].rstrip(":") if words[0] != "Requirement" else words[3])
            elif line.startswith("Installing collected"):
                bar(total - 1, total, "unpacking")
    if process.returncode:
        print("\n" + "".join(log[-25:]), file=sys.stderr)
        raise SystemExit(f"bootstrap: pip could not install the lock (exit code {process.returncode}); see above")
    bar(total, total, "packages in place")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quiet", action="store_true", help="say nothing when the environment is already current")
    options = parser.parse_args()
    if sys.version_info < MIN_PYTHON:
        have = ".".join(map(str, sys.version_info[:3]))
        raise SystemExit(f"bootstrap: ubex needs Python 3.11 or newer and this is {have}; try: make PYTHON=python3.12")
    if is_current():
        if not options.quiet:
            print("environment: .venv is up to date")
        return
    print(f"environment: making .venv with Python {sys.version.split()[0]} (once; takes a minute or two)", flush=True)
    try:
        same_python = f"version = {'.'.join(map(str, sys.version_info[:3]))}" in (VENV / "pyvenv.cfg").read_text()
    except OSError:
        same_python = False
    if not (same_python and venv_python().exists()):
        shutil.rmtree(VENV, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    install_lock()
    subprocess.run(pip("install", "-q", "--no-deps", "--no-build-isolation", "-e", str(ROOT)), check=True)
    STAMP.write_text(fingerprint())
    print("environment: ready", flush=True)


if __name__ == "__main__":
    main()
