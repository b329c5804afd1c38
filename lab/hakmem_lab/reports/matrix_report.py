"""Writes the report of a matrix in each of its forms: terminal, Markdown, HTML, JSON, and a table of results."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from hakmem_lab.checkout import path_here
from hakmem_lab.files import json_write, text_write
from hakmem_lab.grid import Grid, grids_print
from hakmem_lab.reports.drawing import Picture
from hakmem_lab.reports.matrix_lines import reading_lines, summary_lines, warning_lines
from hakmem_lab.reports.matrix_text import (
    comparisons_grid,
    controls_grid,
    counts_grid,
    cpu_grid,
    failures_grid,
    faults_grid,
    figures_grid,
    goals_grid,
    groups_grid,
    memory_grid,
    memory_word,
    observed_grids,
    outcome_grid,
    speed_grid,
)
from hakmem_lab.reports.page import Page
from hakmem_lab.reports.pictures import pictures_make
from hakmem_lab.reports.then_and_now import then_grid
from hakmem_lab.studies.bench import Kept
from hakmem_lab.studies.comparing import Result
from hakmem_lab.studies.judging import Matrix
from hakmem_lab.studies.matrix import RESULTS_FILE
from hakmem_lab.studies.suites import GroupMean, group_means

TABLE_WIDTH = 220
"""Width if the output is not a terminal."""
TITLE = "The matrix: hakmem beside every peer"


@dataclass(frozen=True)
class Content:
    """What every form of the report contains."""

    matrix: Matrix
    means: Sequence[GroupMean]
    lines: Sequence[str]
    short: Sequence[Grid]
    """For the terminal."""
    full: Sequence[Grid]

    @classmethod
    def of(cls, matrix: Matrix) -> Content:
        means = group_means(matrix)
        short = [
            outcome_grid(matrix),
            speed_grid(matrix),
            memory_grid(matrix),
            figures_grid(matrix),
            counts_grid(matrix),
            groups_grid(matrix, means),
            then_grid(matrix),
            failures_grid(matrix),
            controls_grid(matrix, failed_only=True),
        ]
        full = [
            goals_grid(matrix, means),
            *short[:-1],
            cpu_grid(matrix),
            faults_grid(matrix),
            *observed_grids(matrix),
            comparisons_grid(matrix),
            controls_grid(matrix),
        ]
        return cls(matrix, means, [*warning_lines(matrix), *summary_lines(matrix, means)], short, full)


def matrix_show(run: Kept, report: Path | None, json_file: Path | None, complete: bool) -> Matrix:
    """Prints, and writes the requested files. The run's own folder always gets its page, and its table of results
    once it is complete."""
    content = Content.of(run.judged())
    lines = list(content.lines)
    try:
        kept = matrix_write(run, content, report, json_file, complete)
        lines.append(f"page: {path_here(kept)}")
    finally:  # also when the disk is full: the matrix is there
        console = Console(width=None if sys.stdout.isatty() else TABLE_WIDTH)
        grids_print(console, content.short)
        for line in lines:
            console.print(line, markup=False, highlight=False)
    return content.matrix


def matrix_write(
    run: Kept, content: Content, report: Path | None, json_file: Path | None, complete: bool
) -> Path:
    """The result is the page in the run's folder."""
    page = page_make(content, pictures_make(content.matrix), "raw/")
    kept = page.write_run(run.folder, run.store, report)
    if json_file is not None:
        json_write(json_file, json_content(content))
    if complete:
        text_write(run.folder / RESULTS_FILE, results_csv(content.matrix))
    return kept


def page_make(content: Content, pictures: Sequence[Picture], samples: str) -> Page:
    source, reading = content.matrix.plan.source, reading_lines(content.matrix)
    return Page(TITLE, source, content.lines, pictures, content.full, reading, samples)


def results_csv(matrix: Matrix) -> str:
    """One row for each comparison; its samples are found by workload and allocator."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = (
        "workload",
        "group",
        "against",
        "verdict",
        "failure",
        "ratio",
        "low",
        "high",
        "rounds",
        "disturbed",
    )
    more = ("rss_ratio", "rss_verdict", "cpu_ratio", "faults", "peer_faults", "run")
    writer.writerow((*columns, *more))
    for one in matrix.losses_first:
        estimate, memory = one.estimate, one.memory
        figures = (estimate.ratio, estimate.low, estimate.high, estimate.pairs) if estimate else ("",) * 4
        writer.writerow(
            (
                one.row.name,
                one.row.group,
                one.against,
                one.verdict.value if estimate else "",
                one.failure,
                *figures,
                one.disturbed,
                memory.estimate.ratio if memory else "",
                memory_word(memory) if memory else "",
                one.cpu.ratio if one.cpu else "",
                one.subject_faults,
                one.peer_faults,
                matrix.plan.run,
            )
        )
    return text.getvalue()


def json_content(content: Content) -> dict[str, object]:
    matrix = content.matrix
    return {
        "run": matrix.plan.run,
        "provenance": asdict(matrix.plan.source),
        "settings": asdict(matrix.plan.settings),
        "missing": dict(matrix.plan.missing),
        "workloads": [asdict(one) | {"outcome": one.outcome.value} for one in matrix.cells],
        "comparisons": [comparison_content(one) for one in matrix.losses_first],
        "means": [asdict(one) for one in content.means],
        "controls": [asdict(one) for one in matrix.controls],
        "failures": [
            {"workload": row, "allocator": arm, "what": what} for (row, arm), what in matrix.failures.items()
        ],
    }


def comparison_content(one: Result) -> dict[str, object]:
    memory = asdict(one.memory) | {"verdict": memory_word(one.memory)} if one.memory else None
    return asdict(one) | {"verdict": one.verdict.value, "memory": memory}
