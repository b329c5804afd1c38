"""One process: started under given conditions, served by a given peer, and its JSON line read.

A run counts only if the peer really served it. The program reports which object its malloc and free came from, and
that must be the peer's library.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hakmem_lab.allocators.peers import Peer
from hakmem_lab.errors import LabError, ProcessFailedError, RunFailedError
from hakmem_lab.measure.turns import Seat
from hakmem_lab.processes import program_run, signal_text

PRELOAD_PLACE = "{preload}"
"""In a command's arguments: the tool preloads the library into the process that it starts, not into itself."""

ENVIRONMENT_BYTES = 8192
"""All environments of a pair are filled up to this size plus the pair's padding, whatever the size of the peer's
path and options."""

RUN_SECONDS_MAX = 120.0


class Line(dict[str, Any]):
    """The JSON object that a program of bench/ prints; what it lacks is an error."""

    who = "the program"

    @classmethod
    def parse(cls, text: str, who: str) -> Line:
        """WHO printed TEXT."""

        def made(values: dict[str, Any]) -> Line:
            line = cls(values)
            line.who = who
            return line

        try:
            line = json.loads(text, object_hook=made)
        except ValueError as error:
            raise RunFailedError(f"{who} printed no JSON: {error}") from error
        if not isinstance(line, cls):
            raise RunFailedError(f"{who} printed JSON that is no object")
        return line

    def __missing__(self, key: str) -> object:
        raise RunFailedError(f"{self.who} printed no '{key}'")

    def number(self, key: str, default: float | None = None) -> Any:  # noqa: ANN401  # an int where one was printed
        value = self[key] if default is None else self.get(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise RunFailedError(f"{self.who} printed a '{key}' that is no number")
        return value


@dataclass(frozen=True)
class Conditions:
    """What both runs of a pair share."""

    seed: int
    padding: int
    cpus: tuple[int, ...]


@dataclass(frozen=True)
class Arm:
    peer: Peer
    slowdown_percent: float = 0.0

    @property
    def name(self) -> str:
        if self.slowdown_percent:
            return f"{self.peer.name} slowed by {self.slowdown_percent:g} %"
        return self.peer.name


@dataclass(frozen=True)
class Latency:
    """Latency of single operations, in nanoseconds."""

    p50: float
    p99: float
    p999: float
    max: float


@dataclass(frozen=True)
class Measured:
    """All figures of one run. None: this program, or this way of running it, does not report the figure."""

    ops: int
    seconds: float
    wall_seconds: float
    cpu_seconds: float
    peak_rss_kib: int | None
    """Peak of the largest process."""
    minor_faults: int
    """Of the whole process: an allocator that touches memory before `main` would otherwise touch it later."""
    major_faults: int
    involuntary_switches: int
    steal_ticks: int
    checksum: str | None
    rss_mean_kib: float | None = None
    """The integral over time of the resident memory of all processes, divided by the time."""
    tree_peak_rss_kib: float | None = None
    """The most that all processes held together; memory that they share counts for each."""
    idle_rss_kib: float | None = None
    """After its work, once it has rested."""
    system_calls: int | None = None
    touch_us: float | None = None
    """What the first touch of a page of 4 KiB took just before it, or before all that took turns with it, in microseconds."""
    in_turns: bool = False
    """It took turns with the other runs of its round."""
    latency: Latency | None = None


def environment_make(
    arm: Arm, padding: int, preload: bool, users: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The environment has nothing of the user's, no other preload and no allocator options, unless they are given.
    A user's own command gets the user's whole environment."""
    environment = {"PATH": os.defpath, "LC_ALL": "C"} if users is None else dict(users)
    room = ENVIRONMENT_BYTES + (0 if users is None else _bytes_used(environment))
    environment |= {"WORKLOAD_SLOWDOWN": f"{arm.slowdown_percent:.3f}"}
    environment |= dict(arm.peer.environment)
    if preload and arm.peer.library is not None and arm.peer.programs is None:
        environment["LD_PRELOAD"] = str(arm.peer.library)
    environment["LAB_PADDING"] = "x" * max(0, room - _bytes_used(environment) + padding)
    return environment


def _bytes_used(environment: Mapping[str, str]) -> int:
    """Each string costs its bytes, '=', the final zero, and a pointer."""
    return sum(len(key) + len(value) + 10 for key, value in environment.items())


def program_held(program: Path, peer: Peer) -> Path:
    """The workload, or the form of it that contains the allocator."""
    if peer.programs is None:
        return program
    held = peer.programs / program.name
    if not held.is_file():
        raise RunFailedError(f"{program.name} is not linked as {peer.name}: preload hakmem there")
    return held


def command_make(program: Path, arguments: Sequence[str], peer: Peer) -> list[str]:
    command = [str(program_held(program, peer))]
    for argument in arguments:
        if argument != PRELOAD_PLACE:
            command.append(argument)
        elif peer.library is not None:
            command += ["--preload", str(peer.library)]
    return command


def process_run(
    command: list[str],
    environment: dict[str, str],
    cpus: tuple[int, ...],
    subject: str = "",
    seat: Seat | None = None,
) -> str:
    """Its standard output; an error if it fails in any way. SUBJECT is the name of a program that a tool runs, and ends
    as. With a SEAT it takes turns with others."""
    name = subject or Path(command[0]).name
    hung = ProcessFailedError(
        f"{name} did not end within {RUN_SECONDS_MAX:g} s", f"hung: {RUN_SECONDS_MAX:g} s"
    )
    limit = RUN_SECONDS_MAX
    options: dict[str, Any] = {}
    if seat is not None:
        limit = seat.limit(RUN_SECONDS_MAX)
        environment = environment | seat.environment
        options = {"descriptors": seat.descriptors, "started": seat.started}
    try:
        done = program_run(command, limit, cpus, env=environment, **options)
    except OSError as error:
        raise LabError(f"{name} cannot be started: {error.strerror}") from error
    except subprocess.TimeoutExpired:
        raise hung from None
    if seat is not None and seat.hung:
        raise hung
    if done.status < 0:
        number = -done.status
        raise ProcessFailedError(f"{name} was ended by {signal_text(number)}", f"crashed: signal {number}")
    if done.status != 0:
        text = f"{name} exited with {done.status}{done.said}"
        raise ProcessFailedError(text, f"failed: status {done.status}")
    return done.output


def json_run(
    program: Path,
    arguments: Sequence[str],
    arm: Arm,
    conditions: Conditions,
    variables: Mapping[str, str] | None = None,
    seat: Seat | None = None,
) -> Line:
    """The JSON line of a program of bench/, which also gets VARIABLES; the proof of service is checked."""
    preload = PRELOAD_PLACE not in arguments
    try:
        output = process_run(
            command_make(program, arguments, arm.peer),
            environment_make(arm, conditions.padding, preload) | dict(variables or {}),
            conditions.cpus,
            seat=seat,
        )
    except RunFailedError as error:
        raise type(error)(f"{error} (under {arm.name})", error.outcome) from error
    except LabError as error:
        raise LabError(f"{error} (under {arm.name})") from error
    line = Line.parse(output, f"{program.name} under {arm.name}")
    service_check(line, arm.peer)
    return line


def service_check(line: Line, peer: Peer) -> None:
    if line.get("served") is False:
        raise RunFailedError(f"{peer.name} was not mapped: it did not serve the process")
    for key in ("malloc_from", "free_from"):
        if key not in line:
            continue
        owner = line[key]
        served = owner is not None and _is_of(Path(owner), peer)
        if not served:
            function = key.removesuffix("_from")
            raise RunFailedError(f"{peer.name} did not serve the process: {function} came from {owner}")


def _is_of(owner: Path, peer: Peer) -> bool:
    """Whether the object OWNER is the peer: its library, the program that holds it, or the C library."""
    if peer.library is not None:
        return owner.resolve() == peer.library.resolve()
    if peer.programs is not None:
        return owner.resolve().parent == peer.programs.resolve()
    return owner.name.startswith(("libc.", "ld-musl"))


def steal_ticks_read() -> int:
    """Time that the host took from this machine's processors, in clock ticks since its start."""
    with Path("/proc/stat").open() as file:
        fields = file.readline().split()
    return int(fields[8]) if len(fields) > 8 else 0


def workload_run(
    program: Path, arguments: Sequence[str], arm: Arm, conditions: Conditions, seat: Seat | None = None
) -> Measured:
    steal = steal_ticks_read()
    started = time.monotonic()
    line = json_run(program, arguments, arm, conditions, seat=seat)
    wall = time.monotonic() - started
    return Measured(
        ops=line.number("ops"),
        seconds=line.number("seconds"),
        wall_seconds=wall,
        cpu_seconds=line.number("cpu_seconds"),
        peak_rss_kib=line.get("peak_rss_kib"),
        minor_faults=line.number("minor_faults") + line.number("minor_faults_before", 0),
        major_faults=line.number("major_faults"),
        involuntary_switches=line.number("involuntary_switches"),
        steal_ticks=steal_ticks_read() - steal,
        checksum=line.get("checksum"),
        latency=latency_of(line),
    )


def latency_of(line: Line) -> Latency | None:
    """Only programs that were started with WORKLOAD_LATENCY=1 report it."""
    told = line.get("latency_ns")
    return Latency(told["p50"], told["p99"], told["p999"], told["max"]) if told else None
