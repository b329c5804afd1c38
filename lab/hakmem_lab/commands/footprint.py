"""`hakmem footprint`."""

from __future__ import annotations

import os
import secrets
import shlex
from contextlib import closing
from typing import Annotated

import typer

from hakmem_lab.checkout import Checkout
from hakmem_lab.commands.common import (
    BuildOption,
    PeersOption,
    ReportOption,
    SeedOption,
    grids_show,
    samples_text,
    words_split,
)
from hakmem_lab.measure import provenance
from hakmem_lab.measure.samples import RowWriter
from hakmem_lab.reports.report import report_write
from hakmem_lab.studies.footprint import (
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
from hakmem_lab.studies.study import study_open
from hakmem_lab.workloads.find import words_named
from hakmem_lab.workloads.footprint_inputs import PROGRAMS, programs_chosen


def footprint(
    rounds: Annotated[int, typer.Option(min=1, help="How many times each program runs under each peer.")] = 5,
    peers: PeersOption = "glibc,mimalloc3,mimalloc3-nothp,jemalloc",
    only: Annotated[
        str,
        typer.Option(
            help="Only these programs: comma-separated parts of names, or whole names separated by semicolons."
        ),
    ] = "",
    seed: SeedOption = None,
    report: ReportOption = None,
    build: BuildOption = None,
) -> None:
    """Measures the peak memory of real programs and of the random mixes, in interleaved rounds."""
    programs = programs_chosen(words_named(only, [one.name for one in PROGRAMS]))
    checkout = Checkout.find(build)
    tools_check(checkout, programs, os.defpath)
    seed = secrets.randbits(32) if seed is None else seed
    words = ["./hakmem", "footprint", "--rounds", str(rounds), "--peers", peers, "--seed", str(seed)]
    command = shlex.join([*words, *(["--only", only] if only else [])])
    with (
        study_open(checkout, "footprint", seed) as study,
        closing(RowWriter(study.samples.path, COLUMNS)) as writer,
    ):
        measured = study.peers(["hakmem", *words_split(peers)])
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
    grids_show(grids, [*lines, samples_text(study.samples.path)])
    if report is not None:
        notes = [*lines, *footprint_reading(rounds)]
        report_write(report, "Footprint", source, notes, grids, study.samples.path)
    if any(row.marked for row in rows):
        raise typer.Exit(1)
