"""Pictures that cells left: all on the page in their order up to its limit; nothing broken or odd stops the page."""

from __future__ import annotations

import base64
import html as escapes
import io
import os
import urllib.parse
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic
from PIL import Image
from test_html import Reader, text_of

from ubex.report import gallery, html, maps
from ubex.runs import folder
from ubex.types import InputError


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without any pictures, to copy."""
    return synthetic.write_run(tmp_path_factory.mktemp("bare") / "run", name="plain", seeds=2, figures=[], failed=False)


@pytest.fixture
def run(bare: Path, tmp_path: Path) -> Path:
    """A run folder of its own."""
    place = tmp_path / "a run"
    place.mkdir()
    for name in ("spec.json", "results.csv"):
        (place / name).write_bytes((bare / name).read_bytes())
    return place


def page_of(run: Path) -> Reader:
    reader = Reader(html.build(run).read_text(encoding="utf-8"))
    assert reader.open == []
    return reader


def alts(page: Reader) -> list[str]:
    return [str(image["alt"]) for image in page.all("img")]


def label(run: Path, cell: int) -> str:
    """The method, and what other cells have otherwise."""
    here = folder.read(run).spec["cells"][cell]
    return f"{here['method']}, size {here['settings']['size']}, noise {here['settings']['noise']}"


def test_without_pictures_there_is_no_section(run: Path) -> None:
    assert "Pictures" not in page_of(run).said("h2")
    (run / "artifacts").mkdir()
    assert "Pictures" not in page_of(run).said("h2")


def test_a_trained_agent_is_no_picture_and_no_problem(run: Path) -> None:
    synthetic.keep(run, 0, 0, "agent.ubex", b"an agent")
    said = " ".join(text for _, text in page_of(run).texts)
    assert "agent.ubex" not in said
    assert "skipped" not in said


def test_pictures_are_embedded_in_order_with_captions(run: Path) -> None:
    synthetic.add_pictures(run)
    page = page_of(run)
    first, second = label(run, 0), label(run, 1)
    assert page.said("h2")[0] == "Pictures"
    assert page.said("h3")[:2] == [first, second]
    found = [alt for alt in alts(page) if not alt.startswith(maps.TITLE)]
    in_cell = [f"Animation: episode {episode}, {first}, seed {seed}" for seed in (0, 1) for episode in (2, 10)]
    assert found == [*in_cell, f"Animation: episode 2, {second}, seed 0"]
    captions = page.said("figcaption")
    assert f"episode 2, {first}, seed 0" in captions
    assert [text for text in page.said("summary") if text.startswith("Seed")] == ["Seed 1 (3)"]
    sources = [str(image["src"]) for image in page.all("img")]
    data = (run / "artifacts").glob("*/seed-0/episode-2.gif")
    assert f"data:image/gif;base64,{base64.b64encode(next(data).read_bytes()).decode()}" in sources
    assert all(source.startswith("data:image/") for source in sources)


def test_maps_of_a_seed_are_one_figure_in_two_looks(run: Path) -> None:
    for episode in (5, 10):
        synthetic.keep(run, 0, 0, f"maps-{episode}.npz", synthetic.maps(episode))
    page = page_of(run)
    day, night = (image for image in page.all("img") if "class" in image)
    assert (day["class"], night["class"]) == ("day", "night")
    words = "Values and their uncertainty: mean value, standard deviation over angle and velocity <b> after episodes 5 and 10."
    assert str(day["alt"]).startswith(words)
    drawn = [base64.b64decode(str(image["src"]).split(",", 1)[1]).decode() for image in (day, night)]
    assert maps.INK in drawn[0]
    assert maps.INK not in drawn[1]
    assert maps.NIGHT_INK in drawn[1]
    assert maps.PAPER not in drawn[1]
    for text in ("episode 5", "episode 10", "mean value", "velocity &lt;b&gt;"):
        assert text in drawn[0]
    assert drawn[0].count("<image") >= 4  # pixels, not a path a point
    assert len(drawn[0]) < 200_000
    names = sorted(path.name for path in (run / "report" / "figures").iterdir())
    assert [name.rsplit(".", 1)[1] for name in names] == ["png", "svg"]
    assert [link["download"] for link in page.all("a") if "download" in link] == names[:1]


def test_rows_are_episodes_in_order_and_at_most_six(tmp_path: Path) -> None:
    found = []
    for episode in (100, 9, 10, 0, 50, 70, 80, 20):
        (tmp_path / "m.npz").write_bytes(synthetic.maps(episode))
        found.append(maps.read(tmp_path / "m.npz"))
    rows = [one.episode for one in maps.in_rows(found)]
    assert len(rows) == 6
    assert (rows[0], rows[-1]) == (0, 100)
    assert rows == sorted(rows)
    assert [one.episode for one in maps.in_rows(found[:3])] == [9, 10, 100]


def test_a_column_has_one_scale_and_labels_are_outside(tmp_path: Path) -> None:
    rows = []
    for episode, factor in ((1, 1.0), (2, 5.0)):
        (tmp_path / "m.npz").write_bytes(synthetic.maps(episode))
        one = maps.read(tmp_path / "m.npz")
        rows.append(maps.Maps(one.x, one.y, one.xlabel, one.ylabel, one.names, factor * one.values, one.episode))
    figure = maps.draw(rows)
    panels, bars = figure.axes[:4], figure.axes[4:]
    assert len(bars) == 2
    limits = [axes.collections[0].get_clim() for axes in panels]
    assert limits[0] == limits[2] == (pytest.approx(rows[0].values[0].min()), pytest.approx(rows[1].values[0].max()))
    assert limits[1] == limits[3] != limits[0]
    assert [axes.get_xlabel() for axes in panels] == ["", "", "angle", "angle"]
    assert [axes.get_ylabel() for axes in panels] == ["episode 1\nvelocity <b>", "", "episode 2\nvelocity <b>", ""]
    assert [axes.get_title(loc="left") for axes in panels] == ["mean value", "standard deviation", "", ""]


@pytest.mark.parametrize("values", [np.zeros((2, 3, 3)), np.full((2, 3, 3), np.nan), np.full((2, 3, 3), -1e300)])
def test_maps_without_a_range_are_drawn(values: np.ndarray, tmp_path: Path) -> None:
    low, high = maps.scale(list(values))
    assert low < high
    axis = np.arange(3.0)
    one = maps.Maps(axis, axis**2, "$x", "_y", ("a", "b"), values, 0)
    maps.draw([one])
    assert ("no value, it is grey" in maps.notes([one])) == bool(np.isnan(values).any())


def test_beyond_the_limit_pictures_are_linked_and_it_is_said(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    big = synthetic.gif(noise=200)
    for cell in (0, 1, 2):
        for seed in (0, 1):
            synthetic.keep(run, cell, seed, "big.gif", big)
    monkeypatch.setattr(gallery, "LIMIT", int(4.5 * gallery.in_base64(len(big))))
    address = html.build(run)
    page = Reader(address.read_text(encoding="utf-8"))
    shown = [alt.rsplit(", ", 1)[1] for alt in alts(page)]
    assert sorted(shown) == ["seed 0", "seed 0", "seed 0", "seed 1"]  # the first seeds go before the second ones
    links = [str(link["href"]) for link in page.all("a") if not str(link["href"]).startswith("data:")]
    assert len(links) == 2
    for link in links:
        assert link.startswith("../artifacts/")
        assert (address.parent / urllib.parse.unquote(link)).read_bytes() == big
    assert "2 files did not fit: a page holds at most" in text_of(address)
    assert address.stat().st_size < gallery.LIMIT + 200_000


def test_maps_are_linked_and_not_drawn_when_the_page_is_full(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gallery, "LIMIT", 0)
    for cell in (0, 1):
        synthetic.keep(run, cell, 0, "maps-1.npz", synthetic.maps(1))
    page = page_of(run)
    assert not page.all("img")
    assert {urllib.parse.unquote(str(a["href"])).rsplit(".", 1)[1] for a in page.all("a")} == {"png", "svg", "npz"}
    assert len(list((run / "report" / "figures").glob("*.png"))) == 1  # only then was it known how much one takes


def test_links_from_a_page_of_several_runs(bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gallery, "LIMIT", 0)
    for name in ("one #1", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "spec.json").write_bytes((bare / "spec.json").read_bytes())
        synthetic.keep(tmp_path / name, 0, 0, "x.gif", synthetic.gif(size=20))
    address = html.build(tmp_path)
    links = [str(a["href"]) for a in Reader(address.read_text()).all("a") if "artifacts" in str(a["href"])]
    assert len(links) == 2
    assert all((address.parent / urllib.parse.unquote(link)).is_file() for link in links)


def foreign(run: Path) -> dict[str, Any]:
    """Files that do not belong, each with the words that the page has for it."""
    gif, npz = synthetic.gif(), synthetic.maps(3)
    keep = synthetic.keep
    keep(run, 0, 0, "cut.gif", gif[: len(gif) // 2])
    keep(run, 0, 0, "empty.png", b"")
    whole = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (50, 50, 3)).astype(np.uint8)).save(whole, format="PNG")
    keep(run, 0, 0, "cut.png", whole.getvalue()[:-2000])
    keep(run, 0, 0, "really-a.png", gif)
    keep(run, 0, 0, "maps-1.npz", npz[: len(npz) // 2])
    keep(run, 0, 0, "notes.txt", b"text")
    keep(run, 0, 0, ".maps-9.npz.17.part", npz)
    (keep(run, 0, 1, "x.gif", gif).parent / "maps-2.npz").mkdir()
    return {
        "cut.gif": "cannot be read as GIF",
        "cut.png": "cannot be read as PNG",
        "empty.png": "cannot be read as PNG",
        "really-a.png": "cannot be read as PNG",
        "maps-1.npz": "cannot be read as maps",
        "notes.txt": "the page shows png, gif, webp",
        "maps-2.npz": "no file that a run leaves",
    }


def test_damaged_and_foreign_files_are_skipped_with_a_line_each(run: Path) -> None:
    words = foreign(run)
    lines = [line for line in page_of(run).said("p") if "was skipped" in line]
    assert len(lines) == len(words)
    for name, why in words.items():
        assert any(f"/{name} was skipped: " in line and why in line for line in lines), name
    assert len(alts(page_of(run))) == 1  # the sound one


def test_odd_folders_and_names_are_skipped(run: Path) -> None:
    gif = synthetic.gif(size=20)
    place = synthetic.keep(run, 0, 0, "good.gif", gif).parent
    synthetic.keep(run, 0, 7, "x.gif", gif)  # the run has two seeds
    (place.parent / "seed-²").mkdir()
    (run / "artifacts" / "<script>alert(1)<").mkdir()
    (run / "artifacts" / "file").write_text("x")
    (place / "<img src=x>.gif").write_bytes(gif)
    with open(os.fsencode(place) + b"/\xff\n.gif", "wb") as file:
        file.write(gif)
    page = page_of(run)
    assert len(alts(page)) == 1
    lines = [line for line in page.said("p") if "was skipped" in line]
    assert len(lines) == 6
    assert any("<img src=x>.gif was skipped" in line for line in lines)
    assert len(page.all("script")) == 2


def test_many_skipped_files_are_counted(run: Path) -> None:
    for number in range(30):
        synthetic.keep(run, 0, 0, f"{number}.txt", b"")
    lines = [line for line in page_of(run).said("p") if "skipped" in line]
    assert len(lines) == gallery.MOST_LINES + 1
    assert lines[-1] == "22 more files were skipped."
    assert "seed-0/2.txt" in lines[2]  # in natural order


def test_maps_that_do_not_go_together_are_skipped(run: Path) -> None:
    for name, names in (("maps-1.npz", ("a", "b")), ("maps-2.npz", ("a", "c")), ("maps-3.npz", ("a", "b"))):
        synthetic.keep(run, 0, 0, name, synthetic.maps(int(name[5]), names))
    page = page_of(run)
    assert any("maps-2.npz was skipped: it has other quantities" in line for line in page.said("p"))
    assert "after episodes 1 and 3" in alts(page)[0]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"maps": np.zeros((1, 2, 2))}, "shape"),
        ({"x": np.array([1.0, 1.0, 2.0])}, "its x is not a rising axis"),
        ({"y": np.array([["a", "b"]])}, "cannot be read"),
        ({"names": np.array([], dtype=str)}, "shape"),
        ({"episode": None}, "cannot be read"),
    ],
)
def test_archives_that_are_no_maps(changes: dict[str, Any], why: str, tmp_path: Path) -> None:
    content: dict[str, Any] = {"x": np.arange(3.0), "y": np.arange(2.0), "xlabel": "x", "ylabel": "y", "episode": 1}
    content |= {"names": np.array(["m"]), "maps": np.zeros((1, 2, 3))} | changes
    np.savez(tmp_path / "m.npz", **{name: value for name, value in content.items() if value is not None})
    with pytest.raises(InputError, match=why):
        maps.read(tmp_path / "m.npz")


def test_the_same_folder_gives_the_same_page(run: Path) -> None:
    synthetic.add_pictures(run)
    first = html.build(run).read_bytes()
    assert html.build(run).read_bytes() == first
    print(f"{len(first)} bytes")


@pytest.mark.parametrize(("ending", "options"), [("png", {}), ("webp", {"lossless": True})])
def test_wide_pictures_and_other_formats(ending: str, options: dict[str, Any], run: Path) -> None:
    path = synthetic.keep(run, 0, 0, f"a-wide--one.{ending}", b"")
    Image.fromarray(np.zeros((30, 600, 3), np.uint8)).save(path, **options)
    page = page_of(run)
    (image,) = page.all("img")
    assert (image["width"], image["height"]) == ("600", "30")
    assert str(image["src"]).startswith(f"data:image/{ending};base64,")
    assert escapes.unescape(str(image["alt"])).endswith(f"one, {label(run, 0)}, seed 0")
    assert [figure.get("class") for figure in page.all("figure")] == ["wide"]
