"""Builds the documentation site from README.md and docs/: plain pages that work from disk, without a server or a network.

Markdown stays the source and reads well on its own. Here it gets a frame with navigation, links between pages instead of
between files, highlighted code, and a reference made from the docstrings (docs_api.py). A link that leads nowhere stops it.
"""

from __future__ import annotations

import argparse
import html
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import docs_api
import jinja2
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name, guess_lexer_for_filename
from pygments.util import ClassNotFound

ROOT = Path(__file__).resolve().parent.parent
FRAME = Path(__file__).resolve().parent / "site"
HOME, FILES = "index.html", "files"
NAMES = {"README.md": HOME}
"""Pages that are not named after their file."""
IMAGES = (".svg", ".png", ".gif", ".jpg", ".jpeg", ".webp")
SHOWN_LINES = 200
"""Lines of a linked file that its page shows; the whole file lies next to it."""
GROUPS = (
    ("Theory", ("equations", "closed-form")),
    ("Results", ("results", "reproduce", "performance")),
    ("Contribute", ("CONTRIBUTING", "architecture", "adding", "CHANGELOG")),
)
"""Headings of the navigation and the pages under them, by file name; all other pages are the guide."""
GUIDE, REFERENCE = "Guide", "Reference"
STYLES = ("default", "github-dark")
"""Colours of code on light and on dark ground."""


class SiteError(Exception):
    """Something in the sources that would be broken on the site: one line."""


@dataclass
class Page:
    """A page of the site."""

    source: Path
    """The file it is made of, or stands for; errors name it."""
    name: str
    """File name on the site."""
    text: str
    """Markdown."""
    group: str = ""
    """Heading of the navigation that it stands under; none if empty."""
    title: str = ""
    label: str = ""
    """What the navigation calls it."""
    body: str = ""
    headings: list[tuple[int, str, str]] = field(default_factory=list)
    """Level, anchor and text."""


@dataclass(frozen=True)
class Reference:
    """A link from one page to another, checked when all pages are there."""

    page: Page
    address: str
    target: str
    anchor: str


def slug(text: str) -> str:
    """The anchor of a heading, by GitHub's rule."""
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


class Site:
    """All pages, and what they need."""

    def __init__(self, root: Path, out: Path) -> None:
        """Reads `root` and writes `out`, which is made anew."""
        self.root, self.out = root, out
        self.pages: dict[Path, Page] = {}
        self.waiting: list[Page] = []
        self.references: list[Reference] = []
        self.copies: set[Path] = set()
        self.api: dict[str, str] = {}
        """Addresses of documented names."""
        self.markdown = MarkdownIt("commonmark", {"highlight": coloured}).enable(["table", "strikethrough"])

    def build(self) -> list[Page]:
        """Makes every page, checks every link and writes everything."""
        for module in docs_api.modules():
            source = self.root / "src" / Path(*module.name.split("."))
            page = Page(source, f"api-{module.name}.html", module.markdown(), REFERENCE)
            self.add(page)
            self.api |= {name: f"{page.name}#{slug(name)}" for name in module.documented()}
        for source in self.sources():
            self.page(source)
        while self.waiting:
            self.render(self.waiting.pop(0))
        self.check()
        self.write()
        return list(self.pages.values())

    def sources(self) -> Iterator[Path]:
        """The Markdown files that everything else is linked from."""
        for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
            if (self.root / name).exists():
                yield self.root / name
        yield from sorted((self.root / "docs").glob("*.md"))

    def add(self, page: Page) -> Page:
        """A page that is to be rendered."""
        if any(page.name == other.name for other in self.pages.values()):
            raise SiteError(f"{page.source}: there is another page {page.name}")
        self.pages[page.source] = page
        self.waiting.append(page)
        return page

    def page(self, source: Path) -> Page:
        """The page of a file: Markdown as it is meant, anything else as its text, a folder as a list."""
        if source in self.pages:
            return self.pages[source]
        inside = source.relative_to(self.root)
        flat = "-".join(inside.parts[1:] if inside.parts[0] == "docs" and len(inside.parts) == 2 else inside.parts)
        if source.suffix == ".md":
            name = NAMES.get(inside.as_posix(), f"{flat.removesuffix('.md')}.html")
            known = source.parent in (self.root, self.root / "docs")
            return self.add(Page(source, name, source.read_text(encoding="utf-8"), group_of(source.stem) if known else ""))
        return self.add(Page(source, f"{flat}.html", listing(source, str(inside))))

    def render(self, page: Page) -> None:
        """Fills in title, headings and body."""
        tokens = self.markdown.parse(page.text)
        used: dict[str, int] = {}
        for token, following in zip(tokens, [*tokens[1:], None], strict=True):
            if token.type == "heading_open" and following is not None:
                text = plain(following)
                anchor = slug(text)
                used[anchor] = used.get(anchor, -1) + 1
                anchor += f"-{used[anchor]}" if used[anchor] else ""
                token.attrSet("id", anchor)
                page.headings.append((int(token.tag[1]), anchor, text))
            if token.type == "html_block":
                token.content = self.raw(page, token.content)
            for child in token.children or ():
                self.rewrite(page, child)
            if token.children:
                token.children = list(self.linked_names(page, token.children))
        page.title = next((text for level, _, text in page.headings if level == 1), page.source.stem)
        page.label = "Start" if page.name == HOME else page.title
        rendered = self.markdown.renderer.render(tokens, self.markdown.options, {})
        rendered = re.sub(r"<table>.*?</table>", r'<div class="scroll" tabindex="0">\g<0></div>', rendered, flags=re.DOTALL)
        page.body = rendered.replace("<pre>", '<pre tabindex="0">')

    def rewrite(self, page: Page, token: Token) -> None:
        """Points links and pictures to where their targets are on the site."""
        for attribute in ("href", "src"):
            given = token.attrGet(attribute)
            if given is not None:
                token.attrSet(attribute, self.address(page, str(given)))
        if token.type == "html_inline":
            token.content = self.raw(page, token.content)

    def raw(self, page: Page, markup: str) -> str:
        """The same inside HTML that stands in the Markdown."""

        def moved(found: re.Match[str]) -> str:
            return f'{found[1]}="{html.escape(self.address(page, html.unescape(found[2])))}"'

        return re.sub(r'\b(href|src|srcset)="([^"]*)"', moved, markup)

    def linked_names(self, page: Page, tokens: Sequence[Token]) -> Iterator[Token]:
        """The tokens, with links around documented names that stand in code and not in a link already."""
        depth = 0
        for token in tokens:
            depth += {"link_open": 1, "link_close": -1}.get(token.type, 0)
            address = self.api.get(token.content.partition("(")[0]) if token.type == "code_inline" and not depth else None
            if address is None or address.startswith(page.name):
                yield token
                continue
            yield Token("link_open", "a", 1, attrs={"href": address})
            yield token
            yield Token("link_close", "a", -1)

    def address(self, page: Page, given: str) -> str:
        """Where a link leads on the site."""
        parts = urlsplit(given)
        if parts.scheme or parts.netloc:
            return given
        if not parts.path:
            self.references.append(Reference(page, given, page.name, parts.fragment))
            return given
        target = (page.source.parent / unquote(parts.path)).resolve()
        if not target.is_relative_to(self.root) or not target.exists():
            raise SiteError(f"{page.source.relative_to(self.root)}: the link {given} leads nowhere")
        if target.suffix in IMAGES or FILES in parts.query:
            self.copies.add(target)
            return f"{FILES}/{quote(str(target.relative_to(self.root)))}"
        name = self.page(target).name
        self.references.append(Reference(page, given, name, parts.fragment))
        return quote(name) + (f"#{parts.fragment}" if parts.fragment else "")

    def check(self) -> None:
        """Every anchor that is linked to exists."""
        anchors = {page.name: {anchor for _, anchor, _ in page.headings} for page in self.pages.values()}
        for link in self.references:
            if link.anchor and link.anchor not in anchors[link.target]:
                raise SiteError(f"{link.page.source.relative_to(self.root)}: the link {link.address} has no such heading")

    def write(self) -> None:
        """Pages, pictures, styles and the script."""
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir(parents=True)
        loader = jinja2.FileSystemLoader(FRAME)
        frame = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True).get_template(
            "page.html.jinja"
        )
        menu = self.menu()
        for page in self.pages.values():
            (self.out / page.name).write_text(
                frame.render(page=page, body=Markup(page.body), menu=menu, home=HOME), encoding="utf-8"
            )
        for source in self.copies:
            place = self.out / FILES / source.relative_to(self.root)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, place)
        (self.out / "site.css").write_text((FRAME / "site.css").read_text(encoding="utf-8") + code_styles(), encoding="utf-8")
        shutil.copyfile(FRAME / "site.js", self.out / "site.js")

    def menu(self) -> list[tuple[str, list[Page]]]:
        """The navigation: the guide in the order in which its contents, or the README, link to it, then the other groups."""
        home = self.pages[self.root / "README.md"]
        contents = self.pages.get(self.root / "docs" / "guide.md", home)
        order = [contents.name, *(link.target for link in self.references if link.page is contents)]
        place = {name: index for index, name in reversed(list(enumerate(order)))}
        guide = [page for page in self.pages.values() if page.group == GUIDE]
        guide.sort(key=lambda page: (page is not home, place.get(page.name, len(order)), page.name))
        groups = [(GUIDE, guide)]
        for heading, names in GROUPS:
            inside = [page for page in self.pages.values() if page.group == heading]
            groups.append((heading, sorted(inside, key=lambda page: names.index(page.source.stem))))
        return [*groups, (REFERENCE, [page for page in self.pages.values() if page.group == REFERENCE])]


def group_of(stem: str) -> str:
    """The heading that a page stands under."""
    return next((heading for heading, names in GROUPS if stem in names), GUIDE)


def plain(token: Token) -> str:
    """The text of a heading, without markup."""
    return "".join(child.content for child in token.children or () if child.type in ("text", "code_inline"))


def coloured(code: str, language: str, _: Any = None) -> str:
    """Code with colours, where the language is known."""
    try:
        lexer = get_lexer_by_name(language or "text")
    except ClassNotFound:
        lexer = get_lexer_by_name("text")
    return str(highlight(code, lexer, HtmlFormatter(nowrap=True)))


def code_styles() -> str:
    """Colours of code for both schemes."""
    light, dark = (HtmlFormatter(style=style).get_style_defs("pre code") for style in STYLES)
    keep = [line for line in dark.splitlines() if line.startswith("pre code .")]
    nested = "\n".join(f':root[data-theme="dark"] {line}' for line in keep)
    system = "\n".join(f':root:not([data-theme="light"]) {line}' for line in keep)
    plain_light = "\n".join(line for line in light.splitlines() if line.startswith("pre code ."))
    return f"\n{plain_light}\n{nested}\n@media (prefers-color-scheme: dark) {{\n{system}\n}}\n"


def listing(source: Path, inside: str) -> str:
    """Markdown for a file that is not Markdown, or for a folder."""
    if source.is_dir():
        names = sorted(entry.name + "/" * entry.is_dir() for entry in source.iterdir() if entry.name[0] not in "._")
        readme = f"\n\n[README]({source.name}/README.md)" if (source / "README.md").exists() else ""
        return f"# {inside}\n\n" + "\n".join(f"* `{name}`" for name in names) + readme
    try:
        lines = source.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        return f"# {inside}\n\n[The file]({quote(source.name)}?{FILES})"
    try:
        language = guess_lexer_for_filename(source.name, "").aliases[0]
    except (ClassNotFound, IndexError):
        language = "text"
    more = f"\n\nThe first {SHOWN_LINES} of {len(lines)} lines." if len(lines) > SHOWN_LINES else ""
    shown = "\n".join(lines[:SHOWN_LINES])
    return f"# {inside}\n\n[The whole file]({quote(source.name)}?{FILES}){more}\n\n````{language}\n{shown}\n````\n"


def main() -> None:
    """Builds the site and says where it is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "site", help="folder of the site, made anew")
    options = parser.parse_args()
    try:
        pages = Site(ROOT, options.out.resolve()).build()
    except SiteError as error:
        print(f"docs: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    print(f"docs: {len(pages)} pages, {os.path.relpath(options.out / HOME)}")


if __name__ == "__main__":
    main()
