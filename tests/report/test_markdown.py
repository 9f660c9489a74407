"""The comparison as Markdown: between its marks, from what is on disk, and a page of tables that were kept without cells."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from ubex import InputError, cli
from ubex.experiments.deep_sea import DeepSea
from ubex.report import markdown
from ubex.runs import folder
from ubex.runs.records import Outcome
from ubex.runs.runner import describe
from ubex.runs.store import Store

CELLS = (("closed-form", "10"), ("exact-ube", "11"), ("closed-form", "11"))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of two methods with made-up numbers near the published ones."""
    experiment = DeepSea(methods=("exact-ube", "pombu"), sizes=(10,), seeds=3)
    store = Store.open(tmp_path / "run", describe(experiment, "2026-01-01"))
    for cell in experiment.cells():
        base = {"exact-ube": 55.0, "pombu": 300.0}[cell.method]
        store.finish(cell, {seed: Outcome({"total_regret": base + seed - 1}) for seed in range(3)}, 1.0)
    store.write_tables()
    store.close()
    return tmp_path / "run"


def test_tables_go_between_the_marks(run: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Before\n\n{markdown.BEGIN}\nold\n{markdown.END}\n\nafter\n")
    assert cli.run(["report", str(run), "--markdown", str(page)]) == 0
    text = page.read_text()
    assert text.startswith("# Before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert "match" in lines[2]
    assert "differs" in lines[3]
    assert "Of 2 comparisons 1 match and 0 are compatible. Misses: pombu (\u2260 differs)." in text
    markdown.write(run, page)
    assert page.read_text() == text


def test_equal_numbers_of_two_experiments_both_count_and_those_of_one_run_kept_twice_once(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "again")
    shutil.copytree(run, tmp_path / "gain")
    for name in ("results.csv", "spec.json"):
        file = tmp_path / "gain" / name
        file.write_text(file.read_text().replace("deep-sea,deep-sea,", "deep-sea-gain,deep-sea,"))
    page = tmp_path / "page.md"
    for others, seeds in (((), 3), (("again",), 3), (("gain",), 6), (("again", "gain"), 6)):
        page.write_text(f"{markdown.BEGIN}\n{markdown.END}\n")
        folders = [str(run), *(str(tmp_path / name) for name in others)]
        assert cli.run(["report", *folders, "--out", str(tmp_path / "out"), "--markdown", str(page)]) == 0
        assert f"({seeds}) | [" in next(
            line for line in page.read_text().splitlines() if "match" in line and "exact-ube" in line
        )


def test_nothing_in_a_run_is_markup(run: Path, tmp_path: Path) -> None:
    """Names and commands of others may hold anything: a script, a mark of ours, the end of a cell, a line."""
    wild = f"<script>alert(1)</script>|[a](b){markdown.END}`"
    results = run / "results.csv"
    results.write_text(results.read_text().replace("pombu", wild).replace(",deep-sea,", f",{wild},"))
    spec = json.loads((run / "spec.json").read_text())
    (run / "spec.json").write_text(json.dumps({**spec, "command": ["ubex", "`<script>`\n"], "machine": {"devices": [wild]}}))
    page = tmp_path / "page.md"
    markdown.write(run, page)
    text = page.read_text()
    outside = "".join(part for i, part in enumerate(text.split("`")) if i % 2 == 0)
    assert "<script" not in outside
    assert "](" not in outside
    assert text.count(markdown.END) == 1
    rows = [line for line in text.splitlines() if line.startswith("|")]
    widths = {line.replace("\\|", "").count("|") for line in rows[-2:]}
    assert widths == {7}
    markdown.write(run, page)
    assert page.read_text() == text


def test_a_file_without_marks_is_refused_and_kept(run: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("mine")
    with pytest.raises(InputError, match="must have the lines"):
        markdown.write(run, page)
    assert page.read_text() == "mine"


def test_runs_that_were_kept_by_experiment_are_named_with_it(run: Path, tmp_path: Path) -> None:
    for name in ("deep-sea/first", "deep-sea/second", "flat"):
        assert cli.run(["keep", str(run), str(tmp_path / "results" / name)]) == 0
    places = folder.run_folders(tmp_path / "results")
    assert [folder.read(place).place for place in places] == ["deep-sea/first", "deep-sea/second", "flat"]
    text = markdown.tables([folder.read(place) for place in places])
    assert [line.split("|")[1].strip() for line in text.splitlines()[-3:]] == ["deep-sea/first", "deep-sea/second", "flat"]
    inside = tmp_path / "results" / "flat" / "deeper"
    assert cli.run(["keep", str(run), str(inside)]) == 0
    assert inside not in folder.run_folders(tmp_path / "results")  # what lies in a run is part of it


def test_every_run_is_named_with_its_methods_seeds_machine_day_and_command(run: Path) -> None:
    spec = json.loads((run / "spec.json").read_text())
    spec |= {
        "machine": {"cores": 2, "system": "Linux"},
        "created": "2026-01-01T10:00:00",
        "command": ["ubex", "run", "deep-sea"],
    }
    (run / "spec.json").write_text(json.dumps(spec))
    assert "| run | exact-ube, pombu | 3 | 2 cores, Linux | 2026-01-01 | `ubex run deep-sea` |" in markdown.tables(
        [folder.read(run)]
    )
    assert markdown.machine({"devices": ["NVIDIA H200"], "cores": 16}) == "NVIDIA H200"


def test_results_without_a_counterpart_have_a_table_of_their_own(tmp_path: Path) -> None:
    experiment = DeepSea(methods=("exact-ube", "closed-form"), sizes=(10, 11), seeds=3)  # nobody published L = 11
    store = Store.open(tmp_path / "run", describe(experiment, "2026-01-01"))
    for cell in experiment.cells():
        store.finish(cell, {seed: Outcome({"total_regret": 55.0 + seed, "other": 1.0}) for seed in range(3)}, 1.0)
    store.write_tables()
    store.close()
    compared, _, rest = markdown.tables([folder.read(tmp_path / "run")]).partition("Without a published counterpart")
    assert "closed-form" not in compared
    lines = [
        [cell.strip() for cell in line.split("|")[1:5]] for line in rest.splitlines() if "-ube |" in line or "-form |" in line
    ]
    assert lines[:3] == [[name, size, "56 \u00b1 0.577", "56 [55, 57]"] for name, size in CELLS]
    assert "other" not in rest  # a metric that nobody published
