"""The processes of a command, watched from outside while it runs.

A thread of the laboratory reads /proc every 20 ms, which takes a few tens of microseconds for each process on a
processor that the command may want. So timed runs are not watched; separate runs are. Peaks between two looks are
not seen here, but the kernel's own figure for the largest process is exact, and is used.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from hakmem_lab.errors import LabError

INTERVAL_SECONDS = 0.02
PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // 1024
UNSEEN = (FileNotFoundError, ProcessLookupError, PermissionError)
"""It ended; or, under hidepid, it is another user's."""


@dataclass
class Image:
    """One program in one process; an exec starts another."""

    pid: int
    parent: int
    program: Path
    name: str
    looks: int = 0
    running: int = 0
    """Looks at which it ran or was ready to run. A process that lives for less than a tick leaves no other trace."""
    ticks: int = 0
    """Processor time since it was first seen."""
    rss_kib: int = 0
    """The highest value seen."""
    mapped: bool = False
    """The requested library is in its mappings."""

    @property
    def work(self) -> int:
        return self.ticks + self.running


@dataclass(frozen=True)
class Watched:
    images: tuple[Image, ...]
    rss_mean_kib: float | None
    """None: it ended between two looks."""
    tree_peak_rss_kib: float


def children_of(pid: int) -> list[int]:
    children: list[int] = []
    with suppress(*UNSEEN):  # a process, and any of its threads, may end while it is looked at
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(*UNSEEN):  # a thread may end before the process does
                children += map(int, (thread / "children").read_text().split())
    return children


def descendants_of(pid: int) -> list[int]:
    found: list[int] = []
    waiting = children_of(pid)
    while waiting:
        found.append(waiting.pop())
        waiting += children_of(found[-1])
    return found


def tree_kill(pid: int) -> None:
    """The process and all of its descendants, also those in other sessions."""
    for one in [*descendants_of(pid), pid]:
        with suppress(ProcessLookupError, PermissionError):  # gone already, or another user's by now
            os.kill(one, signal.SIGKILL)


def rss_kib_of(pid: int) -> int:
    """0 if it is gone or hidden. With a main thread that has ended by itself the folders of the others tell."""
    process = Path(f"/proc/{pid}")
    rss = _statm_kib(process)
    with suppress(*UNSEEN):
        return rss or max(map(_statm_kib, (process / "task").iterdir()), default=0)
    return 0


def _statm_kib(task: Path) -> int:
    with suppress(*UNSEEN, IndexError):
        return int((task / "statm").read_text().split()[1]) * PAGE_KIB
    return 0


def tree_rss_kib(pid: int) -> int:
    """The sum over all descendants that run."""
    return sum(rss_kib_of(one) for one in descendants_of(pid))


def stat_fields(pid: int) -> list[str]:
    """The fields after the name, which may contain anything."""
    return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()


def parent_of(pid: int) -> int:
    return int(stat_fields(pid)[1])


class Watcher:
    """Watches all processes below ROOT except the tool."""

    def __init__(self, root: int, tool: Path, library: Path | None) -> None:
        self._root = root
        self._tool = tool.resolve()
        self._library = library.resolve() if library else None
        self._images: dict[tuple[int, Path], Image] = {}
        self._ticks: dict[int, int] = {}
        self._integral = 0.0
        self._peak = 0.0
        self._seconds = 0.0
        self._stop = threading.Event()

    def watched(self) -> Watched:
        mean = self._integral / self._seconds if self._seconds else None
        return Watched(tuple(self._images.values()), mean, self._peak)

    def run(self) -> None:
        before = time.monotonic()
        while not self._stop.wait(INTERVAL_SECONDS):
            total = sum(self._look(pid) for pid in descendants_of(self._root))
            now = time.monotonic()
            if total:
                self._integral += total * (now - before)
                self._seconds += now - before
                self._peak = max(self._peak, total)
            before = now

    def stop(self) -> None:
        self._stop.set()

    def _look(self, pid: int) -> int:
        try:
            program = Path(f"/proc/{pid}/exe").readlink()
            if program == self._tool:
                return 0
            if (pid, program) not in self._images:
                name = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
                self._images[pid, program] = Image(pid, parent_of(pid), program, name)
            image = self._images[pid, program]
            fields = stat_fields(pid)
            ticks = int(fields[11]) + int(fields[12])
            image.looks += 1
            image.running += fields[0] == "R"
            image.ticks += ticks - self._ticks.get(pid, 0)
            self._ticks[pid] = ticks
            rss = rss_kib_of(pid)
            image.rss_kib = max(image.rss_kib, rss)
            image.mapped = image.mapped or self._maps(pid)
        except (OSError, IndexError):  # it ended meanwhile, or is another user's
            return 0
        return rss

    def _maps(self, pid: int) -> bool:
        if self._library is None:
            return True
        return f" {self._library}\n" in Path(f"/proc/{pid}/maps").read_text(errors="replace")


def kernel_check() -> None:
    """Fails if the kernel lacks what this needs; otherwise no process would be seen, and none would be missed."""
    if not Path(f"/proc/self/task/{threading.get_native_id()}/children").exists():
        raise LabError("this kernel does not list the children of a process (CONFIG_PROC_CHILDREN)")


@contextmanager
def watching(root: int, tool: Path, library: Path | None) -> Iterator[Watcher]:
    kernel_check()
    watcher = Watcher(root, tool, library)
    thread = threading.Thread(target=watcher.run, daemon=True)
    thread.start()
    try:
        yield watcher
    finally:
        watcher.stop()
        thread.join()
