"""The documentation site: every link checked when it is built, every page tried in a real browser, from disk, on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urlsplit

import pytest
from docs_site import Page, Site, SiteError, slug
from watching import Watch

ROOT = Path(__file__).resolve().parents[2]
PHONE = {"width": 360, "height": 740}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of this tree, in a folder whose name needs quoting."""
    out = tmp_path_factory.mktemp("site") / "a #1 site"
    Site(ROOT, out).build()
    return out


@pytest.fixture
def visit(browser: Any, site: Path) -> Iterator[Any]:
    """Opens a page of the site; at the end nothing may have gone wrong or out."""
    watch, contexts = Watch(), []

    def opened(name: str, **options: Any) -> Any:
        contexts.append(browser.new_context(**{"viewport": {"width": 1100, "height": 800}, **options}))
        page = watch.page(contexts[-1])
        page.goto((site / name).as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    watch.check()


def test_every_page_has_its_pictures_and_links_and_fits_a_phone(visit: Any, site: Path) -> None:
    page = visit("index.html", viewport=PHONE)
    names = sorted(path.name for path in site.glob("*.html"))
    links: dict[str, list[str]] = {}
    anchors: dict[str, set[str]] = {}
    for name in names:
        page.goto((site / name).as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], name
        assert page.evaluate("[...document.images].every((image) => image.complete && image.naturalWidth > 0)"), name
        links[name] = page.locator("a").evaluate_all("all => all.map((a) => a.href)")
        anchors[name] = set(page.locator("[id]").evaluate_all("all => all.map((element) => element.id)"))
        assert page.locator("h1").count() >= 1, name
    for name, addresses in links.items():
        for address in addresses:
            target, anchor = urldefrag(address)
            if target.startswith("file:"):
                place = Path(unquote(urlsplit(target).path))
                assert place.exists(), f"{name}: {address}"
                assert not anchor or anchor in anchors[place.name], f"{name}: {address}"
    linked = {Path(unquote(urlsplit(address).path)).name for found in links.values() for address in found}
    assert set(names) <= linked  # nothing that cannot be found


def test_pages_are_reached_by_the_navigation(visit: Any) -> None:
    page = visit("index.html")
    page.locator("aside").get_by_role("link", name="Architecture", exact=True).click()
    assert page.locator("h1").inner_text() == "Architecture"
    assert page.locator("aside [aria-current]").inner_text() == "Architecture"
    small = visit("index.html", viewport=PHONE)
    assert not small.locator("aside").is_visible()
    small.get_by_text("Contents", exact=True).click()
    small.locator(".menu").get_by_role("link", name="ubex.ube", exact=True).click()
    assert small.locator("h1").inner_text() == "ubex.ube"


def test_there_are_two_schemes_and_a_toggle_that_is_remembered(visit: Any) -> None:
    def ground(page: Any) -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    light, dark = visit("index.html", color_scheme="light"), visit("index.html", color_scheme="dark")
    day, night = ground(light), ground(dark)
    assert day != night
    light.get_by_role("button", name="Dark scheme").click()
    assert ground(light) == night
    light.reload()
    assert ground(light) == night
    dark.get_by_role("button", name="Light scheme").click()
    assert ground(dark) == day


def test_code_has_colours_and_names_lead_to_the_reference(visit: Any) -> None:
    page = visit("index.html")
    colours = page.locator("pre code span").evaluate_all("all => all.map((span) => getComputedStyle(span).color)")
    assert len(set(colours)) > 3
    page = visit("api-ubex.html")
    text = page.locator("main").inner_text()
    assert "value_variance(" in text
    assert "probabilities (S, A), or one action for each state (S,)" in text
    assert 'Float[np.ndarray, "S A"]' in text
    assert ">>> " in text


def write(root: Path, **files: str) -> Site:
    """A small tree of documents."""
    (root / "docs").mkdir(parents=True)
    for name, text in files.items():
        (root / f"{name.replace('__', '/')}.md").write_text(text)
    return Site(root, root / "out")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[x](docs/absent.md)", "README.md: the link docs/absent.md leads nowhere"),
        ("![x](absent.png)", "README.md: the link absent.png leads nowhere"),
        ('<img src="absent.png">', "README.md: the link absent.png leads nowhere"),
        ("[x](docs/page.md#none)", "README.md: the link docs/page.md#none has no such heading"),
        ("[x](#none)", "README.md: the link #none has no such heading"),
        ("[x](../outside.md)", "README.md: the link ../outside.md leads nowhere"),
    ],
)
def test_what_leads_nowhere_stops_the_build(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "outside.md").write_text("# Outside")
    site = write(tmp_path / "tree", README=f"# Home\n\n{text}", docs__page="# Page")
    with pytest.raises(SiteError) as stopped:
        site.build()
    assert str(stopped.value) == reason


def test_links_between_files_become_links_between_pages(tmp_path: Path) -> None:
    home = "# Home\n\n[a](docs/page.md#the-second) [b](data.csv) [c](https://example.org) [d](docs/)"
    home += "\n\n![e](docs/one%20picture.svg)"
    site = write(tmp_path, README=home, docs__page="# Page\n\n## The second!\n\n[home](../README.md) `ubex.value_variance`")
    (tmp_path / "data.csv").write_text("a,b\n1,2\n")
    (tmp_path / "docs" / "one picture.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    pages = {page.name: page for page in site.build()}
    body = pages["index.html"].body
    picture = "files/docs/one%20picture.svg"
    for address in ("page.html#the-second", "data.csv.html", "https://example.org", "docs.html", picture):
        assert f'"{address}"' in body
    assert 'href="index.html"' in pages["page.html"].body
    assert 'href="api-ubex.html#ubexvalue_variance"' in pages["page.html"].body
    assert (tmp_path / "out" / "files" / "data.csv").read_text() == "a,b\n1,2\n"
    assert (tmp_path / "out" / "files" / "docs" / "one picture.svg").exists()


def test_the_guide_is_in_the_order_of_the_readme(tmp_path: Path) -> None:
    home = "# Home\n\n[z](docs/z.md) then [a](docs/a.md)"
    site = write(tmp_path, README=home, docs__a="# A", docs__z="# Z", docs__m="# M", docs__equations="# Equations")
    site.build()
    groups = {heading: [page.label for page in pages] for heading, pages in site.menu()}
    assert groups["Guide"] == ["Start", "Z", "A", "M"]
    assert groups["Theory"] == ["Equations"]
    (tmp_path / "docs" / "guide.md").write_text("# Contents\n\n[m](m.md)")
    site = Site(tmp_path, tmp_path / "out")
    site.build()
    assert [page.label for page in site.menu()[0][1]] == ["Start", "Contents", "M", "A", "Z"]
    assert (tmp_path / "out" / "guide.html").exists()


def test_anchors_follow_the_rule_of_github() -> None:
    assert slug("What it costs: `N + 2` solves!") == "what-it-costs-n--2-solves"
    site = Site(ROOT, ROOT / "unused")
    page = Page(ROOT / "README.md", "x.html", "# A\n\n## B\n\n## B\n\n## `code_here` and *more*")
    site.render(page)
    assert [anchor for _, anchor, _ in page.headings] == ["a", "b", "b-1", "code_here-and-more"]
