"""What the pictures of the docs share: the report's style, and one file for the same numbers."""

from __future__ import annotations

import io
from collections.abc import Callable

import matplotlib
from matplotlib.figure import Figure

from ubex.report import figures


def as_svg(draw: Callable[[], Figure]) -> str:
    """The text of the SVG file that a function draws."""
    text = io.StringIO()
    with matplotlib.rc_context(figures.STYLE):  # type: ignore[arg-type]
        draw().savefig(text, format="svg", metadata={"Date": None})
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"
