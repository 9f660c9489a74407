"""What the pages show works: Python blocks run, commands parse, quoted errors exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import pandas as pd
import plot_cost
import plot_deep_sea
import plot_exploring
import plot_locomotion
import plot_mountain_car
import plot_pendulum
import plot_rollouts
import plot_truth
import pytest
from drawing import as_svg, numbered

from ubex import cli
from ubex.envs import ENVS
from ubex.report import charts
from ubex.tabular import truth

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for pattern in ("README.md", "docs/*.md", "results/*.md", "studies/**/*.md")
    for path in sorted(ROOT.glob(pattern))
}
CHEAP = ("ubex list", "ubex run toy --out runs/toy")
"""Commands of the pages that are run for real; every experiment's `--smoke` runs in test_cli.py."""
PLACEHOLDER = re.compile(r"\b(?:[A-Z]{1,7}|name|f|g)\b|[|…]|\.\.\.")
"""Inline code with one of these is a pattern, not a command."""


def blocks(page: str) -> Iterator[tuple[str, str]]:
    """Kind and text of every fenced block."""
    yield from re.findall(r"^```(\w*)\n(.*?)^```$", PAGES[page], re.DOTALL | re.MULTILINE)


def shell_lines(page: str) -> list[str]:
    """Every command of the page: lines of shell blocks, lines that look like ours in plain ones, and inline code."""
    lines = []
    for kind, text in blocks(page):
        for line in text.splitlines():
            words = line.split("#")[0].strip() if " #" in line or line.startswith("#") else line.strip()
            if words and (kind == "sh" or (kind == "" and words.startswith(("ubex ", "make ")))):
                lines.append(words)
    prose = re.sub(r"^```.*?^```$", "", PAGES[page], flags=re.DOTALL | re.MULTILINE)
    lines += [code for code in re.findall(r"`(ubex [^`]+)`", prose) if not PLACEHOLDER.search(code)]
    return lines


class Parsed(BaseException):
    """Raised as soon as a command's options are known to be good."""


def check(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails where a command could not be typed as it stands."""
    words = shlex.split(line)
    if words[0] == "ubex" and "--help" in words:
        assert cli.run(words[1:]) == 0
    elif words[0] == "ubex" and len(words) == 2:  # the name of a command, in a sentence
        assert words[1] in cli.COMMANDS
    elif words[0] == "ubex":
        real = cli.parse

        def parse(*arguments: Any) -> Any:
            real(*arguments)
            raise Parsed

        with monkeypatch.context() as patch:
            patch.setattr(cli, "parse", parse)
            with pytest.raises(Parsed):
                cli.run(words[1:])
        if "--env" in words:
            env = words[words.index("--env") + 1]
            assert env in ENVS or env in gymnasium.registry or env.startswith("mymodule:"), f"no environment {env}"
    elif words[0] == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert {word for word in words[1:] if "=" not in word} <= set(targets)
    elif words[0] == "python":
        assert (ROOT / words[1]).is_file()
    else:
        assert words[:2] == ["pip", "install"], f"nobody checks this command: {line}"
        declared = (ROOT / "pyproject.toml").read_text()
        for extra in re.findall(r"[\w-]+", "".join(re.findall(r"(?:ubex|\.)\[(.*?)\]", line))):
            assert f"\n{extra} = [" in declared, f"no extra {extra}"


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_a_page_can_be_typed(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for line in shell_lines(page):
        try:
            check(line, monkeypatch)
        except (Exception, pytest.fail.Exception) as error:
            raise AssertionError(f"{page}: {line}: {error}") from error


def test_commands_are_found_and_a_wrong_one_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sum(len(shell_lines(page)) for page in PAGES) > 60
    for wrong in ("ubex run toy --sizes 3", "ubex run toys", "ubex train --env No-v0", "make cake", "pip install '.[cake]'"):
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            check(wrong, monkeypatch)


def test_cheap_commands_of_the_pages_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = {re.sub(r" +", " ", line) for page in PAGES for line in shell_lines(page)}
    monkeypatch.chdir(tmp_path)
    for command in CHEAP:
        assert command in shown
        assert cli.run(shlex.split(command)[1:]) == 0
    assert (tmp_path / "runs" / "toy" / "report" / "index.html").is_file()


PYTHON = [
    (page, number, text)
    for page in PAGES
    for number, (kind, text) in enumerate(blocks(page))
    if kind == "python" and page != "docs/adding.md"  # whose skeletons test_adding.py runs
]


@pytest.mark.parametrize(("page", "number", "text"), PYTHON, ids=[f"{page}-{number}" for page, number, _ in PYTHON])
def test_python_of_the_pages_runs(
    page: str, number: int, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(text, f"{page}, block {number}", "exec"), {})
    if page == "README.md" and "Table 1" in PAGES[page].partition(text)[0][-200:]:
        printed = capsys.readouterr().out
        assert all(number in printed for number in ("-0.5625", "5.0625", "21.3125", "15.6875"))
    if page == "README.md" and "FrozenLake" in text:
        successes = [float(number) for number in re.findall(r"\d+\.", capsys.readouterr().out)]
        assert successes[0] <= 1.0
        assert successes[-1] >= 9.0, "the agent of the front page does not visibly learn"


def test_the_examples_of_the_guides_are_short() -> None:
    for page, number, text in PYTHON:
        if page not in ("README.md", "docs/adding.md"):
            assert len([line for line in text.splitlines() if line.strip()]) <= 12, (page, number)


def test_the_readme_begins_with_the_picture_and_the_two_commands() -> None:
    readme = PAGES["README.md"]
    places = [readme.index(text) for text in ("docs/figures/truth.svg", "make demo", "make test", "```python")]
    assert places == sorted(places)
    assert len(readme.splitlines()) <= 120


def test_the_readme_names_every_page() -> None:
    for page in PAGES:
        if page.startswith("docs/"):
            assert f"]({page})" in PAGES["README.md"], page


def test_every_study_says_question_command_and_answer_and_is_listed() -> None:
    folders = [path.name for path in (ROOT / "studies").iterdir() if path.is_dir() and any(path.glob("[!_]*"))]
    assert folders
    for name in folders:
        page = PAGES[f"studies/{name}/README.md"]
        assert re.findall(r"^## (.*)$", page, re.MULTILINE)[:3] == ["Question", "Command", "Answer"], name
        assert f"({name}/README.md)" in PAGES["studies/README.md"], name


def test_numbers_by_figure_are_those_of_the_tables_below() -> None:
    by_figure, _, tables = PAGES["docs/results.md"].partition("<!-- ubex report: begin -->")
    numbers = re.findall(r"-?[\d.,]+ ± [\d.]+ \(\d+\)", by_figure)
    assert len(numbers) >= 20
    for number in numbers:
        assert number in tables, number


def test_the_readme_counts_the_comparisons_that_the_results_page_has() -> None:
    counts = re.findall(
        r"^Of (\d+) comparisons (\d+) match and (\d+) are compatible. Misses: none", PAGES["docs/results.md"], re.M
    )
    assert len(counts) == PAGES["docs/results.md"].count("Misses: ") == 4
    for number, matches, compatible in counts:
        outcome = f"{matches} match" if number == matches else f"{compatible} are compatible"
        assert f"| {number} numbers | {outcome}" in PAGES["README.md"]


def test_speeds_of_the_comparison_are_those_of_the_pages_that_it_names() -> None:
    rows = re.findall(r"^\|[^|]+\| ([\d,.]+[^|]*) \|[^|]+\| \[(\w+\.md)\]", PAGES["docs/comparison.md"], re.MULTILINE)
    assert len(rows) == 6
    for number, page in rows:
        assert number in PAGES[f"docs/{page}"], (number, page)


def test_messages_that_the_pages_explain_are_in_the_source() -> None:
    source = "\n".join(path.read_text() for path in sorted((ROOT / "src").rglob("*.py")))
    whole = re.sub(r'"\s*\n\s*f?"', "", source)  # strings that go on in the next line
    explained = {page: re.findall(r"^### `(.+)`$", text, re.MULTILINE) for page, text in PAGES.items()}
    messages = [message for found in explained.values() for message in found]
    assert len(messages) > 30
    assert len(explained["docs/not-learning.md"]) > 30
    for message in messages:
        for fragment in message.split("…"):
            assert fragment.strip() in whole, f"{message}: {fragment!r}"


@pytest.mark.parametrize(
    "module", [plot_cost, plot_deep_sea, plot_exploring, plot_locomotion, plot_mountain_car, plot_pendulum, plot_rollouts]
)
def test_pictures_are_drawn_from_the_numbers_that_are_kept(module: ModuleType) -> None:
    assert module.PICTURE.read_text() == as_svg(module.draw), f"run: python docs/figures/{module.__name__}.py"


def test_ids_in_pictures_are_the_same_on_every_machine() -> None:
    drawn = '<path id="m0123456789"/><use href="#m0123456789" clip-path="url(#pabcdef0123)"/><clipPath id="pabcdef0123"/>'
    assert numbered(drawn) == '<path id="id0"/><use href="#id0" clip-path="url(#id1)"/><clipPath id="id1"/>'
    assert numbered(drawn.replace("0123456789", "aaaaabbbbb")) == numbered(drawn)


def test_a_method_has_the_colours_of_the_report_in_every_picture() -> None:
    looks = charts.method_looks([*plot_pendulum.METHODS, *plot_truth.SERIES])
    for module, methods in ((plot_pendulum, plot_pendulum.METHODS), (plot_truth, (*plot_truth.SERIES, "ensemble-var"))):
        drawn = module.PICTURE.read_text()
        assert all(looks[method].color in drawn for method in methods)
    assert all(looks[method].dark in drawn for method in methods)  # this one follows the reader's scheme


def test_the_picture_is_drawn_from_its_table_and_the_table_holds() -> None:
    table = pd.read_csv(plot_truth.TABLE)
    assert plot_truth.PICTURE.read_text() == plot_truth.picture(table)
    for kind in plot_truth.KINDS:  # the sampled estimates are left out: 1,000 samples take a while
        rows, case = table[table["kind"] == kind].sort_values("state"), plot_truth.case_of(kind)
        assert abs(plot_truth.estimate(case, "closed-form") - rows["closed-form"]).max() < 1e-5, kind
    again = truth.brute_force(truth.sample_chains(case.posterior, case.policy, 7, 1000), plot_truth.DISCOUNT)
    assert (abs(again.variance - rows["truth"]) <= 6.0 * again.standard_error + 1e-6).all()
