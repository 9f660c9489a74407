"""The page in a real browser: it draws, picks, shows values, fits a phone, has two schemes, asks the network for nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pandas as pd
import pytest
import synthetic
from watching import Watch

from ubex.report import html
from ubex.runs.records import FigureSpec

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of a synthetic run, in a folder whose name needs quoting."""
    return html.build(synthetic.write_run(tmp_path_factory.mktemp("runs") / "a #1 run")).as_uri()


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of a run whose cells left maps and animations."""
    return html.build(synthetic.add_pictures(synthetic.write_run(tmp_path_factory.mktemp("runs") / "seen", seeds=2))).as_uri()


@pytest.fixture
def open_page(browser: Any, address: str) -> Iterator[Any]:
    """Opens the page with the given context options; at the end nothing may have gone wrong or out."""
    watch, contexts = Watch(), []

    def opened(at: str = address, **options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1100, "height": 800}, **options})
        contexts.append(context)
        page = watch.page(context)
        page.goto(at)
        return page

    yield opened
    for context in contexts:
        context.close()
    watch.check()
    assert len([url for url in watch.requests if url.startswith("file:")]) == len(contexts)


def chart(page: Any, name: str) -> Any:
    """The figure with this name of the synthetic run."""
    place = [figure.name for figure in synthetic.FIGURES].index(name)
    return page.locator("figure").nth(place)


def test_names_are_text_and_every_chart_is_drawn(open_page: Any) -> None:
    page = open_page()
    assert page.locator("h1").inner_text() == synthetic.NAME
    assert page.title().startswith(synthetic.NAME)
    assert chart(page, "scaling").locator("h3").inner_text() == "Regret against <b>size</b>"
    assert page.locator("figure b, .failure img").count() == 0
    bars = len(synthetic.METHODS) * len(synthetic.SIZES) * 2
    assert chart(page, "regret").locator("rect.bar").count() == bars
    assert chart(page, "scaling").locator("path.line").count() == len(synthetic.METHODS) * 2
    assert chart(page, "learning").locator("path.line").count() == len(synthetic.METHODS) * len(synthetic.SIZES)
    assert chart(page, "time").locator("path.marker").count() >= len(synthetic.METHODS) * len(synthetic.SIZES)
    assert not any("NaN" in markup for markup in page.locator(".chart").evaluate_all("all => all.map((c) => c.innerHTML)"))
    assert page.evaluate("[...document.images].every((image) => image.complete && image.naturalWidth > 0)")


def test_bars_end_at_the_cap_while_their_numbers_do_not(open_page: Any) -> None:
    figure = chart(open_page(), "regret")
    heights = figure.locator("rect.bar").evaluate_all("bars => bars.map((bar) => Number(bar.getAttribute('height')))")
    top = max(heights)
    assert sum(height > top - 0.01 for height in heights) > 3
    assert "1,167" in figure.locator("text.value").all_text_contents()


def test_picking_methods_changes_charts_and_tables(open_page: Any) -> None:
    page = open_page()
    bars = chart(page, "regret").locator("rect.bar")
    rows = page.locator('tr[data-method="pombu"]')
    before, shown = bars.count(), rows.evaluate_all("rows => rows.filter((row) => row.checkVisibility()).length")
    assert shown > 0
    page.get_by_label("pombu", exact=True).uncheck()
    assert bars.count() == before * (len(synthetic.METHODS) - 1) // len(synthetic.METHODS)
    assert "pombu" not in chart(page, "scaling").locator(".legend").inner_text()
    assert rows.evaluate_all("rows => rows.filter((row) => row.checkVisibility()).length") == 0
    page.get_by_role("button", name="None").click()
    assert page.locator(".chart svg.swatch, .chart rect.bar, .chart path.line").count() == 0
    assert "No method" in chart(page, "regret").inner_text()
    page.get_by_role("button", name="All").click()
    assert bars.count() == before


def test_hovering_shows_the_values(open_page: Any) -> None:
    page = open_page()
    tip = page.locator("#tip")
    assert not tip.is_visible()
    chart(page, "regret").locator("rect.bar").first.hover()
    assert tip.inner_text().splitlines()[0] == "exact-ube, 10"
    assert "54.7 \u00b1 0.826 (5 seeds)" in tip.inner_text()
    chart(page, "learning").locator(".panels svg").first.hover()
    lines = tip.inner_text().splitlines()
    assert lines[0].startswith("episode ")
    assert sorted(line.split(":")[0] for line in lines[1:]) == sorted(synthetic.METHODS)
    page.locator("h1").hover()
    assert not tip.is_visible()


def test_tapping_shows_the_values(open_page: Any) -> None:
    page = open_page(viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    chart(page, "scaling").locator(".panels svg").first.tap()
    assert "\u00b1" in page.locator("#tip").inner_text()
    box = page.locator("#tip").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 360
    chart(page, "time").locator(".panels svg").tap()  # the first chart loses the focus, the tip stays with the second
    assert page.locator("#tip").is_visible()
    page.locator("h3", has_text="Return along the run").tap()
    assert not page.locator("#tip").is_visible()


def test_the_keyboard_reads_the_values(open_page: Any) -> None:
    page = open_page()
    tip, title = page.locator("#tip"), page.locator("#tip b")
    page.get_by_role("button", name="None").focus()
    page.keyboard.press("Tab")
    assert title.inner_text() == "exact-ube, 10"
    page.keyboard.press("ArrowRight")
    assert title.inner_text() == "pombu, 10"
    page.keyboard.press("End")
    assert title.inner_text() == f"{synthetic.METHODS[-1]}, 40"
    page.keyboard.press("Escape")
    assert not tip.is_visible()


@pytest.mark.parametrize("width", [360, 390, 768])
def test_narrow_pages_do_not_scroll_sideways(open_page: Any, width: int) -> None:
    page = open_page(viewport={"width": width, "height": 740})
    for details in page.locator("summary").all():
        details.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    wide = page.locator(".scroll").evaluate_all("all => all.filter((box) => box.scrollWidth > box.clientWidth).length")
    assert width > 390 or wide > 0  # wide tables scroll in their own box
    out = """all => all.filter((one) => !one.parentElement.closest(".scroll, .sideways, pre") && one.checkVisibility()
        && one.getBoundingClientRect().right > innerWidth).map((one) => one.outerHTML.slice(0, 80))"""
    assert page.locator("body *").evaluate_all(out) == []
    outside = "all => all.filter((svg) => svg.getBoundingClientRect().right > innerWidth).length"
    assert page.locator(".chart svg").evaluate_all(outside) == 0


def test_a_table_that_goes_on_to_the_side_says_so(open_page: Any) -> None:
    page = open_page(viewport={"width": 390, "height": 740})
    for details in page.locator("summary").all():
        details.click()
    page.wait_for_timeout(100)
    told = """all => all.map((box) => [box.scrollWidth > box.clientWidth, box.previousElementSibling.checkVisibility()])"""
    found = page.locator(".scroll").evaluate_all(told)
    assert [wide for wide, _ in found] == [hint for _, hint in found]
    assert any(wide for wide, _ in found)
    page.set_viewport_size({"width": 1300, "height": 740})
    page.wait_for_function("!document.querySelector('.hint').checkVisibility()")


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of a run with five digits on both axes of a line, bars far above the cap, and lines of one place."""
    many = FigureSpec("many", "Many", "lines", "total_regret", "episodes", "regret", x="episodes", facet="noise")
    bars = FigureSpec("bars", "Bars", "bars", "total_regret", "", "regret", x="noise", cap=20_000.0)
    one = FigureSpec("one", "One", "lines", "total_regret", "gain", "regret", x="gain")
    run = synthetic.write_run(tmp_path_factory.mktemp("runs") / "odd", seeds=2, figures=[many, bars, one], failed=False)
    rows = pd.read_csv(run / "results.csv")
    rows["episodes"], rows["value"] = rows["size"] * 250, rows["value"] * 100
    rows.to_csv(run / "results.csv", index=False)
    return html.build(run).as_uri()


@pytest.mark.parametrize("width", [390, 1100])
def test_no_number_of_a_chart_is_cut_off(open_page: Any, odd: str, width: int) -> None:
    page = open_page(odd, viewport={"width": width, "height": 740})
    assert "10,000" in page.locator("figure").nth(0).locator("text").all_text_contents()
    cut = """all => all.filter((text) => {
        const own = text.getBoundingClientRect(), whole = text.ownerSVGElement.getBoundingClientRect();
        return own.left < whole.left || own.right > whole.right || own.top < whole.top || own.bottom > whole.bottom;
    }).map((text) => text.textContent)"""
    assert page.locator(".chart text").evaluate_all(cut) == []


def test_bars_that_go_on_have_a_break_and_lines_of_one_place_are_dots_from_zero(open_page: Any, odd: str) -> None:
    page = open_page(odd)
    _, bars, dots = (page.locator("figure").nth(place) for place in range(3))
    tall = [text for text in bars.locator("text.value").all_text_contents() if float(text.replace(",", "")) > 20_000]
    assert 0 < len(tall) < bars.locator("rect.bar").count()
    assert bars.locator("path.break").count() == len(tall)
    assert dots.locator(".panels path.marker").count() == len(synthetic.METHODS)
    assert dots.locator("path.line").count() == 0
    assert "0" in dots.locator("text").all_text_contents()
    left = dots.locator(".panels path.marker").evaluate_all("all => all.map((dot) => dot.getBoundingClientRect().left)")
    assert len({round(place) for place in left}) == len(left)
    page.get_by_label("pombu", exact=True).uncheck()
    assert dots.locator(".panels path.marker").count() == len(synthetic.METHODS) - 1


def test_charts_follow_the_width(open_page: Any) -> None:
    page = open_page()
    before = chart(page, "time").locator(".panels svg").bounding_box()["width"]
    page.set_viewport_size({"width": 500, "height": 800})
    page.wait_for_function("document.querySelectorAll('.panels svg')[0].getBoundingClientRect().width < 480")
    after = chart(page, "time").locator(".panels svg")
    assert after.bounding_box()["width"] < before
    assert after.get_attribute("viewBox").split()[2] == str(round(after.bounding_box()["width"]))


def test_a_window_too_small_to_draw_in_is_no_error(open_page: Any) -> None:
    page = open_page(viewport={"width": 60, "height": 300})
    assert page.locator(".panels svg").count() == 0
    page.set_viewport_size({"width": 700, "height": 700})
    page.wait_for_selector("rect.bar")


def colors(page: Any) -> tuple[str, str, str]:
    """Ground, ink and the colour of the first line."""
    style = "([selector, name]) => getComputedStyle(document.querySelector(selector))[name]"
    asked = (["body", "backgroundColor"], ["body", "color"], ["path.line", "stroke"])
    ground, ink, line = (str(page.evaluate(style, pair)) for pair in asked)
    return ground, ink, line


def test_there_are_two_schemes_and_a_toggle(open_page: Any) -> None:
    light, dark = open_page(color_scheme="light"), open_page(color_scheme="dark")
    day, night = colors(light), colors(dark)
    assert all(a != b for a, b in zip(day, night, strict=True))
    light.get_by_role("button", name="Dark scheme").click()
    assert colors(light) == night
    light.get_by_role("button", name="Light scheme").click()
    assert colors(light) == day
    dark.get_by_role("button", name="Light scheme").click()
    assert colors(dark) == day


def test_downloads_hold_the_figure(open_page: Any) -> None:
    page = open_page()
    for kind, start in (("PNG", b"\x89PNG"), ("SVG", b"<?xml")):
        with page.expect_download() as waiting:
            chart(page, "regret").get_by_role("link", name=kind).click()
        assert waiting.value.suggested_filename == f"regret.{kind.lower()}"
        assert Path(waiting.value.path()).read_bytes().startswith(start)


def test_without_scripts_the_pictures_are_there(open_page: Any) -> None:
    page = open_page(java_script_enabled=False)
    images = page.locator("figure img")
    assert images.count() == len(synthetic.FIGURES) - 1
    for image in images.all():
        assert image.bounding_box()["width"] > 200
        assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") > 200
    assert not page.locator("#picker, #theme").first.is_visible()


def test_the_finder_prints_a_path_or_nothing(tmp_path: Path) -> None:
    def found(**variables: str) -> str:
        command = [sys.executable, str(ROOT / "tools" / "browser.py")]
        return subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout

    own = tmp_path / "my browser"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    assert found(PATH=str(tmp_path)) == ""
    assert found(PATH=str(tmp_path), UBEX_CHROMIUM=str(own)) == f"{own}\n"
    own.rename(tmp_path / "chromium-browser")
    assert found(PATH=str(tmp_path), UBEX_CHROMIUM="/nowhere") == f"{tmp_path / 'chromium-browser'}\n"


def test_failures_unfold(open_page: Any) -> None:
    page = open_page()
    failure = page.locator(".failure")
    assert "seeds 2, 3, 4" in failure.inner_text()
    assert not failure.locator("pre").is_visible()
    failure.locator("summary").click()
    assert "<script>alert(3)</script>" in failure.locator("pre").inner_text()


@pytest.mark.parametrize("script", [True, False])
def test_maps_have_a_look_for_each_scheme(open_page: Any, gallery: str, script: bool) -> None:
    light = open_page(gallery, color_scheme="light", java_script_enabled=script)
    dark = open_page(gallery, color_scheme="dark", java_script_enabled=script)
    for page, shown, hidden in ((light, ".day", ".night"), (dark, ".night", ".day")):
        assert page.locator(shown).first.is_visible()
        assert not page.locator(hidden).first.is_visible()
    if script:
        light.get_by_role("button", name="Dark scheme").click()
        assert light.locator(".night").first.is_visible()
        assert not light.locator(".day").first.is_visible()
        assert light.evaluate("[...document.images].every((image) => image.complete && image.naturalWidth > 0)")


def test_pictures_fit_a_phone_and_maps_scroll_in_their_own_box(open_page: Any, gallery: str) -> None:
    page = open_page(gallery, viewport={"width": 360, "height": 740})
    for details in page.locator("summary").all():
        details.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    boxes = [image.bounding_box() for image in page.locator(".pictures figure > img").all()]
    assert len(boxes) == 5
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= 360 and box["width"] == 240 for box in boxes)
    maps = page.locator(".sideways")
    assert maps.count() == 2
    assert all(maps.evaluate_all("all => all.map((box) => box.scrollWidth > box.clientWidth)"))


def test_only_the_first_seed_is_open(open_page: Any, gallery: str) -> None:
    page = open_page(gallery)
    images = page.locator(".pictures figure > img")
    assert images.evaluate_all("all => all.filter((image) => image.checkVisibility()).length") == 3
    page.get_by_text("Seed 1 (3)").click()
    assert images.evaluate_all("all => all.filter((image) => image.checkVisibility()).length") == 5
    assert page.locator(".pictures > figure:not(.wide)").first.bounding_box()["width"] < 400  # several in a row


def test_every_link_of_the_page_leads_somewhere(open_page: Any, gallery: str) -> None:
    for page in (open_page(), open_page(gallery)):
        links = page.locator("a").evaluate_all("all => all.map((a) => a.getAttribute('href'))")
        assert links
        folder = Path(unquote(urlsplit(page.url).path)).parent
        ids = set(page.locator("[id]").evaluate_all("all => all.map((element) => element.id)"))
        for link in links:
            if link.startswith("#"):
                assert link[1:] in ids
            elif not link.startswith("data:"):
                assert (folder / unquote(link)).exists(), link
