"""`hakmem ceiling`."""

from __future__ import annotations

import secrets
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from hakmem_lab.allocators.arms import arm_shown
from hakmem_lab.allocators.peers import PeerStore
from hakmem_lab.checkout import Checkout, path_here
from hakmem_lab.commands.common import (
    BuildOption,
    JsonOption,
    OnlyOption,
    ReportOption,
    SeedOption,
    again_check,
    grids_show,
    words_split,
)
from hakmem_lab.commands.units import seconds_parse, seconds_text, share_parse
from hakmem_lab.errors import LabError, RunInterruptedError
from hakmem_lab.measure.stage import staged
from hakmem_lab.studies.bench import Kept, bench_plan, field_gather, rounds_measure
from hakmem_lab.studies.candidates import workload_names, workloads_choose
from hakmem_lab.studies.ceiling import (
    CEILING,
    KIND,
    NULL,
    State,
    ceiling_candidates,
    ceiling_judge,
)
from hakmem_lab.studies.matrix import MatrixPlan, Settings
from hakmem_lab.workloads.cells import CELLS, Cell, Group, Suite, suite_cells
from hakmem_lab.workloads.find import words_named

SECONDS_EACH = 15.0
"""Seconds for each workload that the ceiling may serve."""
BRIEF = (Group.SMALL, Group.MID, Group.CONTROL)


def ceiling(
    ctx: typer.Context,
    suite: Annotated[
        Suite | None,
        typer.Option(help="Every workload of a suite. Default: those with small and mid blocks."),
    ] = None,
    only: OnlyOption = "",
    allocators: Annotated[
        str, typer.Option(help="Also show these allocators, comma-separated, as shares of hakmem's ceiling.")
    ] = "",
    budget: Annotated[
        str, typer.Option(help="Total time, fixed in advance. Default: 15s for each workload.")
    ] = "",
    margin: Annotated[
        str, typer.Option(help="hakmem has reached its ceiling if it is this close, such as 3%.")
    ] = "3%",
    confidence: Annotated[
        float, typer.Option(min=50, max=99.9, help="Confidence of intervals, in per cent.")
    ] = 95.0,
    seed: SeedOption = None,
    kept: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="FOLDER", help="Measure nothing; judge this run of bench_results/ceiling again."
        ),
    ] = None,
    report: ReportOption = None,
    json_file: JsonOption = None,
    build: BuildOption = None,
) -> None:
    """How fast would hakmem be without its checks? Shows each workload as a share of its structural ceiling.

    Exit status: 0 for an answer, 2 for an error, 3 if every ceiling is void, 130 if interrupted.
    """
    checkout = Checkout.find(build)
    if kept is not None:
        again_check(ctx)
        ceiling_show(Kept(kept, MatrixPlan.load(kept, KIND)), report, json_file)
        return
    cells = cells_choose(suite, words_named(only, workload_names()))
    seconds = seconds_parse(budget) if budget else SECONDS_EACH * len(cells)
    settings = Settings(
        suite=suite.value if suite else "small and mid",
        only=only,
        budget_seconds=seconds,
        limit_seconds=1.5 * seconds,
        margin=share_parse(margin),
        confidence=confidence / 100,
        seed=secrets.randbits(32) if seed is None else seed,
    )
    try:
        with staged(checkout) as stage:
            candidates, refused = ceiling_candidates(stage, cells)
            if not budget:  # what is refused needs no time
                settings = budget_fit(settings, SECONDS_EACH * len(candidates))
            names = [CEILING, NULL, *words_split(allocators)]
            field = field_gather(PeerStore(checkout), stage, names, settings)
            command = command_text(settings, suite, allocators)
            run = bench_plan(checkout, field, candidates, settings, command, refused, KIND, best_only=False)
            rounds_measure(run, field, candidates, KIND, "row")
    except KeyboardInterrupt:
        raise RunInterruptedError("interrupted before the first round: nothing was measured") from None
    ceiling_show(run, report, json_file)


def cells_choose(suite: Suite | None, words: list[str]) -> tuple[Cell, ...]:
    """The negative control is always included."""
    if words:
        chosen = workloads_choose(Suite.FULL, words)
        if chosen.programs:
            raise LabError(f"the ceiling serves workloads of bench/ only, not {', '.join(chosen.programs)}")
        cells = chosen.cells
    elif suite is not None:
        cells = suite_cells(suite)
    else:
        cells = tuple(cell for cell in CELLS if cell.group in BRIEF)
    controls = [cell for cell in CELLS if cell.control and cell not in cells]
    return (*cells, *controls)


def budget_fit(settings: Settings, seconds: float) -> Settings:
    return replace(settings, budget_seconds=seconds, limit_seconds=1.5 * seconds)


def command_text(settings: Settings, suite: Suite | None, allocators: str) -> str:
    """The command in a form that can be given again."""
    command = ["./hakmem", "ceiling"]
    command += ["--suite", suite.value] if suite else []
    command += ["--only", settings.only] if settings.only else []
    if allocators:
        names = [arm_shown(word) for word in words_split(allocators)]
        command += ["--allocators", ",".join(names)]
    command += ["--budget", seconds_text(settings.budget_seconds), "--margin", f"{100 * settings.margin:g}%"]
    command += ["--confidence", f"{100 * settings.confidence:g}", "--seed", str(settings.seed)]
    return shlex.join(command)


def ceiling_show(run: Kept, report: Path | None, json_file: Path | None) -> None:
    """The run's own folder also gets its page and its shares."""
    # Drawing takes a second to load: not for --help and wrong options.
    from hakmem_lab.reports.ceiling import answer_lines, ceiling_write, grids_of, page_make

    judged = ceiling_judge(run.judged())
    lines = answer_lines(judged)
    try:
        page = page_make(judged, "raw/").write_run(run.folder, run.store, report)
        for path in filter(None, (run.folder / "ceiling.json", json_file)):
            ceiling_write(judged, path)
        lines.append(f"page: {path_here(page)}")
    finally:  # also when the disk is full: the answer is there
        grids_show(grids_of(judged), lines[::-1])
    if all(share.state is State.VOID for share in judged.shares):
        raise typer.Exit(3)
