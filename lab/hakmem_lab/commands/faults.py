"""`hakmem faults`."""

from __future__ import annotations

import secrets

import typer

from hakmem_lab.checkout import Checkout
from hakmem_lab.commands.common import BuildOption, ReportOption, SeedOption, grids_show
from hakmem_lab.measure import provenance
from hakmem_lab.reports.report import report_write
from hakmem_lab.studies.checks import checks_grid
from hakmem_lab.studies.faults import faults_checks, faults_grid, faults_measure
from hakmem_lab.studies.study import study_open


def faults(seed: SeedOption = None, report: ReportOption = None, build: BuildOption = None) -> None:
    """Counts page faults, dirty pages and system calls of the start, against glibc and mimalloc 3."""
    checkout = Checkout.find(build)
    seed = secrets.randbits(32) if seed is None else seed
    with study_open(checkout, "faults", seed) as study:
        peers = study.peers(["hakmem", "glibc", "mimalloc3"])
        source = provenance.collect(checkout, f"./hakmem faults --seed {seed}", "cold_start", peers)
        counted = [faults_measure(study.stage, peer, study.rng) for peer in peers]
    checks = faults_checks(counted[0], counted[1])
    grids = [checks_grid(checks), faults_grid(counted)]
    grids_show(grids, [])
    if report is not None:
        report_write(report, "Page faults and process start", source, [], grids)
    if any(check.state == "missed" for check in checks):
        raise typer.Exit(1)
