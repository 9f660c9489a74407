"""The page's pictures: what the cells of a run left in `artifacts/`. What cannot be shown is skipped with a line."""

from __future__ import annotations

import base64
import io
import os
import re
import urllib.parse
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image, ImageSequence

from ubex.report import charts, figures, maps
from ubex.report.names import people
from ubex.runs import disk, schema, store
from ubex.runs.folder import SEED, RunFolder
from ubex.types import InputError

LIMIT = 12_000_000
"""Bytes of pictures that one page holds; the rest is linked."""
FORMATS = {".png": "PNG", ".gif": "GIF", ".webp": "WEBP"}
AGENTS = ".ubex"
"""The ending of trained agents, which runs leave too: they are no pictures."""
MAPS = re.compile(r"maps-.*\.npz")
WIDE = 480
"""Width in pixels from which on a picture has a line of its own."""
FEW_CELLS = 3
"""Up to so many cells with pictures come before the charts: they show at once what happened."""
MOST_LINES = 8
"""Skipped files that are named; the others are counted."""


class Room:
    """What is left of the page for pictures."""

    def __init__(self, left: int) -> None:
        """So many bytes."""
        self.left = left
        self.full = False
        """Whether something has been turned away."""

    def has(self, size: int) -> bool:
        """Whether so much is left."""
        self.full = self.full or size > self.left
        return size <= self.left


@dataclass(frozen=True)
class Picture:
    """One picture on the page, or a link to it."""

    caption: str
    alt: str = ""
    address: str = ""
    """All of it as an address; empty where the page only links."""
    night: str = ""
    """The same for the dark scheme, where it has a look of its own."""
    width: int = 0
    height: int = 0
    png: tuple[str, str] | None = None
    """Name and address of a file to download."""
    links: Sequence[tuple[str, str]] = ()
    """Name and relative address of the files that are only linked."""

    @property
    def wide(self) -> bool:
        """Whether it has a line of its own."""
        return bool(self.night) or self.width > WIDE


@dataclass(frozen=True)
class Shelf:
    """What one seed of a cell left."""

    label: str
    seed: int
    files: Sequence[Path]
    pictures: list[Picture] = field(default_factory=list)


@dataclass(frozen=True)
class Gallery:
    """The pictures of a run, by cell, the first seed first."""

    cells: Sequence[tuple[str, Sequence[Shelf]]]
    problems: Sequence[str]
    """What was skipped, with one line per file."""
    linked: int
    """Number of files that had no room on the page."""

    @property
    def first(self) -> bool:
        """Whether it comes before the charts."""
        return len(self.cells) <= FEW_CELLS


@dataclass(frozen=True)
class Work:
    """What it takes to make the pictures of a run."""

    run: RunFolder
    page: Path
    """Folder of the page, which links are relative to."""
    room: Room
    place: Callable[[str], Path]
    """Where a figure with this name is written."""
    document: bool
    """Whether figures are written as PDF too."""
    skipped: list[str] = field(default_factory=list)

    def skip(self, path: Path, why: str) -> None:
        """Notes a file that is not shown; a name that is no text is spelt out."""
        name = str(path.relative_to(self.run.path))
        self.skipped.append(f"{name if name.isprintable() else ascii(name)} was skipped: {why}.")

    def links(self, paths: Sequence[Path]) -> list[tuple[str, str]]:
        """Names and addresses of files as seen from the page."""
        return [(path.name, urllib.parse.quote(Path(os.path.relpath(path, self.page)).as_posix())) for path in paths]


def gallery(work: Work) -> Gallery | None:
    """The pictures of a run, or nothing where there are none."""
    if not (work.run.path / store.ARTIFACTS).is_dir():
        return None
    cells = find(work)
    # the first seed of every cell before the second of any: these are the ones that are shown open
    for turn in range(max((len(shelves) for _, shelves in cells), default=0)):
        for _, shelves in cells:
            if turn < len(shelves):
                fill(shelves[turn], work)
    shown = [(label, [shelf for shelf in shelves if shelf.pictures]) for label, shelves in cells]
    shown = [(label, shelves) for label, shelves in shown if shelves]
    if not shown and not work.skipped:
        return None
    linked = sum(len(picture.links) for _, shelves in shown for shelf in shelves for picture in shelf.pictures)
    problems, more = work.skipped[:MOST_LINES], len(work.skipped) - MOST_LINES
    if more > 0:
        problems.append(f"{more} more file{'s were' if more > 1 else ' was'} skipped.")
    return Gallery(shown, problems, linked)


def find(work: Work) -> list[tuple[str, list[Shelf]]]:
    """The files of every cell and seed, cells in the order of the spec, the rest in natural order."""
    run = work.run
    names = {entry["id"]: named(entry, schema.shared(run.spec)) for entry in run.spec["cells"]}
    found: dict[str, list[Shelf]] = {name: [] for name in names}
    for cell in inside(run.path / store.ARTIFACTS, work):
        if cell.name not in names or not cell.is_dir():
            work.skip(cell, "no cell of this run has that name")
            continue
        for place in inside(cell, work):
            number = SEED.fullmatch(place.name)
            if number is None or int(number[1]) >= run.seeds or not place.is_dir():
                work.skip(place, "no seed of this run has that name")
                continue
            files = [path for path in inside(place, work) if showable(path, work)]
            if files:
                found[cell.name].append(Shelf(names[cell.name], int(number[1]), files))
    return [(names[name], shelves) for name, shelves in found.items()]


def named(cell: Mapping[str, Any], shared: Mapping[str, Any]) -> str:
    """The method of a cell, and what other cells of its run have otherwise."""
    own = {"environment": cell["environment"], **cell["settings"]}
    varied = [f"{people(name)} {charts.label(value)}" for name, value in own.items() if name not in shared]
    return ", ".join((cell["method"], *varied))


def inside(folder: Path, work: Work) -> list[Path]:
    """What is in a folder, in natural order; names with a leading dot are files that are being written."""
    try:
        return sorted((path for path in folder.iterdir() if not path.name.startswith(".")), key=natural)
    except OSError as error:
        work.skip(folder, error.strerror or "it cannot be read")
        return []


def natural(path: Path) -> tuple[list[tuple[int, str]], str]:
    """A key that has 2 before 10."""
    parts = re.split(r"([0-9]+)", path.name)
    return [(int(part), "") if part.isdecimal() else (0, part) for part in parts], path.name


def showable(path: Path, work: Work) -> bool:
    """Whether the page can show such a file; if not, it is said why."""
    if not store.ARTIFACT_NAME.fullmatch(path.name) or not path.is_file():
        work.skip(path, "it is no file that a run leaves")
    elif path.suffix == AGENTS:
        return False
    elif path.suffix not in FORMATS and not MAPS.fullmatch(path.name):
        work.skip(path, "the page shows png, gif, webp and maps-*.npz files")
    else:
        return True
    return False


def fill(shelf: Shelf, work: Work) -> None:
    """Makes the pictures of one seed: its maps as one figure, then the others."""
    charts = [path for path in shelf.files if path.suffix not in FORMATS]
    drawn = maps_figure(shelf, charts, work) if charts else None
    others = [one_picture(shelf, path, work) for path in shelf.files if path.suffix in FORMATS]
    shelf.pictures.extend(picture for picture in (drawn, *others) if picture is not None)


def one_picture(shelf: Shelf, path: Path, work: Work) -> Picture | None:
    """A picture as it is on disk, or a link where the page is full; nothing where it is damaged."""
    caption = f"{path.stem.replace('-', ' ')}, {shelf.label}, seed {shelf.seed}"
    try:
        size = in_base64(path.stat().st_size)
        if not work.room.has(size):
            return Picture(caption, links=work.links([path]))
        data = path.read_bytes()
        width, height, frames = checked(data, FORMATS[path.suffix])
    except OSError as error:
        work.skip(path, error.strerror or "it cannot be read")
        return None
    except InputError as error:
        work.skip(path, str(error))
        return None
    work.room.left -= size
    alt = f"{'Animation' if frames > 1 else 'Picture'}: {caption}"
    return Picture(caption, alt, data_uri(data, f"image/{path.suffix[1:]}"), width=width, height=height)


def maps_figure(shelf: Shelf, paths: Sequence[Path], work: Work) -> Picture | None:
    """The maps of one seed as one figure, or links to them where the page is full: drawing takes a while."""
    caption = f"{maps.TITLE}, {shelf.label}, seed {shelf.seed}."
    if work.room.full:
        return Picture(caption, links=work.links(paths))
    found: list[maps.Maps] = []
    for path in paths:
        try:
            read = maps.read(path)
            if found and read.kind != found[0].kind:
                raise InputError("it has other quantities or axes than the maps before it")
        except InputError as error:
            work.skip(path, str(error))
        else:
            found.append(read)
    if not found:
        return None
    rows = maps.in_rows(found)
    target = work.place(f"maps-{paths[0].parent.parent.name}-seed-{shelf.seed}")
    figure = maps.draw(rows)
    with disk.storage(f"write figures to {target.parent}"):
        drawn = figures.save(figure, target)
        if work.document:
            figures.save(figure, target, [".pdf"])
        png, svg = (path.read_bytes() for path in drawn)
    night = maps.at_night(svg.decode()).encode()
    size = sum(in_base64(len(data)) for data in (png, svg, night))
    if not work.room.has(size):
        return Picture(caption, links=work.links(drawn))
    work.room.left -= size
    return Picture(
        f"{caption} {maps.notes(rows)}",
        f"{maps.description(rows)} {shelf.label}, seed {shelf.seed}",
        data_uri(svg, "image/svg+xml"),
        data_uri(night, "image/svg+xml"),
        png=(f"{target.name}.png", data_uri(png, "image/png")),
    )


def checked(data: bytes, form: str) -> tuple[int, int, int]:
    """Width, height and number of frames of a picture.

    Raises:
        InputError: It is damaged, or no picture of this format.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a picture so large that Pillow warns of it
            with Image.open(io.BytesIO(data), formats=[form]) as image:
                frames = 0
                for frame in ImageSequence.Iterator(image):
                    frame.load()
                    frames += 1
                return *image.size, frames
    except Exception as error:  # Pillow raises a dozen kinds for damaged files
        raise InputError(f"it cannot be read as {form} ({type(error).__name__})") from None


def in_base64(size: int) -> int:
    """Characters that so many bytes take on the page."""
    return 4 * -(-size // 3)


def data_uri(data: bytes, kind: str) -> str:
    """Bytes as an address that holds all of them."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"
