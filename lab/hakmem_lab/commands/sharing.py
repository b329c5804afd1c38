"""`hakmem sharing`."""

from __future__ import annotations

import random
import secrets
import shlex
from contextlib import closing
from typing import Annotated

import typer

from hakmem_lab.checkout import Checkout, path_here
from hakmem_lab.commands.common import (
    BuildOption,
    JsonOption,
    ReportOption,
    SeedOption,
    grids_show,
    words_split,
)
from hakmem_lab.errors import LabError, RunInterruptedError
from hakmem_lab.files import json_write
from hakmem_lab.measure import provenance
from hakmem_lab.measure.samples import RowWriter
from hakmem_lab.reports.report import report_write
from hakmem_lab.reports.sharing import TITLE, Sharing, answer_lines, content_of, grids_of, reading_lines
from hakmem_lab.studies.progress import progress_shown
from hakmem_lab.studies.sharing import (
    CORES,
    COUNTS,
    NODES,
    OPS,
    SCHEDULES,
    WORKLOADS,
    Machine,
    Simulation,
    Simulator,
    truths,
)

COLUMNS = ("workload", "cores", "seed", "operations", "entry", "calls", *COUNTS, "cold", "fences")
CORES_MOST = 256
NODES_MOST = max(NODES)


def sharing(
    workloads: Annotated[
        str, typer.Option(help=f"Only these workloads, comma-separated: {', '.join(WORKLOADS)}.")
    ] = "",
    cores: Annotated[
        str, typer.Option(help="Comma-separated numbers of simulated cores: multiples of 8 from 8 to 256.")
    ] = ",".join(map(str, CORES)),
    ops: Annotated[
        int, typer.Option(min=100, help="Operations of each core, after the same number for warm-up.")
    ] = OPS,
    schedules: Annotated[
        int, typer.Option(min=1, help="Number of orders in which the cores take turns.")
    ] = SCHEDULES,
    line_bytes: Annotated[
        int, typer.Option(help="Bytes of a line: 64, or 128 where lines move in pairs.")
    ] = 64,
    turn: Annotated[
        int, typer.Option(min=1, max=10000, help="Average number of accesses in a core's turn.")
    ] = 4,
    seed: SeedOption = None,
    report: ReportOption = None,
    json_file: JsonOption = None,
    build: BuildOption = None,
) -> None:
    """Counts lines moved between processors and contended atomics, on simulated machines of 64 to 256 cores.

    Exit status: 0 for an answer, 1 if the simulator is found to be wrong, 2 for an error, 130 if interrupted.
    """
    checkout = Checkout.find(build)
    chosen = workloads_choose(workloads)
    numbers = cores_read(cores)
    if line_bytes not in (64, 128):
        raise LabError(f"--line-bytes is 64 or 128, not {line_bytes}")
    seed = secrets.randbits(32) if seed is None else seed
    machine = Machine(ops, line_bytes, turn)
    simulator = Simulator(checkout)
    command = command_text(chosen, numbers, machine, schedules, seed)
    source = provenance.collect(checkout, command)
    path = checkout.results_new("sharing") / "samples.csv"
    seeds = [random.Random(f"{seed}/{number}").getrandbits(32) for number in range(schedules)]
    runs: dict[str, dict[int, list[Simulation]]] = {}
    total = sum(numbers) * len(chosen) * schedules
    try:
        with (
            closing(RowWriter(path, COLUMNS)) as writer,
            progress_shown("simulation", len(chosen) * len(numbers), float(total)) as step,
        ):
            known = truths(simulator, seed)
            for workload in chosen:
                for number in numbers:
                    for one in seeds:
                        run = simulator.run(workload, number, one, machine)
                        runs.setdefault(workload, {}).setdefault(number, []).append(run)
                        rows_keep(writer, run)
                        step(f"{workload} on {number} cores", float(number))
    except KeyboardInterrupt:
        raise RunInterruptedError(f"interrupted; what was counted is in {path_here(path)}") from None
    counted = Sharing(known, runs, machine)
    lines, grids = answer_lines(counted), grids_of(counted)
    grids_show(grids, [*lines, f"samples: {path_here(path)}"])
    if report is not None:
        report_write(report, TITLE, source, [*lines, *reading_lines(counted)], grids, path)
    if json_file is not None:
        json_write(json_file, content_of(counted))
    if not all(one.holds for one in known):
        raise typer.Exit(1)


def workloads_choose(text: str) -> list[str]:
    words = words_split(text)
    for word in words:
        if word not in WORKLOADS:
            raise LabError(f"there is no workload '{word}' to simulate; there are: {', '.join(WORKLOADS)}")
    return list(dict.fromkeys(words)) or list(WORKLOADS)


def cores_read(text: str) -> list[int]:
    numbers = []
    for word in words_split(text):
        number = int(word) if word.isdecimal() and word.isascii() else 0
        if number % NODES_MOST != 0 or not 0 < number <= CORES_MOST:
            raise LabError(f"--cores takes multiples of {NODES_MOST} up to {CORES_MOST}, not '{word}'")
        numbers.append(number)
    if not numbers:
        raise LabError("--cores names none")
    return sorted(set(numbers))


def command_text(workloads: list[str], cores: list[int], machine: Machine, schedules: int, seed: int) -> str:
    """The command in a form that can be given again."""
    command = [
        "./hakmem",
        "sharing",
        "--workloads",
        ",".join(workloads),
        "--cores",
        ",".join(map(str, cores)),
    ]
    command += [
        "--ops",
        str(machine.ops),
        "--schedules",
        str(schedules),
        "--line-bytes",
        str(machine.line_bytes),
    ]
    command += ["--turn", str(machine.turn), "--seed", str(seed)]
    return shlex.join(command)


def rows_keep(writer: RowWriter, run: Simulation) -> None:
    for name, one in run.entries.items():
        figures = (getattr(one, count) for count in COUNTS)
        head = (run.workload, run.cores, run.seed, run.operations, name, one.calls)
        writer.write((*head, *figures, one.cold, one.fences))
