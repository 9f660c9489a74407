"""Odd command lines, in this process: exit 0, or 2 with one line, and never anything else. Nothing is really run."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from odd import campaign

import ubex.bench.deep
import ubex.bench.host
import ubex.bench.tabular
import ubex.demo
from ubex import cli
from ubex.experiments import EXPERIMENTS

GOOD = [
    ["list"],
    ["demo", "--out", "OUT"],
    *(["run", name, "--smoke", "--seeds", "2"] for name in EXPERIMENTS),
    ["run", "deep-sea", "--preset", "gain", "--sizes", "10", "20", "--methods", "psrl", "--out", "OUT"],
    ["run", "pendulum", "--noises", "0.01", "--precision", "split16", "--settings", '{"gain": 0.5}'],
    ["train", "--env", "deep-sea", "--agent", "psrl", "--episodes", "3", "--env-args", '{"size": 3}'],
    ["train", "--env", "Pendulum-v1", "--agent", "sac", "--steps", "9", "--settings", '{"critic_hidden": [8]}'],
    ["train", "--env", "FrozenLake-v1", "--agent", "closed-form", "--gain", "1", "--prior-mass", "2", "--planner", "start"],
    ["train", "--resume", "OUT"],
    ["evaluate", "FILE", "--episodes", "2", "--seed", "3", "--video"],
    ["report", "OUT", "--markdown", "FILE"],
    ["keep", "OUT", "TARGET", "--columns", "return"],
    ["bench", "tabular", "--json"],
    ["bench", "host", "--env", "Pendulum-v1"],
    ["doctor"],
]
TEXTS = [
    "",
    "-",
    "--",
    "---",
    "=",
    "--x",
    "--help",
    "-h",
    "nan",
    "inf",
    "-inf",
    "1e400",
    "-1",
    "0",
    "9" * 40,
    "0x10",
    "1_000",
    "True",
    "None",
]
JSON = [
    "null",
    "[]",
    "{}",
    "{",
    "[[1]]",
    '"x"',
    '{"a": 1}',
    '{"gain": null}',
    '{"size": -1}',
    '{"critic_hidden": []}',
    '{"gain": NaN}',
]
PLACES = [
    "os:system",
    "nothing:x",
    "os.path:nothing",
    ":",
    "a:",
    ":b",
    "a:b:c",
    "sys:exit",
    "builtins:print",
    "math:pi",
    "odd:Loud",
]
PATHS = [
    "/",
    "/dev/null",
    "/proc/self/mem",
    ".",
    "..",
    "FILE",
    "FOLDER",
    "no/such/place",
    "\0",
    "x" * 5000,
    "ü",
    "<script>",
    "a\nb",
]
FLAGS = [
    "--seeds",
    "--out",
    "--env",
    "--agent",
    "--preset",
    "--gain",
    "--steps",
    "--settings",
    "--methods",
    "--workers",
    "--seed",
    "--json",
]
ODD = [*TEXTS, *JSON, *PLACES, *PATHS, *FLAGS]


@st.composite
def odd_lines(draw: st.DrawFn) -> list[str]:
    """A command line that works, with words replaced, put in, left out or said twice."""
    words = list(draw(st.sampled_from(GOOD)))
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.integers(draw(st.sampled_from([0, 2, 2, 2])), 9)) % (len(words) + 1)
        how = draw(st.sampled_from(["replace", "put in", "leave out", "twice", "swap"]))
        word = draw(st.sampled_from(ODD))
        if how == "put in" or at == len(words):
            words.insert(at, word)
        elif how == "replace":
            words[at] = word
        elif how == "leave out":
            del words[at]
        elif how == "twice":
            words.insert(at, words[at])
        else:
            words[at], words[0] = words[0], words[at]
    return words


def prepared(experiment: Any, flags: Any, words: list[str]) -> int:
    """In place of a run: all that is done before it."""
    (experiment.smoke() if flags.smoke else experiment).ready()
    return 0


@pytest.fixture(scope="module")
def harmless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing is run, in a folder with a file and an empty folder in it."""
    root = tmp_path_factory.mktemp("places")
    (root / "FOLDER").mkdir()
    (root / "FILE").write_text("not what you think")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(root)
        patched.setattr(cli, "run_experiment", prepared)
        patched.setattr(ubex.demo, "demo", lambda *_: None)
        for suite in (ubex.bench.tabular.Tabular, ubex.bench.deep.Deep, ubex.bench.host.Host):
            patched.setattr(suite, "__call__", lambda self, say: {})
        yield


@pytest.mark.usefixtures("as_users_have_it", "harmless")
@campaign(0.2)
@hypothesis.given(odd_lines())
def test_odd_lines_are_refused_in_one_line_or_understood(line: list[str]) -> None:
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        code = cli.run(list(line))
    lines = said.getvalue().splitlines()
    assert code in (0, cli.BAD_INPUT), lines
    if code == cli.BAD_INPUT:
        assert len(lines) == 1, lines
        assert lines[0].startswith("ubex: ")
        assert len(lines[0]) < 1000, lines
