"""Tables for a document: rows and columns as they are, and nothing in them is a command."""

from __future__ import annotations

from pathlib import Path

import synthetic

from ubex import cli
from ubex.report import latex
from ubex.report.grids import Grid


def test_a_table_has_rules_and_its_columns() -> None:
    grid = Grid(
        "Regret", ["method", "size", "mean"], [["pombu", "10", "1.5 \u00b1 0.2"], ["psrl", "20", "-"]], "A note.", texts=2
    )
    lines = latex.table(grid).splitlines()
    rules = [lines.index(rf"\{name}rule") for name in ("top", "mid", "bottom")]
    assert lines[rules[0] - 1] == r"\begin{tabular}{llr}"
    assert lines[rules[0] + 1 : rules[2]] == [
        r"method & size & mean \\",
        r"\midrule",
        r"pombu & 10 & 1.5 $\pm$ 0.2 \\",
        r"psrl & 20 & - \\",
    ]
    assert r"\caption{Regret. A note.}" in lines
    assert lines[-2:] == [r"\end{tabular}", r"\end{table}"]


def test_nothing_in_a_cell_is_a_command() -> None:
    text = latex.table(Grid("50% & more", ["a"], [[r"\input{x} $y$ #1 a_b ~^ <>|"], ["[1, 2]"]]))
    row = (
        r"\textbackslash{}input\{x\} \$y\$ \#1 a\_b \textasciitilde{}\textasciicircum{} \textless{}\textgreater{}\textbar{} \\"
    )
    assert row in text.splitlines()
    assert r"{[1, 2]} \\" in text.splitlines()  # a bracket would be an option of the row above
    assert r"\caption{50\% \& more}" in text


def test_one_option_writes_figures_as_pdf_and_tables_as_latex(tmp_path: Path) -> None:
    run = synthetic.write_run(tmp_path / "run", "plain", seeds=1, figures=synthetic.FIGURES[:1], failed=False)
    report = run / "report"
    assert cli.run(["report", str(run), "--latex"]) == 0
    assert (report / "figures" / "regret.pdf").read_bytes().startswith(b"%PDF")
    tables = {path.name: path.read_text() for path in (report / "tables").iterdir()}
    assert {"Total-regret.tex", "Own-table.tex", "Ours-next-to-the-published-values.tex"} <= set(tables)
    assert all(r"\toprule" in text for text in tables.values())
    assert cli.run(["report", str(run)]) == 0  # without it, what it wrote is stale
    assert [*report.glob("*/*.pdf"), *report.glob("*/*.tex")] == []
