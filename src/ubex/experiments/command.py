"""What `ubex run` and `ubex train` make of their words: the flags that tyro reads, and the experiment that they ask for."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_type_hints

import tyro

from ubex import checks
from ubex.deep import presets
from ubex.deep.presets import AUTO
from ubex.experiments import EXPERIMENTS, FORMER
from ubex.experiments.spec import Experiment
from ubex.experiments.train import Train
from ubex.experiments.train_deep import TrainDeep
from ubex.learn.tabular import RECOMMENDED, RECOMMENDED_SETTINGS, recommended
from ubex.runs import runner
from ubex.runs.folder import SPEC, read_spec
from ubex.runs.records import settings_of
from ubex.types import InputError

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
    } | {name: "" for name in called if name in FORMER}


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


def train_flags() -> type[Any]:
    """Flags of `ubex train`: those of tabular agents, those of deep ones, and what both take."""
    tabular, deep = ({field.name for field in dataclasses.fields(kind)} - {"study"} for kind in (Train, TrainDeep))
    agent = f"{RECOMMENDED} with settings of its own, or {TrainDeep.agent} with --steps"
    both = unset(Train, tabular & deep, "", env=f"{Train.env}, or {TrainDeep.env} with --steps", agent=agent)
    only_tabular = unset(Train, tabular - deep, "Only tabular agents take these, on environments with Discrete spaces.")
    text = "Only deep agents take these. Of them, --steps has to be given."
    only_deep = unset(TrainDeep, deep - tabular, text, steps="", preset=f"{AUTO}, by device")
    resume = "Go on with the run in this folder, with the settings that it began with. Only run options may be added."
    return with_run_flags(
        "Train one agent on one environment. It is a deep agent if --steps is given, and a tabular one if not.",
        ("resume", Annotated[Path | None, tyro.conf.arg(help=resume, help_behavior_hint="")], None),
        ("both", Annotated[both, tyro.conf.arg(name="")], both()),
        ("tabular", Annotated[only_tabular, tyro.conf.OmitArgPrefixes], only_tabular()),
        ("deep", Annotated[only_deep, tyro.conf.OmitArgPrefixes], only_deep()),
    )


def unset(kind: type[Experiment], names: Set[str], text: str, **shown: str) -> type[Any]:
    """Some fields of an experiment as flags, with its help. Those that are not given are None, whatever default is shown."""
    types, flags = get_type_hints(kind, include_extras=True), list[tuple[str, Any, Any]]()
    for field in dataclasses.fields(kind):
        default = shown.get(field.name, field.default)
        hint = tyro.conf.arg(help_behavior_hint="" if default in ("", None) else f"(default: {default})")
        flag = Annotated[types[field.name] | None, hint] if field.name in names else Annotated[None, tyro.conf.Suppress]
        flags.append((field.name, flag, None))
    unchecked = {"__doc__": text, "__post_init__": lambda self: None}
    return dataclasses.make_dataclass(f"{kind.__name__}Flags", flags, bases=(kind,), frozen=True, namespace=unchecked)


def training(flags: Any) -> tuple[Train | TrainDeep, RunFlags, str]:
    """What the flags of `ubex train` ask for, how to run it, and one line on what was chosen: the agent, or the preset."""
    groups = (vars(group) for group in (flags.both, flags.tabular, flags.deep))
    both, tabular, deep = ({name: value for name, value in group.items() if value is not None} for group in groups)
    if flags.resume is not None:
        of_run = [name for name in ("smoke", "out") if getattr(flags.run, name)]
        refuse([*both, *tabular, *deep, *of_run], "with --resume, which goes on with the settings that the run began with")
        return begun(flags.resume), dataclasses.replace(flags.run, out=flags.resume), ""
    if "steps" not in deep:
        refuse(deep, "without --steps N, which asks for a deep agent")
        agent, settings = recommended(named := both.pop("agent", None), tabular)
        ours = written({name: settings[name] for name in RECOMMENDED_SETTINGS if name in settings})
        said = "" if named else f"agent: {agent} with {ours}; --agent NAME takes another"
        return Train(agent=agent, **both, **settings), flags.run, said
    refuse(tabular, "with --steps, which asks for a deep agent")
    preset = deep.pop("preset", AUTO)
    deep["preset"] = presets.chosen(preset, presets.GYMNASIUM)
    return TrainDeep(**both, **deep), flags.run, presets.reason() if preset == AUTO else ""


def written(settings: Mapping[str, Any]) -> str:
    """Settings as flags."""
    return " ".join(
        f"{flag(name)} {value:g}" if isinstance(value, float) else f"{flag(name)} {value}" for name, value in settings.items()
    )


def refuse(given: Iterable[str], why: str) -> None:
    """Refuses flags that do not go with others."""
    if named := ", ".join(map(flag, given)):
        raise InputError(f"{named} cannot be given {why} (see `ubex train --help`)")


def flag(name: str) -> str:
    """A field as it is written on the command line."""
    return "--" + name.replace("_", "-")


def begun(folder: Path) -> Train | TrainDeep:
    """The training that a run folder holds."""
    spec = read_spec(folder)
    for kind in (Train, TrainDeep):
        if kind.name == spec["experiment"]:
            try:
                return kind(**spec["settings"])
            except (TypeError, InputError) as error:
                raise InputError(f"{folder / SPEC} is not a run's spec: {error}") from None
    raise InputError(f"{folder} holds the experiment {spec['experiment']}: `ubex run` continues it")
