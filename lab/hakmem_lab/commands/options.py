"""`hakmem options`."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Annotated

import typer

from hakmem_lab.allocators.options import options_check, options_peer
from hakmem_lab.checkout import Checkout
from hakmem_lab.commands.common import (
    BudgetOption,
    BuildOption,
    ConfidenceOption,
    JsonOption,
    MarginOption,
    OnlyOption,
    ReportOption,
    SeedOption,
    cells_chosen,
    figures_show,
    settings_make,
    settings_text,
)
from hakmem_lab.measure import provenance
from hakmem_lab.studies.study import study_open
from hakmem_lab.workloads.cells import FIRST_FIGURES, SERVER_PEAKS


def options(
    against: Annotated[
        list[str],
        typer.Argument(metavar="OPTIONS...", help="As HAKMEM_CONF has them; each is one arm: decay:never"),
    ],
    only: OnlyOption = SERVER_PEAKS.name,
    budget: BudgetOption = 120.0,
    margin: MarginOption = 2.0,
    confidence: ConfidenceOption = 99.0,
    seed: SeedOption = None,
    report: ReportOption = None,
    json_file: JsonOption = None,
    build: BuildOption = None,
) -> None:
    """hakmem with its defaults against hakmem with other options, in interleaved pairs."""
    cells = [replace(cell, targets={}) for cell in cells_chosen((SERVER_PEAKS, *FIRST_FIGURES), only)]
    checkout = Checkout.find(build)
    seed = secrets.randbits(32) if seed is None else seed
    settings = settings_make(budget, margin, confidence)
    command = f"./hakmem options {' '.join(against)} --only '{only}' {settings_text(settings)} --seed {seed}"
    with study_open(checkout, "options", seed) as study:
        hakmem = study.peers(["hakmem"])[0]
        arms = [options_peer(hakmem, text) for text in against]
        for arm in arms:
            options_check(study.stage, arm)
        source = provenance.collect(checkout, command, cells[0].program, [hakmem, *arms])
        measured = study.cells_measure(cells, hakmem, arms, settings)
    figures_show(study, source, measured, "The defaults against other options", seed, report, json_file)
