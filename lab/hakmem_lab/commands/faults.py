"""`hakmem faults`."""

from __future__ import annotations

import secrets
from typing import Annotated

import typer

from hakmem_lab.checkout import Checkout
from hakmem_lab.commands.common import (
    BudgetOption,
    BuildOption,
    ConfidenceOption,
    MarginOption,
    ReportOption,
    SeedOption,
    grids_show,
    samples_text,
    settings_make,
    settings_text,
)
from hakmem_lab.measure import provenance
from hakmem_lab.measure.pairs import cpus_allowed
from hakmem_lab.reports.report import (
    figures_grids,
    reading_lines,
    report_write,
    warning_lines,
)
from hakmem_lab.studies.checks import Check, checks_grid
from hakmem_lab.studies.faults import faults_checks, faults_grid, faults_measure
from hakmem_lab.studies.figures import Figures
from hakmem_lab.studies.study import study_open
from hakmem_lab.workloads.cells import PROCESS_START


def faults(
    budget: BudgetOption = 5.0,
    margin: MarginOption = 3.0,
    confidence: ConfidenceOption = 99.0,
    timing: Annotated[bool, typer.Option(help="Also time the start of `true` in pairs.")] = True,
    seed: SeedOption = None,
    report: ReportOption = None,
    build: BuildOption = None,
) -> None:
    """Page faults, dirty pages and the cost of starting, against glibc and mimalloc 3."""
    checkout = Checkout.find(build)
    seed = secrets.randbits(32) if seed is None else seed
    settings = settings_make(budget, margin, confidence)
    command = f"./hakmem faults {settings_text(settings)} --seed {seed}"
    notes: list[str] = []
    with study_open(checkout, "faults", seed) as study:
        hakmem, *others = study.peers(["hakmem", "glibc", "mimalloc3"])
        source = provenance.collect(checkout, command, "cold_start", [hakmem, *others])
        counted = [faults_measure(study.stage, peer, study.rng) for peer in [hakmem, *others]]
        checks = faults_checks(counted[0], counted[1])
        grids = [faults_grid(counted)]
        if timing:
            # That each peer serves `true` has just been proved by exit_pages.
            starts = study.cells_measure([PROCESS_START], hakmem, others, settings)
            checks += _start_checks(starts)
            grids += figures_grids(starts)
            notes += [*warning_lines(starts, len(cpus_allowed())), *reading_lines(starts)]
    grids.insert(0, checks_grid(checks))
    grids_show(grids, [samples_text(study)] if timing else [])
    if report is not None:
        title = "Page faults and process start"
        report_write(report, title, source, notes, grids, study.samples.path)
    if any(check.state == "missed" for check in checks):
        raise typer.Exit(1)


def _start_checks(starts: Figures) -> list[Check]:
    return [
        Check(
            f"start of `true` against {result.against}",
            f"{result.estimate.ratio:.2f} times as fast, {result.verdict.value}",
            result.target.text,
            result.target_state,
        )
        for result in starts.results
        if result.target
    ]
