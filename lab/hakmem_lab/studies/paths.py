"""What every entry point and slow path costs in instructions, function by function: text that is reviewed.

bench/entry_calls.c does one thing again and again; callgrind counts a run and one with twice the rounds. The text
states the difference for one round: the library's own instructions in all, and for each of its functions how often
it was called and what it took by itself. The clock and the window's address are those of bench/steady/steady.c, as
for a baseline. So the text depends on the compiler, but not on libc's code, the start, the time of day or the
machine.

A change of the text needs a reason: docs/results/instructions.md has one for each digest.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hakmem_lab.measure.runner import Arm
from hakmem_lab.measure.stage import Stage
from hakmem_lab.studies.baseline import function_name, same_each_time
from hakmem_lab.studies.callgrind import Profile, is_file, side_by_side, workload_profile

PROGRAM = "entry_calls"
LEAST = 0.05
"""A function with fewer instructions for one round is left out: it is work done once in a thousand rounds."""
DIGEST_DIGITS = 10
REASON = re.compile(r"^\| `([0-9a-f]{10})` \| (.+?) \|$", re.MULTILINE)


@dataclass(frozen=True)
class Case:
    """One row of the table in bench/entry_calls.c, by its place there."""

    name: str
    rounds: int


CASES = (
    Case("malloc and free of 64 B, at hand", 2000),
    Case("calloc of 64 B, at hand, and free", 2000),
    Case("aligned_alloc of 128 B, at hand, and free", 2000),
    Case("posix_memalign of 64 B, at hand, and free", 2000),
    Case("memalign of 64 B, at hand, and free", 2000),
    Case("realloc that stays", 2000),
    Case("malloc of 64 B, realloc to 200 B that copies, free", 2000),
    Case("malloc_usable_size", 2000),
    Case("free of NULL", 2000),
    Case("16384 blocks of 64 B allocated, then freed: refills and spills", 3),
    Case("1024 blocks of 8 KiB allocated, then freed: slabs made and released", 3),
    Case("malloc of 1 MiB and free, which the thread keeps", 300),
    Case("aligned_alloc of 1 MiB and free", 300),
    Case("calloc of 256 KiB and free", 100),
    Case("growth from 128 KiB to 2 MiB by realloc, in steps of 64 KiB", 30),
    Case("a thread that allocates once and ends", 30),
    Case("1024 blocks of 64 B, freed by a new thread", 20),
)


@dataclass(frozen=True)
class FunctionPath:
    """A function in one case, for one round."""

    function: str
    calls: float
    own: float
    """Its own instructions, over all its calls."""


@dataclass(frozen=True)
class Counted:
    case: Case
    functions: tuple[FunctionPath, ...]
    """The most expensive first."""

    @property
    def total(self) -> float:
        return sum(one.own for one in self.functions)

    def text(self) -> str:
        lines = [f"{self.case.name}: {self.total:.1f}"]
        for one in self.functions:
            each = f"{one.calls:.4g} calls of {one.own / one.calls:.1f}" if one.calls else "entered by itself"
            lines.append(f"    {one.function:<28}{one.own:>12.1f}  {each}")
        return "\n".join(lines) + "\n"


def cases_count(stage: Stage, arm: Arm, step: Callable[[], None]) -> list[Counted]:
    library = arm.peer.library
    assert library is not None
    further = same_each_time(stage, arm)

    def one(place: int, cpus: tuple[int, ...]) -> Counted:
        rounds = CASES[place].rounds
        short, long = (
            workload_profile(stage, PROGRAM, [str(place), str(times * rounds)], arm, cpus, further=further)[0]
            for times in (1, 2)
        )
        return Counted(CASES[place], tuple(functions_between(short, long, library, rounds)))

    return side_by_side(range(len(CASES)), one, step)


def functions_between(short: Profile, long: Profile, library: Path, rounds: int) -> list[FunctionPath]:
    own: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for profile, sign in ((long, 1), (short, -1)):
        for place, cost in profile.costs.items():
            if is_file(place.object, library):
                own[function_name(place.function)] += sign * cost
        for call, count in profile.calls.items():
            if is_file(call.object, library):
                calls[function_name(call.function)] += sign * count
    found = [FunctionPath(name, calls[name] / rounds, cost / rounds) for name, cost in own.items()]
    return sorted((one for one in found if abs(one.own) >= LEAST), key=lambda one: (-one.own, one.function))


def reviewed_text(compiler: str, counted: Sequence[Counted]) -> str:
    return f"compiler: {compiler}\n\n" + "\n".join(one.text() for one in counted)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_DIGITS]


def reasons(page: str) -> dict[str, str]:
    """Reasons by digest, from docs/results/instructions.md."""
    return {match[1]: match[2] for match in REASON.finditer(page)}
