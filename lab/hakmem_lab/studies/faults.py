"""Page faults, dirty pages and the cost of starting: what a process pays before it does anything."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from hakmem_lab.allocators.peers import Peer
from hakmem_lab.grid import Grid
from hakmem_lab.measure.pairs import conditions_draw
from hakmem_lab.measure.runner import PRELOAD_PLACE, Arm, Line, json_run
from hakmem_lab.measure.stage import Stage
from hakmem_lab.studies.checks import Check
from hakmem_lab.workloads.cells import PROCESS_START

MIX_OPS = 1_000_000
MIX_SLOTS = 400
MIX_FAULTS_MAX = 200
TRUE_DIRTY_PAGES_MAX = 16
FIRST_FAULTS_MAX = 1
FIRST_CALLS_MAX = 0
REPEATS = 5


@dataclass(frozen=True)
class Faults:
    """One peer's figures over REPEATS processes: the worst if there is a limit, otherwise the median."""

    peer: str
    mix_faults: int
    """Most faults of the random mix, from before its first operation to after its last."""
    true_dirty_pages: float
    """Private dirty pages of `true` at the moment it ends."""
    true_faults: float
    first_faults: int
    """Most faults of a class's first operation: malloc and the first write to the block."""
    first_faults_size: int
    first_faults_in_malloc: int
    """Without the write."""
    first_calls: int
    """System calls inside all the first operations together."""
    first_calls_most: int
    first_calls_by_name: tuple[tuple[str, int], ...]


def faults_measure(stage: Stage, peer: Peer, rng: random.Random) -> Faults:
    def repeat(program: str, *arguments: str) -> list[Line]:
        path = stage.program(program)
        lines = []
        for _ in range(REPEATS):
            conditions = conditions_draw(PROCESS_START, rng)
            places = {"{seed}": str(conditions.seed)}
            filled = [places.get(argument, argument) for argument in arguments]
            lines.append(json_run(path, filled, Arm(peer), conditions))
        return lines

    mix = repeat("random_mixed", str(MIX_OPS), str(MIX_SLOTS), "{seed}", "16", "1024")
    ends = repeat("exit_pages", PRELOAD_PLACE, "--", "true")
    cold = repeat("cold_start", "1", "{seed}")
    cold_start = str(stage.program("cold_start"))
    calls = repeat("first_calls", PRELOAD_PLACE, "--", cold_start, "1", "{seed}")
    coldest = max(cold, key=lambda line: line["most_faults"])
    busiest = max(calls, key=lambda line: line["calls"])
    return Faults(
        peer=peer.name,
        mix_faults=max(line["minor_faults"] + line["major_faults"] for line in mix),
        true_dirty_pages=_median([line["private_dirty_kib"] * 1024 / line["page_bytes"] for line in ends]),
        true_faults=_median([line["minor_faults"] for line in ends]),
        first_faults=coldest["most_faults"],
        first_faults_size=coldest["most_faults_size"],
        first_faults_in_malloc=max(line["most_faults_in_malloc"] for line in cold),
        first_calls=busiest["calls"],
        first_calls_most=max(line["most"] for line in calls),
        first_calls_by_name=tuple(sorted(busiest["by_name"].items())),
    )


def _median(values: Sequence[float]) -> float:
    return float(statistics.median(values))


def faults_grid(all_faults: Sequence[Faults]) -> Grid:
    def calls_text(faults: Faults) -> str:
        names = ", ".join(f"{name} {count}" for name, count in faults.first_calls_by_name)
        return f"{faults.first_calls} ({names})" if names else "0"

    return Grid(
        title=f"Page faults and start, worst or median of {REPEATS} processes",
        columns=(
            "peer",
            "mix: faults",
            "true: dirty pages",
            "true: faults",
            "first operation: most faults",
            "at size",
            "inside malloc",
            "system calls",
        ),
        rows=tuple(
            (
                faults.peer,
                str(faults.mix_faults),
                f"{faults.true_dirty_pages:g}",
                f"{faults.true_faults:g}",
                str(faults.first_faults),
                str(faults.first_faults_size) if faults.first_faults else "",
                str(faults.first_faults_in_malloc),
                calls_text(faults),
            )
            for faults in all_faults
        ),
    )


def faults_checks(hakmem: Faults, glibc: Faults) -> list[Check]:
    more_dirty = hakmem.true_dirty_pages - glibc.true_dirty_pages
    return [
        Check.at_most(
            f"faults of {MIX_OPS} operations of the 16-1024 B mix at {MIX_SLOTS} slots",
            hakmem.mix_faults,
            MIX_FAULTS_MAX,
        ),
        Check.at_most("dirty pages of `true` beyond those on glibc", more_dirty, TRUE_DIRTY_PAGES_MAX),
        Check.at_most("faults of a class's first operation", hakmem.first_faults, FIRST_FAULTS_MAX),
        Check.at_most("system calls of all classes' first operations", hakmem.first_calls, FIRST_CALLS_MAX),
    ]
