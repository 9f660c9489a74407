"""Presets: studies have the random keys, names and folders of the experiments that they were, and the machine chooses sizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

from ubex import Agent, InputError, cli, load_results
from ubex.deep import presets
from ubex.deep.config import DeepConfig
from ubex.deep.presets import GYMNASIUM, LAPTOP, LOCOMOTION, PENDULUM
from ubex.experiments import EXPERIMENTS, command, former
from ubex.experiments.deep_sea import DeepSea
from ubex.experiments.pendulum import Pendulum
from ubex.experiments.spec import Experiment
from ubex.runs import pool
from ubex.runs.folder import TABLES
from ubex.runs.store import SPEC

KEYS: dict[str, tuple[int, str, list[int], str, list[int]]] = {
    "toy": (6, "cab61cf8ff09383f", [2316460550, 2214463004], "bec694091c16aa5a", [2568361901, 827713191]),
    "shrinkage": (8, "de6c44eec1691191", [1074930202, 2579790948], "88674f77b841ca74", [2539585054, 1443710573]),
    "calibration": (1953, "6e4801c54a1c63de", [286613048, 2280637443], "46d00dabfa6a37e2", [3401572136, 1337409254]),
    "deep-sea": (8, "584f3da8650ffd67", [3983807407, 1974827894], "86664a623c8f3e22", [1354755618, 3131644676]),
    "deep-sea-forms": (6, "38ae155194fab215", [2650516246, 1771255212], "9eba4326aa8fd044", [1933362613, 350310009]),
    "deep-sea-ensemble": (24, "6dedd001eeb6e659", [294186198, 2179844946], "87e087dd10e0ac36", [2067617179, 2010197058]),
    "deep-sea-gain": (18, "c04e516387766e26", [3389105182, 3074083403], "94cfc8b3774c5fd9", [840441745, 3711514155]),
    "deep-sea-maps": (2, "f82eaf920e745c8f", [2419442104, 3847457147], "a887481f3571a36c", [625639531, 263969482]),
    "seven-room": (4, "d102ff2ad322aa6d", [3337046240, 1933347810], "6fe8081140d24aeb", [2447522773, 461523817]),
    "seven-room-ensemble": (12, "7cf082a5736917b3", [1303386151, 3059512222], "9f71e266b08e0b54", [2619418857, 1353166336]),
    "seven-room-gain": (25, "095d0e2a842603a0", [2516460257, 2508774136], "bff34501eb432712", [910045937, 3243830410]),
    "pendulum": (15, "ddb5880345a603f3", [2570603973, 684091758], "2086e5e8050ae60f", [1506683710, 1294716127]),
    "pendulum-ensemble": (36, "cf77697fc4c61e61", [1746783529, 1789371873], "88be40ac15c39f0b", [4184790616, 2966896368]),
    "pendulum-values": (1, "498a4299b7ae461d", [1818634112, 1032194934], "498a4299b7ae461d", [2046783442, 795566416]),
    "locomotion": (15, "88517ba5a443acb9", [3980923593, 524299768], "75f6f9e7e1ccfdf2", [3608278188, 3995370142]),
    "locomotion-mujoco": (15, "3786155abc1e55a8", [1032670584, 2224686998], "aaa8990b7323a506", [2932669982, 2006401209]),
}
"""Cells; id and key of seed 0 of the first one, id and key of seed 3 of the last one: as they were when each of these names was
a class of its own, or when the study came. There are more cells of calibration since, between the first and the last one."""


def made(name: str) -> Any:
    """The experiment of a name, old or new, with the paper's sizes."""
    experiment, *preset = former().get(name, (name,))
    kind = EXPERIMENTS[experiment]
    return kind.of(*(["paper"] if "paper" in kind.presets else []), *preset)


@pytest.mark.parametrize("name", KEYS)
def test_keys_are_those_of_the_experiments_that_the_presets_were(name: str) -> None:
    experiment = made(name)
    cells = experiment.cells()
    key = getattr(experiment, "key", lambda cell, seed: cell.key(seed))  # the pendulum's does not depend on the precision
    first, last = (np.asarray(jax.random.key_data(key(cell, seed))).tolist() for cell, seed in ((cells[0], 0), (cells[-1], 3)))
    assert (len(cells), cells[0].id, first, cells[-1].id, last) == KEYS[name]
    assert experiment.name == experiment.smoke().name == name


def test_every_study_and_experiment_has_its_keys_held() -> None:
    assert {*EXPERIMENTS, *former()} - {*KEYS} == {"deep-sea-curves", "random-mdp"}
    assert {name: entry.name for name, entry in EXPERIMENTS.items()} == {name: name for name in EXPERIMENTS}


def run(folder: Path, *words: str) -> int:
    return cli.run(["run", *words, "--smoke", "--no-report", "--out", str(folder)])


def test_a_study_gives_the_same_under_both_names_and_goes_on_in_an_old_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pool, "run_pool", lambda jobs, listener, _: pool.run_inline(jobs, listener))
    assert run(tmp_path / "old", "deep-sea-gain", "--methods", "pombu") == 0
    assert "`ubex run deep-sea-gain` is now `ubex run deep-sea --preset gain`" in capsys.readouterr().err
    assert run(tmp_path / "new", "deep-sea", "--methods", "pombu", "--preset", "gain") == 0
    assert capsys.readouterr().err == ""
    old, new = (load_results(tmp_path / folder) for folder in ("old", "new"))
    pd.testing.assert_frame_equal(old, new)
    plain = tmp_path / "plain"
    assert run(plain, "deep-sea", "--methods", "pombu", "--gains", "1", "2") == 0
    metrics = load_results(plain).query("metric == 'improvements_per_update'")["value"].tolist()
    assert metrics != new.query("metric == 'improvements_per_update'")["value"].tolist()  # other keys, other numbers
    spec = json.loads((tmp_path / "old" / SPEC).read_text())
    assert spec["experiment"] == "deep-sea-gain"
    assert set(spec["settings"]) == {
        *("seeds", "methods", "episodes", "num_models", "gains", "u_min", "ties", "sizes"),
    }  # as in folders of before: no field says the preset
    capsys.readouterr()
    assert run(tmp_path / "old", "deep-sea", "--preset", "gain", "--methods", "pombu") == 0
    assert "2 finished before" in capsys.readouterr().out
    assert "Best gain" in (tmp_path / "old" / TABLES).read_text()
    assert run(tmp_path / "old", "deep-sea", "--methods", "pombu") == 2
    assert "holds the experiment deep-sea-gain, not deep-sea" in capsys.readouterr().err


def test_folders_have_the_names_that_they_had() -> None:
    assert command.default_folder(made("deep-sea-gain")) == Path("runs/deep-sea-gain")
    assert command.default_folder(made("pendulum")) == Path("runs/pendulum")
    assert command.default_folder(DeepSea.of("gain", sizes=(20,), gains=(2.0,))) == Path("runs/deep-sea-gain-fa6e4ea1")
    assert command.default_folder(Pendulum.of("laptop")) == Path("runs/pendulum-c41c8a73")


def test_later_presets_count_and_fields_of_ones_own_most() -> None:
    both = Pendulum.of("ensemble", "laptop", seeds=2)
    assert (both.name, both.preset, both.num_models, both.seeds) == ("pendulum-ensemble", "laptop", (3,), 2)
    assert Pendulum.of("laptop", "ensemble").num_models == (2, 5, 10)
    found = command.understood(["pendulum-ensemble", "--preset", "laptop", "--seeds", "2"])
    assert (found.experiment, found.words) == (Pendulum.of("ensemble", "laptop"), ["--seeds", "2"])
    with pytest.raises(InputError, match="unknown study 'magic'"):
        DeepSea(study="magic")


@pytest.mark.parametrize(("backend", "preset"), [("cpu", "laptop"), ("gpu", "paper")])
def test_the_machine_chooses_and_a_line_says_so(backend: str, preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    for words in (["pendulum"], ["locomotion"], ["locomotion", "--preset", "mujoco"]):
        found = command.understood(words)
        experiment: Any = found.experiment
        assert experiment.preset == preset
        assert experiment.seeds == {"laptop": 1, "paper": 10}[preset]
        assert found.chosen.startswith(f"preset: {preset}, because there is {'no' if backend == 'cpu' else 'a'} GPU; --preset ")
    assert Pendulum().preset == preset  # also in Python, so that spec.json never says auto
    for words in (["pendulum", "--preset", "trusted"], ["pendulum", "--preset", "ensemble"], ["deep-sea"], ["toy"]):
        assert command.understood(words).chosen == ""
    assert command.understood(["pendulum", "--preset", "ensemble"]).experiment == Pendulum.of("ensemble", preset="paper")


def test_an_agent_and_train_take_what_run_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(presets, "fitting", lambda: "laptop")
    assert Agent("sac", "Pendulum-v1").config == DeepConfig(method="sac", **GYMNASIUM["laptop"])
    assert caplog.messages == ['preset: laptop, because there is no GPU; preset="paper" takes the paper\'s sizes']
    assert Agent("sac", "Pendulum-v1", preset="paper").config == DeepConfig(method="sac", patience_steps=500)
    monkeypatch.setattr(cli, "run_experiment", lambda experiment, flags, words: print(experiment.preset) or 0)
    assert cli.run(["train", "--env", "Pendulum-v1", "--agent", "sac", "--steps", "60"]) == 0
    said = "preset: laptop, because there is no GPU; --preset paper takes the paper's sizes\n"
    assert capsys.readouterr().out == said + "laptop\n"
    assert cli.run(["train", "--env", "Pendulum-v1", "--agent", "sac", "--steps", "60", "--preset", "laptop"]) == 0
    assert capsys.readouterr().out == "laptop\n"
    monkeypatch.setattr(presets, "fitting", lambda: "paper")
    assert cli.run(["train", "--env", "Pendulum-v1", "--agent", "sac", "--steps", "60"]) == 0
    assert capsys.readouterr().out.endswith("paper\n")


def test_laptop_has_two_critics_per_model_for_discrete_actions() -> None:
    def critics(env: str, preset: str, **settings: Any) -> int:
        return Agent("exact-ube", env, preset=preset, **settings).config.critics_per_model

    assert critics("CartPole-v1", "laptop") == 2
    assert critics("CartPole-v1", "laptop", critics_per_model=1) == 1, "what is asked for counts"
    assert critics("CartPole-v1", "paper") == critics("Pendulum-v1", "laptop") == 1


@pytest.mark.parametrize("table", [GYMNASIUM, PENDULUM, LOCOMOTION])
def test_laptop_means_the_same_networks_and_batches_everywhere(table: Any) -> None:
    sizes = [
        name for name in LAPTOP if name.endswith(("_hidden", "_rate")) or name in ("num_models", "batch_size", "gap_actions")
    ]
    assert len(sizes) == 9
    assert {name: table["laptop"][name] for name in sizes} == {name: LAPTOP[name] for name in sizes}
    for settings in table.values():
        DeepConfig(**settings)


def test_presets_are_described(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["run", "--help"]) == 0
    listed = capsys.readouterr().out
    for entry in EXPERIMENTS.values():
        assert issubclass(entry, Experiment)
        assert cli.run(["run", entry.name, "--help"]) == 0
        shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
        for name, preset in entry.presets.items():
            entry.of(name)
            assert preset.summary
            assert f"{name}: {preset.summary}." in shown
            assert name in listed
