"""`hakmem bench`."""

from __future__ import annotations

import math
import secrets
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from hakmem_lab.allocators.arms import arm_shown
from hakmem_lab.allocators.peers import PeerStore
from hakmem_lab.checkout import Checkout
from hakmem_lab.commands.common import (
    BuildOption,
    JsonOption,
    OnlyOption,
    ReportOption,
    SeedOption,
    again_check,
    words_split,
)
from hakmem_lab.commands.units import seconds_parse, seconds_text, share_parse
from hakmem_lab.errors import RunInterruptedError
from hakmem_lab.measure.stage import staged
from hakmem_lab.statistics.estimate import Verdict
from hakmem_lab.studies.bench import (
    KIND,
    Kept,
    bench_measure,
    bench_plan,
    field_gather,
    resume_check,
    run_resumable,
)
from hakmem_lab.studies.candidates import candidates_prepare, workload_names, workloads_choose
from hakmem_lab.studies.judging import Matrix
from hakmem_lab.studies.matrix import RESULTS_FILE, MatrixPlan, Settings
from hakmem_lab.workloads.cells import Suite
from hakmem_lab.workloads.find import words_named

ONLY_SECONDS = {"quick": 20.0, "full": 90.0}
"""Seconds for each chosen workload."""
SUITE_SECONDS = {"quick": 28 * 60.0, "full": 70 * 60.0}
LIMIT_SHARE = 1.5
"""A budget is exceeded by half at most, to give every workload the rounds that an interval needs; the default budget of
the quick suite is not exceeded."""
CONFIDENCE = {"quick": 95.0, "full": 99.0}


def bench(
    ctx: typer.Context,
    suite: Annotated[
        Suite, typer.Option(help="quick: at most 30 minutes; full: every workload and allocator.")
    ] = Suite.QUICK,
    only: OnlyOption = "",
    allocators: Annotated[
        str,
        typer.Option(
            help="Compare only with these, comma-separated; it is an error if one is not available."
        ),
    ] = "",
    budget: Annotated[
        str,
        typer.Option(
            help="Total time, fixed in advance, such as 30m. Default: 28m for quick and 70m for full; with --only"
            " 20s and 90s for each workload."
        ),
    ] = "",
    margin: Annotated[str, typer.Option(help="Speeds this close are equal, such as 3%.")] = "3%",
    confidence: Annotated[
        float | None,
        typer.Option(
            min=50,
            max=99.9,
            help="Confidence of intervals and tests, in per cent. Default: 95 for quick, 99 for full.",
        ),
    ] = None,
    seed: SeedOption = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the newest run that was interrupted.")
    ] = False,
    kept: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="FOLDER", help="Measure nothing; judge this run of bench_results/bench again."
        ),
    ] = None,
    report: ReportOption = None,
    json_file: JsonOption = None,
    build: BuildOption = None,
) -> None:
    """The matrix: compares hakmem with its peers in every workload of a suite, in interleaved rounds; losses first.

    Exit status: 0 if no workload is lost, 1 if one is or hakmem fails in one, 2 for an error, 3 if nothing was compared,
    every verdict is void or a workload fails under every allocator, 130 if interrupted.
    """
    # Drawing takes a second to load: not for --help and wrong options.
    from hakmem_lab.reports.matrix_report import matrix_show

    checkout = Checkout.find(build)
    if kept is not None:
        again_check(ctx)
        run = Kept(kept, MatrixPlan.load(kept, KIND))
        status_end(matrix_show(run, report, json_file, complete=(kept / RESULTS_FILE).exists()))
        return
    settings = Settings(
        suite=suite.value,
        only=only,
        budget_seconds=0.0,
        limit_seconds=0.0,
        margin=share_parse(margin),
        confidence=(CONFIDENCE[suite] if confidence is None else confidence) / 100,
        seed=secrets.randbits(32) if seed is None else seed,
    )
    chosen = workloads_choose(suite, words_named(only, workload_names()))
    seconds, limit = budget_seconds(settings, budget, chosen.count)
    settings = replace(settings, budget_seconds=seconds, limit_seconds=limit)
    given = {"budget_seconds": budget != "", "seed": seed is not None}
    named = [name for name, is_given in given.items() if is_given]
    begun = run_resumable(checkout, settings, named) if resume else None
    if begun is not None:
        settings = begun.plan.settings
    try:
        with staged(checkout) as stage:
            field = field_gather(PeerStore(checkout), stage, words_split(allocators), settings)
            candidates, missing = candidates_prepare(stage, chosen, settings.seed)
            if begun is None:
                command = command_text(settings, allocators)
                begun = bench_plan(checkout, field, candidates, settings, command, missing)
            else:
                resume_check(begun.plan, checkout, field, candidates, missing)
            bench_measure(begun, field, candidates)
    except KeyboardInterrupt:
        raise RunInterruptedError("interrupted before the first round: nothing was measured") from None
    status_end(matrix_show(begun, report, json_file, complete=True))


def status_end(matrix: Matrix) -> None:
    status = status_of(matrix)
    if status:
        raise typer.Exit(status)


def status_of(matrix: Matrix) -> int:
    if matrix.lost or matrix.broken:
        return 1
    rows = [row for row in matrix.plan.rows if not row.control]
    compared = any(
        one.estimate and one.verdict is not Verdict.VOID for one in matrix.results if not one.row.control
    )
    return 0 if compared and all(row.served for row in rows) else 3


def budget_seconds(settings: Settings, budget: str, chosen: int) -> tuple[float, float]:
    """Also the limit."""
    most = SUITE_SECONDS[settings.suite]
    hard = most if settings.suite == Suite.QUICK and not budget else math.inf
    if budget:
        seconds = seconds_parse(budget)
    else:
        seconds = min(most, ONLY_SECONDS[settings.suite] * chosen) if settings.only else most
    return seconds, min(hard, LIMIT_SHARE * seconds)


def command_text(settings: Settings, allocators: str) -> str:
    """The command in a form that can be given again."""
    command = ["./hakmem", "bench", "--suite", settings.suite]
    if settings.only:
        command += ["--only", settings.only]
    if allocators:
        names = [arm_shown(word) for word in words_split(allocators)]
        command += ["--allocators", ",".join(names)]
    command += ["--budget", seconds_text(settings.budget_seconds), "--margin", f"{100 * settings.margin:g}%"]
    command += ["--confidence", f"{100 * settings.confidence:g}", "--seed", str(settings.seed)]
    return shlex.join(command)
