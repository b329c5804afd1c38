"""`hakmem builds`."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import typer

from hakmem_lab.allocators.forms import FormProof, forms_prove
from hakmem_lab.checkout import Checkout
from hakmem_lab.commands.asking import INCONCLUSIVE, ShareOption
from hakmem_lab.commands.canned import canned_ask, canned_write, overall_estimate, summary_grid
from hakmem_lab.commands.common import BuildOption, ReportOption, SeedOption, grids_show, words_split
from hakmem_lab.errors import LabError
from hakmem_lab.grid import Grid
from hakmem_lab.workloads.canned.file import Canned, canned_find
from hakmem_lab.workloads.cells import CELLS, Cell
from hakmem_lab.workloads.find import is_meant, words_named, workload_find

NAME = "builds"


def builds(
    only: Annotated[
        str,
        typer.Option(
            help="Only these workloads: comma-separated parts of names, or whole names separated by semicolons."
        ),
    ] = "",
    arms: Annotated[
        str, typer.Option(help="Only these forms, comma-separated, such as hakmem+static,hakmem@pgo.")
    ] = "",
    budget: Annotated[str, typer.Option(help="Time for each workload.")] = "",
    margin: ShareOption = "2%",
    seed: SeedOption = None,
    report: ReportOption = None,
    build: BuildOption = None,
) -> None:
    """What PGO, LTO, static linking and an inlined fast path gain, each against hakmem preloaded.

    Exit status: 0 if every form has a verdict in every workload, 2 for an error, 3 if one is inconclusive.
    """
    checkout = Checkout.find(build)
    kept = canned_find(NAME)
    chosen = restricted(kept, words_named(only, kept.benches), words_split(arms))
    cells = [cell_of(bench) for bench in chosen.benches]
    proofs = forms_prove(checkout, list(dict.fromkeys(cell.program for cell in cells)))
    seed = secrets.randbits(32) if seed is None else seed
    budget = budget or chosen.budget
    command = ["./hakmem", "builds", "--budget", budget, "--margin", margin, "--seed", str(seed)]
    command += ["--only", ";".join(chosen.benches)] if only else []
    command += ["--arms", ",".join(chosen.arms[1:])] if arms else []
    told = [
        canned_ask(checkout, chosen, bench, budget, margin, seed, shlex.join(command))
        for bench in chosen.benches
    ]
    overall = {arm: overall_estimate(told, arm) for arm in chosen.arms[1:]}
    summary, proved = summary_grid(told, overall), proofs_grid(proofs)
    grids_show([proved, summary], [])
    if report is not None:
        canned_write(chosen, told, report, first=[summary], last=[proved])
    if any(answer.word == "inconclusive" for one in told for answer in one.asked.outcome.answers):
        raise typer.Exit(INCONCLUSIVE)


def restricted(canned: Canned, benches: Sequence[str], arms: Sequence[str]) -> Canned:
    """The base stays."""
    for arm in arms:
        if arm not in canned.arms[1:]:
            raise LabError(f"--arms: '{arm}' is none of {', '.join(canned.arms[1:])}")
    for bench in benches:
        if not any(is_meant(one, bench, canned.benches) for one in canned.benches):
            raise LabError(f"--only: '{bench}' is none of {'; '.join(canned.benches)}")
    return replace(
        canned,
        arms=(canned.arms[0], *(one for one in canned.arms[1:] if not arms or one in arms)),
        benches=tuple(
            one
            for one in canned.benches
            if not benches or any(is_meant(one, bench, canned.benches) for bench in benches)
        ),
    )


def cell_of(bench: str) -> Cell:
    found = workload_find(bench, CELLS)
    if not isinstance(found, Cell):
        raise LabError(f"{bench} is no workload of bench/")
    return found


def proofs_grid(proofs: Sequence[FormProof]) -> Grid:
    return Grid(
        "What each form is, by its programs' files",
        ("form", "program", "what its file says"),
        tuple((one.form, one.program, one.said) for one in proofs),
        text_columns=3,
    )
