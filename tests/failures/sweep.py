"""Every call of hakmem's to the kernel fails in turn, under the stress test and real programs: ./hakmem soak --failures
builds, and calls this.

    sweep.py BUILD-DIRECTORY [PROGRAM...]

tests/faults/fail_calls.c, preloaded before the library, lets the k-th call of a kind fail, once or for ever
after; only calls that come from hakmem's code count. Whatever fails, a program must either do all of its
work, with nothing on standard error, or end with its own words for lack of memory, a status that is not 0,
and of its output no more than the beginning. A signal, a hang, other words and other output are failures, and so is
lack of memory where the call that failed brings none.

First each program is run without a failure, which counts its calls. What sleeping makes hakmem do is not
the same in every run, so that the last few calls may not come; such a run must do all of its work, and is
counted as one in which nothing failed. Of the thousands that the stress test makes of a kind, those after the first
hundred fail in growing steps.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from programs import Program, programs

NEEDED = ("mmap", "mprotect")
"""By which memory comes."""
SPARED = ("munmap", "madvise", "mremap", "pthread_create", "membarrier")
"""By which it is given back, or moved without a copy: whoever is refused one of them goes on with what there is."""
MEMORY = NEEDED + SPARED
ANY = "any"
"""Of these."""
OTHERS = (
    "open",
    "read",
    "fstat",
    "mincore",
    "fcntl",
    "prctl",
    "getrlimit",
    "getrusage",
    "clock_gettime",
    "nanosleep",
    "futex",
    "rt_sigprocmask",
)
"""What asks for no memory."""
KINDS = MEMORY + OTHERS
REPORT = re.compile(r"^fail_calls: (.*) failed (\d+)\n", re.MULTILINE)
HANG_SECONDS = 240
"""Perl makes 300,000 calls that are refused."""
MORE_CALLS = 2
"""So many k beyond the calls that were counted: other runs make more of them."""
EVERY_CALL, GROWTH = 100, 6
"""Up to which every call fails in turn; from there on steps of a sixth."""


@dataclass(frozen=True)
class Build:
    """A build directory with the library and what lets its calls fail."""

    directory: Path

    @property
    def preloads(self) -> str:
        return f"{self.directory}/tests/faults/libfail_calls.so {self.directory}/libhakmem.so"


@dataclass(frozen=True)
class Case:
    """Which call fails under which program."""

    program: Program
    kind: str
    at: int
    ever: bool

    def told(self) -> str:
        return f"{self.program.name}: {self.kind} {self.at}{', and all later ones' if self.ever else ''}"


@dataclass(frozen=True)
class Ending:
    """How a program ended."""

    status: int | None
    """Negative: a signal; None: it hung."""
    output: str
    errors: str
    """Without the line of fail_calls."""
    calls: dict[str, int]
    failed: int
    """How many calls failed; -1 when it ended without saying so."""

    def fault(self, program: Program) -> str | None:
        """What is wrong with it."""
        if self.status is None:
            return f"hung for {HANG_SECONDS} s"
        if self.status < 0:
            return f"died of signal {-self.status}"
        if self.status == 0 and not program.has_all_of(self.output):
            return f"ended well with wrong output: {self.output[-300:]!r}"
        if self.status == 0 and self.errors:
            return "ended well, but complained"
        if self.status != 0 and not program.begins_with(self.output):
            return f"printed what is wrong before it ended: {self.output[-300:]!r}"
        if self.status != 0 and not program.lacked_memory(self.output, self.errors):
            return f"ended with status {self.status}, and without its words for lack of memory"
        if self.status != 0 and self.failed == 0:
            return f"ended with status {self.status} although nothing failed"
        return None


@dataclass(frozen=True)
class Outcome:
    """Of one case."""

    case: Case
    ending: Ending

    @property
    def fault(self) -> str | None:
        fault = self.ending.fault(self.case.program)
        if fault is None and self.ending.status != 0 and self.case.kind in SPARED + OTHERS:
            return "ended for lack of memory, though only what brings none had failed"
        return fault

    @property
    def word(self) -> str:
        if self.fault is not None:
            return "failed"
        if self.ending.failed == 0:
            return "without that call"
        return "worked all the same" if self.ending.status == 0 else "said so"

    def told(self) -> str:
        return f"FAIL {self.case.told()}: {self.fault}\n{self.ending.errors[-2000:]}"


def start(build: Build, program: Program, variables: dict[str, str]) -> Ending:
    """Runs a program on hakmem to its end, in an environment without anybody's settings."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    settings = {
        "LD_PRELOAD": build.preloads,
        "FAIL_ONLY": "hakmem",
        "FAIL_REPORT": "1",
        "HAKMEM_DECAY": "5ms",
    }
    try:
        done = subprocess.run(
            program.command,
            input=program.stdin,
            env={**kept, "LC_ALL": "C", **program.variables, **settings, **variables},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=HANG_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return Ending(None, "", "", {}, -1)
    report = REPORT.search(done.stderr)
    words = report[1].split() if report else []
    calls = {kind: int(number) for kind, number in zip(words[::2], words[1::2], strict=True)}
    failed = int(report[2]) if report else -1
    return Ending(done.returncode, done.stdout, REPORT.sub("", done.stderr), calls, failed)


def count(build: Build, program: Program) -> dict[str, int]:
    """How many calls of each kind a program makes when none fails, which must end well."""
    ending = start(build, program, {})
    fault = ending.fault(program)
    if fault is not None or ending.status != 0 or not ending.calls:
        raise SystemExit(
            f"hakmem: {program.name} without any failure: {fault or 'no count'}\n{ending.errors}"
        )
    return ending.calls


def turns(last: int) -> Iterator[int]:
    """Which of LAST calls fail, each in its turn."""
    at = 1
    while at <= last:
        yield at
        at += 1 if at < EVERY_CALL else at // GROWTH


def cases(program: Program, calls: dict[str, int]) -> Iterator[Case]:
    """All of them. That any call fails once is what the kinds have between them."""
    for kind in KINDS:
        for at in turns(calls[kind] + MORE_CALLS):
            yield Case(program, kind, at, ever=False)
            yield Case(program, kind, at, ever=True)
    for at in turns(calls[ANY] + MORE_CALLS):
        yield Case(program, ANY, at, ever=True)


def try_case(build: Build, case: Case) -> Outcome:
    variables = {"FAIL_CALL": case.kind, "FAIL_AT": str(case.at), "FAIL_FOR": "ever" if case.ever else "once"}
    return Outcome(case, start(build, case.program, variables))


def try_all(build: Build, chosen: Iterable[Case]) -> Iterator[Outcome]:
    """As many at once as there are processors."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from pool.map(lambda case: try_case(build, case), chosen)


def sweep(build: Build, program: Program) -> Counter[str]:
    """Of one program everything, and the failures printed; how often what happened."""
    calls = count(build, program)
    words: Counter[str] = Counter()
    for outcome in try_all(build, cases(program, calls)):
        words[outcome.word] += 1
        if outcome.fault is not None:
            print(outcome.told(), flush=True)
    made = ", ".join(f"{kind} {number}" for kind, number in calls.items() if number and kind != ANY)
    print(
        f"{program.name} ({made}): {', '.join(f'{n} {word}' for word, n in words.most_common())}", flush=True
    )
    return words


def main(directory: str, *names: str) -> int:
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="hakmem-failures-") as folder:
        build = Build(Path(directory).resolve())
        found = programs(Path(folder), build.directory)
        unknown = set(names) - {program.name for program in found}
        if unknown or not found:
            raise SystemExit(f"hakmem: no such program here: {', '.join(sorted(unknown)) or 'none'}")
        for program in found:
            if not names or program.name in names:
                total += sweep(build, program)
    print(f"{total.total() - total['failed']} passed, {total['failed']} failed")
    return 1 if total["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
