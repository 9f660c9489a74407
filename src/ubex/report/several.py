"""Several runs on one page: names that tell them apart, what differs in their settings, and their curves in one chart."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from ubex.report import charts
from ubex.report.grids import pairs
from ubex.report.names import people
from ubex.runs.folder import RunFolder, read_all
from ubex.runs.records import FigureSpec
from ubex.types import InputError

MOST = 4
"""Runs in one chart: more could not be told apart."""
STEP = 1000
"""Between the numbers of looks of two runs."""


def read(folders: Sequence[Path]) -> tuple[list[RunFolder], list[str]]:
    """The runs of all folders, each once, and a line for each that cannot be read."""
    found: dict[Path, RunFolder] = {}
    broken: list[str] = []
    for folder in folders:
        runs, lines = read_all(folder)
        found |= {run.path.resolve(): run for run in runs}
        broken += [line for line in lines if line not in broken]
    return list(found.values()), broken


def home(folders: Sequence[Path]) -> Path:
    """The folder that they are all in: the one itself, where there is one."""
    if len(folders) == 1:
        return folders[0]
    places = [folder.resolve() for folder in folders]
    return Path(os.path.commonpath([place.parent for place in places]))


def folders_of(runs: Sequence[RunFolder]) -> list[str]:
    """The folder of each run, with as much of the path as tells it apart from the others."""
    deepest = max(len(run.path.resolve().parts) for run in runs)
    found = [run.place for run in runs]
    for depth in range(2, deepest + 1):
        if len(set(found)) == len(found):
            break
        found = ["/".join(run.path.resolve().parts[-depth:]) for run in runs]
    return found


def titles(runs: Sequence[RunFolder]) -> list[str]:
    """The experiment of each run, or its folder where several are of one experiment."""
    experiments = [run.name for run in runs]
    found = []
    for run, place in zip(runs, folders_of(runs), strict=True):
        named = place if run.name in place else f"{run.name}, {place}"
        found.append(named if experiments.count(run.name) > 1 else run.name)
    return found


def differences(runs: Sequence[RunFolder]) -> list[str]:
    """For each run the settings that another run of its experiment has otherwise; empty where there are none."""
    said = []
    for run in runs:
        alike = [other.spec["settings"] for other in runs if other.name == run.name]
        own = run.spec["settings"]
        named = dict.fromkeys(name for settings in alike for name in settings)
        varied = [name for name in named if len({pairs(settings.get(name)) for settings in alike}) > 1]
        said.append("; ".join(f"{people(name)} {pairs(own.get(name)) or 'not given'}" for name in varied))
    return said


def together(runs: Sequence[RunFolder], methods: Iterable[str]) -> list[charts.Chart]:
    """The charts of runs of one experiment that have the same axes, as one chart each."""
    methods = list(methods)
    groups: dict[tuple[str, FigureSpec], list[tuple[FigureSpec, RunFolder, str]]] = {}
    for run, place in zip(runs, folders_of(runs), strict=True):
        for spec in run.figures:
            if spec.series == "method" and spec.kind in ("lines", "curves"):
                axes = dataclasses.replace(spec, name="", title="")
                groups.setdefault((run.name, axes), []).append((spec, run, place))
    merged = []
    for group in groups.values():
        drawable = []
        for spec, run, place in group:
            try:
                content = charts.gathered(spec, run.results, run.curves, methods)
            except InputError:
                continue  # its own section says why
            if content.panels:
                drawable.append((content, place))
        if 2 <= len(drawable) <= MOST:
            merged.append(charts.dotted(overlaid(drawable)))
    return merged


def overlaid(parts: Sequence[tuple[charts.Chart, str]]) -> charts.Chart:
    """Several charts with the same axes as one: a method keeps its colour, a run has its own dashes, markers and hatches."""
    panels: dict[str, list[charts.Series]] = {}
    for number, (content, run) in enumerate(parts):
        for panel in content.panels:
            for series in panel.series:
                own = dataclasses.replace(series, name=f"{series.name}, {run}", look=look_in_run(series.look, number))
                panels.setdefault(panel.name, []).append(own)
    notes = list(dict.fromkeys(note for content, _ in parts for note in content.notes))
    return charts.Chart(parts[0][0].spec, [charts.Panel(name, panels[name]) for name in charts.by_size(panels)], notes)


def look_in_run(look: charts.Look, number: int) -> charts.Look:
    """The look of a method in the run with this number among those of a chart."""
    run = charts.look(number)
    return look._replace(place=STEP * (number + 1) + look.place, hatch=run.hatch, marker=run.marker, dashes=run.dashes)
