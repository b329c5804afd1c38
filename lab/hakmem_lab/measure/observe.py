"""Runs with instruments, outside the timed rounds: latency of single operations, memory over time, system calls.

A clock around every operation and a reader of /proc slow a program down, so the results of these runs are never
mixed with times. strace counts system calls; if it is not installed they stay unknown.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from hakmem_lab.errors import LabError, ProcessFailedError, RunFailedError
from hakmem_lab.measure.prepare import arm_prepared
from hakmem_lab.measure.rounds import Failure
from hakmem_lab.measure.runner import (
    PRELOAD_PLACE,
    RUN_SECONDS_MAX,
    Arm,
    Conditions,
    Latency,
    Line,
    command_make,
    environment_make,
    json_run,
    latency_of,
    process_run,
    service_check,
)
from hakmem_lab.measure.task import CellTask
from hakmem_lab.processes import pinned_to
from hakmem_lab.workloads.cell import Cell

LATENCY_VARIABLES = {"WORKLOAD_LATENCY": "1"}
RSS_EVERY_SECONDS = 0.002
TRACE_POINTS_MAX = 200

Trace = tuple[tuple[float, int], ...]
"""Seconds since the start, resident KiB."""


@dataclass(frozen=True)
class Observed:
    latency: Latency | None
    rss_trace: Trace
    rss_mean_kib: float | None
    system_calls: int | None
    figure: float | None
    """The figure that the workload is about, if it is not one that every program has."""


def can_observe(cell: Cell) -> bool:
    """A tool that starts other processes would be observed instead of them."""
    return PRELOAD_PLACE not in cell.arguments


def observed_run(task: CellTask, arm: Arm, conditions: Conditions) -> Observed | Failure:
    try:
        arm = arm_prepared(task.stage, task.cell, arm)
        line, points = _traced_run(task, arm, conditions)
        # What rests for long is not run a second time to count its calls.
        calls = None if task.cell.memory else system_calls_count(task, arm, conditions)
        figure = line.get(task.cell.figure)
        return Observed(latency_of(line), thinned(points), trace_mean(points), calls, figure)
    except RunFailedError as error:
        return Failure(error.outcome)


def latency_run(task: CellTask, arm: Arm, conditions: Conditions) -> Latency | Failure:
    try:
        arm = arm_prepared(task.stage, task.cell, arm)
        program = task.stage.program(task.cell.program)
        arguments = task.cell.command(task.count, conditions.seed)
        task.backing.ready()
        told = latency_of(json_run(program, arguments, arm, conditions, LATENCY_VARIABLES))
        return told or Failure("failed: told no latency")
    except RunFailedError as error:
        return Failure(error.outcome)


def _traced_run(task: CellTask, arm: Arm, conditions: Conditions) -> tuple[Line, Trace]:
    program = task.stage.program(task.cell.program)
    arguments = task.cell.command(task.count, conditions.seed)
    environment = environment_make(arm, conditions.padding, preload=True) | LATENCY_VARIABLES
    with TemporaryDirectory(prefix="observed-", dir=task.stage.folder) as folder:
        output = Path(folder) / "output"
        task.backing.ready()
        with output.open("w") as file, pinned_to(conditions.cpus):
            process = subprocess.Popen(
                command_make(program, arguments, arm.peer),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.DEVNULL,
            )
        points = rss_trace(process)
        if process.returncode != 0:
            code = process.returncode
            outcome = f"crashed: signal {-code}" if code < 0 else f"failed: status {code}"
            raise ProcessFailedError(f"{program.name} {outcome} (under {arm.name})", outcome)
        printed = output.read_text(encoding="utf-8", errors="replace")
    line = Line.parse(printed, f"{program.name} under {arm.name}")
    service_check(line, arm.peer)
    return line, points


def rss_trace(process: subprocess.Popen[bytes], clock: Callable[[], float] = time.monotonic) -> Trace:
    """Samples resident memory until the process ends."""
    page_kib = os.sysconf("SC_PAGE_SIZE") // 1024
    statm = Path(f"/proc/{process.pid}/statm")
    started = clock()
    points: list[tuple[float, int]] = []
    try:
        while process.poll() is None:
            now = clock() - started
            if now > RUN_SECONDS_MAX:
                raise ProcessFailedError("it did not end", f"hung: {RUN_SECONDS_MAX:g} s")
            with suppress(OSError, IndexError):  # it may end before its memory is read
                pages = int(statm.read_text().split()[1])
                if pages:  # none are left while it ends
                    points.append((round(now, 4), pages * page_kib))
            time.sleep(RSS_EVERY_SECONDS)
    except BaseException:
        process.kill()
        process.wait()
        raise
    return tuple(points)


def thinned(points: Trace) -> Trace:
    """For a picture: the highest value of each interval stays, so that no peak is lost. The mean of these would be
    too high."""
    stride = -(-len(points) // TRACE_POINTS_MAX) or 1
    stretches = (points[at : at + stride] for at in range(0, len(points), stride))
    return tuple(max(stretch, key=lambda point: point[1]) for stretch in stretches)


def trace_mean(trace: Trace) -> float | None:
    """The integral over time, divided by the time."""
    if len(trace) < 2:
        return float(trace[0][1]) if trace else None
    area = sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(trace))
    return area / (trace[-1][0] - trace[0][0])


def system_calls_count(task: CellTask, arm: Arm, conditions: Conditions) -> int | None:
    strace = shutil.which("strace")
    if strace is None:
        return None
    program = task.stage.program(task.cell.program)
    command = command_make(program, task.cell.command(task.count, conditions.seed), arm.peer)
    # strace stays on its own allocator.
    environment = environment_make(replace(arm, peer=replace(arm.peer, library=None)), 0, preload=False)
    preload = ["-E", f"LD_PRELOAD={arm.peer.library}"] if arm.peer.library else []
    with TemporaryDirectory(prefix="calls-", dir=task.stage.folder) as folder:
        summary = Path(folder) / "summary"
        traced = [strace, "-f", "-c", "-U", "calls,name", "-o", str(summary), *preload, *command]
        try:
            process_run(traced, environment, conditions.cpus)
            return summary_total(summary.read_text())
        except (LabError, OSError):  # tracing is not allowed everywhere
            return None


def summary_total(text: str) -> int | None:
    """The last line of strace's summary of calls by name."""
    for line in reversed(text.splitlines()):
        match line.split():
            case [count, "total"]:
                return int(count)
    return None
