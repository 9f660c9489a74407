"""One Chromium for all browser tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from watching import FLAGS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """A headless Chromium of this system."""
    playwright = pytest.importorskip("playwright.sync_api")
    found = subprocess.run([sys.executable, ROOT / "tools" / "browser.py"], capture_output=True, text=True, check=True)
    path = found.stdout.strip()
    if not path:
        pytest.skip("no Chromium on this machine: `python tools/browser.py --install` gets one, or set UBEX_CHROMIUM")
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=path, args=list(FLAGS))
        yield running
        running.close()
