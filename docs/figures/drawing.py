"""What the pictures of the docs share: the report's style, and one file for the same numbers."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

import matplotlib
from matplotlib.figure import Figure

from ubex.report import figures


def as_svg(draw: Callable[[], Figure]) -> str:
    """The text of the SVG file that a function draws."""
    text = io.StringIO()
    with matplotlib.rc_context(figures.STYLE):  # type: ignore[arg-type]
        draw().savefig(text, format="svg", metadata={"Date": None})
    return numbered("\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n")


def numbered(svg: str) -> str:
    """The same with ids that are counted: matplotlib makes them of numbers whose last bits differ between machines."""
    hashed = dict.fromkeys(re.findall(r' id="([a-z]+[0-9a-f]{10})"', svg))
    names = {name: f"id{number}" for number, name in enumerate(hashed)}
    return re.sub(r'(?<=["#])[a-z]+[0-9a-f]{10}(?=[")])', lambda found: names.get(found[0], found[0]), svg)
