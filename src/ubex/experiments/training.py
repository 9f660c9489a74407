"""What `ubex train` makes of its words: flags of tabular agents and of deep ones, and the training that they ask for."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Set
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import tyro

from ubex.deep import presets
from ubex.deep.presets import AUTO
from ubex.experiments.command import RunFlags, with_run_flags
from ubex.experiments.spec import Experiment
from ubex.experiments.train import Train
from ubex.experiments.train_deep import TrainDeep
from ubex.learn.tabular import RECOMMENDED, RECOMMENDED_SETTINGS, recommended
from ubex.runs.folder import SPEC, read_spec
from ubex.types import InputError


def flags() -> type[Any]:
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


def asked(flags: Any) -> tuple[Train | TrainDeep, RunFlags, str]:
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
