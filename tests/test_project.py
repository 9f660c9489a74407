"""The project's own promises: the lock, the documents, and the memory that a call takes."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ubex.bench import tabular
from ubex.doctor import KNOWN_BAD_JAX
from ubex.report import markdown

ROOT = Path(__file__).resolve().parent.parent
LOCK = (ROOT / "requirements.lock").read_text()
EQUATIONS = (ROOT / "docs" / "equations.md").read_text()


def test_lock_names_no_index_and_pins_everything() -> None:
    lines = [line for line in LOCK.splitlines() if line and not line.startswith(("#", " "))]
    assert len(lines) > 40
    assert all(re.match(r"^[A-Za-z0-9._-]+==[^ ]+( ; .+)?$", line) for line in lines)
    assert "://" not in LOCK
    assert "--index" not in LOCK.replace("--no-emit-index-url", "")


def test_lock_of_pybullet_pins_what_the_extra_names_and_no_index() -> None:
    lines = [line for line in (ROOT / "requirements-pybullet.lock").read_text().splitlines() if not line.startswith("#")]
    assert [re.sub(r"==[0-9.]+$", "", line) for line in lines] == ["pybullet", "pybullet-envs-gymnasium"]


def test_lock_avoids_the_known_bad_releases() -> None:
    pinned = re.findall(r"^jax(?:lib)?==([^ ]+)", LOCK, re.MULTILINE)
    assert pinned
    assert not set(pinned) & set(KNOWN_BAD_JAX)
    declared = (ROOT / "pyproject.toml").read_text()
    assert all(f"!={bad}" in declared for bad in KNOWN_BAD_JAX)


def names_in_equations() -> list[str]:
    return sorted(set(re.findall(r"`(ubex[\w.]*\.\w+)`", EQUATIONS)))


@pytest.mark.parametrize("name", names_in_equations())
def test_every_function_in_the_equations_page_exists(name: str) -> None:
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return
    pytest.fail(name)


def test_every_test_in_the_equations_page_exists() -> None:
    named = set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", EQUATIONS))
    assert len(named) > 15
    for file, function in named:
        assert f"def {function}(" in (ROOT / file).read_text(), f"{file}::{function}"


def test_importing_ubex_does_not_import_the_deep_side() -> None:
    """Which takes as long as everything else; `ubex.Agent` imports it when one is made."""
    code = "import sys, ubex; ubex.Agent; print([name for name in ('optax', 'equinox', 'ubex.deep') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_results_page_is_what_the_report_writes(tmp_path: Path) -> None:
    page = tmp_path / "results.md"
    page.write_text((ROOT / "docs" / "results.md").read_text())
    markdown.write(ROOT / "results", page)
    assert page.read_text() == (ROOT / "docs" / "results.md").read_text()
    assert page.read_text().count("match") > 20


def test_kept_runs_are_in_the_folder_of_their_experiment() -> None:
    kept = [*ROOT.glob("results/**/spec.json")]
    assert len(kept) > 20
    for path in kept:
        spec = json.loads(path.read_text())
        assert path.parent.parent == ROOT / "results" / spec["experiment"]
        assert spec["command"][0] == "ubex"
        assert not [word for word in spec["command"] if "/" in word]
    described = (ROOT / "results" / "README.md").read_text()
    for run in ROOT.glob("results/*/*/"):
        if "report" not in run.relative_to(ROOT).parts:
            assert f"{run.name}`" in described, run


@pytest.mark.parametrize("source", ["samples", "posterior"])
def test_memory_of_a_call_is_at_most_three_times_its_samples(source: str) -> None:
    """1,000 states, 4 actions, 5 samples; the samples themselves count, and so does the posterior."""
    assert tabular.peak_memory_ratio(source) <= 3.0
