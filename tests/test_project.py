"""The project's own promises: the lock, the workflow, the image, the documents, and the memory that a call takes."""

from __future__ import annotations

import importlib
import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from bootstrap import MIN_PYTHON

import ubex
from ubex.bench import tabular
from ubex.doctor import KNOWN_BAD_JAX
from ubex.report import markdown

ROOT = Path(__file__).resolve().parent.parent
LOCK = (ROOT / "requirements.lock").read_text()
EQUATIONS = (ROOT / "docs" / "equations.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", line)]


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


@pytest.mark.parametrize(("page", "least"), [("docs/equations.md", 15), ("SECURITY.md", 2)])
def test_every_test_that_a_page_names_exists(page: str, least: int) -> None:
    text = (ROOT / page).read_text()
    named = set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text))
    assert len(named) > least
    for file, function in named:
        assert f"def {function}(" in (ROOT / file).read_text(), f"{file}::{function}"
    assert all((ROOT / file).is_file() for file in re.findall(r"`(tests/[\w/]+\.py)`", text))


def test_the_workflow_calls_targets_that_exist_with_the_pythons_that_are_declared() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    job = workflow["jobs"]["make"]
    matrix = job["strategy"]["matrix"]
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    called = {*matrix["target"], *(extra["target"] for extra in matrix["include"])}
    assert called == {"test", "lint", "test-web", "test-pybullet", "docs", "wheel"}
    assert called <= set(targets)
    assert [step["run"] for step in job["steps"] if "run" in step] == ["make ${{ matrix.target }}"]
    assert matrix["python"] == PYTHONS
    assert {extra["python"] for extra in matrix["include"]} <= set(PYTHONS)
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}" == ">=" + ".".join(map(str, MIN_PYTHON))
    assert workflow["permissions"] == {"contents": "read"}
    assert all(re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"]) for step in job["steps"] if "uses" in step)


def test_the_image_copies_what_exists_and_has_a_supported_python() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    assert [line for line in lines if line.startswith("FROM ")] in [[f"FROM python:{version}-slim"] for version in PYTHONS]
    copied = [word for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]]
    assert {"requirements.lock", "pyproject.toml", "src", PROJECT["readme"], *PROJECT["license-files"]} == set(copied)
    assert all((ROOT / name).exists() for name in copied)
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert [line[1:] for line in ignored if line.startswith("!")] == copied


def test_the_citation_is_of_this_version_and_these_authors() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PROJECT["version"] == ubex.__version__
    assert citation["license"] == PROJECT["license"]
    assert citation["authors"] == PROJECT["authors"]
    (paper,) = citation["references"]
    assert [author["family-names"] for author in paper["authors"]] == ["Luis", "Bottero", "Vinogradska", "Berkenkamp", "Peters"]
    assert (paper["title"], paper["year"]) == ("Model-Based Uncertainty in Value Functions", 2023)


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
