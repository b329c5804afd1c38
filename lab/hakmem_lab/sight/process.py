"""A process as the kernel shows it to others: the texts of /proc/PID. It is never stopped or contacted.

What cannot be read is one clear line: there is no such process, it ended, it is a thread of the kernel, it belongs
to another user.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from hakmem_lab.errors import LabError
from hakmem_lab.sight.mappings import Mapping, mappings_parse

PROC = Path("/proc")
SELF = 0
"""The number by which a process means itself."""

OF_PROCESS = ("comm", "limits", "map_files", "stat", "task")
"""What the kernel shows in a process's folder also when its main thread has ended, or nowhere else."""
ENDED = ("Z", "X")

GONE = (FileNotFoundError, ProcessLookupError)
HIDDEN = -1
"""Instead of its owner, where the kernel does not show its status: under hidepid=1."""
KERNEL_THREAD = 0x00200000
"""PF_KTHREAD, in the flags of /proc/PID/stat."""
ELF_CLASS, ELF_64 = 4, 2
"""Where an ELF file states how wide its addresses are, and the mark of 64 bits."""


class ProcessGoneError(LabError):
    """It ended, perhaps while it was read, or never existed."""


@dataclass(frozen=True)
class Thread:
    number: int
    name: str
    stack: int
    """Its stack pointer while it waited in the kernel; 0: it was running, or the kernel does not report it."""


@dataclass(frozen=True)
class Limit:
    """Limit of setrlimit; None: unlimited."""

    soft: int | None
    hard: int | None


@dataclass(frozen=True)
class Process:
    pid: int
    proc: Path = PROC

    @property
    def folder(self) -> Path:
        return self.proc / ("self" if self.pid == SELF else str(self.pid))

    def place(self, name: str) -> Path:
        """Where the kernel shows NAME. With a main thread that ended by itself (pthread_exit) what is of the memory
        leaves the process's folder, while it is in those of the threads that run on."""
        if name in OF_PROCESS or not _has_ended(self.folder):
            return self.folder / name
        with suppress(OSError):
            for task in sorted((self.folder / "task").iterdir()):
                if not _has_ended(task):
                    return task / name
        return self.folder / name

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Turns the kernel's refusals into one line."""
        try:
            yield
        except PermissionError as error:
            raise LabError(self._refusal()) from error
        except GONE as error:
            raise ProcessGoneError(f"process {self.pid} ended while it was read") from error

    def text(self, name: str) -> str:
        with self.reading():
            return self.place(name).read_text(errors="replace")

    # ---- what it is ----------------------------------------------------------------------------------

    def status(self) -> dict[str, str]:
        """The lines of status by their names: {"VmRSS": "1234 kB"}."""
        return _status(self.text("status"))

    def stat(self) -> list[str]:
        """The fields after the name, which may contain anything; the first of them is the state."""
        return self.text("stat").rpartition(")")[2].split()

    @property
    def name(self) -> str:
        return self.text("comm").rstrip("\n")

    def program(self) -> Path:
        """The file that was executed."""
        with self.reading():
            return self.place("exe").readlink()

    def file(self, path: str) -> Path:
        """PATH as the process sees it: it may live in a container."""
        return self.place("root" if path.startswith("/") else "cwd") / path.lstrip("/")

    def environment(self) -> dict[str, str]:
        """As it was when the program started."""
        words = self.text("environ").split("\0")
        return dict(word.split("=", 1) for word in words if "=" in word)

    def limits(self) -> dict[str, Limit]:
        """By the kernel's names: {"Max address space": ...}; in bytes, or what it counts in."""
        found = {}
        for line in self.text("limits").splitlines()[1:]:
            name, soft, hard = line[:26].strip(), *line[26:].split()[:2]
            found[name] = Limit(_limit(soft), _limit(hard))
        return found

    def threads(self) -> list[Thread]:
        with self.reading():
            numbers = sorted(int(path.name) for path in (self.folder / "task").iterdir())
        threads = []
        for number in numbers:
            task = self.folder / "task" / str(number)
            try:
                threads.append(
                    Thread(number, (task / "comm").read_text(errors="replace").rstrip("\n"), _stack(task))
                )
            except GONE:  # a thread may end; the process goes on
                continue
        return threads

    # ---- its memory ----------------------------------------------------------------------------------

    def mappings(self) -> list[Mapping]:
        """With the contents of smaps for each."""
        mappings = mappings_parse(self.text("smaps"))
        if not mappings:
            raise ProcessGoneError(f"process {self.pid} ended while it was read")
        return mappings

    def mapping_count(self) -> int:
        return self.text("maps").count("\n")

    # ---- refusals ------------------------------------------------------------------------------------

    def _refusal(self) -> str:
        try:
            owner = int(_status(self.place("status").read_text(errors="replace"))["Uid"].split()[0])
            scope_file = self.proc / "sys/kernel/yama/ptrace_scope"
            scope = int(scope_file.read_text()) if scope_file.exists() else 0
        except PermissionError:
            owner, scope = HIDDEN, 0
        except (OSError, KeyError, ValueError):
            owner, scope = os.geteuid(), 0
        if os.geteuid() == 0:
            return (
                f"process {self.pid} may not be read, not even by root: a container or a security module"
                " forbids it"
            )
        if owner == HIDDEN:
            return _hidden(self.pid)
        if owner != os.geteuid():
            return f"process {self.pid} belongs to another user: run this as root or as that user"
        if scope:
            return (
                f"process {self.pid} may not be read by others than its parents (kernel.yama.ptrace_scope is"
                f" {scope}): run this as root, or start the program with this command"
            )
        return f"process {self.pid} may not be read: it has more rights than you; run this as root"


def process_open(pid: int, proc: Path = PROC) -> Process:
    """A process whose memory can be inspected; an error in one line if it cannot."""
    process = Process(pid, proc)
    if pid <= 0 or not process.folder.exists():
        raise ProcessGoneError(_absent(pid, proc))
    status = process.status()
    if status.get("Tgid", str(pid)) != str(pid):
        raise LabError(f"{pid} is a thread of process {status['Tgid']}: give that number")
    if status.get("State", "").startswith(ENDED):
        raise ProcessGoneError(f"process {pid} has ended: what is left of it waits for its parent")
    if int(process.stat()[6]) & KERNEL_THREAD:
        raise LabError(f"{pid} is a thread of the kernel: it has no memory of its own")
    with process.reading(), process.place("exe").open("rb") as file:
        head = file.read(ELF_CLASS + 1)
    if head[ELF_CLASS] != ELF_64:
        raise LabError(f"process {pid} is a 32-bit program: hakmem serves 64-bit programs")
    return process


def _absent(pid: int, proc: Path) -> str:
    """If /proc is mounted with hidepid, the processes of other users are invisible but exist."""
    try:
        if proc == PROC and pid > 0:
            os.kill(pid, 0)
            return f"process {pid} is hidden from you: run this as root"
    except PermissionError:
        return _hidden(pid)
    except (ProcessLookupError, OverflowError):
        pass
    return f"there is no process {pid}"


def _hidden(pid: int) -> str:
    return f"process {pid} is hidden from you (hidepid): run this as root or as its user"


def _status(text: str) -> dict[str, str]:
    lines = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, _, value in lines}


def _limit(word: str) -> int | None:
    return None if word == "unlimited" else int(word)


def _has_ended(task: Path) -> bool:
    """A thread, or a process's main thread; what cannot be read has not."""
    with suppress(OSError):
        return (task / "stat").read_text(errors="replace").rpartition(")")[2].strip().startswith(ENDED)
    return False


def _stack(task: Path) -> int:
    """From `NUMBER ARGUMENT... STACK-POINTER PROGRAM-COUNTER`; for a running thread the kernel reports only that it
    runs."""
    try:
        words = (task / "syscall").read_text().split()
    except (PermissionError, *GONE):
        return 0
    return int(words[-2], 16) if len(words) >= 3 else 0
