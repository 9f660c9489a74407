"""The doctor finds what it is there for."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys

import pytest

from ubex import cli, doctor


def test_this_machine_is_fit() -> None:
    """Fails under a jaxlib that computes wrong numbers: its probes are run, optimised as for users, not its version read."""
    command = [sys.executable, "-m", "ubex", "doctor"]
    done = subprocess.run(command, env={**os.environ, "XLA_FLAGS": ""}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "all good" in done.stdout


def test_known_bad_release_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.10.2" if name == "jaxlib" else real(name))
    assert cli.run(["doctor"]) == 1
    printed = capsys.readouterr().out
    assert "BAD  jaxlib" in printed
    assert "0.10.2 computes wrong numbers" in printed


def test_wrong_numbers_are_noticed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "batched_reduction_error", lambda: 0.002)
    assert cli.run(["doctor"]) == 1
    assert "BAD  batched sums" in capsys.readouterr().out
