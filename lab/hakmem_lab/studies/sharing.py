"""Which cache lines move between processors, on machines that are larger than any at hand: counted by a simulation.

bench/sharing/ runs the allocator's real sources, with every access seen, on up to 256 simulated cores. Here it is
run for every workload and number of cores, under several schedules, and its counts get names: the library's debug
information turns addresses into functions, lines and variables.

Before anything is reported about hakmem, facts that hold for any such machine are checked (`truths`): blocks that
stay with one thread move no line; two cores that write one line in turn move it once a turn; all readers of a line
need it once; and a counter that was planted into every refill is found under its name.
"""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from hakmem_lab.allocators.tools import tools_check
from hakmem_lab.checkout import Checkout
from hakmem_lab.errors import LabError
from hakmem_lab.processes import program_run
from hakmem_lab.studies.symbols import Symbols

WORKLOADS = {
    "private": "64 blocks of one size in each thread, replaced at random",
    "mixed": "256 blocks of 16 to 1024 B in each thread, replaced at random",
    "mid": "64 blocks of 1 to 32 KiB in each thread, replaced at random",
    "large": "8 blocks of 65 KiB to 1 MiB in each thread, replaced at random",
    "pairs": "half of the threads allocate 16 to 256 B, each for one far away that frees",
    "larson": "128 blocks of 8 to 128 B, replaced at random and then handed to another thread",
    "churn": "threads that free what their predecessor left, allocate 100 blocks of 16 to 256 B, and end",
    "hot": "blocks of 64 B, freed by whichever thread draws them",
}
CORES = (64, 128, 256)
NODES = (2, 4, 8)
"""The simulator's partitions of all cores."""
OPS = 2000
"""Operations of each core, after the same number for warm-up."""
SCHEDULES = 3
LIMIT_SECONDS = 1800
LIBRARY, PLANTED = "hakmem", "planted"
PLANTED_NAME = "planted_counter"
PLANTED_FOREMOST = 3
"""hakmem has such counters of its own, so the planted one need not be the first."""
TRUTH_CORES = 64
ALLOCATING = ("malloc", "free", "thread end")
"""The allocator's own work; what the workload does with its blocks is counted apart."""
OWN_ENTRIES = (*ALLOCATING, "own thread")
COUNTS = ("accesses", "atomics", "contended", "transfers", "dirty", "upgrades", "invalidations", "sleeps")


@dataclass(frozen=True)
class Counts:
    """The counts of one entry point."""

    calls: int
    accesses: int
    atomics: int
    """Read-modify-writes."""
    contended: int
    """Atomics whose line another core had."""
    fences: int
    transfers: int
    """Lines that came from another core."""
    dirty: int
    """Of these, lines that the other core had written."""
    upgrades: int
    """Lines that were present, but had to be taken from other cores before a write."""
    invalidations: int
    """Copies in other cores that a write invalidated."""
    cold: int
    """Lines that no core had."""
    sleeps: int
    """Waits in the kernel."""
    remote: tuple[int, ...]
    """Transfers from another node, with the numbers of nodes in NODES."""


@dataclass(frozen=True)
class Place:
    """A piece of code that took a line of an object from other cores."""

    entry: str
    thing: str
    """The object."""
    code: str
    transfers: int
    upgrades: int
    contended: int

    @property
    def moves(self) -> int:
        return self.transfers + self.upgrades


@dataclass(frozen=True)
class Simulation:
    """One run of the simulator."""

    workload: str
    cores: int
    line_bytes: int
    turn: int
    seed: int
    operations: int
    entries: Mapping[str, Counts]
    places: tuple[Place, ...]

    @property
    def sleeps(self) -> int:
        """Waits of the allocator in the kernel."""
        return sum(self.entries[name].sleeps for name in OWN_ENTRIES)

    def moves(self, names: Sequence[str] = ALLOCATING) -> int:
        """Lines that the entries NAMES took from other cores."""
        return sum(self.entries[name].transfers + self.entries[name].upgrades for name in names)


@dataclass(frozen=True)
class Machine:
    """The simulated machine, apart from the number of cores."""

    ops: int = OPS
    line_bytes: int = 64
    turn: int = 4
    access_ns: int = 1


# ---- running -----------------------------------------------------------------------------------------------


class Simulator:
    """The built simulator, with the names of what its libraries contain."""

    def __init__(self, checkout: Checkout) -> None:
        tools_check("naming what was touched", ("addr2line", "nm"))
        self._folder = checkout.build / "bench" / "sharing"
        if not (self._folder / "sharing").is_file():
            shown = checkout.shown(self._folder)
            raise LabError(f"{shown} has no simulator: run ./hakmem build, of which only the release has one")
        self._symbols: dict[str, Symbols] = {}

    def library(self, name: str) -> Path:
        return self._folder / f"{name}.so"

    def run(
        self, workload: str, cores: int, seed: int, machine: Machine, library: str = LIBRARY
    ) -> Simulation:
        path = self.library(library)
        numbers = (cores, machine.ops, seed, machine.line_bytes, machine.turn, machine.access_ns)
        command = [str(self._folder / "sharing"), str(path), workload, *map(str, numbers)]
        what = f"the simulation of {workload} on {cores} cores"
        try:
            done = program_run(command, LIMIT_SECONDS, env={})  # the defaults of every option
        except subprocess.TimeoutExpired as error:
            raise LabError(f"{what} did not end within {LIMIT_SECONDS} s") from error
        if done.status != 0:
            raise LabError(f"{what} failed{done.said or f': it ended with {done.status}'}")
        symbols = self._symbols.setdefault(library, Symbols(path))
        return simulation_read(json.loads(done.output), symbols)


def simulation_read(line: dict[str, Any], symbols: Symbols) -> Simulation:
    symbols.learn([place["code"] for place in line["places"] if place["code"] is not None])
    places = [
        Place(
            entry=one["entry"],
            thing=thing_name(one["object"], one["variable"], symbols),
            code="the workload" if one["code"] is None else symbols.code(one["code"]),
            transfers=one["transfers"],
            upgrades=one["upgrades"],
            contended=one["contended"],
        )
        for one in line["places"]
    ]
    return Simulation(
        workload=line["workload"],
        cores=line["cores"],
        line_bytes=line["line_bytes"],
        turn=line["turn"],
        seed=int(line["seed"]),
        operations=line["operations"],
        entries={
            name: Counts(**one | {"remote": tuple(one["remote"])}) for name, one in line["entries"].items()
        },
        places=tuple(places),
    )


def thing_name(name: str | None, address: int | None, symbols: Symbols) -> str:
    """NAME if the simulator knows one, otherwise the variable at ADDRESS."""
    if name is None and address is not None:
        name = symbols.variable(address)
    return name or "other memory"


# ---- what must be true -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Truth:
    what: str
    found: str
    holds: bool


def truths(simulator: Simulator, seed: int) -> list[Truth]:
    """Checks the simulator, on TRUTH_CORES cores."""
    ops = 500

    def run(workload: str, line_bytes: int = 64, library: str = LIBRARY) -> Simulation:
        return simulator.run(workload, TRUTH_CORES, seed, Machine(ops, line_bytes), library)

    private = run("private")
    turns = run("ping-pong").entries["user"]
    readers = run("readers").entries["user"]
    apart, together = (run("neighbours", size) for size in (64, 128))
    found = "" if planted_find(run("mid")) else planted_find(run("mid", library=PLANTED))
    every = ops * (TRUTH_CORES - 1)
    return [
        Truth(
            "blocks that stay with one thread move no line",
            f"{private.moves()} of {private.operations} operations",
            private.operations > 0 and private.moves() == 0,
        ),
        Truth(
            "two cores that write one line in turns move it once a turn",
            f"{turns.transfers} in {2 * ops} turns, {turns.remote[0]} of them between two nodes",
            turns.transfers == 2 * ops and set(turns.remote) == {2 * ops},
        ),
        Truth(
            f"{TRUTH_CORES - 1} readers of what one core writes need the line once, and the next write takes all copies away",
            f"{readers.transfers} moved and {readers.invalidations} taken away in {ops} rounds",
            readers.transfers == readers.invalidations == every and readers.upgrades == ops,
        ),
        Truth(
            "cores that write neighbouring words share lines, and more so where lines move in pairs",
            f"{apart.moves(['user'])} moves of lines of 64 bytes, {together.moves(['user'])} of 128",
            0 < apart.moves(["user"]) < together.moves(["user"]),
        ),
        Truth(
            "a counter that was planted into every refill is found under its name, where it is touched",
            found or "not found",
            bool(found),
        ),
    ]


def planted_find(simulation: Simulation) -> str:
    """Where it was found, if it is one of the PLANTED_FOREMOST that moved most; otherwise empty."""
    for place, one in enumerate(things(simulation, ALLOCATING)[:PLANTED_FOREMOST], 1):
        if one.name == PLANTED_NAME:
            return f"{one.name}, number {place}: {one.moves} moves, in {' and '.join(one.codes)}"
    return ""


# ---- what was counted --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Thing:
    """An object whose lines moved."""

    name: str
    moves: int
    contended: int
    codes: tuple[str, ...]
    """The code that took them, most moves first."""
    entries: tuple[str, ...]


def things(simulation: Simulation, names: Sequence[str]) -> list[Thing]:
    """Most moves first."""
    grouped: dict[str, list[Place]] = defaultdict(list)
    for place in simulation.places:
        if place.entry in names and place.moves:
            grouped[place.thing].append(place)
    found = [
        Thing(
            name,
            sum(one.moves for one in places),
            sum(one.contended for one in places),
            tuple(_by_moves(places, lambda one: one.code)),
            tuple(_by_moves(places, lambda one: one.entry)),
        )
        for name, places in grouped.items()
    ]
    return sorted(found, key=lambda one: -one.moves)


def _by_moves(places: Sequence[Place], key: Callable[[Place], str]) -> list[str]:
    sums: dict[str, int] = defaultdict(int)
    for place in places:
        sums[key(place)] += place.moves
    return sorted(sums, key=lambda name: -sums[name])


@dataclass(frozen=True)
class Figure:
    """For one call or operation: the mean over schedules, and their minimum and maximum."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Row:
    """One workload on one number of cores."""

    workload: str
    cores: int
    entry: str
    calls: int
    figures: Mapping[str, Figure]
    """For each call: COUNTS, and `between N nodes`."""


def figure_of(values: Sequence[float]) -> Figure:
    return Figure(mean(values), min(values), max(values))


def rows_of(runs: Sequence[Simulation]) -> list[Row]:
    """RUNS of one workload and number of cores, under different schedules."""
    first = runs[0]
    rows = []
    for entry in (*OWN_ENTRIES, "user"):
        counts = [run.entries[entry] for run in runs]
        # What the workload does itself is told beside its operations.
        calls = [run.operations if entry == "user" else run.entries[entry].calls for run in runs]
        if not all(calls) or not any(one.accesses for one in counts):
            continue
        figures = {
            name: figure_of([getattr(one, name) / count for one, count in zip(counts, calls, strict=True)])
            for name in COUNTS
        }
        for place, nodes in enumerate(NODES):
            figures[f"between {nodes} nodes"] = figure_of(
                [one.remote[place] / count for one, count in zip(counts, calls, strict=True)]
            )
        rows.append(Row(first.workload, first.cores, entry, calls[0], figures))
    return rows


@dataclass(frozen=True)
class Growth:
    """The allocator's moves for each operation of a workload, by cores."""

    workload: str
    moves: Mapping[int, Figure]

    @property
    def ratio(self) -> float | None:
        """From the fewest cores to the most; None if there is nothing to divide."""
        fewest, most = self.moves[min(self.moves)].mean, self.moves[max(self.moves)].mean
        return most / fewest if fewest else None


def growth_of(workload: str, runs: Mapping[int, Sequence[Simulation]]) -> Growth:
    return Growth(
        workload,
        {
            cores: figure_of([run.moves(OWN_ENTRIES) / run.operations for run in of])
            for cores, of in runs.items()
        },
    )
