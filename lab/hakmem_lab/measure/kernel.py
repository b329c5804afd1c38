"""Which functions cause work in the kernel: page faults and system calls by caller, and samples of where time is
spent.

perf counts faults and takes samples; strace -k records the stack of every call. Of what a command starts, only its
first process counts, with all of its threads, whatever they call themselves. If a tool is missing or not allowed, a
note says so and names what was recorded instead. All of this slows a process down, so no times are taken from it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from hakmem_lab.measure.runner import RUN_SECONDS_MAX, Arm, environment_make
from hakmem_lab.processes import Finished, program_run

SAMPLES_PER_SECOND = 1999
"""Not a divisor of any round period that a program may have."""
CHAIN_MAX = 4
"""Functions of a call chain that are shown, innermost first."""
STATISTICS_CALL = re.compile(r"^ +system calls +(\S.*?) +(\d+), refused \d+$")
STATISTICS_HEAD = re.compile(r"^hakmem: statistics of .* \(pid (\d+)\)$")
STRACE_CALL = re.compile(
    r"^(?:\[pid +)?(?P<thread>\d+)?\]? *(?:<\.\.\. (?P<resumed>[a-z_0-9]+) resumed>|(?P<call>[a-z_0-9]+)\()"
)
STRACE_RESULT = re.compile(r" = (\d+)$")
UNFINISHED = "<unfinished ...>"
CLONES, THREAD_FLAG = ("clone", "clone3"), "CLONE_THREAD"
STRACE_FRAME = re.compile(r"^ > (.+?)\((?:([^()]*?)(?:\+0x[0-9a-f]+)?)?\) \[0x[0-9a-f]+\]")
PERF_FRAME = re.compile(r"^\s+[0-9a-f]+ (.*) \((.*)\)$")
PERF_EVENT = re.compile(r"^.*?(?P<pid>\d+)\s*$")
PERF_TASK, PERF_EXEC = "PERF_RECORD_", re.compile(r" PERF_RECORD_COMM exec: .*:(?P<pid>\d+)/\d+$")


@dataclass(frozen=True)
class Caller:
    """A caller, and how often it was counted."""

    what: str
    """The system call, or "page fault"."""
    who: str
    """Functions of the allocator, innermost first; otherwise the name of other code."""
    count: int


@dataclass(frozen=True)
class Sampled:
    object: str
    function: str
    share: float
    """Share of the samples taken in user mode."""


@dataclass(frozen=True)
class Told:
    """What a tool found, and a note if it could not run or not in full detail."""

    callers: tuple[Caller, ...] = ()
    sampled: tuple[Sampled, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Frame:
    function: str
    object: str


@dataclass
class Call:
    """A system call as strace shows it."""

    thread: str
    name: str
    frames: list[Frame]
    """Innermost first."""
    begun: str = ""
    """The thread of the same process that it began."""


@dataclass(frozen=True)
class Subject:
    """A command under an arm, in the environment that it runs in."""

    command: tuple[str, ...]
    arm: Arm
    cpus: tuple[int, ...]
    folder: Path
    """For the files that the tools write."""
    users: Mapping[str, str] | None = None
    further: tuple[tuple[str, str], ...] = ()

    @property
    def library(self) -> str:
        """The name that the kernel uses."""
        path = self.arm.peer.library
        return str(path.resolve()) if path else ""

    def environment(self) -> dict[str, str]:
        """The tool's own environment: without the preload."""
        plain = replace(self.arm, peer=replace(self.arm.peer, library=None))
        return environment_make(plain, 0, preload=False, users=self.users) | dict(self.further)

    def preloaded(self) -> list[str]:
        """For a tool to start, which stays on its own allocator: the command is the second program of its process."""
        return ["env", *([f"LD_PRELOAD={self.library}"] if self.library else []), *self.command]

    def run(self, line: Sequence[str]) -> Finished | None:
        """None: it did not end in time."""
        try:
            return program_run(line, RUN_SECONDS_MAX, self.cpus, env=self.environment())
        except (subprocess.TimeoutExpired, OSError):
            return None


# ---- perf -------------------------------------------------------------------------------------------------


def faults_by_caller(subject: Subject) -> Told:
    """Every page fault of the run, by the caller that touched the page."""
    text, note = _perf(subject, ["-e", "page-faults:u", "-c", "1"])
    if note:
        return Told(note=f"page faults by caller are not known: {note}")
    counts = Counter(chain_text(frames, subject.library) for frames in perf_events(text.splitlines()))
    callers = [Caller("page fault", who, count) for who, count in counts.most_common()]
    return Told(tuple(callers), note="" if callers else "perf saw no page fault")


def samples_take(subject: Subject) -> Told:
    """Where the processor was in user mode."""
    text, note = _perf(subject, ["-e", "cpu-clock:u", "-F", str(SAMPLES_PER_SECOND)])
    if note:
        return Told(note=f"there are no samples of time: {note}")
    leaves = [frames[0] for frames in perf_events(text.splitlines()) if frames]
    counts = Counter(leaves)
    total = sum(counts.values())
    sampled = [
        Sampled(object_text(frame.object, subject.library), frame.function, count / total)
        for frame, count in counts.most_common()
    ]
    return Told(sampled=tuple(sampled), note="" if sampled else "perf took no sample")


def _perf(subject: Subject, options: Sequence[str]) -> tuple[str, str]:
    """What perf script prints for a recording, or why there is none."""
    perf = shutil.which("perf")
    if perf is None:
        return "", "perf is not installed (on Debian: linux-perf)"
    with TemporaryDirectory(prefix="perf-", dir=subject.folder) as folder:
        data = f"{folder}/data"
        recorded = subject.run(
            [perf, "record", "-q", "--call-graph", "fp", *options, "-o", data, "--", *subject.preloaded()]
        )
        complaint = _complaint(recorded, "perf record")
        if complaint:
            return "", complaint
        told = subject.run(
            [perf, "script", "--no-inline", "--show-task-events", "-i", data, "-F", "comm,pid,ip,sym,dso"]
        )
        complaint = _complaint(told, "perf script")
        return ("", complaint) if complaint or told is None else (told.output, "")


def _complaint(done: Finished | None, what: str) -> str:
    if done is None:
        return f"{what} did not end"
    if done.status == 0:
        return ""
    lines = [line.strip() for line in done.errors.splitlines() if line.strip()]
    return f"{what}: {lines[0] if lines else f'it exited with {done.status}'}"


def perf_events(lines: Iterable[str]) -> Iterator[list[Frame]]:
    """The frames of each event, innermost first. An event is a line with its process, and a line below it for each
    frame; programs that begin are lines, too. Of the process that is started, from its second program on."""
    process, programs = "", 0
    frames: list[Frame] | None = None
    for line in lines:
        if line[:1].isspace() and (frame := PERF_FRAME.match(line)):
            if frames is not None:
                frames.append(Frame(frame[1], frame[2]))
            continue
        if not line.strip():
            continue
        if frames is not None:
            yield frames
        frames = None
        if PERF_TASK in line:
            begun = PERF_EXEC.search(line)
            process = process or (begun["pid"] if begun else "")
            programs += begun is not None and begun["pid"] == process
        elif programs >= 2 and (event := PERF_EVENT.match(line)) and event["pid"] == process:
            frames = []
    if frames is not None:
        yield frames


# ---- strace -----------------------------------------------------------------------------------------------


def calls_by_caller(subject: Subject) -> Told:
    """The system calls of the run; those of the allocator with their stacks."""
    strace = shutil.which("strace")
    if strace is None:
        return _own_counters(subject, "strace is not installed")
    preload = ["-E", f"LD_PRELOAD={subject.library}"] if subject.library else []
    with TemporaryDirectory(prefix="calls-", dir=subject.folder) as folder:
        output = Path(folder) / "calls"
        done = subject.run([strace, "-f", "-k", "-o", str(output), *preload, "--", *subject.command])
        complaint = _complaint(done, "strace -k")
        if not complaint:
            return Told(
                tuple(strace_callers(output.read_text(errors="replace").splitlines(), subject.library))
            )
        done = subject.run([strace, "-f", "-o", str(output), *preload, "--", *subject.command])
        if _complaint(done, "strace"):
            return _own_counters(subject, complaint)
        calls = strace_calls(output.read_text(errors="replace").splitlines())
        named = Counter(call.name for call in calls)
    callers = [Caller(name, "anybody", count) for name, count in named.most_common()]
    return Told(tuple(callers), note=f"system calls by name only: {complaint}")


def strace_callers(lines: Iterable[str], library: str) -> list[Caller]:
    counts = Counter(
        (call.name, chain_text([one for one in call.frames if one.object == library], library))
        for call in strace_calls(lines)
    )
    return [Caller(what, who, count) for (what, who), count in counts.most_common()]


def strace_calls(lines: Iterable[str]) -> list[Call]:
    """Those of the first process."""
    calls = list(_calls_of_all(lines))
    begun: dict[str, list[str]] = {}
    for call in calls:
        begun.setdefault(call.thread, []).append(call.begun)
    threads, waiting = set[str](), [calls[0].thread] if calls else []
    while waiting:
        thread = waiting.pop()
        threads.add(thread)
        waiting += [one for one in begun.get(thread, ()) if one and one not in threads]
    return [call for call in calls if call.thread in threads]


def _calls_of_all(lines: Iterable[str]) -> Iterator[Call]:
    """One call is a line, and below it a line for each frame. Where another thread's came between it is two lines, and
    the frames stand below the second."""
    unfinished: dict[str, str] = {}
    """Lines, by the number of the thread."""
    call: Call | None = None
    for line in lines:
        frame = STRACE_FRAME.match(line)
        if frame is not None:
            if call is not None:
                call.frames.append(Frame(frame[2] or "?", frame[1]))
            continue
        if call is not None:
            yield call
        call = None
        named = STRACE_CALL.match(line)
        if named is None:
            continue
        thread = named["thread"] or ""
        if line.endswith(UNFINISHED):
            unfinished[thread] = line
            continue
        text = unfinished.pop(thread, "") + line if named["resumed"] else line
        call = Call(thread, named["call"] or named["resumed"], [], _thread_begun(text))
    if call is not None:
        yield call
    for thread, line in unfinished.items():
        named = STRACE_CALL.match(line)
        if named is not None:
            yield Call(thread, named["call"], [])


def _thread_begun(text: str) -> str:
    """The number of the thread that the call of TEXT began in its process; empty if none."""
    named, result = STRACE_CALL.match(text), STRACE_RESULT.search(text)
    is_thread = named is not None and named["call"] in CLONES and THREAD_FLAG in text
    return result[1] if is_thread and result is not None else ""


def _own_counters(subject: Subject, why: str) -> Told:
    """hakmem counts its system calls itself, and reports them at exit."""
    asked = replace(subject, further=(*subject.further, ("HAKMEM_STATS", "1")))
    done = asked.run(asked.preloaded())
    callers = statistics_callers(done.errors.splitlines(), done.pid) if done is not None else []
    if not callers:
        return Told(
            note=f"system calls are not known: {why}, and {subject.arm.name} does not count them itself"
        )
    return Told(tuple(callers), note=f"system calls as hakmem counts its own: {why}")


def statistics_callers(lines: Iterable[str], pid: int) -> list[Caller]:
    """Of process PID: each process that ends reports its own."""
    callers: list[Caller] = []
    of = ""
    for line in lines:
        if head := STATISTICS_HEAD.match(line):
            of = head[1]
        elif of == str(pid) and (match := STATISTICS_CALL.match(line)):
            callers.append(Caller(match[1], "hakmem", int(match[2])))
    return callers


# ---- names ------------------------------------------------------------------------------------------------


def chain_text(frames: Sequence[Frame], library: str) -> str:
    """The caller: the allocator's functions up to its entry point, or otherwise the innermost function."""
    if not frames:
        return "outside the allocator"
    if frames[0].object != library:
        return f"{frames[0].function} of {Path(frames[0].object).name}"
    inside = []
    for frame in frames:
        if frame.object != library:
            break
        inside.append(frame.function)
    names = list(dict.fromkeys(inside))
    if len(names) > CHAIN_MAX:
        names = [*names[: CHAIN_MAX - 1], "...", names[-1]]
    return " < ".join(names)


def object_text(name: str, library: str) -> str:
    """The name as a report may show it."""
    return "allocator" if library and name == library else Path(name).name
