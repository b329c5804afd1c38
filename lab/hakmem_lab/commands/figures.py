"""`hakmem figures`."""

from __future__ import annotations

import secrets

from hakmem_lab.checkout import Checkout
from hakmem_lab.commands.common import (
    BudgetOption,
    BuildOption,
    ConfidenceOption,
    JsonOption,
    MarginOption,
    OnlyOption,
    PeersOption,
    ReportOption,
    SeedOption,
    cells_chosen,
    figures_show,
    settings_make,
    settings_text,
    words_split,
)
from hakmem_lab.measure import provenance
from hakmem_lab.studies.study import study_open
from hakmem_lab.workloads.cells import FIRST_FIGURES


def figures(
    budget: BudgetOption = 5.0,
    margin: MarginOption = 3.0,
    confidence: ConfidenceOption = 99.0,
    peers: PeersOption = "glibc,mimalloc3,jemalloc",
    only: OnlyOption = "",
    seed: SeedOption = None,
    report: ReportOption = None,
    json_file: JsonOption = None,
    build: BuildOption = None,
) -> None:
    """The first figures: hakmem against its peers in interleaved pairs, losses first."""
    cells = cells_chosen(FIRST_FIGURES, only)
    checkout = Checkout.find(build)
    seed = secrets.randbits(32) if seed is None else seed
    settings = settings_make(budget, margin, confidence)
    command = f"./hakmem figures {settings_text(settings)} --peers {peers} --seed {seed}"
    if only:
        command += f" --only '{only}'"
    with study_open(checkout, "figures", seed) as study:
        hakmem, *others = study.peers(["hakmem", *words_split(peers)])
        source = provenance.collect(checkout, command, cells[0].program, [hakmem, *others])
        measured = study.cells_measure(cells, hakmem, others, settings)
    figures_show(study, source, measured, "First figures", seed, report, json_file)
