"""Tables as LaTeX, in the style of the package booktabs, for a document."""

from __future__ import annotations

from collections.abc import Sequence

from ubex.report.grids import Grid

SPECIAL = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "{": r"\{",
        "}": r"\}",
        "$": r"\$",
        "&": r"\&",
        "#": r"\#",
        "%": r"\%",
        "_": r"\_",
        "^": r"\textasciicircum{}",
        "~": r"\textasciitilde{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "\u00b1": r"$\pm$",
        "\u2013": "--",
        "\u2248": r"$\approx$",
        "\u2260": r"$\neq$",
        "\u2713": r"$\checkmark$",
    }
)
"""What LaTeX would take for something else, and the signs of verdicts; the tick is one of the package amssymb."""


def table(grid: Grid) -> str:
    """A table environment with caption and note; it needs the packages booktabs and amssymb."""
    kinds = "".join("l" if place < grid.texts else "r" for place in range(len(grid.columns)))
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{plain(f'{grid.title}. {grid.note}'.strip() if grid.note else grid.title)}}}",
        rf"\begin{{tabular}}{{{kinds}}}",
        r"\toprule",
        row(grid.columns),
        r"\midrule",
        *map(row, grid.rows),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def row(cells: Sequence[str]) -> str:
    """One row."""
    return " & ".join(protected(plain(cell)) for cell in cells) + r" \\"


def protected(text: str) -> str:
    """A cell that LaTeX does not take for an argument of the line before."""
    return f"{{{text}}}" if text.startswith(("[", "*")) else text


def plain(text: str) -> str:
    """Text on one line in which nothing is a command."""
    return " ".join(text.split()).translate(SPECIAL)
