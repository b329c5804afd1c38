"""What an allocator without checks must know before a run: how many blocks of each size a cell holds at the same
time.

bench/ceiling/counting.c serves the cell once with a fixed seed and counts. A cell that it refuses cannot be served
without checks, and the reason becomes the outcome of the run. The counts are passed to the allocator in a variable;
it prepares this many blocks, and some to spare, before main. If another seed needs more, malloc returns NULL and
the run fails. So no figure is ever taken from a run that was not served.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

from hakmem_lab.allocators.peers import Peer
from hakmem_lab.errors import ProcessFailedError
from hakmem_lab.files import ENCODING
from hakmem_lab.measure.runner import PRELOAD_PLACE, Arm, command_make, environment_make, process_run
from hakmem_lab.measure.stage import Stage
from hakmem_lab.workloads.cells import Cell, Group, Measure

PLAN_VARIABLE = "CEILING_PLAN"
COUNT_VARIABLE = "CEILING_COUNT"
SAYS = "ceiling: "
COUNTED_TIMES = 10
"""This many times the count at which calibration starts; by then a cell holds as much as it ever will."""
SEED = 1
REFUSED = "refused "


def arm_prepared(stage: Stage, cell: Cell, arm: Arm) -> Arm:
    """The arm itself, unless its allocator is without checks."""
    if not arm.peer.bare:
        return arm
    environment = (*arm.peer.environment, (PLAN_VARIABLE, plan_of(stage, cell)))
    return replace(arm, peer=replace(arm.peer, environment=environment))


def plan_of(stage: Stage, cell: Cell) -> str:
    """Counted once in a study; an error if the cell cannot be served."""
    kept = stage.folder / "plans" / hashlib.sha256(cell.name.encode()).hexdigest()[:20]
    if not kept.exists():
        kept.parent.mkdir(exist_ok=True)
        try:
            kept.write_text(_count(stage, cell, kept.with_suffix(".count")), ENCODING)
        except ProcessFailedError as error:
            kept.write_text(f"{REFUSED}{_reason(str(error))}", ENCODING)
    plan = kept.read_text(ENCODING)
    if plan.startswith(REFUSED):
        reason = plan.removeprefix(REFUSED)
        raise ProcessFailedError(
            f"{cell.name} cannot be served without checks: {reason}", f"not served: {reason}"
        )
    return plan


def _reason(text: str) -> str:
    """What the counter itself reported, if anything."""
    return text.partition(SAYS)[2] or text


def _count(stage: Stage, cell: Cell, path: Path) -> str:
    obstacle = _obstacle(cell)
    if obstacle:
        raise ProcessFailedError(obstacle, obstacle)
    arm = Arm(_counting_peer(stage))
    cpus = tuple(sorted(os.sched_getaffinity(0)))[: cell.threads]
    count = max(COUNTED_TIMES * cell.first_count, cell.count_min)
    command = command_make(stage.program(cell.program), cell.command(count, SEED), arm.peer)
    environment = environment_make(arm, 0, preload=True) | {COUNT_VARIABLE: str(path)}
    process_run(command, environment, cpus)
    return path.read_text()


def _obstacle(cell: Cell) -> str:
    """Why a cell is not even tried."""
    if PRELOAD_PLACE in cell.arguments:
        return "it starts other processes"
    if cell.group is Group.START:
        return "its figure is the first use of memory, which is prepared here"
    if cell.memory:
        return "its figure is memory"
    if cell.measure is Measure.CPU:
        return "it waits by the clock"
    return ""


def _counting_peer(stage: Stage) -> Peer:
    library = stage.checkout.bare_library("counting")
    copy = stage.folder / "counting" / library.name
    plain = Peer("counting", "", library, "")
    return replace(plain, library=copy) if copy.exists() else stage.peer(plain)
