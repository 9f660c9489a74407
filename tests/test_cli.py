"""The command line: what it prints, writes and returns, good input and bad."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
import subprocess
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import tyro

from ubex import InputError, cli, demo, load_results
from ubex.bench import exploration
from ubex.deep import presets
from ubex.estimators import ESTIMATORS
from ubex.experiments import EXPERIMENTS, former, training
from ubex.experiments.train import Train
from ubex.experiments.train_deep import TrainDeep
from ubex.runs import pool, runner


def test_toy_prints_the_table_and_writes_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["run", "toy", "--out", str(tmp_path / "toy")]) == 0
    printed = capsys.readouterr().out
    for number in ("-0.5625", "5.0625", "21.3125", "15.6875", "25.0000", "+35.9%"):
        assert number in printed
    assert "VIOLATES" not in printed
    results = load_results(tmp_path / "toy")
    assert list(results.columns[:6]) == ["experiment", "environment", "method", "seed", "metric", "value"]
    value = results.set_index(["method", "metric"])["value"]
    assert value["exact-ube", "variance_s0"] == pytest.approx(15.6875, abs=1e-9)
    assert value["brute-force", "variance_s0"] == pytest.approx(15.6875, abs=1e-9)
    assert value["pombu", "local_s0"] == pytest.approx(5.0625, abs=1e-9)


def test_correlated_toy_says_that_it_violates_the_assumptions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["run", "toy", "--correlated", "--out", str(tmp_path)]) == 0
    assert "VIOLATES" in capsys.readouterr().out
    value = load_results(tmp_path).set_index(["method", "metric"])["value"]
    assert value["brute-force", "variance_s0"] == pytest.approx(30.25, abs=1e-9)  # values 35 and 24
    assert value["exact-ube", "variance_s0"] == pytest.approx(15.6875, abs=1e-9)


def test_settings_of_ones_own_get_a_folder_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.run(["run", "toy", "--no-report"]) == 0
    assert cli.run(["run", "toy", "--no-report", "--correlated"]) == 0
    assert cli.run(["run", "toy", "--no-report", "--correlated"]) == 0  # the same again continues in the same folder
    folders = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert len(folders) == 2
    assert folders[0] == "toy"
    assert folders[1].startswith("toy-")


def test_the_command_that_continues_can_be_pasted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped = runner.Summary(finished=0, failed=0, skipped=0, interrupted=True, tables=())
    monkeypatch.setattr(runner, "run", lambda *_: stopped)
    words = ["train", "--env-args", '{"size": 3}', "--episodes", "7"]
    for given in (["--out", str(tmp_path / "my runs")], []):
        assert cli.run([*words, *given]) == 130
        again = capsys.readouterr().err.strip().removeprefix("ubex: interrupted; to continue: ")
        typed = shlex.split(again)
        assert typed[: 1 + len(words) + len(given)] == ["ubex", *words, *given]
        assert typed.count("--out") == 1


def test_list_names_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["list"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in [*ESTIMATORS, *EXPERIMENTS, "toy"])


def test_demo_ends_with_the_report_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    toy, _, maps, agents = demo.experiments()
    tiny = {"sizes": (3,), "episodes": 20, "seeds": 1}
    small = (toy, dataclasses.replace(maps, **tiny, pictures=(10, 20)), dataclasses.replace(agents, **tiny))
    monkeypatch.setattr(demo, "experiments", lambda: small)
    assert cli.run(["demo", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "15.6875" in printed
    assert "exact-ube finds 15.69, and the bound of pombu is 21.31." in " ".join(printed.split())
    page = (tmp_path / "report" / "index.html").read_text()
    places = [page.index(f">{name}</h2>") for name in ("deep-sea-maps", "deep-sea", "toy")]
    assert places == sorted(places), "pictures come first"
    assert "Of 20 episodes with L = 3 these were not solved:" in page[: places[0]]
    results = load_results(tmp_path / "deep-sea")
    assert set(results["method"]) == {"closed-form", "first-order", "exact-ube", "pombu", "ensemble-var", "psrl"}
    assert "Values and their uncertainty" in page


def test_demo_has_every_kind_of_chart() -> None:
    _, calibration, maps, agents = demo.experiments()
    assert {"closed-form", "exact-ube", "pombu", "ensemble-var"} <= set(calibration.methods)
    assert len(maps.pictures) > 3
    assert len(agents.sizes) > 1, "a line needs more than one point"
    assert max(agents.sizes) == 10
    assert agents.episodes == 1000, "as published"


@pytest.mark.parametrize(
    "name", [name for one in EXPERIMENTS for name in (one, *(n for n, new in former().items() if new[0] == one))]
)
def test_every_experiment_and_study_has_a_smoke_form(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one process, and studies after their experiment, so that they share programs; other tests have worker processes."""
    monkeypatch.setattr(pool, "run_pool", lambda jobs, listener, _: pool.run_inline(jobs, listener))
    experiment, *preset = former().get(name, (name,))
    study = EXPERIMENTS[experiment].of(*preset)
    try:
        study.ready()
    except InputError as missing:
        pytest.skip(str(missing))
    assert cli.run(["run", name, "--smoke", "--out", str(tmp_path)]) == 0
    results = load_results(tmp_path)
    assert results["value"].notna().all()
    assert set(results["experiment"]) == {study.name}
    said = f"`ubex run {name}` is now `ubex run {' --preset '.join([experiment, *preset])}`"
    assert (said in capsys.readouterr().err) == (name in former())


def test_results_do_not_depend_on_what_else_runs(tmp_path: Path) -> None:
    common = ["run", "calibration", "--smoke", "--no-report"]
    assert cli.run([*common, "--out", str(tmp_path / "two")]) == 0
    assert cli.run([*common, "--kinds", "cyclic-dense", "--out", str(tmp_path / "one")]) == 0
    two, one = (load_results(tmp_path / name).query("metric != 'seconds'") for name in ("two", "one"))
    alone = two[two["environment"] == "cyclic-dense"]
    assert len(one) == len(two) - len(one) == len(alone)
    pd.testing.assert_frame_equal(alone.reset_index(drop=True), one.reset_index(drop=True))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], "unknown command 'nonsense'; choose from: demo, list, run"),
        (["run", "nonsense"], "unknown experiment 'nonsense'; choose from: toy, shrinkage, calibration"),
        (["run", "calibration", "--methods", "nonsense"], "unknown method 'nonsense'; choose from: exact-ube"),
        (["run", "calibration", "--seeds", "0"], "seeds must be at least 1, but it is 0"),
        (["run", "calibration", "--seeds", "many"], "--seeds"),
        (["run", "calibration", "--size", "-3"], "size must be at least 4, but it is -3"),
        (["run", "calibration", "--discounts", "1.5"], "discount must be in [0, 1], but it is 1.5"),
        (["run", "calibration", "--num-models", "1"], "num_models must be at least 2, but it is 1"),
        (["run", "toy", "--nonsense", "1"], "--nonsense"),
        (["run", "toy", "--preset", "gain"], "toy has no presets, so it takes no --preset"),
        (["run", "deep-sea", "--preset", "laptop"], "unknown preset 'laptop'; choose from: forms, ensemble, gain"),
        (["run", "deep-sea", "--preset", "gain", "ensemble"], "the presets gain and ensemble are two studies: choose one"),
        (["run", "pendulum", "--preset=desk"], "unknown preset 'desk'; choose from: paper, alone, trusted, laptop, ensemble"),
        (["run", "toy", "--backend", "cloud"], "unknown backend 'cloud'; choose from: local, ray"),
        (["run", "toy", "--track", "paper"], "unknown tracker 'paper'; choose from: tensorboard, wandb"),
        (["run", "shrinkage", "--episodes", "0"], "episodes must be at least 1, but it is 0"),
        (["report", "/nowhere"], "no run at /nowhere: there is no such folder"),
        (["report", __file__], "it is a file, not a folder"),
        (["evaluate", "/nowhere"], "there is no file or folder /nowhere"),
        (["evaluate", "x" * 500], "TARGET has a part of more than 255 bytes"),
        (["bench", "nonsense"], "unknown bench 'nonsense'; choose from: tabular"),
        (["bench"], "Expected one of {tabular, deep, host}"),
        (["bench", "deep", "--env", "Pendulum-v1"], "`ubex bench deep --env ID` is now `ubex bench host --env ID`"),
        (["run"], "Expected one of {toy, shrinkage, calibration"),
        (["train", "--steps", "9", "--episodes", "200", "--gain", "1"], "--episodes, --gain cannot be given with --steps,"),
        (["train", "--preset", "paper"], "--preset cannot be given without --steps N, which asks for a deep agent"),
        (["train", "--episodes", "9", "--evaluate-every", "3"], "--evaluate-every cannot be given without --steps N"),
        (["train", "--resume", "x", "--env", "y", "--out", "z"], "--env, --out cannot be given with --resume, which goes on"),
        (["train", "--resume", "/nowhere"], "/nowhere is not a run folder"),
        (["train", "--episodes", "few"], "--episodes"),
        (["train", "--nonsense"], "--nonsense"),
        (["run", "toy", "--out", __file__], "is a file, not a folder"),
        (["run", "toy", "--out", "/proc/nowhere/here"], "cannot be made"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(arguments) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert len(captured.err.strip().splitlines()) == 1
    assert "Traceback" not in captured.err


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["--version"], ["run", "--help"], ["bench", "--help"]])
def test_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(arguments) == 0
    assert "ubex" in capsys.readouterr().out


def listed(program: list[str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The subcommands that a help names, with a line on each."""
    assert cli.run([*program, "--help"]) == 0
    return re.findall(r"• ([\w-]+) +\w", capsys.readouterr().out)


def flags_of(kind: Any) -> Iterator[str]:
    """The flags that stand for the fields of a dataclass, and for those of the dataclasses in it."""
    types = typing.get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        marks = getattr(types[field.name], "__metadata__", ())
        inner = types[field.name].__origin__ if marks else types[field.name]
        if dataclasses.is_dataclass(inner):
            yield from flags_of(inner)
        elif tyro.conf.Suppress not in marks:
            yield field.name.upper() if tyro.conf.Positional in marks else f"--{field.name.replace('_', '-')}"


def test_every_help_shows_every_flag(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    kinds, real = list[Any](), cli.parse
    monkeypatch.setattr(cli, "parse", lambda kind, *others: kinds.append(kind) or real(kind, *others))
    programs = list[list[str]]()
    assert listed([], capsys) == list(cli.COMMANDS)
    for name in cli.COMMANDS:
        programs += [[name, inner] for inner in listed([name], capsys)] or [[name]]
    assert [inner for name, *inner in programs if name == "run"] == [[name] for name in EXPERIMENTS]
    assert [inner for name, *inner in programs if name == "bench"] == [["tabular"], ["deep"], ["host"]]
    for program in programs:
        assert cli.run([*program, "--help"]) == 0
        shown = capsys.readouterr().out
        assert f"usage: ubex {' '.join(program)} " in shown
        for flag in flags_of(kinds[-1]):
            (line,) = re.findall(rf"^\W*({flag}(?![\w-]).*)$", shown, re.MULTILINE)
            assert line, (program, flag)


def test_the_help_of_train_shows_all_that_tabular_and_deep_agents_take(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["train", "--help"]) == 0
    shown = capsys.readouterr().out
    titles = list(re.finditer(r"^\W*(\w+ |)options\W*$", shown, re.MULTILINE))
    assert [title[1] for title in titles] == ["", "tabular ", "deep ", "run "]
    parts = [title.start() for title in titles]
    places = {match[1]: match.start() for match in re.finditer(r"^\W*--([\w-]+) ", shown, re.MULTILINE)}
    for kind in (Train, TrainDeep):
        assert {field.name.replace("_", "-") for field in dataclasses.fields(kind)} - set(places) == {"study"}
    for flag, part in (("resume", 0), ("env", 0), ("episodes", 1), ("gain", 1), ("steps", 2), ("preset", 2), ("out", 3)):
        assert parts[part] < places[flag] < [*parts, len(shown)][part + 1], flag
    assert "(default: auto, by device)" in " ".join(shown.replace("│", " ").split())


def test_settings_of_train_are_those_that_were_given_and_else_the_defaults() -> None:
    def asked(*words: str) -> Any:
        return training.asked(tyro.cli(training.flags(), args=words))[0]

    ours = {"agent": "closed-form", "prior_mass": 2.0, "plan_when": "doubled"}
    assert asked() == Train(**ours)
    assert asked("--agent", "exact-ube") == Train(), "an agent that is named has the published prior"
    assert asked("--prior-mass", "3") == Train(**{**ours, "prior_mass": 3.0})
    assert asked("--planner", "start") == Train(agent="closed-form", prior_mass=2.0, planner="start")
    assert asked("--episodes", "7", "--horizon", "3", "--env", "toy") == Train(episodes=7, horizon=3, env="toy", **ours)
    noisy = asked("--reward-precision", "2", "--noise-precision", "3").make().config
    assert (noisy.reward_precision, noisy.noise_precision) == (2.0, 3.0)
    assert not {"reward_precision", "noise_precision"} & set(asked().cells()[0].settings), "random keys would change"
    assert asked("--steps", "9") == asked("--steps", "9", "--preset", "auto") == TrainDeep(steps=9, preset=presets.fitting())
    words = ("--steps", "9", "--preset", "paper", "--seeds", "2", "--reward", "a:b")
    assert asked(*words) == TrainDeep(steps=9, preset="paper", seeds=2, reward="a:b")


def test_the_first_help_waits_for_no_experiment() -> None:
    code = "import sys; from ubex import cli; cli.run(['--help']); print([m for m in sys.modules if 'ubex.experiments' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_installed_command_works_and_bad_input_exits_with_2() -> None:
    program = Path(sys.executable).with_name("ubex")
    good = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    assert good.returncode == 0
    bad = subprocess.run([program, "run", "nope"], capture_output=True, text=True, check=False)
    assert (bad.returncode, bad.stdout) == (2, "")
    assert "Traceback" not in bad.stderr


def test_load_results_refuses_what_is_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no results\.csv"):
        load_results(tmp_path)
    (tmp_path / "results.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="lacks the column experiment"):
        load_results(tmp_path)


def test_bench_prints_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ubex.bench.tabular.NUM_STATES", 120)
    monkeypatch.setattr("ubex.bench.tabular.CLOSED_STATES", 40)
    monkeypatch.setattr("ubex.bench.tabular.peak_memory_ratio", lambda: 1.0)
    assert cli.run(["bench", "tabular", "--json", "--sizes", "4", "--methods", "psrl", "--episodes", "20"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["value_variance"]["ratio"] > 0
    assert found["value_variance"]["states"] == 120
    closed = found["closed_form"]
    assert (closed["states"], closed["actions"], closed["bound"]) == (40, 4, 20)
    assert closed["solves"] == pytest.approx(closed["call_seconds"] / closed["solve_seconds"])
    (update,) = found["update"]
    assert (update["size"], update["states"], update["method"]) == (4, 17, "psrl")
    assert update["update_in_solves"] == pytest.approx(update["seconds_per_update"] / update["solve_seconds"])
    assert update["steps_per_update"] >= 1.0


def test_bench_measures_the_papers_methods_by_default() -> None:
    cases = exploration.cases((10, 20, 30), None, 1000)
    assert [(case.size, case.method) for case in cases if case.size == 20] == [(20, m) for m in exploration.PAPER_METHODS]
    assert [case.method for case in cases if case.size == 30] == ["exact-ube"]


def test_debug_shows_where_an_error_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    (tmp_path / "cracked.py").write_text("raise OSError('wire\\ncut')")
    monkeypatch.chdir(tmp_path)
    line = "ubex: the module 'cracked' cannot be imported: OSError: wire cut"
    words = ["train", "--env", "cracked:Env", "--agent", "psrl"]
    assert cli.run(words) == 2
    assert capsys.readouterr().err.splitlines() == [line]
    assert cli.run([*words, "--debug"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[-1] == line
    assert any("cracked.py" in one for one in said)
