"""`hakmem honesty`."""

from __future__ import annotations

import random
import secrets
import shlex
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated

import typer

from hakmem_lab.allocators.arms import arm_stage
from hakmem_lab.checkout import Checkout
from hakmem_lab.commands.asking import BenchOption, ShareOption, TimeBudgetOption, design_make
from hakmem_lab.commands.common import BuildOption, ReportOption, SeedOption, grids_show
from hakmem_lab.errors import LabError
from hakmem_lab.measure import provenance
from hakmem_lab.measure.runner import Arm
from hakmem_lab.reports.honesty import live_grid, naive_grid, reading_lines, simulated_checks, simulated_grid
from hakmem_lab.reports.report import report_write
from hakmem_lab.studies.ab import Design
from hakmem_lab.studies.arrange import calibrator
from hakmem_lab.studies.checks import checks_grid
from hakmem_lab.studies.honesty import Simulated, simulate, truths
from hakmem_lab.studies.honesty_live import LIVE_FILE, Lived, live_earlier, live_run, live_setting
from hakmem_lab.studies.noise import Noise, conditions, noise_read, noise_write, trace_record
from hakmem_lab.studies.study import progress_make, study_open

KIND = "honesty"
LIVE_BENCH = "no allocation (control)"
"""Its truth is known. In other workloads the placement of memory can make one copy of a library faster than another."""


def honesty(
    live: Annotated[int, typer.Option(min=0, help="Number of live comparisons for each truth.")] = 100,
    simulations: Annotated[
        int, typer.Option(min=0, help="Number of simulated comparisons for each truth and condition.")
    ] = 1000,
    budget: TimeBudgetOption = "15s",
    margin: ShareOption = "3%",
    bench: BenchOption = LIVE_BENCH,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the latest live session.")] = False,
    record: Annotated[
        int,
        typer.Option(
            min=0,
            help="Only record this many runs of noise in each condition, for the simulations; an even number.",
        ),
    ] = 0,
    seed: SeedOption = None,
    report: ReportOption = None,
    build: BuildOption = None,
) -> None:
    """How often is `ab` wrong when the truth is known? Over recorded noise, and live on this machine."""
    if record % 2:
        raise LabError("--record is an even number, 2 or more: noise is played back in pairs")
    checkout = Checkout.find(build)
    seed = secrets.randbits(32) if seed is None else seed
    design = design_make(budget, margin)
    if record:
        noise_record(checkout, design, record, seed)
        return
    words = ["./hakmem", KIND, "--live", str(live), "--simulations", str(simulations), "--budget", budget]
    words += ["--margin", margin, "--bench", bench, "--seed", str(seed)]
    noise = noise_read()
    simulated = simulated_all(noise, design, simulations, seed)
    lived, source, path = live_all(checkout, bench, design, live, resume, seed, shlex.join(words))
    checks = simulated_checks(simulated)
    grids = [checks_grid(checks), simulated_grid(simulated), naive_grid(simulated), live_grid(lived, live)]
    lines = reading_lines(noise, design)
    grids_show(grids, [])
    if report is not None:
        report_write(report, "How honest `ab` is", source, lines, grids, path)
    if any(check.state == "missed" for check in checks):
        raise typer.Exit(1)


def simulated_all(noise: Noise, design: Design, simulations: int, seed: int) -> list[Simulated]:
    """With the budget of the live ones, and with four times as much."""
    rng = random.Random(seed)
    budgets = [replace(design, budget_seconds=times * design.budget_seconds) for times in (1, 4)]
    cases = list(product(noise.traces, budgets, truths(design.margin))) if simulations else []
    with progress_make() as progress:
        task = progress.add_task("simulated", total=len(cases) * simulations)
        return [
            simulate(trace, truth, budget, simulations, rng, lambda: progress.advance(task))
            for trace, budget, truth in cases
        ]


def live_all(
    checkout: Checkout, bench: str, design: Design, count: int, resume: bool, seed: int, command: str
) -> tuple[list[Lived], provenance.Provenance, Path | None]:
    calibrate = calibrator(bench, [])
    with study_open(checkout, KIND, seed) as study:
        peer = study.store.obtain("hakmem")
        source = provenance.collect(checkout, command, "random_mixed", [peer])
        if not count:
            return [], source, None
        setting = live_setting(study, bench, design)
        earlier = live_earlier(checkout.results(KIND), setting) if resume else []
        task = study.progress.add_task("live", total=2 * count, completed=len(earlier))
        lived = live_run(
            study,
            calibrate,
            setting,
            design,
            count,
            earlier,
            lambda _: study.progress.advance(task),
        )
        return lived, source, study.samples.path.with_name(LIVE_FILE)


def noise_record(checkout: Checkout, design: Design, count: int, seed: int) -> None:
    with study_open(checkout, KIND, seed) as study:
        arm = Arm(arm_stage(study.stage, study.store.obtain("hakmem"), "a"))
        shown = study.progress.add_task("noise", total=len(conditions()) * count)
        traces = []
        for condition in conditions():
            calibrated = calibrator(condition.bench, [])(study.stage, [arm], design, study.rng)
            ran = partial(study.progress.advance, shown)
            traces.append(trace_record(calibrated.task, arm, condition, count, study.rng, ran))
        command = f"./hakmem {KIND} --record {count}"
        source = provenance.collect(checkout, command, "random_mixed", [arm.peer])
    noise_write(Noise(dict(source.rows()), tuple(traces)))
