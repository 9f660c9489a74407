"""Tables in the terminal."""

from __future__ import annotations

import io

from rich.console import Console

from ubex.report import tables
from ubex.runs.records import Table


def test_columns_and_metrics_have_names_for_people() -> None:
    console = Console(file=io.StringIO(), width=100)
    tables.show(Table("T", ["metric", "prior_mass"], [["total_regret", "a_b"]], "A note."), console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "prior mass" in text
    assert "total regret" in text
    assert "a_b" in text
    assert "A note." in text
