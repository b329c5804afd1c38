"""Memory that the machine really holds, ready for the next run.

On a virtual machine free memory may be no memory: with free page reporting the host takes back what is free for two
seconds, and what was never touched it has not given yet. The first touch of it then takes up to ten times as long, and
whole free blocks of 2 MiB are taken first, so who asks for huge pages pays most. Which run pays depends on what ran
before it. So before a run the laboratory touches as much memory as the largest run of the task so far had, and frees
it: the kernel gives to the next process what was freed last.

Then it asks what a page fault costs here and now. That differs tenfold from hour to hour, between processes that take as many
of them; so each run keeps it, and reports say it.
"""

from __future__ import annotations

import mmap
import os
import time
from contextlib import suppress
from dataclasses import dataclass

from hakmem_lab.measure.turns import Seat

PAGE_BYTES = 4096
PROBED_PAGES = 256
"""Enough that an interrupt is a small part, and a millisecond at most where a page fault takes 4 µs."""
RESERVE_BYTES = 8 << 20
"""For what a run takes besides its resident memory: page tables, files, the kernel."""
FREE_SHARE = 0.5
"""Never more than this share of the machine's free memory: nothing is swapped or killed for it."""


@dataclass
class Backing:
    """For all runs of one task."""

    known: bool = False
    """A run was seen, so that it is known what one holds."""
    peak_kib: int = 0
    """Of the largest."""
    least_kib: int | None = None
    """The peak of the smallest."""
    touch_us: float | None = None
    """What the first touch of a page took when it was last made ready, in microseconds; None where a limit forbids to ask."""

    def has_room(self, runs: int) -> bool:
        """For RUNS at the same time, as far as is known."""
        return self.known and self._bytes(runs) <= FREE_SHARE * _bytes_free()

    def ready(self, runs: int = 1) -> float | None:
        """For RUNS at the same time; returns `touch_us`."""
        memory_touch(int(min(self._bytes(runs), FREE_SHARE * _bytes_free())))
        self.touch_us = touch_us()
        return self.touch_us

    def ready_at(self, seat: Seat | None) -> float | None:
        """For a run, or for one of those that take turns, for which it is ready; returns `touch_us`."""
        return self.ready() if seat is None else self.touch_us

    def _bytes(self, runs: int) -> int:
        return runs * (self.peak_kib * 1024 + RESERVE_BYTES)

    def learn(self, peak_kib: int | None) -> None:
        """Of a run; None where it does not report it."""
        self.known = True
        if peak_kib:
            self.peak_kib = max(self.peak_kib, peak_kib)
            self.least_kib = min(self.least_kib or peak_kib, peak_kib)


def _bytes_free() -> int:
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def memory_touch(size: int) -> None:
    """SIZE in bytes. Nothing happens where a limit of this process forbids it."""
    pages = size // PAGE_BYTES
    if not pages:
        return
    with (
        suppress(OSError),  # refused, by a limit: the run is as it would have been
        mmap.mmap(-1, pages * PAGE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory,
    ):
        with suppress(OSError):  # a kernel without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
        memory[::PAGE_BYTES] = b"\1" * pages


def touch_us() -> float | None:
    """Microseconds for the first touch of a page of 4 KiB, the mean of some; None where a limit of this process forbids it."""
    with (
        suppress(OSError),
        mmap.mmap(-1, PROBED_PAGES * PAGE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory,
    ):
        with suppress(OSError):  # a kernel without huge pages
            memory.madvise(mmap.MADV_NOHUGEPAGE)
        began = time.perf_counter()
        memory[::PAGE_BYTES] = b"\1" * PROBED_PAGES
        return 1e6 * (time.perf_counter() - began) / PROBED_PAGES
    return None
