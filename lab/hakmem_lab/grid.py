"""Tables for people: the same rows for the terminal (Rich) and for a page (Markdown)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hakmem_lab.errors import shown

STYLES = {
    "behind": "red",
    "dearer": "red",
    "missed": "red",
    "failed": "red",
    "problem": "red",
    "void": "red",
    "unclear": "yellow",
    "open": "yellow",
    "notice": "yellow",
    "ahead": "green",
    "cheaper": "green",
    "met": "green",
    "fine": "green",
}


@dataclass(frozen=True)
class Grid:
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    text_columns: int = 1
    """The first columns are text; the others are right-aligned."""

    def rich(self) -> Table:
        table = Table(title=escape(shown(self.title)), title_justify="left")
        for index, column in enumerate(self.columns):
            table.add_column(column, justify="left" if index < self.text_columns else "right")
        for row in self.rows:
            table.add_row(*(_styled(shown(text)) for text in row))
        return table

    def markdown(self) -> str:
        marks = ["---" if index < self.text_columns else "---:" for index in range(len(self.columns))]
        # A bar in a text would end its cell, and the end of a line the table.
        rows = [tuple(" ".join(text.replace("|", "\\|").splitlines()) for text in row) for row in self.rows]
        lines = [self.columns, marks, *rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _styled(text: str) -> str:
    style = STYLES.get(text.partition(":")[0])
    return f"[{style}]{escape(text)}[/{style}]" if style else escape(text)


def grids_print(console: Console, grids: Iterable[Grid]) -> None:
    for grid in grids:
        if grid.rows:
            console.print(grid.rich())
