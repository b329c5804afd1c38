"""The command line: reads options, runs one study, prints and writes what came out.

Exit status: 0 when every target and limit was met or left open, 1 when one was clearly missed, 2 for an error,
130 when interrupted.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from hakmem_lab import provenance, snapshot
from hakmem_lab.cells import FIRST_FIGURES, PROCESS_START, SERVER_PEAKS, Cell
from hakmem_lab.checkout import Checkout
from hakmem_lab.checks import Check, checks_grid
from hakmem_lab.errors import LabError
from hakmem_lab.faults import faults_checks, faults_grid, faults_measure
from hakmem_lab.figures import Figures, Settings
from hakmem_lab.footprint import (
    COLUMNS,
    Sample,
    arm_of,
    footprint_grids,
    footprint_lines,
    footprint_reading,
    prepare,
    rounds_run,
    rows_make,
    tools_check,
)
from hakmem_lab.footprint_inputs import Program, programs_chosen
from hakmem_lab.instructions import (
    SIZES,
    instructions_checks,
    instructions_grid,
    instructions_measure,
)
from hakmem_lab.options import options_check, options_peer
from hakmem_lab.pairs import Budget, cpus_allowed
from hakmem_lab.peers import PeerStore
from hakmem_lab.redis_server import SERVER
from hakmem_lab.report import (
    Grid,
    figures_grids,
    grids_print,
    reading_lines,
    report_write,
    suite_lines,
    text_write,
    warning_lines,
)
from hakmem_lab.runner import Arm, Conditions, json_run
from hakmem_lab.samples import RowWriter
from hakmem_lab.stage import staged
from hakmem_lab.study import Study, progress_make, study_open

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="The laboratory: hakmem beside other allocators, so that noise is never called a win.",
)

TABLE_WIDTH = 150
"""Where the output is not a terminal."""

BuildOption = Annotated[
    Path | None,
    typer.Option("--build", help="Take the library and bench/ from this build directory."),
]
BudgetOption = Annotated[
    float, typer.Option(min=0.1, help="Seconds for each cell and peer, fixed in advance.")
]
MarginOption = Annotated[float, typer.Option(min=0.1, max=50, help="Per cent within which speeds are equal.")]
ConfidenceOption = Annotated[
    float, typer.Option(min=50, max=99.9, help="Per cent confidence of each interval.")
]
PeersOption = Annotated[str, typer.Option(help="Peers to measure against, separated by commas.")]
OnlyOption = Annotated[
    str, typer.Option(help="Only cells whose name contains one of these, separated by commas.")
]
SeedOption = Annotated[
    int | None, typer.Option(help="Repeat an earlier run's draws; chosen anew if not given.")
]
ReportOption = Annotated[
    Path | None, typer.Option(help="Write a Markdown report here, its raw samples beside it.")
]
JsonOption = Annotated[Path | None, typer.Option("--json", help="Write the results here.")]


@app.command()
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
    cells = _cells_chosen(FIRST_FIGURES, only)
    checkout = Checkout.find(build)
    seed = secrets.randbits(32) if seed is None else seed
    settings = _settings(budget, margin, confidence)
    command = f"./hakmem figures {_settings_text(settings)} --peers {peers} --seed {seed}"
    if only:
        command += f" --only '{only}'"
    with study_open(checkout, "figures", seed) as study:
        hakmem, *others = study.peers(["hakmem", *_words(peers)])
        source = provenance.collect(checkout, command, cells[0].program, [hakmem, *others])
        measured = study.cells_measure(cells, hakmem, others, settings)
    _figures_show(study, source, measured, "First figures", seed, report, json_file)


@app.command()
def faults(
    budget: BudgetOption = 5.0,
    margin: MarginOption = 3.0,
    confidence: ConfidenceOption = 99.0,
    timing: Annotated[bool, typer.Option(help="Also time the start of `true` in pairs.")] = True,
    seed: SeedOption = None,
    report: ReportOption = None,
    build: BuildOption = None,
) -> None:
    """Page faults, dirty pages and the cost of starting, against glibc and mimalloc 3."""
    checkout = Checkout.find(build)
    seed = secrets.randbits(32) if seed is None else seed
    settings = _settings(budget, margin, confidence)
    command = f"./hakmem faults {_settings_text(settings)} --seed {seed}"
    notes: list[str] = []
    with study_open(checkout, "faults", seed) as study:
        hakmem, *others = study.peers(["hakmem", "glibc", "mimalloc3"])
        source = provenance.collect(checkout, command, "cold_start", [hakmem, *others])
        counted = [faults_measure(study.stage, peer, study.rng) for peer in [hakmem, *others]]
        checks = faults_checks(counted[0], counted[1])
        grids = [faults_grid(counted)]
        if timing:
            # That each peer serves `true` has just been proved by exit_pages.
            starts = study.cells_measure([PROCESS_START], hakmem, others, settings)
            checks += _start_checks(starts)
            grids += figures_grids(starts)
            notes += [*warning_lines(starts, len(cpus_allowed())), *reading_lines(starts)]
    grids.insert(0, checks_grid(checks))
    _print(grids, [_samples_text(study)] if timing else [])
    if report is not None:
        title = "Page faults and process start"
        report_write(report, title, source, notes, grids, study.samples.path)
    if any(check.state == "missed" for check in checks):
        raise typer.Exit(1)


@app.command()
def options(
    against: Annotated[
        list[str],
        typer.Argument(metavar="OPTIONS...", help="As HAKMEM_CONF has them; each is one arm: decay:never"),
    ],
    only: OnlyOption = SERVER_PEAKS.name,
    budget: BudgetOption = 120.0,
    margin: MarginOption = 2.0,
    confidence: ConfidenceOption = 99.0,
    seed: SeedOption = None,
    report: ReportOption = None,
    json_file: JsonOption = None,
    build: BuildOption = None,
) -> None:
    """hakmem with its defaults against hakmem with other options, in interleaved pairs."""
    cells = [replace(cell, targets={}) for cell in _cells_chosen((SERVER_PEAKS, *FIRST_FIGURES), only)]
    checkout = Checkout.find(build)
    seed = secrets.randbits(32) if seed is None else seed
    settings = _settings(budget, margin, confidence)
    command = f"./hakmem options {' '.join(against)} --only '{only}' {_settings_text(settings)} --seed {seed}"
    with study_open(checkout, "options", seed) as study:
        hakmem = study.peers(["hakmem"])[0]
        arms = [options_peer(hakmem, text) for text in against]
        for arm in arms:
            options_check(study.stage, arm)
        source = provenance.collect(checkout, command, cells[0].program, [hakmem, *arms])
        measured = study.cells_measure(cells, hakmem, arms, settings)
    _figures_show(study, source, measured, "The defaults against other options", seed, report, json_file)


@app.command()
def footprint(
    rounds: Annotated[int, typer.Option(min=1, help="How often each program runs under each peer.")] = 5,
    peers: PeersOption = "glibc,mimalloc3,mimalloc3-nothp,jemalloc",
    only: Annotated[
        str, typer.Option(help="Only programs whose name contains one of these, separated by commas.")
    ] = "",
    seed: SeedOption = None,
    report: ReportOption = None,
    build: BuildOption = None,
) -> None:
    """The peak memory of real programs and of the random mixes, in interleaved rounds."""
    programs = programs_chosen(_words(only))
    checkout = Checkout.find(build)
    tools_check(checkout, programs, os.defpath)
    seed = secrets.randbits(32) if seed is None else seed
    command = f"./hakmem footprint --rounds {rounds} --peers {peers} --seed {seed}"
    if only:
        command += f" --only '{only}'"
    with (
        study_open(checkout, "footprint", seed) as study,
        closing(RowWriter(study.samples.path, COLUMNS)) as writer,
    ):
        measured = study.peers(["hakmem", *_words(peers)])
        source = provenance.collect(checkout, command, "peak_memory", measured)
        inputs = prepare(study.stage, programs, seed)
        task = study.progress.add_task("footprint", total=len(programs) * len(measured) * (rounds + 1))

        def keep(sample: Sample | None) -> None:
            if sample is not None:
                writer.write(sample.row())
            study.progress.advance(task)

        arms = [arm_of(peer) for peer in measured]
        samples = rounds_run(study.stage, inputs, programs, arms, rounds, study.rng, keep)
    rows = rows_make(samples, [peer.name for peer in measured])
    grids = footprint_grids(rows)
    lines = footprint_lines(rows)
    _print(grids, [*lines, _samples_text(study)])
    if report is not None:
        notes = [*lines, *footprint_reading(rounds)]
        report_write(report, "Footprint", source, notes, grids, study.samples.path)
    if any(row.marked for row in rows):
        raise typer.Exit(1)


@app.command()
def bgsave(
    rounds: Annotated[int, typer.Option(min=1, help="How often each change is made under each peer.")] = 5,
    mebibytes: Annotated[int, typer.Option(min=1, help="Of values that the server is filled with.")] = 200,
    peers: PeersOption = "glibc,mimalloc3,jemalloc",
    seed: SeedOption = None,
    report: ReportOption = None,
    build: BuildOption = None,
) -> None:
    """The pages that redis-server copies because it writes during a BGSAVE."""
    checkout = Checkout.find(build)
    tools_check(checkout, [Program(SERVER, (SERVER,), SERVER, (SERVER,))], os.defpath)
    seed = secrets.randbits(32) if seed is None else seed
    command = f"./hakmem bgsave --rounds {rounds} --mebibytes {mebibytes} --peers {peers} --seed {seed}"
    with (
        study_open(checkout, "bgsave", seed) as study,
        closing(RowWriter(study.samples.path, snapshot.COLUMNS)) as writer,
    ):
        measured = study.peers(["hakmem", *_words(peers)])
        source = provenance.collect(checkout, command, "peak_memory", measured)
        runs = len(measured) * (1 + rounds * len(snapshot.CHANGES))
        task = study.progress.add_task("bgsave", total=runs)

        def keep(sample: snapshot.Sample | None) -> None:
            if sample is not None:
                writer.write(sample.row())
            study.progress.advance(task)

        arms = [arm_of(peer) for peer in measured]
        samples = snapshot.rounds_run(study.stage, arms, snapshot.CHANGES, mebibytes, rounds, study.rng, keep)
    names = [peer.name for peer in measured]
    rows = snapshot.rows_make(samples, names)
    grids = [*snapshot.snapshot_grids(rows), snapshot.resident_grid(samples, names)]
    lines = snapshot.snapshot_lines(rows)
    _print(grids, [*lines, _samples_text(study)])
    if report is not None:
        notes = [*lines, *snapshot.snapshot_reading(rounds, mebibytes)]
        report_write(report, "Snapshots of redis", source, notes, grids, study.samples.path)
    if any(row.marked for row in snapshot.judged(rows)):
        raise typer.Exit(1)


@app.command()
def instructions(
    peers: Annotated[
        str, typer.Option(help="Also count these, separated by commas; they have no limit.")
    ] = "",
    build: BuildOption = None,
) -> None:
    """Instructions of a malloc and free pair, and of a block's refill and spill, by callgrind."""
    checkout = Checkout.find(build)
    with staged(checkout) as stage, progress_make() as progress:
        store = PeerStore(checkout)
        counted = [stage.peer(store.obtain(name)) for name in ("hakmem", *_words(peers))]
        task = progress.add_task("callgrind", total=len(counted) * len(SIZES))
        measured = []
        for peer in counted:
            for size in SIZES:
                measured.append(instructions_measure(stage, peer, size))
                progress.advance(task)
    checks = instructions_checks([one for one in measured if one.peer == "hakmem"])
    _print([checks_grid(checks), instructions_grid(measured)], [])
    if any(check.state == "missed" for check in checks):
        raise typer.Exit(1)


@app.command()
def peers(build: BuildOption = None) -> None:
    """Obtains every peer and shows that each serves a program."""
    checkout = Checkout.find(build)
    store = PeerStore(checkout)
    rows = []
    with staged(checkout) as stage:
        program = stage.program("random_mixed")
        conditions = Conditions(seed=1, padding=0, cpus=cpus_allowed())
        for name in store.names:
            peer = stage.peer(store.obtain(name))
            json_run(program, ["1000", "100", "1"], Arm(peer), conditions)
            rows.append((name, peer.version, peer.identity, "yes"))
    columns = ("peer", "version", "identity", "serves")
    _print([Grid("Peers", columns, tuple(rows), len(columns))], [])


def main() -> None:
    try:
        app(prog_name="hakmem")
    except LabError as error:
        print(f"hakmem: {error}", file=sys.stderr)
        sys.exit(error.exit_status)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _cells_chosen(cells: Sequence[Cell], only: str) -> list[Cell]:
    words = [word.lower() for word in _words(only)]
    if not words:
        return list(cells)
    chosen = [
        cell for cell in cells if any(word in cell.name.lower() or word == cell.program for word in words)
    ]
    if not chosen:
        names = "; ".join(cell.name for cell in cells)
        raise LabError(f"no cell is named like '{only}'; there are: {names}")
    return chosen


def _settings(budget: float, margin: float, confidence: float) -> Settings:
    return Settings(Budget(budget, confidence=confidence / 100), margin / 100)


def _settings_text(settings: Settings) -> str:
    budget = settings.budget
    return (
        f"--budget {budget.seconds_per_comparison:g} --margin {100 * settings.margin:g}"
        f" --confidence {100 * budget.confidence:g}"
    )


def _figures_show(
    study: Study,
    source: provenance.Provenance,
    measured: Figures,
    title: str,
    seed: int,
    report: Path | None,
    json_file: Path | None,
) -> None:
    """Prints, writes what was asked for, and ends with the status of the targets."""
    grids = figures_grids(measured)
    means = [*warning_lines(measured, len(cpus_allowed())), *suite_lines(measured, seed)]
    _print(grids, [*means, _samples_text(study)])
    if report is not None:
        notes = [*means, *reading_lines(measured)]
        report_write(report, title, source, notes, grids, study.samples.path)
    if json_file is not None:
        content = {"provenance": asdict(source)} | _figures_content(measured)
        text_write(json_file, json.dumps(content, indent=2, default=str) + "\n")
    if measured.missed:
        raise typer.Exit(1)


def _samples_text(study: Study) -> str:
    return f"samples: {study.checkout.shown(study.samples.path)}"


def _start_checks(starts: Figures) -> list[Check]:
    return [
        Check(
            f"start of `true` against {result.against}",
            f"{result.estimate.ratio:.2f} times as fast, {result.verdict.value}",
            result.target.text,
            result.target_state,
        )
        for result in starts.results
        if result.target
    ]


def _print(grids: Sequence[Grid], lines: Sequence[str]) -> None:
    console = Console(width=None if sys.stdout.isatty() else TABLE_WIDTH)
    grids_print(console, grids)
    for line in lines:
        console.print(line, markup=False, highlight=False)


def _figures_content(figures: Figures) -> dict[str, object]:
    return {
        "settings": asdict(figures.settings),
        "results": [
            asdict(result) | {"verdict": result.verdict.value, "target_state": result.target_state}
            for result in figures.losses_first
        ],
        "controls": [asdict(control) for control in figures.controls],
    }
