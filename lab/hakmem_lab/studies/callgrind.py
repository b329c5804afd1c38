"""Instruction counts from Valgrind's callgrind: a second opinion that noise does not affect."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

from hakmem_lab.errors import LabError
from hakmem_lab.measure.pairs import cpus_allowed
from hakmem_lab.measure.runner import Arm, Line, environment_make, process_run, service_check
from hakmem_lab.measure.stage import Stage

OUTPUT = "callgrind.out"
LINKERS = ("ld-linux", "ld-musl")
POSITIONS = frozenset("0123456789+-*")
"""The beginning of a line with a cost."""

Subject = TypeVar("Subject")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Place:
    """A place where instructions were executed."""

    object: str
    function: str
    file: str
    """The source file; the header if code was inlined from it. "???" if unknown."""
    line: int
    """0 if unknown."""
    address: int
    """In the object's file, as a disassembler shows it; 0 if it was not requested."""


@dataclass(frozen=True)
class Call:
    """From a function to one that it calls or jumps to."""

    caller_object: str
    object: str
    function: str


@dataclass
class Profile:
    """The counts of one run."""

    costs: Counter[Place] = field(default_factory=Counter)
    """Each place's own instructions, without those of its callees."""
    calls: Counter[Call] = field(default_factory=Counter)
    """How many times."""
    inclusive: Counter[Call] = field(default_factory=Counter)
    """Instructions of the callee, with all that it calls."""

    def by_object(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for place, cost in self.costs.items():
            counts[place.object] += cost
        return counts


def profile_read(lines: Iterable[str]) -> Profile:
    """A callgrind file without compressed names.

    An `ob=` line names the object of what follows, `fl=` and `fn=` its file and function; `fi=` and `fe=` name
    another file, from which code was inlined. `cob=` and `cfn=` name a callee. A line of numbers is a position and
    its cost, except after `calls=`, where the cost is the callee's. A position is a line number, preceded by an
    address if addresses were requested.
    """
    profile = Profile()
    current, own_file, file, function = "", "", "", ""
    callee_object, callee = "", ""
    calls = 0
    position = [0, 0]
    columns = 1
    for line in lines:
        if line[:1] in POSITIONS:
            words = line.split()
            position[:columns] = [_position(*one) for one in zip(words[:columns], position, strict=False)]
            if calls:
                call = Call(current, callee_object or current, callee)
                profile.calls[call] += calls
                profile.inclusive[call] += int(words[columns])
                calls, callee_object = 0, ""
            elif len(words) > columns:
                address = position[0] if columns == 2 else 0
                place = Place(current, function, file, position[columns - 1], address)
                profile.costs[place] += int(words[columns])
            continue
        key, _, value = line.partition("=")
        value = value.strip()
        if line.startswith("positions:"):
            columns = len(line.split()) - 1
        match key:
            case "ob":
                current = value
            case "fl":
                file = own_file = value
            case "fi" | "fe":
                file = value
            case "fn":
                function, file = value, own_file
            case "cob":
                callee_object = value
            case "cfn":
                callee = value
            case "calls":
                calls = int(value.split()[0])
    return profile


def _position(text: str, before: int) -> int:
    """A position is absolute, or relative to the one before."""
    if text == "*":
        return before
    return before + int(text) if text[0] in "+-" else int(text, 0)


def valgrind_find() -> str:
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise LabError("valgrind is not there: apt-get install valgrind")
    return valgrind


def profile_run(
    command: Sequence[str],
    environment: Mapping[str, str],
    cpus: tuple[int, ...],
    folder: Path,
    addresses: bool = False,
) -> tuple[Profile, str]:
    """Runs COMMAND under callgrind, which ends as it does; also returns its output. Counts only the process that is started,
    not its children."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        output = Path(scratch) / OUTPUT
        line = [valgrind_find(), "--quiet", "--tool=callgrind", f"--callgrind-out-file={output}"]
        line += ["--compress-strings=no", "--compress-pos=no"]
        line += ["--dump-instr=yes"] if addresses else []
        name = Path(command[0]).name
        printed = process_run([*line, *command], dict(environment), cpus, name)
        if not output.is_file():
            raise LabError(f"callgrind wrote nothing of {name}")
        with output.open(errors="replace") as file:  # names are what their files hold
            profile = profile_read(file)
    return profile, printed


def side_by_side(
    subjects: Sequence[Subject],
    count: Callable[[Subject, tuple[int, ...]], Result],
    step: Callable[[], None],
) -> list[Result]:
    """One on each processor at the same time: unlike time, counts do not change with what else runs. In the order
    of SUBJECTS."""
    free: SimpleQueue[int] = SimpleQueue()
    processors = cpus_allowed()
    for cpu in processors:
        free.put(cpu)

    def one(subject: Subject) -> Result:
        cpu = free.get()
        try:
            return count(subject, (cpu,))
        finally:
            free.put(cpu)
            step()

    pool = ThreadPoolExecutor(len(processors))
    try:
        return list(pool.map(one, subjects))
    finally:  # after a failure or an interrupt the rest is not begun
        pool.shutdown(cancel_futures=True)


def workload_profile(
    stage: Stage,
    program: str,
    arguments: Sequence[str],
    arm: Arm,
    cpus: tuple[int, ...],
    addresses: bool = False,
    further: Mapping[str, str] | None = None,
) -> tuple[Profile, Line]:
    """The profile of a program of bench/, and its JSON line; the arm's library served it. FURTHER are variables."""
    environment = environment_make(arm, 0, preload=True) | dict(further or {})
    command = [str(stage.program(program)), *arguments]
    profile, printed = profile_run(command, environment, cpus, stage.folder, addresses)
    line = Line.parse(printed, f"{program} under {arm.name}")
    service_check(line, arm.peer)
    return profile, line


def allocator_instructions(
    stage: Stage, program: str, arguments: Sequence[str], arm: Arm, cpus: tuple[int, ...]
) -> tuple[int, int]:
    """Instructions of one run outside the program's own binary and the dynamic loader: the cost of malloc and free
    with all they call, without the caller's loop and its PLT. Also the run's operations."""
    profile, line = workload_profile(stage, program, arguments, arm, cpus)
    own = stage.program(program)
    counts = profile.by_object().items()
    instructions = sum(count for name, count in counts if not is_file(name, own) and not is_linker(name))
    return instructions, int(line["ops"])


def is_linker(name: str) -> bool:
    return Path(name).name.startswith(LINKERS)


def is_file(name: str, path: Path) -> bool:
    """Whether an object's name is that of PATH; the kernel reports it without symbolic links."""
    return name in (str(path), str(path.resolve()))
