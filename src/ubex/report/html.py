"""One self-contained page from what a run left on disk: figures, tables with intervals, comparison, failures.

The page needs no network and no server. Everything that comes from a run is escaped: by jinja in the markup, by writing `<` as
an escape sequence in the embedded JSON; and the page's own policy lets no script run but the one it was built with.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from ubex.report import charts, figures, gallery, grids, latex, several
from ubex.report.grids import command_line, pairs
from ubex.report.names import people
from ubex.runs import disk, metrics
from ubex.runs.folder import RunFolder, as_seconds
from ubex.runs.progress import duration
from ubex.types import InputError

POINTS_ON_PAGE = 250
"""Points of a curve that the page has; the files next to it have more."""
FIGURES, TABLES = "figures", "tables"
MADE = re.compile(rf"(?:{FIGURES}|{TABLES})/[A-Za-z0-9_-]+\.(?:png|svg|pdf|tex)", re.ASCII)
"""Files that a report writes, as seen from its page."""
DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)
"""The numbers of a page, and the files that were written with it."""


@dataclass
class Page:
    """What is collected for the page: drawn pictures and the numbers behind them."""

    methods: Sequence[str]
    folder: Path
    prefixed: bool
    """Whether files are named after their run too, because the page has several."""
    document: bool = False
    """Whether figures are written as PDF too, and tables as LaTeX."""
    drawn: list[dict[str, Any]] = field(default_factory=list)
    files: set[str] = field(default_factory=set)
    looks: set[charts.Look] = field(default_factory=set)
    room: gallery.Room = field(default_factory=lambda: gallery.Room(gallery.LIMIT))

    def place(self, group: str, name: str, kind: str = FIGURES) -> Path:
        """Where a file with this name is written, without its ending; no two get the same place."""
        wanted = f"{slug(group)}-{slug(name)}" if self.prefixed else slug(name)
        free, count = f"{kind}/{wanted}", 1
        while free in self.files:
            count += 1
            free = f"{kind}/{wanted}-{count}"
        self.files.add(free)
        return self.folder / free

    def keep(self, group: str, shown: Sequence[grids.Grid]) -> None:
        """Writes tables as LaTeX, where that was asked for."""
        for grid in shown if self.document else ():
            disk.write_atomically(self.place(group, grid.title, TABLES).with_suffix(".tex"), latex.table(grid))


def build(
    *folders: Path,
    out: Path | None = None,
    document: bool = False,
    title: str = "",
    findings: Mapping[Path, str] | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Path:
    """Writes a page and its figures for run folders, or for folders of run folders.

    Args:
        folders: One or several of them, in the order of the page.
        out: The folder of the page; by default `report` in the folder, or in the one that all of them are in.
        document: Also write every figure as PDF, and every table as LaTeX.
        title: Of the page; by default the names of the folders.
        findings: What came out, in a sentence for each run. A page of several runs begins with them.
        say: Is given a line for each thing that could not be read. The page has them too.

    Raises:
        InputError: There is no run in one of them.
    """
    runs, broken = several.read(folders)
    for line in (*broken, *(problem for run in runs for problem in run.problems)):
        say(line)
    methods = list(dict.fromkeys(method for run in runs for method in run.methods))
    page = Page(methods, out or several.home(folders) / "report", len(runs) + len(broken) > 1, document)
    for name in (FIGURES, TABLES) if document else (FIGURES,):
        with disk.storage(f"make {page.folder}"):
            (page.folder / name).mkdir(parents=True, exist_ok=True)
    merged = [picture(content, page, "together") for content in several.together(runs, methods)]
    named = zip(runs, several.titles(runs), several.differences(runs), strict=True)
    said = {folder.resolve(): sentence for folder, sentence in (findings or {}).items()}
    sections = [
        {"name": name, "differs": differs, "finding": said.get(run.path.resolve(), ""), **section(run, page)}
        for run, name, differs in named
    ]
    target, before = page.folder / "index.html", written(page.folder)
    names = dict.fromkeys(folder.resolve().name for folder in folders)
    disk.write_atomically(target, render(title or ", ".join(names), sections, merged, broken, page))
    for stale in before - written(page.folder):
        with disk.storage(f"remove {page.folder / stale}"):
            (page.folder / stale).unlink(missing_ok=True)
    return target


def written(folder: Path) -> set[str]:
    """The files that the page of this folder says were written with it: none where there is no such page."""
    found: set[str] = set()
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        raw = DATA.search((folder / "index.html").read_text(encoding="utf-8"))
        found = {name for name in json.loads(raw[1] if raw else "{}")["files"] if MADE.fullmatch(name)}
    return found


def render(
    title: str, sections: Sequence[Mapping[str, Any]], merged: Sequence[Mapping[str, Any]], broken: Sequence[str], page: Page
) -> str:
    """The page as text."""
    script = asset("page.js")
    fixed = charts.method_looks(page.methods)
    looks = sorted({*page.looks, *(fixed[name] for name in page.methods)})
    data = {
        "methods": [{"name": name, "look": fixed[name].place} for name in page.methods],
        "looks": {look.place: {"hatch": look.hatch, "marker": look.marker, "dashes": look.dashes} for look in looks},
        "charts": page.drawn,
        "files": sorted(f"{name}{ending}" for name in page.files for ending in endings(name, page.document)),
    }
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(asset("template.html.jinja")).render(
        picture_limit=gallery.LIMIT // 1_000_000,
        title=sections[0]["name"] if len(sections) == 1 else title,
        sections=sections,
        merged=merged,
        single=len(sections) == 1 and not broken,
        findings=any(section["finding"] for section in sections),
        broken=broken,
        looks=looks,
        style=Markup(asset("page.css")),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        data=Markup(embedded(data)),
    )


def endings(name: str, document: bool) -> tuple[str, ...]:
    """The endings of the files that have this name."""
    if name.startswith(f"{TABLES}/"):
        return (".tex",)
    return (".png", ".svg", ".pdf") if document else (".png", ".svg")


def asset(name: str) -> str:
    """A file that is shipped with this package."""
    return resources.files("ubex.report").joinpath(name).read_text(encoding="utf-8")


def embedded(data: Any) -> str:
    """JSON that nothing in it can break out of a script element; numbers that JSON lacks become null."""
    text = json.dumps(jsonable(data), allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def jsonable(data: Any) -> Any:
    """The data with non-finite floats as null."""
    if isinstance(data, Mapping):
        return {str(key): jsonable(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [jsonable(value) for value in data]
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    return data


def section(run: RunFolder, page: Page) -> dict[str, Any]:
    """Everything the page says about one run."""
    shown = [own_picture(run, index, page) for index in range(len(run.figures))]
    summary = metrics.summarize(run.results)
    own = [grids.own(table) for table in run.tables if not grids.repeated(table, summary)]
    estimates, comparison = grids.intervals(summary), grids.comparison(run.results)
    page.keep(run.place, [*own, *estimates.values(), *([comparison] if comparison else [])])
    wanted = {spec.metric for spec in run.figures}
    work = gallery.Work(run, page.folder, page.room, functools.partial(page.place, run.place), page.document)
    return {
        "summary": run.spec.get("summary", ""),
        "status": status(run),
        "facts": facts(run),
        "problems": run.problems,
        "figures": shown,
        "pictures": gallery.gallery(work),
        "tables": own,
        "intervals": [grid for metric, grid in estimates.items() if metric in wanted or not wanted],
        "other_intervals": [grid for metric, grid in estimates.items() if wanted and metric not in wanted],
        "comparison": comparison,
        "failures": run.failures,
        "settings": [(name, pairs(value)) for name, value in run.spec["settings"].items()],
        "cells": grids.cells(run),
        "history": grids.past(run),
    }


def status(run: RunFolder) -> tuple[str, str, str]:
    """A word for the style, a symbol and a sentence on how far the run has come."""
    left = run.total - run.done - run.failed
    counts = f"{run.done} of {run.total} done"
    if run.failed:
        return "bad", "\u2715", f"{counts}, {run.failed} failed" + (f", {left} not run" if left else "")
    if left or not run.total:
        return "part", "\u25d4", f"Not complete: {counts}" if run.done else "Nothing has finished yet"
    return "good", "\u2713", f"Complete: {counts}"


def facts(run: RunFolder) -> list[tuple[str, str, bool]]:
    """What ran, on what and how long: name, value, and whether it is code."""
    spec = run.spec
    seconds = [as_seconds(entry.get("seconds")) for entry in run.history]
    took = duration(sum(seconds)) if seconds else "not recorded: the run has not ended"
    if len(seconds) > 1:
        took += f" in {len(seconds)} invocations"
    machines = dict.fromkeys(pairs(m) for m in (spec.get("machine"), *(entry.get("machine") for entry in run.history)) if m)
    git = spec.get("git") or {}
    commit = str(git.get("commit") or "unknown")[:12]
    state = " with uncommitted changes" if git.get("dirty") else ""
    left = run.total - run.done - run.failed
    return [
        ("Cells", f"{len(run.cells)} with {run.seeds} seed{'s' if run.seeds != 1 else ''} each", False),
        ("Done", f"{run.done} of {run.total}, {run.failed} failed" + (f", {left} not run" if left else ""), False),
        ("Wall time", took, False),
        ("Started", spec.get("created", "unknown").replace("T", " "), False),
        ("Machine", "; then ".join(machines) or "unknown", False),
        ("Versions", pairs(spec.get("versions")) or "unknown", False),
        ("Commit", commit + state, False),
        ("Command", command_line(spec.get("command")) or "unknown", True),
    ]


def own_picture(run: RunFolder, index: int, page: Page) -> dict[str, Any]:
    """One figure of a run; a figure that cannot be drawn says why instead."""
    spec = run.figures[index]
    shown: dict[str, Any] = {"title": spec.title, "chart": None, "said": ""}
    try:
        content = charts.chart(spec, run.results, run.curves, page.methods)
    except InputError as error:
        return shown | {"said": f"This figure cannot be drawn: {error}"}
    if not content.panels:
        return shown | {"said": f"Nothing to draw yet: no finished seed has the metric {people(spec.metric)}."}
    return picture(content, page, run.place)


def picture(content: charts.Chart, page: Page, group: str) -> dict[str, Any]:
    """Draws a chart to disk and collects its numbers for the page."""
    target = page.place(group, content.spec.name)
    figure = figures.draw_chart(content)
    with disk.storage(f"write figures to {page.folder}"):
        png, svg = figures.save(figure, target)
        if page.document:
            figures.save(figure, target, [".pdf"])
    page.looks |= {series.look for panel in content.panels for series in panel.series}
    page.drawn.append(chart_data(content))
    return {
        "title": content.spec.title,
        "chart": len(page.drawn) - 1,
        "notes": content.notes,
        "alt": content.description,
        "name": target.name,
        "png": gallery.data_uri(png.read_bytes(), "image/png"),
        "svg": gallery.data_uri(svg.read_bytes(), "image/svg+xml"),
    }


def chart_data(content: charts.Chart) -> dict[str, Any]:
    """A chart for page.js; a point is [x, mean, standard error, seeds, missing seeds]."""
    spec = content.spec
    return {
        "title": spec.title,
        "kind": spec.kind,
        "xlabel": spec.xlabel,
        "ylabel": spec.ylabel,
        "columns": {"x": spec.x, "facet": spec.facet},
        "facet": people(spec.facet),
        "log": spec.log,
        "cap": spec.cap,
        "shared": content.shared,
        "groups": content.groups if content.grouped else [],
        "panels": [
            {
                "name": panel.name,
                "series": [
                    {
                        "name": s.name,
                        "method": s.method,
                        "look": s.look.place,
                        "points": [list(p) for p in charts.thin(s.points, POINTS_ON_PAGE)],
                    }
                    for s in panel.series
                ],
            }
            for panel in content.panels
        ],
    }


def slug(name: str) -> str:
    """A file name without anything that a file system, an address or a shell could stumble over."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:80] or "figure"
