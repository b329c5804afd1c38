"""`hakmem canned`."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Sequence
from typing import Annotated

import typer

from hakmem_lab.checkout import Checkout
from hakmem_lab.commands.asking import (
    INCONCLUSIVE,
    ShareOption,
    answer_show,
    ask,
    calibrate_choose,
    circumstance_lines,
    design_make,
    outcome_keep,
)
from hakmem_lab.commands.common import BuildOption, SeedOption, grids_show
from hakmem_lab.reports.ab import reason_lines, sweep_line, verdict_line
from hakmem_lab.reports.report import Grid
from hakmem_lab.studies.ab import Outcome
from hakmem_lab.studies.study import study_open
from hakmem_lab.workloads.canned.file import Canned, canned_find, canned_names


def canned(
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="Or FILE.toml of your own; without it, all are listed.")
    ] = "",
    budget: Annotated[str, typer.Option(help="Of each workload; by default the file's.")] = "",
    margin: ShareOption = "3%",
    seed: SeedOption = None,
    build: BuildOption = None,
) -> None:
    """Comparisons that come up again and again: the same as `ab` and `sweep`, from a file.

    Exit status: 0 when every arm has a verdict in every workload, 3 when one is inconclusive, 2 for an error.
    """
    if not name:
        grids_show([list_grid([canned_find(one) for one in canned_names()])], [])
        return
    chosen = canned_find(name)
    checkout = Checkout.find(build)
    seed = secrets.randbits(32) if seed is None else seed
    words: list[str] = []
    for bench in chosen.benches:
        outcome = canned_ask(checkout, chosen, bench, budget or chosen.budget, margin, seed)
        words += [answer.word for answer in outcome.answers]
    if "inconclusive" in words:
        raise typer.Exit(INCONCLUSIVE)


def list_grid(all_canned: Sequence[Canned]) -> Grid:
    return Grid(
        "Canned comparisons: ./hakmem canned NAME",
        ("name", "about", "arms, the first is the base", "workloads", "each"),
        tuple(
            (one.name, one.about, ", ".join(one.arms), "; ".join(one.benches), one.budget)
            for one in all_canned
        ),
        text_columns=5,
    )


def canned_ask(
    checkout: Checkout, chosen: Canned, bench: str, budget: str, margin: str, seed: int
) -> Outcome:
    design, calibrate = design_make(budget, margin), calibrate_choose(bench, None)
    command = ["./hakmem", "canned", chosen.name, "--budget", budget, "--margin", margin, "--seed", str(seed)]
    with study_open(checkout, "ab", seed) as study:
        asked = ask(study, chosen.arms, calibrate, design, shlex.join(command), instructions=False)
    outcome = asked.outcome
    lines = [
        f"{bench}: {chosen.about}. {chosen.note}".strip(),
        *circumstance_lines(asked),
        *reason_lines(outcome),
    ]
    for answer, opinion in zip(outcome.answers, asked.opinions, strict=False):
        lines.append(f"{answer.name}: {opinion.line(answer, design.margin)}")
    last = (
        sweep_line(outcome) if len(outcome.answers) > 1 else verdict_line(outcome, asked.arranged.base.name)
    )
    try:
        lines.append(outcome_keep(study, asked, {"canned": chosen.name}, None))
    finally:  # also when the disk is full: the answer is there
        answer_show(asked, lines, last)
    return outcome
