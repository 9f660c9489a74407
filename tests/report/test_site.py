"""The documentation site: a link that leads nowhere stops its build, and every page is tried in a real browser, from disk."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urlsplit

import pytest
from public import ENTRIES
from sphinx.util.inventory import InventoryFile
from watching import Watch

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.xdist_group("site")
PHONE = {"width": 360, "height": 740}
CALLS = "docs/reference/calls.html"


def build(root: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """What `make docs` does, for any tree of documents."""
    options = ["--fail-on-warning", "--keep-going", "--quiet", "-c", str(ROOT / "docs"), "-d", str(out.parent / "doctrees")]
    command = [sys.executable, "-m", "sphinx", *options, str(root), str(out)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of this tree, in a folder whose name needs quoting."""
    out = tmp_path_factory.mktemp("site") / "a #1 site"
    done = build(ROOT, out)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture
def visit(browser: Any, site: Path) -> Iterator[Any]:
    """Opens a page of the site; at the end nothing may have gone wrong or out."""
    watch, contexts = Watch(), []

    def opened(name: str, **options: Any) -> Any:
        contexts.append(browser.new_context(**{"viewport": {"width": 1300, "height": 800}, **options}))
        page = watch.page(contexts[-1])
        page.goto((site / name).as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    watch.check()


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    objects = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="").data
    known = {name for kind, names in objects.items() if kind.startswith("py:") for name in names}
    assert {entry.name for entry in ENTRIES} | {"ubex.ENVS", "ubex.ESTIMATORS"} <= known
    assert {"ubex.Agent.predict", "ubex.DirichletNormal.observe", "ubex.ValueVariance.v"} <= known


def test_what_leads_nowhere_stops_the_build(tmp_path: Path) -> None:
    (tmp_path / "outside.md").write_text("# Outside")
    (tmp_path / "tree" / "docs").mkdir(parents=True)
    (tmp_path / "tree" / "docs" / "page.md").write_text("# Page\n\n## The second: `N + 2`!")
    good = "[x](docs/page.md#the-second-n--2)"
    bad = ["[x](docs/absent.md)", "![x](absent.png)", '<img src="missing.png">', "[x](docs/page.md#none)", "[x](#nothing)"]
    bad += ["[x](../outside.md)", "[x](docs)"]
    (tmp_path / "tree" / "README.md").write_text("# Home\n\n" + "\n\n".join([good, *bad]))
    done = build(tmp_path / "tree", tmp_path / "out")
    assert done.returncode != 0
    warned = [line.partition("README.md:")[2].partition(":")[0] for line in done.stderr.splitlines() if "toc" not in line]
    assert set(warned) == {str(5 + 2 * number) for number in range(len(bad))}, done.stderr


def test_every_page_has_its_pictures_and_links_and_fits_a_phone(visit: Any, site: Path) -> None:
    page = visit("README.html", viewport=PHONE)
    names = sorted(path for path in site.rglob("*.html") if path.name != "index.html")
    links: dict[Path, list[str]] = {}
    anchors: dict[Path, set[str]] = {}
    for name in names:
        page.goto(name.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], name
        assert page.evaluate("[...document.images].every((image) => image.complete && image.naturalWidth > 0)"), name
        links[name] = page.locator("a").evaluate_all("all => all.map((a) => a.href)")
        anchors[name] = set(page.locator("[id]").evaluate_all("all => all.map((element) => element.id)"))
        assert page.locator("h1").count() >= 1, name
    linked = set()
    for name, addresses in links.items():
        for address in addresses:
            target, anchor = urldefrag(address)
            if target.startswith("file:"):
                place = Path(unquote(urlsplit(target).path))
                linked.add(place)
                assert place.exists(), f"{name}: {address}"
                assert not anchor or anchor in anchors[place], f"{name}: {address}"
    assert set(names) - {site / "search.html"} <= linked  # nothing that cannot be found


def test_the_first_picture_can_be_read_on_a_phone(visit: Any, site: Path) -> None:
    """It looks at the width that it is shown at, and then has one panel with letters of a size that can be read."""
    for width, shown in ((PHONE["width"], "narrow"), (900, "wide")):
        page = visit("README.html", viewport={"width": width, "height": 800})
        page.goto(next(site.rglob("truth.svg")).as_uri())
        visible = [part for part in ("narrow", "wide") if page.locator(f"g.{part}").is_visible()]
        assert visible == [shown]
        assert min(page.locator(f"g.{shown} text").evaluate_all("all => all.map((t) => t.getBoundingClientRect().height)")) >= 9


def test_pages_are_reached_by_the_navigation(visit: Any) -> None:
    page = visit("index.html")  # which leads on to the README
    page.locator("#lside").get_by_role("link", name="Adding to ubex", exact=True).click()
    assert page.locator("h1").inner_text().startswith("Adding to ubex")
    assert page.locator("#lside .current").last.inner_text() == "Adding to ubex"
    small = visit("README.html", viewport=PHONE)
    assert small.locator("#lside").evaluate("(side) => side.getBoundingClientRect().right") <= 0
    small.locator("button[aria-controls=lside]").click()
    small.locator("#lside").get_by_role("link", name="Calls", exact=True).click()
    assert small.locator("h1").inner_text().startswith("Calls")


def test_the_search_works_from_disk(visit: Any) -> None:
    page = visit("README.html")
    page.get_by_placeholder("Search").first.fill("policy_difference")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="ubex.policy_difference", exact=True).click()
    assert page.url.partition("?")[0].partition("#")[0].endswith(CALLS)


def test_there_are_two_schemes_and_a_toggle_that_is_remembered(visit: Any) -> None:
    def ground(page: Any) -> str:
        return str(page.evaluate("getComputedStyle(document.documentElement).backgroundColor"))

    light, dark = visit("README.html", color_scheme="light"), visit("README.html", color_scheme="dark")
    day, night = ground(light), ground(dark)
    assert day != night

    def remembered() -> bool:
        """Whether the page is still dark after it was made dark and loaded again."""
        for _ in range(3):  # as the system has it, light, dark, in a circle
            if ground(light) != night:
                light.locator("button.js-theme").first.click()
        assert ground(light) == night
        light.reload()
        return ground(light) == night

    assert any(remembered() for _ in range(5))  # Chromium stores what a page keeps some time after the click


def test_code_has_colours_and_names_lead_to_the_reference(visit: Any) -> None:
    page = visit("README.html")
    colours = page.locator("pre span").evaluate_all("all => all.map((span) => getComputedStyle(span).color)")
    assert len(set(colours)) > 3
    page.get_by_role("link", name="ubex.Agent", exact=True).first.click()
    page.wait_for_url(f"**{CALLS}**", wait_until="load")  # the page is long
    text = page.locator("main").inner_text()
    for part in ("value_variance(", "one action for each state (S,)", "Float[ndarray, 'S A']", ">>> ", "agent's settings: a"):
        assert part in text, part
