"""`hakmem bgsave`."""

from __future__ import annotations

import os
import secrets
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
from hakmem_lab.studies import snapshot
from hakmem_lab.studies.footprint import (
    arm_of,
    tools_check,
)
from hakmem_lab.studies.study import study_open
from hakmem_lab.workloads.footprint_inputs import Program
from hakmem_lab.workloads.redis_server import SERVER


def bgsave(
    rounds: Annotated[
        int, typer.Option(min=1, help="How many times each change is made under each peer.")
    ] = 5,
    mebibytes: Annotated[int, typer.Option(min=1, help="MiB of values to fill the server with.")] = 200,
    peers: PeersOption = "glibc,mimalloc3,jemalloc",
    seed: SeedOption = None,
    report: ReportOption = None,
    build: BuildOption = None,
) -> None:
    """Counts the pages that redis-server copies because it writes during a BGSAVE."""
    checkout = Checkout.find(build)
    tools_check(checkout, [Program(SERVER, (SERVER,), SERVER, (SERVER,))], os.defpath)
    seed = secrets.randbits(32) if seed is None else seed
    command = f"./hakmem bgsave --rounds {rounds} --mebibytes {mebibytes} --peers {peers} --seed {seed}"
    with (
        study_open(checkout, "bgsave", seed) as study,
        closing(RowWriter(study.samples.path, snapshot.COLUMNS)) as writer,
    ):
        measured = study.peers(["hakmem", *words_split(peers)])
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
    grids_show(grids, [*lines, samples_text(study.samples.path)])
    if report is not None:
        notes = [*lines, *snapshot.snapshot_reading(rounds, mebibytes)]
        report_write(report, "Snapshots of redis", source, notes, grids, study.samples.path)
    if any(row.marked for row in snapshot.judged(rows)):
        raise typer.Exit(1)
