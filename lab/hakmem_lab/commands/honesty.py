"""`hakmem honesty`."""

from __future__ import annotations

import random
import secrets
import shlex
from pathlib import Path
from typing import Annotated

import typer

from hakmem_lab.allocators.arms import arm_stage
from hakmem_lab.checkout import Checkout
from hakmem_lab.commands.asking import DEFAULT_BENCH, BenchOption, ShareOption, TimeBudgetOption, design_make
from hakmem_lab.commands.common import BuildOption, ReportOption, SeedOption, grids_show
from hakmem_lab.measure import provenance
from hakmem_lab.measure.runner import Arm
from hakmem_lab.reports.honesty import live_grid, naive_grid, reading_lines, simulated_checks, simulated_grid
from hakmem_lab.reports.report import report_write
from hakmem_lab.studies.ab import Design
from hakmem_lab.studies.arrange import bench_find, cell_calibrator
from hakmem_lab.studies.checks import checks_grid
from hakmem_lab.studies.honesty import Simulated, simulate, truths
from hakmem_lab.studies.honesty_live import LIVE_FILE, Lived, live_earlier, live_run, live_setting
from hakmem_lab.studies.noise import Noise, conditions, noise_read, noise_write, trace_record
from hakmem_lab.studies.study import progress_make, study_open

KIND = "honesty"
RUNS_RECORDED = 400
"""Of each condition: a minute and a half, when nothing else runs."""


def honesty(
    live: Annotated[int, typer.Option(min=0, help="Live comparisons, of each truth.")] = 100,
    simulations: Annotated[
        int, typer.Option(min=0, help="Simulated ones, of each truth and condition.")
    ] = 1000,
    budget: TimeBudgetOption = "15s",
    margin: ShareOption = "3%",
    bench: BenchOption = DEFAULT_BENCH,
    resume: Annotated[bool, typer.Option("--resume", help="Take up the latest live session.")] = False,
    record: Annotated[
        bool, typer.Option("--record", help="Only record this machine's noise, for the simulations.")
    ] = False,
    seed: SeedOption = None,
    report: ReportOption = None,
    build: BuildOption = None,
) -> None:
    """How often `ab` is wrong where the truth is known: over recorded noise, and live on this machine."""
    checkout = Checkout.find(build)
    seed = secrets.randbits(32) if seed is None else seed
    design = design_make(budget, margin)
    if record:
        noise_record(checkout, bench, design, seed)
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
    rng = random.Random(seed)
    cases = (
        [(trace, truth) for trace in noise.traces for truth in truths(design.margin)] if simulations else []
    )
    with progress_make() as progress:
        task = progress.add_task("simulated", total=len(cases) * simulations)
        return [
            simulate(trace, truth, design, simulations, rng, lambda: progress.advance(task))
            for trace, truth in cases
        ]


def live_all(
    checkout: Checkout, bench: str, design: Design, count: int, resume: bool, seed: int, command: str
) -> tuple[list[Lived], provenance.Provenance, Path | None]:
    cell = bench_find(bench)
    with study_open(checkout, KIND, seed) as study:
        peer = study.store.obtain("hakmem")
        source = provenance.collect(checkout, command, cell.program, [peer])
        if not count:
            return [], source, None
        setting = live_setting(study, cell.name, design)
        earlier = live_earlier(checkout.root / "bench_results" / KIND, setting) if resume else []
        task = study.progress.add_task("live", total=2 * count, completed=len(earlier))
        lived = live_run(
            study,
            cell_calibrator(cell),
            setting,
            design,
            count,
            earlier,
            lambda _: study.progress.advance(task),
        )
        return lived, source, study.samples.path.with_name(LIVE_FILE)


def noise_record(checkout: Checkout, bench: str, design: Design, seed: int) -> None:
    cell = bench_find(bench)
    names = list(conditions())
    with study_open(checkout, KIND, seed) as study:
        arm = Arm(arm_stage(study.stage, study.store.obtain("hakmem"), "a"))
        task = cell_calibrator(cell)(study.stage, [arm], design, study.rng).task
        shown = study.progress.add_task("noise", total=len(names) * RUNS_RECORDED)
        traces = [
            trace_record(task, arm, name, RUNS_RECORDED, study.rng, lambda: study.progress.advance(shown))
            for name in names
        ]
        source = provenance.collect(checkout, "./hakmem honesty --record", cell.program, [arm.peer])
    noise_write(Noise({"workload": cell.name, **dict(source.rows())}, tuple(traces)))
