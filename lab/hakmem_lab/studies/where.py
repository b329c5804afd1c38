"""Where does the work go? Function by function, instruction by instruction, by callgrind; page faults and system
calls by caller, and samples of time, if the machine allows.

Two runs of a cell are counted, the second twice as long. Their difference, divided by the additional operations,
leaves the start out and is the same each time. Of a user's own command one run is counted as a whole. The library
is the profiling build, release with frame pointers and symbols, so that instructions have lines.

A share is a hypothesis: instructions are not time. An `ab` would confirm it, and the report names that command.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hakmem_lab.allocators import builds
from hakmem_lab.allocators.arms import arm_parse
from hakmem_lab.allocators.peers import Peer, PeerStore
from hakmem_lab.checkout import Checkout
from hakmem_lab.errors import LabError
from hakmem_lab.files import ENCODING
from hakmem_lab.measure.kernel import (
    Caller,
    Sampled,
    Subject,
    calls_by_caller,
    faults_by_caller,
    object_text,
    samples_take,
)
from hakmem_lab.measure.pairs import cpus_allowed
from hakmem_lab.measure.prepare import arm_prepared
from hakmem_lab.measure.runner import Arm, environment_make
from hakmem_lab.measure.service import preload_obstacle
from hakmem_lab.measure.stage import Stage
from hakmem_lab.sight.program import executed_file
from hakmem_lab.studies.callgrind import Place, Profile, is_file, profile_run, workload_profile
from hakmem_lab.workloads.cell import Cell

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Made = TypeVar("Made", bound="DataclassInstance")

SEED = 1
LEAST = 0.005
"""Instructions for one operation below which a difference of two runs cannot be distinguished from nothing."""
SPOTS_MAX = 24
WATCHED_TIMES = 20
"""This many times the count at which calibration starts, under perf and strace."""
WATCHED_FEW = 3
FEW = 50
"""If calibration starts with fewer, one of them takes long."""
ALLOCATOR = "allocator"
NUMBER_MAX = 1e300
"""No such number is counted, and sums of them are finite."""
TYPES = {"str": (str,), "int": (int,), "float": (int, float)}
"""What JSON gives for a field of such a type."""
INSTRUCTION = re.compile(r"^ *([0-9a-f]+):\t(.+?)\s*$")


@dataclass(frozen=True)
class FunctionCost:
    """A function's own instructions, with what was inlined into it and without what it calls."""

    object: str
    function: str
    instructions: float
    """For one operation of a cell; for the whole run of a command."""


@dataclass(frozen=True)
class Spot:
    """One hot instruction of the allocator."""

    function: str
    file: str
    line: int
    address: int
    instructions: float
    code: str
    """As a disassembler prints it; empty if there is none."""
    source: str
    """The text of its line; empty if it is not known."""


@dataclass(frozen=True)
class Where:
    """Everything about one arm."""

    task: str
    arm: str
    """As the user wrote it."""
    identity: str
    commit: str
    unit: str
    operations: int
    """Operations that were counted; 1 for a command."""
    total: float
    """Instructions of the process, for one unit."""
    functions: tuple[FunctionCost, ...]
    """The most expensive first."""
    spots: tuple[Spot, ...]
    watched_operations: int
    """Of the run under perf and strace; 0 if it is not known."""
    faults: tuple[Caller, ...]
    calls: tuple[Caller, ...]
    samples: tuple[Sampled, ...]
    notes: tuple[str, ...] = ()

    @property
    def allocator(self) -> float:
        return sum(one.instructions for one in self.functions if one.object == ALLOCATOR)

    def text(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"


def where_read(path: Path) -> Where:
    """A result that --json kept."""
    try:
        kept: dict[str, Any] = json.loads(path.read_text(ENCODING))
        lists: dict[str, type[DataclassInstance]] = {
            "functions": FunctionCost,
            "spots": Spot,
            "faults": Caller,
            "calls": Caller,
            "samples": Sampled,
        }
        for name, kind in lists.items():
            kept[name] = tuple(_made(kind, one) for one in kept[name])
        where = _made(Where, kept | {"notes": tuple(map(str, kept["notes"]))})
        if where.total <= 0:
            raise ValueError(f"total is {where.total}")
        return where
    except OSError as error:
        raise LabError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise LabError(f"{path} is not a result of `hakmem where --json`: {error}") from error


def _made(kind: type[Made], content: Mapping[str, Any]) -> Made:
    """Of what a file holds; its texts and numbers are of the types that they should be."""
    for one in fields(kind):
        types = TYPES.get(str(one.type), ())
        value = content[one.name]
        counted = not isinstance(value, int | float) or abs(value) <= NUMBER_MAX
        if types and (type(value) not in types or not counted):
            raise TypeError(f"{one.name} is {value!r:.60}")
    return kind(**content)


def profiled_peer(text: str, store: PeerStore) -> Peer:
    """Like arm_parse, but hakmem's own library comes from a build that knows its lines."""
    name, colon, options = text.partition(":")
    if name == "hakmem":
        name = f"{builds.MARK}{builds.PROFILING}"
    elif name.startswith(builds.MARK) and name.removeprefix(builds.MARK) not in builds.presets(
        store.checkout
    ):
        what = name.removeprefix(builds.MARK)
        name = str(builds.library_of(store.checkout, what, profiling=True))
        if colon:
            raise LabError(f"'{text}': the profiling build of a commit takes no options here")
    return arm_parse(f"{name}{colon}{options}", store)


# ---- what is looked at ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CellWork:
    """A cell of bench/, by the difference of two runs."""

    stage: Stage
    cell: Cell

    @property
    def name(self) -> str:
        return self.cell.name

    def counted(self, arm: Arm) -> tuple[Mapping[Place, float], int]:
        prepared = arm_prepared(self.stage, self.cell, arm)
        cpus = cpus_allowed()[: self.cell.threads]
        least = max(self.cell.first_count, self.cell.count_min)

        def run(times: int) -> tuple[Profile, int]:
            arguments = self.cell.command(times * least, SEED)
            profile, line = workload_profile(
                self.stage, self.cell.program, arguments, prepared, cpus, addresses=True
            )
            return profile, int(line["ops"])

        (short, few), (long, many) = run(1), run(2)
        if many <= few:
            raise LabError(f"{self.name}: twice the work was no more work: {few} and {many} operations")
        more = Counter(long.costs)
        more.subtract(short.costs)
        return {place: cost / (many - few) for place, cost in more.items()}, many - few

    def watched(self, arm: Arm) -> Subject:
        prepared = arm_prepared(self.stage, self.cell, arm)
        count = self.watched_count
        command = (str(self.stage.program(self.cell.program)), *self.cell.command(count, SEED))
        return Subject(command, prepared, cpus_allowed()[: self.cell.threads], self.stage.folder)

    @property
    def watched_count(self) -> int:
        first = self.cell.first_count
        return max(self.cell.count_min, first * (WATCHED_FEW if first < FEW else WATCHED_TIMES))


@dataclass(frozen=True)
class CommandWork:
    """The user's own command, once and as a whole, in the user's environment; only the process that is started."""

    stage: Stage
    command: tuple[str, ...]

    @property
    def name(self) -> str:
        return Path(self.command[0]).name

    def counted(self, arm: Arm) -> tuple[Mapping[Place, float], int]:
        library = arm.peer.library
        obstacle = preload_obstacle(executed_file(Path(self.command[0]))) if library is not None else ""
        if obstacle:
            raise LabError(f"{arm.name} cannot serve {self.name}: it is {obstacle}")
        environment = environment_make(arm, 0, preload=True, users=os.environ)
        profile, _ = profile_run(self.command, environment, cpus_allowed(), self.stage.folder, addresses=True)
        if library is not None and not any(is_file(place.object, library) for place in profile.costs):
            raise LabError(f"{arm.name} did not serve {self.name}: none of its code ran")
        return {place: float(cost) for place, cost in profile.costs.items()}, 1

    def watched(self, arm: Arm) -> Subject:
        return Subject(self.command, arm, cpus_allowed(), self.stage.folder, users=os.environ)

    @property
    def watched_count(self) -> int:
        return 0


Work = CellWork | CommandWork


def command_work(stage: Stage, command: Sequence[str]) -> CommandWork:
    program = shutil.which(command[0])
    if program is None:
        raise LabError(f"{command[0]}: there is no such command")
    return CommandWork(stage, (program, *command[1:]))


def where_measure(
    work: Work, peer: Peer, text: str, commit: str, checkout: Checkout, kernel: bool = True
) -> Where:
    """PEER is staged; TEXT is what the user wrote for it. KERNEL: also look at faults, calls and samples."""
    arm = Arm(peer)
    costs, operations = work.counted(arm)
    functions = functions_of(costs, peer.library)
    spots, notes = spots_of(costs, peer.library, checkout)
    subject = work.watched(arm)
    told = [look(subject) for look in (faults_by_caller, calls_by_caller, samples_take)] if kernel else []
    faults, calls, samples = told or (None, None, None)
    return Where(
        task=work.name,
        arm=text,
        identity=peer.identity,
        commit=commit,
        unit="operation" if isinstance(work, CellWork) else "run",
        operations=operations,
        total=sum(one.instructions for one in functions),
        functions=functions,
        spots=spots,
        watched_operations=work.watched_count,
        faults=faults.callers if faults else (),
        calls=calls.callers if calls else (),
        samples=samples.sampled if samples else (),
        notes=tuple(note for note in (*notes, *(one.note for one in told)) if note),
    )


def functions_of(costs: Mapping[Place, float], library: Path | None) -> tuple[FunctionCost, ...]:
    sums: dict[tuple[str, str], float] = defaultdict(float)
    name = str(library.resolve()) if library else ""
    for place, cost in costs.items():
        of = name if library and is_file(place.object, library) else place.object
        sums[object_text(of, name), place.function] += cost
    kept = [FunctionCost(of, function, cost) for (of, function), cost in sums.items() if abs(cost) >= LEAST]
    return tuple(sorted(kept, key=lambda one: -one.instructions))


# ---- hot instructions -------------------------------------------------------------------------------------


def spots_of(
    costs: Mapping[Place, float], library: Path | None, checkout: Checkout
) -> tuple[tuple[Spot, ...], list[str]]:
    """The allocator's hottest instructions with their lines, and notes on what could not be determined."""
    if library is None:
        return (), ["glibc's instructions have no lines here"]
    own = {place: cost for place, cost in costs.items() if is_file(place.object, library)}
    hottest = sorted(own, key=lambda place: -own[place])[:SPOTS_MAX]
    code, note = disassembly(library)
    lines = {place: source_line(checkout.root, place.file, place.line) for place in hottest}
    notes = [note] if note else []
    if hottest and not any(place.line for place in hottest):
        notes.append(f"{library.name} has no debug information: its instructions have no lines")
    return (
        tuple(
            Spot(
                function=place.function,
                file=source_shown(place.file) if place.line else "",
                line=place.line,
                address=place.address,
                instructions=own[place],
                code=code.get(place.address, ""),
                source=lines[place],
            )
            for place in hottest
        ),
        notes,
    )


def source_shown(file: str) -> str:
    """Relative to the checkout, whatever directory it was compiled in."""
    parts = Path(file).parts
    at = max((place for place, part in enumerate(parts) if part == "src"), default=None)
    return str(Path(*parts[at:])) if at is not None else Path(file).name


def source_line(root: Path, file: str, number: int) -> str:
    path = root / source_shown(file)
    if number <= 0 or not path.is_file():
        return ""
    lines = path.read_text(errors="replace").splitlines()
    return lines[number - 1].strip() if number <= len(lines) else ""


def disassembly(library: Path) -> tuple[dict[int, str], str]:
    """Instructions by address, and why there are none."""
    objdump = shutil.which("objdump")
    if objdump is None:
        return {}, "objdump is not installed (on Debian: binutils): instructions have no text"
    line = [objdump, "-d", "--no-show-raw-insn", str(library)]
    if platform.machine() == "x86_64":
        line[2:2] = ["-M", "intel"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    found = (INSTRUCTION.match(text) for text in done.stdout.splitlines())
    return {int(match[1], 16): " ".join(match[2].split()) for match in found if match}, ""


# ---- before and after -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Change:
    """The change of one function, or of one caller."""

    object: str
    name: str
    before: float
    after: float

    @property
    def difference(self) -> float:
        return self.after - self.before


@dataclass(frozen=True)
class Diff:
    before: Where
    after: Where
    functions: tuple[Change, ...]
    """The largest change first."""
    kernel: tuple[Change, ...] = field(default=())
    """Faults and calls, and how often."""

    @property
    def predicted(self) -> float:
        """The ratio of speeds if instructions were time."""
        return self.before.total / self.after.total


def same_task_check(before: str, after: str) -> None:
    if before != after:
        raise LabError(f"the old result is of '{before}', not of '{after}'")


def where_diff(before: Where, after: Where) -> Diff:
    same_task_check(before.task, after.task)
    functions = _changes(
        {(one.object, one.function): one.instructions for one in before.functions},
        {(one.object, one.function): one.instructions for one in after.functions},
        LEAST,
    )
    kernel: list[Change] = []
    if before.watched_operations == after.watched_operations:
        sides = [
            {(one.what, one.who): float(one.count) for one in (*side.faults, *side.calls)}
            for side in (before, after)
        ]
        kernel = _changes(*sides, 1.0)
    return Diff(before, after, tuple(functions), tuple(kernel))


def _changes(
    before: Mapping[tuple[str, str], float], after: Mapping[tuple[str, str], float], least: float
) -> list[Change]:
    changes = [
        Change(*key, before.get(key, 0.0), after.get(key, 0.0)) for key in dict.fromkeys([*before, *after])
    ]
    changed = [one for one in changes if abs(one.difference) >= least]
    return sorted(changed, key=lambda one: -abs(one.difference))
