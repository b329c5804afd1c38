"""What the commands share: their options, and how results are shown."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from hakmem_lab.errors import LabError
from hakmem_lab.measure import provenance
from hakmem_lab.measure.pairs import Budget, cpus_allowed
from hakmem_lab.reports.files import text_write
from hakmem_lab.reports.report import (
    Grid,
    figures_grids,
    grids_print,
    reading_lines,
    report_write,
    suite_lines,
    warning_lines,
)
from hakmem_lab.studies.figures import Figures, Settings
from hakmem_lab.studies.study import Study
from hakmem_lab.workloads.cells import Cell

TABLE_WIDTH = 150
"""Where the output is not a terminal."""

BuildOption = Annotated[
    Path | None,
    typer.Option("--build", help="Take the library and bench/ from this build directory."),
]
BudgetOption = Annotated[
    float, typer.Option(min=0.1, help="Seconds for each cell and peer, fixed in advance.")
]
MarginOption = Annotated[float, typer.Option(min=0.1, max=50, help="Per cent within which speeds are equal.")]
ConfidenceOption = Annotated[
    float, typer.Option(min=50, max=99.9, help="Per cent confidence of each interval.")
]
PeersOption = Annotated[str, typer.Option(help="Peers to measure against, separated by commas.")]
OnlyOption = Annotated[
    str, typer.Option(help="Only cells whose name contains one of these, separated by commas.")
]
SeedOption = Annotated[
    int | None, typer.Option(help="Repeat an earlier run's draws; chosen anew if not given.")
]
ReportOption = Annotated[
    Path | None, typer.Option(help="Write a Markdown report here, its raw samples beside it.")
]
JsonOption = Annotated[Path | None, typer.Option("--json", help="Write the results here.")]


def words_split(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def cells_chosen(cells: Sequence[Cell], only: str) -> list[Cell]:
    words = [word.lower() for word in words_split(only)]
    if not words:
        return list(cells)
    chosen = [
        cell for cell in cells if any(word in cell.name.lower() or word == cell.program for word in words)
    ]
    if not chosen:
        names = "; ".join(cell.name for cell in cells)
        raise LabError(f"no cell is named like '{only}'; there are: {names}")
    return chosen


def settings_make(budget: float, margin: float, confidence: float) -> Settings:
    return Settings(Budget(budget, confidence=confidence / 100), margin / 100)


def settings_text(settings: Settings) -> str:
    budget = settings.budget
    return (
        f"--budget {budget.seconds_per_comparison:g} --margin {100 * settings.margin:g}"
        f" --confidence {100 * budget.confidence:g}"
    )


def figures_show(
    study: Study,
    source: provenance.Provenance,
    measured: Figures,
    title: str,
    seed: int,
    report: Path | None,
    json_file: Path | None,
) -> None:
    """Prints, writes what was asked for, and ends with the status of the targets."""
    grids = figures_grids(measured)
    means = [*warning_lines(measured, len(cpus_allowed())), *suite_lines(measured, seed)]
    grids_show(grids, [*means, samples_text(study)])
    if report is not None:
        notes = [*means, *reading_lines(measured)]
        report_write(report, title, source, notes, grids, study.samples.path)
    if json_file is not None:
        content = {"provenance": asdict(source)} | _figures_content(measured)
        text_write(json_file, json.dumps(content, indent=2, default=str) + "\n")
    if measured.missed:
        raise typer.Exit(1)


def samples_text(study: Study) -> str:
    return f"samples: {study.checkout.shown(study.samples.path)}"


def grids_show(grids: Sequence[Grid], lines: Sequence[str]) -> None:
    console = Console(width=None if sys.stdout.isatty() else TABLE_WIDTH)
    grids_print(console, grids)
    for line in lines:
        console.print(line, markup=False, highlight=False)


def _figures_content(figures: Figures) -> dict[str, object]:
    return {
        "settings": asdict(figures.settings),
        "results": [
            asdict(result) | {"verdict": result.verdict.value, "target_state": result.target_state}
            for result in figures.losses_first
        ],
        "controls": [asdict(control) for control in figures.controls],
    }
