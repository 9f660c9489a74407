"""What `ubex run` makes of its words: the flags that tyro reads, and the experiment that they ask for."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tyro

from ubex import checks
from ubex.deep import presets
from ubex.experiments import EXPERIMENTS, former
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
    earlier = {} if called in EXPERIMENTS else former()
    name, *implied = earlier.get(called, (called,))
    kind = EXPERIMENTS[checks.one_of("experiment", name, EXPERIMENTS)]
    if called in earlier:
        renamed = f"`ubex run {called}` is now `{' '.join(['ubex', 'run', name, *([FLAG, *implied] if implied else [])])}`"
    named = [*implied, *(checks.one_of("preset", one, kind.presets) for one in given)]
    if "laptop" in kind.presets and not any("preset" in kind.presets[one].fields for one in named):
        named, chosen = [presets.fitting(), *named], presets.reason()
    return Understood(kind.of(*named), words, renamed, chosen)


@dataclass(frozen=True)
class Presets:
    """The one flag that is read before the others, because their defaults depend on it."""

    preset: Annotated[tuple[tuple[str, ...], ...], tyro.conf.UseAppendAction] = ()


def split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The values of `--preset`, and the words without it.

    Example:
        >>> split(["--preset", "gain", "--seeds", "2", "--preset=laptop"])
        (['gain', 'laptop'], ['--seeds', '2'])
    """
    found, others = tyro.cli(Presets, args=words, return_unknown_args=True, add_help=False)
    return [name for names in found.preset for name in names], others


def summaries(called: Sequence[str] = ()) -> dict[str, str]:
    """What `ubex run --help` says of each experiment. A former name that was called counts too."""
    return {
        name: entry.summary + (f" ({FLAG} {', '.join(entry.presets)})" if entry.presets else "")
        for name, entry in EXPERIMENTS.items()
    } | {name: "" for name in called if name in former()}


def default_folder(experiment: Experiment) -> Path:
    """`runs/NAME`; settings other than the defaults, on a GPU, get a folder of their own, named after a hash of them."""
    base = Path("runs") / experiment.name
    if experiment == experiment.of(*(name for name in ("paper", experiment.study) if name in experiment.presets)):
        return base
    settings = json.dumps(settings_of(experiment), sort_keys=True)
    return base.with_name(f"{base.name}-{hashlib.sha256(settings.encode()).hexdigest()[:8]}")


@dataclass(frozen=True)
class RunFlags(runner.Options):
    """Every run takes these."""

    smoke: bool = False
    """Run the same, but tiny."""
    out: Path | None = None
    """The folder of the run. By default it is runs/NAME, or runs/NAME-HASH for settings of your own."""
    report: bool = True
    """End with the report page."""


def with_run_flags(text: str | None, *flags: tuple[str, Any, Any]) -> type[Any]:
    """A dataclass of flags: name, type and default of each, and then what every run takes."""
    run = ("run", Annotated[RunFlags, tyro.conf.OmitArgPrefixes], RunFlags())
    return dataclasses.make_dataclass("Flags", [*flags, run], namespace={"__doc__": text})


def run_flags(experiment: Experiment) -> type[Any]:
    """Flags of `ubex run`: the experiment's fields, with its values as defaults."""
    known = " ".join(f"{name}: {preset.summary}." for name, preset in experiment.presets.items())
    preset = tyro.conf.arg(
        help=f"Take other defaults. Of several presets the later ones count. {known}",
        help_behavior_hint="(default: by device)" if "laptop" in experiment.presets else "(default: none)",
    )
    named = [("preset", Annotated[tuple[str, ...], preset], ())] if known else []
    own = ("experiment", Annotated[type(experiment), tyro.conf.arg(name="")], experiment)
    return with_run_flags(type(experiment).__doc__, *named, own)
