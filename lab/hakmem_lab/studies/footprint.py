"""The peak memory of real programs under several allocators, in interleaved rounds.

Every round runs each program under each allocator once, in random order, with the same seed and environment size
for all of a program's runs in a round. A first round, which is not counted, proves the service: the dynamic linker
itself reports where each process's malloc and free lead. Every counted run is checked again: the library must be
mapped in the largest process.

glibc is preloaded like any other, because a program may bring its own allocator (Debian's redis-server does).
"""

from __future__ import annotations

import math
import random
import shutil
import statistics
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hakmem_lab.allocators.bindings import bindings_complaint, linker_environment
from hakmem_lab.allocators.peers import Peer
from hakmem_lab.checkout import Checkout
from hakmem_lab.errors import LabError
from hakmem_lab.grid import Grid
from hakmem_lab.measure.pairs import PADDING_MAX, SEED_BITS, cpus_allowed
from hakmem_lab.measure.runner import PRELOAD_PLACE, Arm, Conditions, Line, json_run
from hakmem_lab.measure.service import libc_preloaded
from hakmem_lab.measure.stage import Stage
from hakmem_lab.workloads.footprint_inputs import (
    ANONYMOUS,
    AT_EXIT,
    PEAK,
    Program,
    inputs_make,
    repository_stream,
)
from hakmem_lab.workloads.installed import installed_check

TOOL = "peak_memory"
SUBJECT = "hakmem"
LIMIT = 1.05
"""hakmem's median over the smallest of its row: a row above this is marked."""
COLUMNS = (
    "program",
    "round",
    "order",
    "arm",
    "version",
    "identity",
    "seed",
    "padding",
    PEAK,
    AT_EXIT,
    ANONYMOUS,
)


@dataclass(frozen=True)
class Sample:
    program: Program
    round: int
    order: int
    """Its position in the round."""
    peer: Peer
    conditions: Conditions
    peak_rss_kib: int
    rss_kib: int
    anonymous_kib: int

    def row(self) -> tuple[object, ...]:
        run = (
            self.program.name,
            self.round,
            self.order,
            self.peer.name,
            self.peer.version,
            self.peer.identity,
        )
        return (
            *run,
            self.conditions.seed,
            self.conditions.padding,
            self.peak_rss_kib,
            self.rss_kib,
            self.anonymous_kib,
        )


@dataclass(frozen=True)
class Spread:
    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(float(statistics.median(values)), min(values), max(values))

    @property
    def percent(self) -> float:
        return 100 * (self.high - self.low) / self.median


@dataclass(frozen=True)
class Row:
    name: str
    kib: dict[str, Spread]
    """By peer."""

    def ratio(self, peer: str) -> float:
        return self.kib[peer].median / min(spread.median for spread in self.kib.values())

    @property
    def marked(self) -> bool:
        return self.ratio(SUBJECT) > LIMIT


# ---- preparing ------------------------------------------------------------------------------------------


def tools_check(checkout: Checkout, programs: Iterable[Program], path: str) -> None:
    tools = (tool for program in programs for tool in program.tools)
    installed_check(checkout, tools, path, "; --only leaves programs out")


def arm_of(peer: Peer) -> Arm:
    return libc_preloaded(Arm(peer))


def repository_make(folder: Path, rng: random.Random) -> None:
    stream = repository_stream(rng)
    for command, given in ((["init", "-q", "-b", "main"], b""), (["fast-import", "--quiet"], stream)):
        folder.mkdir(exist_ok=True)
        done = subprocess.run(
            ["git", "-C", str(folder), *command], input=given, capture_output=True, check=False
        )
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip().splitlines()
            raise LabError(f"git {command[0]} exited with {done.returncode}: {said[-1] if said else ''}")


def prepare(stage: Stage, programs: Sequence[Program], seed: int) -> Path:
    """The folder of the inputs."""
    inputs = stage.folder / "inputs"
    inputs_make(inputs, seed)
    if any(program.tools == ("git",) for program in programs):
        repository_make(inputs / "repository", random.Random(seed))
    for program in programs:
        if not program.tools:
            stage.program(program.process)
    return inputs


# ---- measuring ------------------------------------------------------------------------------------------


def conditions_draw(rng: random.Random) -> Conditions:
    return Conditions(rng.getrandbits(SEED_BITS), rng.randrange(PADDING_MAX), cpus_allowed())


def program_run(stage: Stage, inputs: Path, program: Program, arm: Arm, conditions: Conditions) -> Line:
    command = program.filled(inputs, stage.folder / "bench", conditions.seed)
    line = json_run(stage.program(TOOL), [PRELOAD_PLACE, "--", *command], arm, conditions)
    if line["process"] != program.process[:15]:
        raise LabError(f"{program.name} under {arm.name}: the largest process was {line['process']}")
    return line


def service_prove(stage: Stage, inputs: Path, program: Program, arm: Arm, conditions: Conditions) -> None:
    if arm.peer.library is None:
        raise LabError(f"{arm.name} has no library")
    folder = stage.folder / "bindings"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    linked = replace(arm.peer, environment=(*arm.peer.environment, *linker_environment(folder / "process")))
    program_run(stage, inputs, program, Arm(linked), conditions)
    texts = [path.read_text(errors="replace") for path in sorted(folder.iterdir())]
    complaint = bindings_complaint(texts, arm.peer.library, stage.program(TOOL))
    if complaint:
        raise LabError(f"{arm.name} did not serve {program.name}: {complaint}")


def round_order(count_of_programs: int, count_of_arms: int, rng: random.Random) -> list[tuple[int, int]]:
    """All runs of a round, shuffled: indices of program and arm."""
    runs = [(program, arm) for program in range(count_of_programs) for arm in range(count_of_arms)]
    rng.shuffle(runs)
    return runs


def rounds_run(
    stage: Stage,
    inputs: Path,
    programs: Sequence[Program],
    arms: Sequence[Arm],
    rounds: int,
    rng: random.Random,
    keep: Callable[[Sample | None], None],
) -> list[Sample]:
    """KEEP gets every sample as soon as it is there, and None for each run of the proof."""
    for program in programs:
        conditions = conditions_draw(rng)
        for arm in arms:
            service_prove(stage, inputs, program, arm, conditions)
            keep(None)
    samples: list[Sample] = []
    for number in range(rounds):
        drawn = [conditions_draw(rng) for _ in programs]
        for order, (index, arm_index) in enumerate(round_order(len(programs), len(arms), rng)):
            arm = arms[arm_index]
            line = program_run(stage, inputs, programs[index], arm, drawn[index])
            sizes = (line[PEAK], line[AT_EXIT], line[ANONYMOUS])
            sample = Sample(programs[index], number, order, arm.peer, drawn[index], *sizes)
            samples.append(sample)
            keep(sample)
    return samples


# ---- judging --------------------------------------------------------------------------------------------


def rows_make(samples: Sequence[Sample], peers: Sequence[str]) -> list[Row]:
    """The rows in which hakmem is worst come first; the peers stay in their order."""
    rows = []
    for program in dict.fromkeys(sample.program for sample in samples):
        mine = [sample for sample in samples if sample.program == program]

        def row(name: str, field: str, mine: list[Sample] = mine) -> Row:
            values = {peer: [getattr(one, field) for one in mine if one.peer.name == peer] for peer in peers}
            return Row(name, {peer: Spread.of(kib) for peer, kib in values.items()})

        rows.append(row(program.name, PEAK))
        if program.at_exit:
            rows.append(row(f"{program.name}, {program.at_exit}", AT_EXIT))
    return sorted(rows, key=lambda row: -row.ratio(SUBJECT))


def footprint_grids(rows: Sequence[Row]) -> list[Grid]:
    peers = list(rows[0].kib)

    def ratios(row: Row) -> tuple[str, ...]:
        return tuple(f"{row.ratio(peer):.2f}" for peer in peers)

    def sizes(row: Row) -> tuple[str, ...]:
        return tuple(f"{row.kib[peer].median / 1024:.1f} ({row.kib[peer].percent:.1f} %)" for peer in peers)

    return [
        Grid(
            title="Memory over the smallest of the row, hakmem's largest ratio first",
            columns=("program", f"hakmem, limit {LIMIT:g}", *peers),
            rows=tuple((row.name, "missed" if row.marked else "met", *ratios(row)) for row in rows),
            text_columns=2,
        ),
        Grid(
            title="Memory in MiB: median (spread from least to most, of the median)",
            columns=("program", *peers),
            rows=tuple((row.name, *sizes(row)) for row in rows),
        ),
    ]


def footprint_lines(rows: Sequence[Row]) -> list[str]:
    marked = sum(row.marked for row in rows)
    lines = [f"hakmem is above {LIMIT:g} of the smallest in {marked} of {len(rows)} rows."]
    for peer in rows[0].kib:
        if peer != SUBJECT:
            logs = [math.log(row.kib[SUBJECT].median / row.kib[peer].median) for row in rows]
            mean = math.exp(statistics.fmean(logs))
            lines.append(f"Geometric mean over the rows: {mean:.2f} times as large as {peer}.")
    return lines


def footprint_reading(rounds: int) -> list[str]:
    return [
        f"Each figure is the median of the rounds ({rounds}), in each of which every program ran once under every"
        " allocator, in random order, on the same input and with the same environment size within a round. The"
        " peak is the kernel's VmHWM of the command's largest process, read when it exits; code and"
        " mapped files count. redis-server also has a row for what it holds ten idle seconds after two thirds"
        " of its keys were deleted. The smallest of a row is chosen from the same samples it is compared by.",
        "Before the first round, one run of every program under every allocator proved by the dynamic linker's"
        " own record that malloc and free of all its processes lead to the library; in every run the"
        " library was mapped in the largest process. glibc was preloaded like the others.",
        "python3 runs with PYTHONMALLOC=malloc. Debian's redis-server is linked with jemalloc: under the"
        " others that library is mapped besides and holds what it takes at its start; under jemalloc it is"
        " replaced by the newer one.",
    ]
