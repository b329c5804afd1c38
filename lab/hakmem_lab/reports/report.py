"""Tables for people: the same rows for the terminal (Rich) and for the report (Markdown)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hakmem_lab.errors import LabError
from hakmem_lab.measure.provenance import Provenance
from hakmem_lab.statistics.estimate import Estimate

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
    """The first columns are text, the others are aligned to the right."""

    def rich(self) -> Table:
        table = Table(title=escape(self.title), title_justify="left")
        for index, column in enumerate(self.columns):
            table.add_column(column, justify="left" if index < self.text_columns else "right")
        for row in self.rows:
            table.add_row(*(_styled(text) for text in row))
        return table

    def markdown(self) -> str:
        marks = ["---" if index < self.text_columns else "---:" for index in range(len(self.columns))]
        # A bar in a text would end its cell.
        rows = [tuple(text.replace("|", "\\|") for text in row) for row in self.rows]
        lines = [self.columns, marks, *rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _styled(text: str) -> str:
    style = STYLES.get(text.partition(":")[0])
    return f"[{style}]{escape(text)}[/{style}]" if style else escape(text)


def ratio_text(estimate: Estimate) -> str:
    if not math.isfinite(estimate.high):
        return f"{estimate.ratio:.2f} (too few pairs)"
    return f"{estimate.ratio:.2f} ({estimate.low:.2f} to {estimate.high:.2f})"


def mib_text(kib: float | None) -> str:
    return "" if kib is None else f"{kib / 1024:.1f}"


def markdown_report(
    title: str, provenance: Provenance, notes: Sequence[str], grids: Sequence[Grid], samples: str
) -> str:
    head = Grid("", ("what", "value"), tuple(provenance.rows()), text_columns=2)
    parts = [f"# {title}", "*Generated; do not edit.*", head.markdown(), *notes]
    for grid in grids:
        if grid.rows:
            parts += [f"## {grid.title}", grid.markdown()]
    if samples:
        parts.append(f"Raw samples: [{samples}]({samples}), one row for each process.")
    return "\n\n".join(parts) + "\n"


def report_write(
    path: Path,
    title: str,
    provenance: Provenance,
    notes: Sequence[str],
    grids: Sequence[Grid],
    samples: Path | None = None,
) -> None:
    """The report, and its samples, if it has any, beside it."""
    beside = path.with_suffix(".csv")
    kept = samples is not None and samples.exists()
    text = markdown_report(title, provenance, notes, grids, beside.name if kept else "")
    text_write(path, text)
    if samples is not None and kept:
        text_write(beside, samples.read_text())


def text_write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as error:
        raise LabError(f"cannot write {path}: {error.strerror}") from error


def target_check(path: Path | None) -> Path | None:
    """The PATH that a user gave for a result, when a file can be written there: to be known before anything is
    measured. Nothing is left behind, and folders are not made."""
    if path is None:
        return None
    try:
        kept = path.exists()
        if kept and not (path.is_file() or path.is_dir()):
            return path  # a device or a pipe takes what comes, once
        with path.open("ab"):
            pass
        if not kept:
            path.unlink()
    except OSError as error:
        raise LabError(f"cannot write {path}: {error.strerror}") from error
    return path


def json_write(path: Path, content: object) -> None:
    """JSON has no infinity: the end of an interval that too few pairs leave open is null."""
    text_write(path, json.dumps(finite(content), indent=1, default=str, allow_nan=False) + "\n")


def finite(content: object) -> object:
    """With null for every number that is none."""
    if isinstance(content, dict):
        return {name: finite(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def grids_print(console: Console, grids: Iterable[Grid]) -> None:
    for grid in grids:
        if grid.rows:
            console.print(grid.rich())
