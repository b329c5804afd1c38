"""Tables for people: the same rows for the terminal (Rich) and for the report (Markdown)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from hakmem_lab.measure.provenance import Provenance
from hakmem_lab.reports.files import text_write
from hakmem_lab.statistics.estimate import Estimate
from hakmem_lab.studies.figures import RSS_MARGIN, Control, Figures, Memory, Result
from hakmem_lab.workloads.cells import Measure

STYLES = {
    "behind": "red",
    "missed": "red",
    "failed": "red",
    "void": "red",
    "unclear": "yellow",
    "open": "yellow",
    "ahead": "green",
    "met": "green",
}


@dataclass(frozen=True)
class Grid:
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    text_columns: int = 1
    """The first columns are text, the others are aligned to the right."""

    def rich(self) -> Table:
        table = Table(title=self.title, title_justify="left")
        for index, column in enumerate(self.columns):
            table.add_column(column, justify="left" if index < self.text_columns else "right")
        for row in self.rows:
            table.add_row(*(_styled(text) for text in row))
        return table

    def markdown(self) -> str:
        marks = ["---" if index < self.text_columns else "---:" for index in range(len(self.columns))]
        lines = [self.columns, marks, *self.rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _styled(text: str) -> str:
    style = STYLES.get(text.partition(":")[0])
    return f"[{style}]{text}[/{style}]" if style else text


def ratio_text(estimate: Estimate) -> str:
    if not math.isfinite(estimate.high):
        return f"{estimate.ratio:.2f} (too few pairs)"
    return f"{estimate.ratio:.2f} ({estimate.low:.2f} to {estimate.high:.2f})"


def mib_text(kib: float | None) -> str:
    return "" if kib is None else f"{kib / 1024:.1f}"


def figures_grids(figures: Figures) -> list[Grid]:
    results = figures.losses_first
    return [_speed_grid(figures, results), _memory_grid(results), _control_grid(figures.controls)]


def _speed_grid(figures: Figures, results: Sequence[Result]) -> Grid:
    percent = 100 * figures.settings.budget.confidence
    return Grid(
        title="Speed, losses first",
        columns=(
            "cell",
            "against",
            "verdict",
            "target",
            f"times as fast ({percent:g} %)",
            "visible from",
            "pairs",
            "disturbed",
        ),
        rows=tuple(
            (
                result.cell.name,
                result.against,
                result.verdict.value,
                f"{result.target_state}: {result.target.text}" if result.target else "",
                ratio_text(result.estimate),
                f"{result.detectable:.2f}",
                str(result.estimate.pairs),
                str(result.disturbed),
            )
            for result in results
        ),
        text_columns=4,
    )


def _memory_row(cell: str, against: str, memory: Memory) -> tuple[str, ...]:
    verdict = ""
    if memory.rss:
        words = {"ahead": "larger", "behind": "smaller"}
        value = memory.rss.verdict(RSS_MARGIN).value
        verdict = words.get(value, value)
    return (
        cell,
        against,
        verdict,
        mib_text(memory.subject_rss_kib),
        mib_text(memory.other_rss_kib),
        ratio_text(memory.rss) if memory.rss else "",
        f"{memory.subject_faults:.0f}",
        f"{memory.other_faults:.0f}",
    )


def _memory_grid(results: Iterable[Result]) -> Grid:
    ordered = sorted(
        (one for one in results if one.memory.rss),
        key=lambda one: -(one.memory.rss.ratio if one.memory.rss else 0),
    )
    return Grid(
        title="Peak memory and page faults, largest ratio first",
        columns=(
            "cell",
            "against",
            f"memory (margin {100 * RSS_MARGIN:g} %)",
            "hakmem MiB",
            "peer MiB",
            "times as large",
            "hakmem faults",
            "peer faults",
        ),
        rows=tuple(_memory_row(one.cell.name, one.against, one.memory) for one in ordered),
        text_columns=3,
    )


def _control_grid(controls: Iterable[Control]) -> Grid:
    rows = [
        (
            control.cell.name,
            control.name,
            "passed" if control.passed else "failed",
            control.means,
            ratio_text(control.estimate),
            str(control.estimate.pairs),
        )
        for control in sorted(controls, key=lambda control: control.passed)
    ]
    return Grid(
        title="Controls",
        columns=("cell", "hakmem against", "control", "meaning", "times as fast", "pairs"),
        rows=tuple(rows),
        text_columns=4,
    )


def suite_lines(figures: Figures, seed: int) -> list[str]:
    lines = []
    for against in dict.fromkeys(result.against for result in figures.results):
        estimate = figures.suite(against, seed)
        if estimate is not None:
            lines.append(f"Geometric mean over the cells: {ratio_text(estimate)} times as fast as {against}.")
    return lines


def warning_lines(figures: Figures, processors: int) -> list[str]:
    """What was measured in other circumstances than it was meant for."""
    crowded = {one.cell.name: one.cell.threads for one in figures.results if one.cell.threads > processors}
    lines = [
        f"{name}: its {threads} threads had to share {processors} processor{'s'[: processors - 1]}."
        for name, threads in crowded.items()
    ]
    if any(one.disturbed >= one.estimate.pairs for one in figures.results):
        lines.append("The machine was busy: in some cells all pairs were disturbed.")
    return lines


def reading_lines(figures: Figures) -> list[str]:
    settings = figures.settings
    budget = settings.budget
    shortest = min(result.shortest_run for result in figures.results)
    by_cpu = dict.fromkeys(one.cell.name for one in figures.results if one.cell.measure is Measure.CPU)
    paced = [f"Measured in processor time, not by the clock: {', '.join(by_cpu)}."] if by_cpu else []
    return [
        *paced,
        "Each figure is the Hodges-Lehmann estimate of hakmem's speed over the peer's (operations per"
        " second), from interleaved pairs of fresh processes in random order with the same seed,"
        " processors and environment size, with the interval that inverts the Wilcoxon signed rank"
        f" test at {100 * budget.confidence:g} %. The margin is {100 * settings.margin:g} %:"
        " *ahead* and *behind* are clear of it, *equal* lies within it, *unclear* is neither."
        " *Visible from* is the smallest ratio that an interval of this width would have called ahead.",
        f"Budget: {budget.seconds_per_comparison:g} s for each cell and peer, fixed before the first"
        f" pair; the shortest run took {shortest:.2f} s (at least {budget.run_seconds_min:g} s are"
        " asked). Disturbed pairs (steal time, major faults, foreign processes on the processor;"
        " the rule does not look at times) are kept in the samples and measured again; where too few"
        " quiet ones were left, all are analysed.",
        f"Controls: *itself* is the same library under another name; *itself, slowed* is that copy"
        f" slowed by {settings.slowdown_percent:g} %; the negative control allocates nothing. A cell"
        " with a false win is void, and without a seen slowdown nothing is called equal.",
        "glibc 2.36 understates current glibc (2.42 caches up to 4 MiB a thread). mimalloc 3 asks for"
        " huge pages by default, which its memory shows; `mimalloc3-nothp` is it without them.",
    ]


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


def grids_print(console: Console, grids: Iterable[Grid]) -> None:
    for grid in grids:
        if grid.rows:
            console.print(grid.rich())
