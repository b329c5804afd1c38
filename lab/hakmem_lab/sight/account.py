"""Every resident byte of a process under one heading, reconciled with what the kernel itself counts.

hakmem's memory is counted page by page, from its metadata and the kernel's page map; the rest mapping by mapping,
as in smaps. The difference between the two is a line of its own, because the process continues between the two
readings.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hakmem_lab.sight.books import Books
from hakmem_lab.sight.books_reader import books_read
from hakmem_lab.sight.mappings import Mapping, mappings_with_owners
from hakmem_lab.sight.memory import Memory, Residency, making_sense, memory_open, runs
from hakmem_lab.sight.page import pages_find
from hakmem_lab.sight.process import Process, Thread
from hakmem_lab.sight.window import WindowPages, chunks_given, view_read, window_pages

DIFFERENCE_MAX = 0.02
"""Share of RSS: with a larger difference the process is read again."""
READINGS_MAX = 3

START_TIME = 19
"""Of the fields of /proc/PID/stat that follow the name."""

HEAP, STACKS, FILES, DATA = "libc_heap", "stacks", "files", "data"
SHARED, ANONYMOUS, KERNEL = "shared", "anonymous", "kernel"
OTHERS = {
    HEAP: "libc's own heap",
    STACKS: "stacks",
    FILES: "files as they are on the disk: programs, libraries",
    DATA: "data of programs and libraries",
    SHARED: "shared memory",
    ANONYMOUS: "other anonymous mappings",
    KERNEL: "of the kernel: vdso and the like",
}
MEMORY_FILES = ("/memfd:", "/dev/shm/", "/dev/zero", "/SYSV")
"""Mapped files that are not files on a disk."""


@dataclass(frozen=True)
class Row:
    """Resident bytes under one heading."""

    key: str
    text: str
    size: int
    note: str = ""


@dataclass(frozen=True)
class CopyAccount:
    """One copy of hakmem in the process; all bytes are resident bytes."""

    books: Books
    window: WindowPages
    window_books: int
    """The records of the window's pages."""
    other_books: int
    """Heaps, bitmaps, stacks of blocks."""
    outside: int
    """Blocks outside the window."""

    @property
    def name(self) -> str:
        """Name of the object that contains it."""
        return self.books.page.owner.rpartition("/")[2]

    @property
    def live(self) -> int:
        """Small blocks in use."""
        return self.window.live_small

    @property
    def own(self) -> int:
        """All blocks in use: what the program itself has."""
        return self.live + self.window.large + self.outside

    @property
    def slack_most(self) -> int:
        """The most that small blocks in use hold beyond what malloc was asked for."""
        return min(self.live, sum(one.slack_bytes_most for one in self.books.classes if one.is_small))

    @property
    def total(self) -> int:
        return self.window.total + self.window_books + self.other_books + self.outside


@dataclass(frozen=True)
class Account:
    """A process at one moment."""

    process: Process
    name: str
    started: int
    """The process's start, in the kernel's ticks: another that has its number later started later."""
    seconds: float
    """Time of the monotonic clock."""
    rss: int
    """Sum over all mappings, from smaps."""
    swap: int
    locked: int
    mapping_count: int
    threads: tuple[Thread, ...]
    copies: tuple[CopyAccount, ...]
    others: tuple[Row, ...]

    def is_of_same_program(self, other: Account) -> bool:
        """The process of OTHER, which was read before, did not end since, and did not become another program by exec."""
        return self.started == other.started and other.addresses <= self.addresses

    @property
    def addresses(self) -> set[int]:
        """They stay as they are while the program runs: of pages, and of windows."""
        copies = [copy.books for copy in self.copies]
        return {one.page.address for one in copies} | {one.window_base for one in copies if one.is_started}

    @property
    def counted(self) -> int:
        return sum(copy.total for copy in self.copies) + sum(row.size for row in self.others)

    @property
    def difference(self) -> int:
        """Resident, but under no heading; below 0: counted, but no longer resident."""
        return self.rss - self.counted

    @property
    def is_reconciled(self) -> bool:
        return abs(self.difference) <= DIFFERENCE_MAX * self.rss


def account_read(process: Process) -> Account:
    """Read again while the process changes faster than it can be read; the best reading counts."""
    with memory_open(process) as memory:
        readings = [_account_once(process, memory)]
        while not readings[-1].is_reconciled and len(readings) < READINGS_MAX:
            readings.append(_account_once(process, memory))
    return min(readings, key=lambda reading: abs(reading.difference))


def _account_once(process: Process, memory: Memory) -> Account:
    mappings = process.mappings()
    residency = Residency(memory, mappings)
    copies = [books_read(page) for page in pages_find(memory, mappings)]
    with making_sense(process):
        accounts = [_copy_account(memory, books, residency) for books in copies]
        ranges = sorted(one for books in copies for one in _ranges(books))
    threads = tuple(process.threads())
    return Account(
        process=process,
        name=process.name,
        started=int(process.stat()[START_TIME]),
        seconds=time.monotonic(),
        rss=sum(mapping.rss for mapping in mappings),
        swap=sum(mapping.swap for mapping in mappings),
        locked=sum(mapping.locked for mapping in mappings),
        mapping_count=len(mappings),
        threads=threads,
        copies=tuple(accounts),
        others=tuple(_others(mappings, ranges, residency, threads)),
    )


# ---- hakmem's --------------------------------------------------------------------------------------------------


Range = tuple[int, int]
"""Addresses: the first, and the one after the last."""


def _words_range(books: Books) -> Range:
    words = books.page.table("words")
    start = books.page.pointer(words.address)
    return start, start + books.window_pages * words.record_bytes


def _records_range(books: Books) -> Range:
    """The ranges before the window: records, what other threads write, chunks."""
    return books.page.pointer(books.page.table("records").address), books.window_base


def _window_ranges(books: Books) -> Iterator[Range]:
    """Only as far as it was used, without chunks that others map."""
    size = books.limits["chunk_pages"] * books.page_bytes
    for first, last in runs(chunks_given(books)):
        yield books.window_base + first * size, books.window_base + last * size


def _books_ranges(books: Books) -> Iterator[Range]:
    for address, mapping in books.page.linked("books"):
        yield address, address + mapping["bytes"]


def _outside_ranges(books: Books) -> Iterator[Range]:
    for address, size in books.outside:
        yield address, address + size


def _ranges(books: Books) -> list[Range]:
    """All that is hakmem's."""
    if not books.is_started:
        return list(_outside_ranges(books))
    whole = [_words_range(books), _records_range(books), *_window_ranges(books)]
    return [*whole, *_books_ranges(books), *_outside_ranges(books)]


def _copy_account(memory: Memory, books: Books, residency: Residency) -> CopyAccount:
    def resident(ranges: Sequence[Range]) -> int:
        return sum(residency.resident(start, end) for start, end in ranges)

    window = WindowPages()
    if books.spans["end_page"]:
        window = window_pages(view_read(memory, books, residency), books.classes, memory)
    return CopyAccount(
        books=books,
        window=window,
        window_books=resident([_words_range(books), _records_range(books)]) if books.is_started else 0,
        other_books=resident(list(_books_ranges(books))),
        outside=resident(list(_outside_ranges(books))),
    )


# ---- the others' -----------------------------------------------------------------------------------------------


def _others(
    mappings: Sequence[Mapping], ranges: Sequence[Range], residency: Residency, threads: Sequence[Thread]
) -> Iterator[Row]:
    sizes: dict[str, int] = defaultdict(int)
    stacks = sorted(thread.stack for thread in threads)
    for mapping, owner in mappings_with_owners(mappings):
        rest = _not_in(ranges, mapping, residency) if mapping.rss else 0
        clean = max(0, rest - mapping.anonymous) if owner else 0
        heading = _heading(mapping, owner, stacks)
        sizes[FILES if heading == DATA else heading] += clean
        sizes[heading] += rest - clean
    return (Row(key, text, sizes[key]) for key, text in OTHERS.items() if sizes[key])


def _not_in(ranges: Sequence[Range], mapping: Mapping, residency: Residency) -> int:
    """Resident bytes of MAPPING that are not hakmem's. The kernel merges neighbouring mappings that are alike, so a
    part of one may be hakmem's."""
    parts = [
        (max(start, mapping.start), min(end, mapping.end))
        for start, end in ranges
        if start < mapping.end and end > mapping.start
    ]
    if not parts:
        return mapping.rss
    if (mapping.start, mapping.end) in parts:
        return 0
    own = sum(residency.resident(start, end) for start, end in parts)
    return max(0, residency.resident(mapping.start, mapping.end) - own)


def _heading(mapping: Mapping, owner: str, stacks: Sequence[int]) -> str:
    """STACKS: pointers into the stacks of threads, in the order of the threads."""
    if mapping.name == "[heap]":
        return HEAP
    first = bisect_left(stacks, mapping.start)
    if mapping.name.startswith("[stack") or (first < len(stacks) and stacks[first] < mapping.end):
        return STACKS
    if not mapping.is_private:
        return SHARED if not owner or owner.startswith(MEMORY_FILES) else FILES
    if owner:
        return DATA
    return ANONYMOUS if not mapping.name or mapping.name.startswith("[anon") else KERNEL
