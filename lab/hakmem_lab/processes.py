"""Programs that are run to their end, and what happens when we are ended: nothing that was started is left behind."""

from __future__ import annotations

import ctypes
import errno
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

SHELL = "/bin/sh"
PR_SET_PDEATHSIG = 1
ENDING = (signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Finished:
    pid: int
    status: int
    """Below zero: the signal that ended it."""
    printed: bytes
    errors: str

    @property
    def output(self) -> str:
        """Its output may contain any bytes."""
        return self.printed.decode(errors="replace")

    @property
    def said(self) -> str:
        """The last line of standard error, after a colon."""
        lines = self.errors.strip().splitlines()
        return f": {lines[-1].strip()}" if lines else ""


def signal_text(number: int) -> str:
    return f"signal {number} ({signal.strsignal(number) or 'unknown'})"


@contextmanager
def pinned_to(cpus: tuple[int, ...]) -> Iterator[None]:
    """Children started inside stay on these processors."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def program_start(
    command: Sequence[str], start: Callable[[list[str]], subprocess.Popen[bytes]]
) -> subprocess.Popen[bytes]:
    """By START. A file that the kernel does not know is run by the shell, as execvp and shells do: a script without
    `#!`."""
    try:
        return start(list(command))
    except OSError as error:
        program = shutil.which(command[0])
        if error.errno != errno.ENOEXEC or program is None:
            raise
        return start([SHELL, program, *command[1:]])


def end_with(parent: int) -> None:
    """For a process just forked by PARENT: if that is killed, this one is, too."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it is gone already
        os.kill(os.getpid(), signal.SIGKILL)


def user_options(name: str) -> dict[str, Any]:
    """Arguments for Popen."""
    if not name:
        return {}
    return {"user": name, "group": pwd.getpwnam(name).pw_gid, "extra_groups": []}


def program_run(
    command: Sequence[str],
    limit: float,
    cpus: tuple[int, ...] = (),
    given: str = "",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    user: str = "",
    descriptors: Sequence[int] = (),
    started: Callable[[int], None] = lambda _: None,
) -> Finished:
    """Runs on CPUS, or on the current ones; subprocess.TimeoutExpired if it takes longer than LIMIT seconds. Then,
    or if the user interrupts, it is killed with all that it started in its own session. It inherits DESCRIPTORS; STARTED is
    told its PID."""
    with pinned_to(cpus) if cpus else nullcontext():
        start = partial(
            subprocess.Popen,
            stdin=subprocess.PIPE if given else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=env,
            start_new_session=True,
            pass_fds=descriptors,
            **user_options(user),
        )
        process = program_start(command, start)
        started(process.pid)
    with process:
        try:
            printed, errors = process.communicate(given.encode() or None, timeout=limit)
        except BaseException:
            with suppress(ProcessLookupError):  # all of it may have ended by itself
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()  # not for what else may hold its output
            raise
    return Finished(process.pid, process.returncode, printed, errors.decode(errors="replace"))


@contextmanager
def ending_as_interrupted() -> Iterator[None]:
    """SIGTERM, and the end of the terminal, do what Ctrl-C does: what is incomplete is removed, and what was
    started is ended. Only the first signal counts: a closing terminal sends two, and nothing must be left behind
    because of that."""
    told = False

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        nonlocal told
        if not told:
            told = True
            raise KeyboardInterrupt

    # nohup has a command ignore the end of the terminal.
    taken = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    before = [(number, signal.signal(number, interrupt)) for number in taken]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
