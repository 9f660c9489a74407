"""What `ubex run NAME` makes of its words: the experiment, with the defaults of its presets, and the options of every run."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tyro

from ubex import checks
from ubex.deep import presets
from ubex.experiments import EXPERIMENTS, FORMER
from ubex.experiments.spec import Experiment
from ubex.runs import runner
from ubex.runs.records import settings_of

FLAG = "--preset"


class Understood(NamedTuple):
    """A command line, as far as it is about presets."""

    experiment: Experiment
    """With the defaults that the name and the presets give it."""
    words: list[str]
    """The other words."""
    renamed: str
    """One line on the new form of an old name; empty for others."""
    chosen: str
    """One line on the preset that the machine has chosen; empty if it has chosen none."""


def understood(arguments: Sequence[str]) -> Understood:
    """The experiment that `ubex run ARGUMENTS` names; an old name is the new one with a preset before those that are given."""
    called, (given, words) = arguments[0], split(arguments[1:])
    renamed = chosen = ""
    name, *former = FORMER.get(called, (called,))
    kind = EXPERIMENTS[checks.one_of("experiment", name, EXPERIMENTS)]
    if called in FORMER:
        renamed = f"`ubex run {called}` is now `{' '.join(['ubex', 'run', name, *([FLAG, *former] if former else [])])}`"
    named = [*former, *(checks.one_of("preset", one, kind.presets) for one in given)]
    if "laptop" in kind.presets and not any("preset" in kind.presets[one].fields for one in named):
        named, chosen = [presets.fitting(), *named], presets.reason()
    return Understood(kind.of(*named), words, renamed, chosen)


def split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The values of `--preset`, and the words without it.

    Example:
        >>> split(["--preset", "gain", "--seeds", "2", "--preset=laptop"])
        (['gain', 'laptop'], ['--seeds', '2'])
    """
    given, others, inside = list[str](), list[str](), False
    for word in words:
        flag, _, value = word.partition("=")
        inside = flag == FLAG or (inside and not word.startswith("-"))
        if not inside:
            others.append(word)
        elif flag != FLAG:
            given.append(word)
        elif value:
            given.append(value)
    return given, others


def usage() -> str:
    """What `ubex run --help` prints."""
    lines = ["usage: ubex run NAME [--preset PRESET] [--smoke] [--out DIR] [the experiment's own flags]", "", "experiments:"]
    for name, entry in EXPERIMENTS.items():
        lines.append(f"  {name:<22} {entry.summary}")
        lines += [f"    {FLAG} {key:<11} {preset.summary}" for key, preset in entry.presets.items()]
    return "\n".join(lines)


def default_folder(experiment: Experiment) -> Path:
    """`runs/NAME`; settings other than the defaults, on a GPU, get a folder of their own, named after a hash of them."""
    base = Path("runs") / experiment.name
    if experiment == experiment.of(*(name for name in ("paper", experiment.study) if name in experiment.presets)):
        return base
    settings = json.dumps(settings_of(experiment), sort_keys=True)
    return base.with_name(f"{base.name}-{hashlib.sha256(settings.encode()).hexdigest()[:8]}")


def run_options(experiment: Experiment) -> type[Any]:
    """Options of a run: what every run has, and the experiment's fields without a prefix, with its values as defaults."""

    def option(name: str, kind: Any, default: Any, text: str) -> tuple[str, Any, Any]:
        return name, Annotated[kind, tyro.conf.arg(help=text)], dataclasses.field(default=default)

    own = dataclasses.field(default_factory=lambda: experiment)
    how = dataclasses.field(default_factory=runner.Options)
    known = " ".join(f"{name}: {preset.summary}." for name, preset in experiment.presets.items())
    named = [option("preset", tuple[str, ...], (), f"Other defaults, of which later ones count. {known}")] if known else []
    where = "Folder of the run. By default it is runs/NAME, or runs/NAME-HASH for settings of your own."
    return dataclasses.make_dataclass(
        "RunOptions",
        [
            ("experiment", Annotated[type(experiment), tyro.conf.arg(name="")], own),
            *named,
            option("smoke", bool, False, "Run the same experiment, but tiny."),
            option("out", Path | None, None, where),
            option("report", bool, True, "End with the report page."),
            ("how", Annotated[runner.Options, tyro.conf.arg(name="")], how),
        ],
        namespace={"__doc__": type(experiment).__doc__},
    )
