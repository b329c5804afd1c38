"""`hakmem sweep`."""

from __future__ import annotations

import secrets
import shlex
from typing import Annotated

import typer

from hakmem_lab.checkout import Checkout
from hakmem_lab.commands.asking import (
    DEFAULT_BENCH,
    INCONCLUSIVE,
    BenchOption,
    CommandArgument,
    ShareOption,
    TimeBudgetOption,
    TurnsOption,
    answer_show,
    ask,
    calibrate_choose,
    circumstance_lines,
    design_make,
    outcome_keep,
)
from hakmem_lab.commands.common import BuildOption, JsonOption, SeedOption, words_split
from hakmem_lab.errors import LabError
from hakmem_lab.reports.ab import reason_lines, sweep_line
from hakmem_lab.studies.study import study_open

VALUES_MAX = 16


def arms_of(option: str) -> list[str]:
    name, equals, text = option.partition("=")
    values = list(dict.fromkeys(words_split(text)))
    if not (name and equals and values):
        raise LabError(f"'{option}' is not OPTION=value,value, as in bin_depth=16,64,256")
    if len(values) > VALUES_MAX:
        raise LabError(f"{len(values)} values are too many for one run; at most {VALUES_MAX}")
    return [f"hakmem:{name}={value}" for value in values]


def sweep(
    option: Annotated[
        str,
        typer.Argument(
            metavar="OPTION=v1,v2,...", help="An option of docs/options.md, and the values to compare."
        ),
    ],
    command: CommandArgument = None,
    bench: BenchOption = "",
    turns: TurnsOption = False,
    budget: TimeBudgetOption = "120s",
    margin: ShareOption = "3%",
    instructions: Annotated[
        bool, typer.Option("--instructions", help="Count instructions even if no budget is left.")
    ] = False,
    seed: SeedOption = None,
    json_file: JsonOption = None,
    build: BuildOption = None,
) -> None:
    """Compares each value of one option with hakmem's defaults, in one run with controls.

    The budget is for all values together; verdicts are corrected for their number (Holm). Exit status: 0 if every
    value has a verdict, 2 for an error, 3 if one is inconclusive, 130 if interrupted.
    """
    design = design_make(budget, margin)
    arms = arms_of(option)
    calibrate = calibrate_choose(bench, command, turns)
    seed = secrets.randbits(32) if seed is None else seed
    words = ["./hakmem", "sweep", option, "--budget", budget, "--margin", margin, "--seed", str(seed)]
    words += ["--instructions"] if instructions else []
    words += ["--turns"] if turns else []
    words += ["--", *command] if command else ["--bench", bench or DEFAULT_BENCH]
    with study_open(Checkout.find(build), "sweep", seed) as study:
        asked = ask(study, ["hakmem", *arms], calibrate, design, shlex.join(words), instructions)
    outcome = asked.outcome
    lines = [*circumstance_lines(asked), *reason_lines(outcome)]
    for answer, opinion in zip(outcome.answers, asked.opinions, strict=False):
        lines.append(f"{answer.name}: {opinion.line(answer, design.margin)}")
    try:
        lines.append(outcome_keep(study, asked, {}, json_file))
    finally:  # also when the disk is full: the answers are there
        answer_show(asked, lines, sweep_line(outcome))
    if any(answer.word == "inconclusive" for answer in outcome.answers):
        raise typer.Exit(INCONCLUSIVE)
