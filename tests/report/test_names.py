"""Names for people: no underscore reaches a reader in tables, axes or headings, while files keep their names."""

from __future__ import annotations

import json
from pathlib import Path

import synthetic
from test_html import Reader

from ubex.report import html
from ubex.report.names import NAMES, people
from ubex.runs.records import FigureSpec


def test_names_are_words() -> None:
    assert [people(name) for name in ("total_regret", "size", "num_models")] == ["total regret", "size", "models N"]
    assert not [name for name in NAMES.values() if "_" in name]


def test_no_underscore_is_in_tables_headings_and_charts(tmp_path: Path) -> None:
    figure = FigureSpec(
        "regret", "Total regret", "bars", "total_regret", "", "total regret", x="environment", facet="num_models"
    )
    absent = FigureSpec("absent", "Absent", "bars", "never_measured", "", "", x="size")
    run = synthetic.write_run(tmp_path / "run", "plain", seeds=2, figures=[figure, absent], failed=False)
    table = {"title": "Own", "columns": ["metric", "prior_mass"], "rows": [["total_regret", "a_b"]], "note": ""}
    (run / "tables.json").write_text(json.dumps([table]))
    page = Reader(html.build(run).read_text(encoding="utf-8"))
    said = [text for tag, text in page.texts if tag in ("th", "td", "caption", "h1", "h2", "h3", "p", "figcaption", "title")]
    cells = set(page.said("th")) | set(page.said("td"))
    assert {"prior mass", "total regret", "a_b"} <= cells  # a value is what it is
    # a cell of the run is named by its settings as they are typed
    assert [text for text in said if "_" in text and "=" not in text] == ["a_b"]
    (chart,) = json.loads(page.said("script")[0])["charts"]
    assert chart["facet"] == "models N"
    assert "models N = 5" in (run / "report" / "figures" / "regret.svg").read_text()
