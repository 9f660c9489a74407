"""The wheel that `pip install .` builds: everything that ubex needs is in it, and it works from its files alone."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import ubex

ROOT = Path(__file__).resolve().parent.parent
BUILD = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the wheel, built by the backend that pip would call."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-c", BUILD, str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
    with zipfile.ZipFile(folder / built) as wheel:
        wheel.extractall(folder / "files")
    return folder / "files"


def ran(unpacked: Path, *arguments: str) -> str:
    """What Python prints that sees the wheel before any other ubex."""
    environment = {**os.environ, "PYTHONPATH": str(unpacked), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=unpacked.parent, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def test_the_wheel_has_every_file_of_the_package(unpacked: Path) -> None:
    package = ROOT / "src" / "ubex"
    here = [path.relative_to(ROOT / "src") for path in package.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert len(here) > 100
    missing = [str(path) for path in here if not (unpacked / path).exists()]
    assert missing == []
    for name in ("py.typed", "report/template.html.jinja", "report/page.css", "report/page.js", "runs/published.csv"):
        assert (unpacked / "ubex" / name).exists()
    assert {path.name for path in unpacked.iterdir()} == {"ubex", f"ubex-{ubex.__version__}.dist-info"}


def imported_at_the_top() -> set[str]:
    """Packages that importing the modules of ubex needs, by their names on an index."""
    found: set[str] = set()
    for path in (ROOT / "src" / "ubex").rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found |= {name.partition(".")[0] for name in names}
    aliases = {"PIL": "pillow", "markupsafe": "jinja2"}
    return {aliases.get(name, name) for name in found - {"ubex"} - sys.stdlib_module_names}


def test_the_wheel_says_what_it_is_and_needs(unpacked: Path) -> None:
    notes = unpacked / f"ubex-{ubex.__version__}.dist-info"
    assert "ubex = ubex.cli:main" in (notes / "entry_points.txt").read_text()
    metadata = (notes / "METADATA").read_text()
    assert f"Version: {ubex.__version__}\n" in metadata
    needed = set(re.findall(r"^Requires-Dist: ([\w-]+)[^;\n]*$", metadata, re.MULTILINE))
    assert imported_at_the_top() - needed == set()
    assert not needed & {"pytest", "ray", "wandb"}
    assert (notes / "licenses" / "LICENSE").exists()


def test_the_command_works_from_the_wheel(unpacked: Path) -> None:
    code = "import ubex, ubex.cli as c; print(ubex.__file__); c.run(['--version']); c.run(['list'])"
    place, version, *listed = ran(unpacked, "-c", code).splitlines()
    assert Path(place).is_relative_to(unpacked)
    assert version == f"ubex {ubex.__version__}"
    assert any("exact-ube" in line for line in listed)
    assert any("deep-sea" in line for line in listed)


def test_a_run_and_its_report_work_from_the_wheel(unpacked: Path, tmp_path: Path) -> None:
    ran(unpacked, "-m", "ubex", "run", "toy", "--out", str(tmp_path / "toy"))
    assert "Table 1" in next((tmp_path / "toy").rglob("*.html")).read_text()
