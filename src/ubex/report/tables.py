"""Tables in the terminal."""

from __future__ import annotations

import rich.table
from rich.console import Console

from ubex.report import grids
from ubex.runs.records import Table


def show(table: Table, console: Console) -> None:
    """Prints a table and its note."""
    console.print(table.title, style="italic", markup=False)
    grid, shown = rich.table.Table(), grids.own(table)
    for index, column in enumerate(shown.columns):
        grid.add_column(column, justify="left" if index == 0 else "right", no_wrap=True)
    for row in shown.rows:
        grid.add_row(*row)
    console.print(grid)
    if table.note:
        console.print(table.note, markup=False)
