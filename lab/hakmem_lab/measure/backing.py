"""Memory that the machine really holds, ready for the next run.

On a virtual machine free memory may be no memory: with free page reporting the host takes back what is free for two
seconds, and what was never touched it has not given yet. The first touch of it then takes up to ten times as long, and
whole free blocks of 2 MiB are taken first, so who asks for huge pages pays most. Which run pays depends on what ran
before it. So before a run the laboratory touches as much memory as the largest run of the task so far had, and frees
it: the kernel gives to the next process what was freed last.
"""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from dataclasses import dataclass

from hakmem_lab.measure.runner import Measured

PAGE_BYTES = 4096
RESERVE_BYTES = 8 << 20
"""For what a run takes besides its resident memory: page tables, files, the kernel."""
FREE_SHARE = 0.5
"""Never more than this share of the machine's free memory: nothing is swapped or killed for it."""


@dataclass
class Backing:
    """For all runs of one task."""

    peak_kib: int = 0

    def ready(self) -> None:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        memory_touch(int(min(self.peak_kib * 1024 + RESERVE_BYTES, FREE_SHARE * free)))

    def learn(self, run: Measured) -> None:
        self.peak_kib = max(self.peak_kib, run.peak_rss_kib or 0)


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
