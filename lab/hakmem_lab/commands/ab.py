"""`hakmem ab`."""

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
from hakmem_lab.commands.common import BuildOption, JsonOption, SeedOption
from hakmem_lab.commands.units import change_parse
from hakmem_lab.reports.ab import prediction_line, reason_lines, verdict_line
from hakmem_lab.studies.study import study_open


def ab(
    a: Annotated[
        str,
        typer.Argument(
            metavar="A", help="The base: an allocator's name, a library's path, or hakmem:option=value,..."
        ),
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="What is compared with A, named the same way.")],
    command: CommandArgument = None,
    bench: BenchOption = "",
    turns: TurnsOption = False,
    budget: TimeBudgetOption = "60s",
    margin: ShareOption = "3%",
    predict: Annotated[
        str,
        typer.Option(
            help="The change of speed that you expect of B, such as +5%; it is compared with the result."
        ),
    ] = "",
    instructions: Annotated[
        bool, typer.Option("--instructions", help="Count instructions even if no budget is left.")
    ] = False,
    seed: SeedOption = None,
    json_file: JsonOption = None,
    build: BuildOption = None,
) -> None:
    """Is B faster than A? Runs interleaved pairs with controls, and ends as soon as the answer is sure.

    The last line is `verdict: better|worse|equivalent|inconclusive` of B against A. Exit status: 0 for a verdict,
    2 for an error, 3 if inconclusive, 130 if interrupted.
    """
    design = design_make(budget, margin)
    predicted = change_parse(predict) if predict else None
    calibrate = calibrate_choose(bench, command, turns)
    seed = secrets.randbits(32) if seed is None else seed
    words = ["./hakmem", "ab", a, b, "--budget", budget, "--margin", margin, "--seed", str(seed)]
    words += ["--predict", predict] if predict else []
    words += ["--instructions"] if instructions else []
    words += ["--turns"] if turns else []
    words += ["--", *command] if command else ["--bench", bench or DEFAULT_BENCH]
    with study_open(Checkout.find(build), "ab", seed) as study:
        asked = ask(study, [a, b], calibrate, design, shlex.join(words), instructions)
    outcome, answer = asked.outcome, asked.outcome.answers[0]
    lines = [*circumstance_lines(asked), *reason_lines(outcome)]
    lines += [opinion.line(answer, design.margin) for opinion in asked.opinions]
    if predicted is not None:
        lines.append(prediction_line(predicted, answer))
    try:
        lines.append(outcome_keep(study, asked, {"predicted": predicted}, json_file))
    finally:  # also when the disk is full: the answer is there
        answer_show(asked, lines, verdict_line(outcome, asked.arranged.base.name))
    if answer.word == "inconclusive":
        raise typer.Exit(INCONCLUSIVE)
