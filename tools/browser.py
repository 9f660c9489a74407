"""Prints the path of a Chromium for the browser tests; `--install` gets Debian's where that is allowed.

Standard library only. Prints nothing and exits 0 where there is none: the tests that need one are then skipped.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome")
VARIABLE = "UBEX_CHROMIUM"
TIMEOUT = 900
"""Seconds for each of the two package commands."""


def find() -> str | None:
    """The path of a Chromium: the one that the environment names, or the first on the PATH."""
    for name in (os.environ.get(VARIABLE, ""), *NAMES):
        path = shutil.which(name) if name else None
        if path:
            return path
    return None


def may_install() -> bool:
    """Whether this is root on a system with apt-get."""
    return hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("apt-get") is not None


def install() -> None:
    """Installs Debian's chromium without a question; a failure is one line and no more, since the tests can do without."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", "chromium"]):
        try:
            done = subprocess.run(
                ["apt-get", *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                timeout=TIMEOUT,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            print(f"browser: apt-get {arguments[0]} did not work: {error}", file=sys.stderr)
            return
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            print(f"browser: apt-get {arguments[0]} did not work: {reason}", file=sys.stderr)
            return


def main() -> None:
    """Prints the path, after installing one if that was asked for and is needed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--install", action="store_true", help="install Debian's chromium if there is none and this is root")
    options = parser.parse_args()
    if options.install and find() is None and may_install():
        install()
    path = find()
    if path:
        print(path)


if __name__ == "__main__":
    main()
