"""`hakmem canned`."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from hakmem_lab.checkout import Checkout
from hakmem_lab.commands.asking import (
    INCONCLUSIVE,
    Asked,
    ShareOption,
    answer_show,
    ask,
    calibrate_choose,
    circumstance_lines,
    design_make,
    outcome_keep,
)
from hakmem_lab.commands.common import BuildOption, ReportOption, SeedOption, grids_show
from hakmem_lab.commands.units import share_parse
from hakmem_lab.errors import RunInterruptedError
from hakmem_lab.files import text_read, text_write
from hakmem_lab.grid import Grid
from hakmem_lab.measure.pairs import pairs_to_analyse
from hakmem_lab.reports.ab import ratio_text, reason_lines, sweep_line, verdict_line
from hakmem_lab.reports.report import markdown_report
from hakmem_lab.statistics.estimate import Estimate, suite_estimate
from hakmem_lab.studies.ab import Control
from hakmem_lab.studies.study import study_open
from hakmem_lab.workloads.canned.file import Canned, canned_find, canned_names


def canned(
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="A comparison, or your own FILE.toml. Default: list all.")
    ] = "",
    budget: Annotated[str, typer.Option(help="Time for each workload. Default: that of the file.")] = "",
    margin: ShareOption = "3%",
    seed: SeedOption = None,
    report: ReportOption = None,
    build: BuildOption = None,
) -> None:
    """Comparisons that come up again and again: the same as `ab` and `sweep`, from a file.

    Exit status: 0 if every arm has a verdict in every workload, 2 for an error, 3 if one is inconclusive.
    """
    if not name:
        grids_show([list_grid([canned_find(one) for one in canned_names()])], [])
        return
    chosen = canned_find(name)
    checkout = Checkout.find(build)
    seed = secrets.randbits(32) if seed is None else seed
    budget = budget or chosen.budget
    if chosen.limit:
        share_parse(chosen.limit, "limit")  # wrong input is found before anything is measured
    for bench in chosen.benches:
        calibrate_choose(bench, None)
    command = shlex.join(
        ["./hakmem", "canned", name, "--budget", budget, "--margin", margin, "--seed", str(seed)]
    )
    told = [canned_ask(checkout, chosen, bench, budget, margin, seed, command) for bench in chosen.benches]
    overall = {arm: overall_estimate(told, arm) for arm in chosen.arms[1:]}
    summary, kept = summary_grid(told, overall), limit_lines(told, chosen, overall)
    grids_show([summary], kept)
    if report is not None:
        canned_write(chosen, told, report, notes=kept, first=[summary])
    if any(answer.word == "inconclusive" for one in told for answer in one.asked.outcome.answers):
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


@dataclass(frozen=True)
class Told:
    """What is reported about one workload."""

    bench: str
    asked: Asked
    lines: list[str]
    samples: Path


def canned_ask(
    checkout: Checkout, chosen: Canned, bench: str, budget: str, margin: str, seed: int, command: str
) -> Told:
    design, calibrate = design_make(budget, margin), calibrate_choose(bench, None)
    with study_open(checkout, "ab", seed) as study:
        asked = ask(study, chosen.arms, calibrate, design, command, instructions=False)
    outcome = asked.outcome
    lines = [*circumstance_lines(asked), *reason_lines(outcome)]
    for answer, opinion in zip(outcome.answers, asked.opinions, strict=False):
        lines.append(f"{answer.name}: {opinion.line(answer, design.margin)}")
    last = (
        sweep_line(outcome) if len(outcome.answers) > 1 else verdict_line(outcome, asked.arranged.base.name)
    )
    told = Told(bench, asked, [*lines, last], study.samples.path)
    lines = [f"{bench}: {chosen.about}. {chosen.note}".strip(), *lines]
    try:
        lines.append(outcome_keep(study, asked, {"canned": chosen.name}, None))
    finally:  # also when the disk is full: the answer is there
        answer_show(asked, lines, last)
    if asked.interrupted:  # and the workloads after this one are not asked
        raise RunInterruptedError("interrupted")
    return told


def summary_grid(told: Sequence[Told], overall: Mapping[str, Estimate | None]) -> Grid:
    """A row for each workload: how many times as fast as the base each arm is; and one row for all of them."""

    def entry(one: Told, arm: str) -> str:
        answer = next((answer for answer in one.asked.outcome.answers if answer.name == arm), None)
        return "" if answer is None else f"{answer.word}: {ratio_text(answer.estimate)}"

    rows = [(one.bench, *(entry(one, arm) for arm in overall)) for one in told]
    if len(told) > 1:
        rows.append(("all, geometric mean", *(ratio_text(one) if one else "" for one in overall.values())))
    return Grid(f"Times as fast as {told[0].asked.arranged.base.name}", ("workload", *overall), tuple(rows))


def overall_estimate(told: Sequence[Told], arm: str) -> Estimate | None:
    """Over the workloads whose controls did not fail; the same for the same pairs."""
    confidence = 1 - told[0].asked.outcome.design.alpha
    sound = [one for one in told if one.asked.outcome.same_state is not Control.FAILED]
    measured = [pairs_to_analyse(one.asked.pairs_of(arm), confidence) for one in sound]
    cells = [[pair.log_ratio for pair in pairs] for pairs in measured if pairs]
    return suite_estimate(cells, confidence) if cells else None


def limit_lines(told: Sequence[Told], chosen: Canned, overall: Mapping[str, Estimate | None]) -> list[str]:
    """Whether the base is slower than the best of the others by more than the file allows; and which arms it is slower
    than over all workloads. A run whose controls failed shows neither."""
    if not chosen.limit:
        return []
    limit = 1 + share_parse(chosen.limit)
    beyond = [
        f"{one.bench}, {answer.name}: {ratio_text(answer.estimate)}"
        for one in told
        for answer in one.asked.outcome.answers
        if one.asked.outcome.same_state is not Control.FAILED and answer.estimate.low > limit
    ]
    within = [
        one
        for one in told
        if one.asked.outcome.same_state is one.asked.outcome.slowed_state is Control.PASSED
        and all(answer.estimate.high <= limit for answer in one.asked.outcome.answers)
    ]
    lines = [
        f"Clearly more than {chosen.limit} slower than one of the {len(chosen.arms) - 1} others: "
        f"{'; '.join(beyond) or 'in no workload'}.",
        f"Clearly not more than {chosen.limit} slower than any of them: in {len(within)} of {len(told)} workloads.",
    ]
    ahead = [
        f"{arm} {ratio_text(estimate)}"
        for arm, estimate in overall.items()
        if estimate is not None and estimate.high >= 1
    ]
    lines.append(
        f"Not clearly slower than {chosen.arms[0]} over all workloads: {'; '.join(ahead) or 'none of them'}."
    )
    return lines


def canned_write(
    chosen: Canned,
    told: Sequence[Told],
    report: Path,
    notes: Sequence[str] = (),
    first: Sequence[Grid] = (),
    last: Sequence[Grid] = (),
) -> None:
    """One page of all its workloads, and one file with all samples; other tables before and after theirs."""
    notes = [f"{chosen.about}. {chosen.note}".strip(), *notes]
    notes += [f"{one.bench}: {line}" for one in told for line in one.lines]
    own = [replace(grid, title=f"{one.bench}: {grid.title}") for one in told for grid in one.asked.grids()]
    grids = [*first, *own, *last]
    beside = report.with_suffix(".csv")
    text = markdown_report(chosen.about, told[0].asked.source, notes, grids, beside.name)
    text_write(report, text)
    head, *_ = text_read(told[0].samples).splitlines()
    rows = [row for one in told for row in text_read(one.samples).splitlines()[1:]]
    text_write(beside, "\n".join([head, *rows]) + "\n")
