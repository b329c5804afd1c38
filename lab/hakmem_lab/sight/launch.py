"""A command on hakmem, inspected while it runs: its library is preloaded; its output and its exit status are its
own.

A program may end at any time. So it is inspected early and often, at longer and longer intervals, and the last look
is kept: it is never older than a fifth of what the program had behind it. That holds by the clock also while RSS is
waited for, since RSS may stand still.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import BinaryIO, Generic, TypeVar

from hakmem_lab.checkout import Checkout
from hakmem_lab.errors import LabError, shown
from hakmem_lab.measure.tree import descendants_of, kernel_check, rss_kib_of
from hakmem_lab.processes import end_with, program_start
from hakmem_lab.sight.process import Process, ProcessGoneError, process_open
from hakmem_lab.sight.program import needs_preload

POLL_SECONDS = 0.02
FIRST_SECONDS, FIRST_BYTES = 0.05, 1 << 20
"""When the first look is taken."""
STEP = 1.25
"""Interval between two looks, in time or in RSS, whichever comes first."""
PASSED_ON = (
    *(signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGPWR, signal.SIGIO),
    *(signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF),
    *range(signal.SIGRTMIN, signal.SIGRTMAX + 1),
)
"""As `hakmem run` passes them on. But who sent one is not known here: those that the kernel sends for what this process
itself does are not among them, nor those that the terminal sends to the program, too."""
LEFT_TO_IT = (signal.SIGINT, signal.SIGQUIT)
"""Signals that the terminal also sends to the program."""

TOO_SHORT = "the program ended before it could be looked at"

T = TypeVar("T")


class UnseenError(LabError):
    """It ended before it could be inspected."""


@dataclass(frozen=True)
class Trigger:
    """When the look that counts is taken."""

    seconds: float | None = None
    """Seconds after the start; or"""
    rss: int | None = None
    """when the largest process has this many bytes resident."""

    def reached(self, seconds: float, rss: int) -> bool:
        return rss >= self.rss if self.rss is not None else seconds >= (self.seconds or 0.0)


@dataclass(frozen=True)
class Seen(Generic[T]):
    """The look that counts, or the last before the program ended."""

    value: T
    seconds: float
    """Seconds after the start."""
    reached: bool
    """Whether the requested condition occurred."""


class Launched:
    def __init__(self, process: subprocess.Popen[bytes], proof: BinaryIO) -> None:
        self._process = process
        self._proof = proof
        self._begun = time.monotonic()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begun

    def proofs(self) -> dict[int, str]:
        """What hakmem last reported in each process: "served", or "other" and the object that owns malloc."""
        self._proof.seek(0)
        lines = (line.partition(" ") for line in self._proof.read().decode(errors="replace").splitlines())
        return {int(pid): word for pid, _, word in lines if pid.isdigit()}

    def can_report(self) -> bool:
        """Whether hakmem can write to the file of the proofs: the program may have removed it, a limit or a full disk may
        forbid it."""
        try:
            return os.fstat(self._proof.fileno()).st_nlink > 0 and self._proof.write(b"\n") == 1
        except OSError:
            return False

    def ended_within(self, seconds: float) -> bool:
        if self._process.returncode is not None:
            return True
        try:
            descriptor = os.pidfd_open(self._process.pid)
        except OSError:  # before Linux 5.3, or a sandbox forbids it
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
            return self._process.returncode is not None
        try:
            return bool(select.select([descriptor], [], [], seconds)[0])
        finally:
            os.close(descriptor)

    def wait(self) -> int:
        """Its exit status, as a shell reports it."""
        status = self._process.wait()
        return status if status >= 0 else 128 - status

    def ended_by(self) -> int:
        """The number of the signal that ended it; 0: none."""
        return max(0, -self._process.wait())

    def largest(self) -> list[tuple[int, int]]:
        """RSS in bytes and PID of every process of the command, the largest first."""
        pids = [self.pid, *descendants_of(self.pid)]
        return sorted(((rss_kib_of(pid) * 1024, pid) for pid in pids), reverse=True)

    def pass_on(self, number: int, _frame: FrameType | None) -> None:
        self._process.send_signal(number)


@contextmanager
def launched(checkout: Checkout, command: Sequence[str], **variables: str) -> Iterator[Launched]:
    """The block's end waits for the program's."""
    preload = needs_preload(command[0], checkout.library)
    with (
        tempfile.TemporaryDirectory(prefix="hakmem-", dir=_folder()) as folder,
        Path(folder, "proof").open("ab+", buffering=0) as proof,  # open: the program may remove it
    ):
        environment = environment_on(checkout, preload, HAKMEM_PROOF=proof.name, **variables)
        try:
            start = partial(subprocess.Popen, env=environment, preexec_fn=partial(end_with, os.getpid()))
            process = program_start(command, start)
        except OSError as error:
            raise LabError(f"{command[0]} cannot be started: {error.strerror}") from error
        running = Launched(process, proof)
        before = [(number, signal.signal(number, running.pass_on)) for number in PASSED_ON]
        before += [(number, signal.signal(number, signal.SIG_IGN)) for number in LEFT_TO_IT]
        try:
            yield running
        finally:
            running.wait()
            for number, handler in before:
                signal.signal(number, handler)


def _folder() -> str:
    """For the proof, as the launcher has it. Python's own choice needs one where a file can be written."""
    given = os.environ.get("TMPDIR", "")
    return given if given.startswith("/") else "/tmp"


def environment_on(checkout: Checkout, preload: bool = True, **variables: str) -> dict[str, str]:
    """The user's own, on hakmem. A program that is linked with it needs no PRELOAD."""
    if not preload:
        return {**os.environ, **variables}
    library = str(checkout.library.resolve())
    if " " in library or ":" in library:
        raise LabError("LD_PRELOAD cannot name the library: its path holds a space or a colon")
    others = os.environ.get("LD_PRELOAD", "")
    return {**os.environ, "LD_PRELOAD": f"{library}:{others}" if others else library, **variables}


def look(running: Launched, trigger: Trigger, read: Callable[[Process], T]) -> Seen[T]:
    """Of the largest process on hakmem. Returns when what was asked for came about, or the program ended. What can
    not be read then is said at once, and looked at again; an UnseenError when there was no look until the end."""
    children_check()
    seen: Seen[T] | None = None
    why = TOO_SHORT
    late = told = False
    next_seconds, next_bytes = FIRST_SECONDS, FIRST_BYTES
    while not running.ended_within(POLL_SECONDS):
        now = running.seconds
        rss = running.largest()[0][0] if trigger.rss is not None else 0
        reached = trigger.reached(now, rss)
        if now < next_seconds and rss < next_bytes and (late or not reached):
            continue
        try:
            begun = running.seconds
            seen = Seen(_read_largest(running, read), begun, reached)
        except ProcessGoneError as error:
            why = str(error) if why is TOO_SHORT else why  # what was wrong before it ended says more
        except LabError as error:
            why = str(error)
            if reached and not told:
                print(f"hakmem: {shown(why)}; it is looked at again until it ends", file=sys.stderr)
                told = True
        else:
            if reached:
                return seen
        late = late or reached
        next_seconds, next_bytes = STEP * now, STEP * max(FIRST_BYTES, rss)
    if seen is None:
        raise UnseenError(why)
    return seen


def children_check() -> None:
    """A line where the kernel does not say what a process started: a wrapper would be taken for its program."""
    try:
        kernel_check()
    except LabError as error:
        print(f"hakmem: {error}: only the first is looked at", file=sys.stderr)


def _read_largest(running: Launched, read: Callable[[Process], T]) -> T:
    """Helpers that cannot be read, or are on another malloc, are skipped if another process can be read."""
    first: LabError | None = None
    for _rss, pid in running.largest():
        try:
            return read(process_open(pid))
        except LabError as error:
            first = first or error
    raise first or ProcessGoneError(TOO_SHORT)
