"""One command under one allocator: started by bench/command_cost, which alone is small enough to measure it.

The command gets the library, the tool does not. Its output goes into files: not to the terminal, and not to
/dev/null, which some programs notice and then leave out their work.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from hakmem_lab.errors import LabError, ProcessFailedError
from hakmem_lab.measure.runner import Arm, Conditions, environment_make
from hakmem_lab.measure.tree import tree_kill
from hakmem_lab.measure.turns import Seat
from hakmem_lab.processes import pinned_to, signal_text, user_options

TOOL = "command_cost"
PRELOAD = "LD_PRELOAD"
VARIABLE_BYTES = 10
"""Of a variable of the environment, beside its name and its value: '=', the final zero, and a pointer."""
NOT_STARTED = 1
"""command_cost's own exit status when it could not start the command."""


@dataclass(frozen=True)
class Start:
    """How a command is started, whatever the arm."""

    tool: Path
    command: tuple[str, ...]
    folder: Path
    """Where its output is kept during the run."""
    users: Mapping[str, str] | None = None
    """The user's environment; None: nothing of it is passed on."""
    stdin: Path | None = None
    """None: empty."""
    cwd: Path | None = None
    user: str = ""
    """Run as this user, if it is not empty."""
    repeat: int = 1
    by_cpu: bool = False
    """Processor time is compared, so a slowdown is a share of that."""
    allow_status: int = 0

    @property
    def name(self) -> str:
        return Path(self.command[0]).name


@dataclass(frozen=True)
class Ended:
    """What command_cost reports, and the hash of what the command printed."""

    seconds: float
    cpu_seconds: float
    peak_rss_kib: int
    minor_faults: int
    major_faults: int
    involuntary_switches: int
    output_hash: str


class Running:
    def __init__(
        self,
        start: Start,
        arm: Arm,
        process: subprocess.Popen[bytes],
        files: tuple[IO[bytes], ...],
        seat: Seat | None = None,
    ) -> None:
        self.process = process
        self._seat = seat
        self._start = start
        self._arm = arm
        self._output, self._errors, self._report = files

    @property
    def pid(self) -> int:
        """The PID of the tool; the command is its only child."""
        return self.process.pid

    def ended_within(self, seconds: float) -> bool:
        """Waits for it. Popen's own wait polls every 50 ms, which would cost budget."""
        if self.process.poll() is None:
            descriptor = os.pidfd_open(self.process.pid)
            try:
                select.select([descriptor], [], [], seconds)
            finally:
                os.close(descriptor)
        return self.process.poll() is not None

    def wait(self, limit: float, stopped_by: int = 0) -> Ended:
        """An error if it failed. The signal that was sent to stop it is not a failure."""
        what = f"{self._start.name} under {self._arm.name}"
        ended = self.ended_within(self._seat.limit(limit) if self._seat else limit)
        if not ended or (self._seat is not None and self._seat.hung):
            raise ProcessFailedError(f"{what} did not end within {limit:g} s", f"hung: {limit:g} s")
        said = self.last_line()
        if self.process.returncode != 0:
            raise LabError(said.partition(": ")[2] or f"{TOOL} exited with {self.process.returncode}")
        self._report.seek(0)
        line: dict[str, Any] = json.loads(self._report.read())
        status, number = line.pop("exit_status"), line.pop("signal")
        if number not in (0, stopped_by):
            text = f"{what} was ended by {signal_text(number)}"
            raise ProcessFailedError(text, f"crashed: signal {number}")
        if status != self._start.allow_status:
            because = f": {said}" if said else ""
            raise ProcessFailedError(
                f"{what} exited with {status}{because}", f"failed: status {status}{because}"
            )
        self._output.seek(0)
        return Ended(**line, output_hash=hashlib.file_digest(self._output, "sha256").hexdigest()[:16])

    def last_line(self) -> str:
        """The last of what it printed on standard error."""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else ""


@contextmanager
def started(
    start: Start,
    arm: Arm,
    conditions: Conditions,
    extra: tuple[tuple[str, str], ...] = (),
    seat: Seat | None = None,
) -> Iterator[Running]:
    """Whatever still runs at the end of the block is killed. EXTRA are variables for the command and its tool. With a SEAT it
    takes turns with others."""
    if arm.peer.bare:
        text = f"{arm.peer.name} has no checks: it serves workloads of bench/ that were counted before, and no program"
        raise ProcessFailedError(text, f"not served: {arm.peer.name} has no checks")
    if arm.peer.programs is not None:
        text = f"{arm.peer.name} is a part of workloads of bench/, and serves no other program"
        raise ProcessFailedError(text, f"not served: {arm.peer.name} is a part of other programs")
    line = [
        str(start.tool),
        "{report}",
        "--repeat",
        str(start.repeat),
        "--allow-status",
        str(start.allow_status),
    ]
    line += ["--slowdown", f"{arm.slowdown_percent:.3f}", "--measure", "cpu" if start.by_cpu else "time"]
    if arm.peer.library is not None:
        line += ["--preload", str(arm.peer.library)]
    line += ["--", *start.command]
    # The tool slows the clock down, not the command: one that obeys the variable would be slowed twice.
    quick = replace(arm, slowdown_percent=0.0)
    padding = conditions.padding - preload_bytes(arm.peer.library, start.users or {})
    environment = environment_make(quick, padding, preload=False, users=start.users)
    with (
        TemporaryFile(dir=start.folder) as output,
        TemporaryFile(dir=start.folder) as errors,
        TemporaryFile(dir=start.folder) as report,
        (start.stdin or Path(os.devnull)).open("rb") as given,
    ):
        line[1] = str(report.fileno())
        with pinned_to(conditions.cpus):
            try:
                process = subprocess.Popen(
                    line,
                    env=environment | dict(extra) | (seat.environment if seat else {}),
                    stdin=given,
                    stdout=output,
                    stderr=errors,
                    pass_fds=[report.fileno(), *(seat.descriptors if seat else ())],
                    cwd=start.cwd,
                    start_new_session=True,
                    **user_options(start.user),
                )
            except OSError as error:
                raise LabError(f"{TOOL} cannot be started: {error.strerror}") from error
        try:
            if seat is not None:
                seat.started(process.pid)
            yield Running(start, arm, process, (output, errors, report), seat)
        finally:  # also when the user interrupts: no process stays behind
            _clear(process)


def preload_bytes(library: Path | None, users: Mapping[str, str]) -> int:
    """What the tool adds to the environment for the command: a variable, or a part of the user's and a colon."""
    if library is None:
        return 0
    path = len(os.fsencode(library))
    return path + 1 if PRELOAD in users else len(PRELOAD) + path + VARIABLE_BYTES


def _clear(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        tree_kill(process.pid)
        process.wait()
