"""A study as a page of Markdown, and how its figures are worded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from hakmem_lab.files import text_read, text_write
from hakmem_lab.grid import Grid
from hakmem_lab.measure.provenance import Provenance
from hakmem_lab.statistics.estimate import Estimate


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
    """Writes the report and, if there are any, its samples beside it."""
    beside = path.with_suffix(".csv")
    kept = samples is not None and samples.exists()
    text = markdown_report(title, provenance, notes, grids, beside.name if kept else "")
    text_write(path, text)
    if samples is not None and kept:
        text_write(beside, text_read(samples))
