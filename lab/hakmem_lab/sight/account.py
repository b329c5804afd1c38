"""Every resident byte of a process under one heading, held against what the kernel counts itself.

hakmem's memory is counted page by page, by its books and the kernel's page map; the rest mapping by mapping,
as smaps has it. What the two differ by is a line of its own: the process went on between the two readings.
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
from hakmem_lab.sight.memory import Memory, Residency, making_sense, memory_open
from hakmem_lab.sight.page import pages_find
from hakmem_lab.sight.process import Process, Thread
from hakmem_lab.sight.window import WindowPages, view_read, window_pages

DIFFERENCE_MAX = 0.02
"""Of RSS: more, and the process is read again."""
READINGS_MAX = 3

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
"""Mapped files that are no files on a disk."""


@dataclass(frozen=True)
class Row:
    """Resident bytes of one heading."""

    key: str
    text: str
    size: int
    note: str = ""


@dataclass(frozen=True)
class CopyAccount:
    """One copy of hakmem in the process; bytes are resident ones."""

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
        """Of the object that holds it."""
        return self.books.page.owner.rpartition("/")[2]

    @property
    def live(self) -> int:
        """Small blocks in use."""
        return self.window.live_small

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
    seconds: float
    """Of the monotonic clock."""
    rss: int
    """Of all mappings, as smaps has it."""
    swap: int
    locked: int
    mapping_count: int
    threads: tuple[Thread, ...]
    copies: tuple[CopyAccount, ...]
    others: tuple[Row, ...]

    @property
    def counted(self) -> int:
        return sum(copy.total for copy in self.copies) + sum(row.size for row in self.others)

    @property
    def difference(self) -> int:
        """Resident, and under no heading; below 0: counted, and not resident any more."""
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
"""Addresses: first and behind the last."""


def _words_range(books: Books) -> Range:
    words = books.page.table("words")
    start = books.page.pointer(words.address)
    return start, start + books.window_pages * words.record_bytes


def _records_range(books: Books) -> Range:
    """Of what lies before the window: records, what other threads write, chunks."""
    return books.page.pointer(books.page.table("records").address), books.window_base


def _window_range(books: Books) -> Range:
    """As far as it was used: it may reach over what others map."""
    return books.window_base, books.window_base + books.spans["end_page"] * books.page_bytes


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
    whole = [_words_range(books), _records_range(books), _window_range(books)]
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
    """Resident bytes of MAPPING that are not hakmem's. The kernel makes one mapping of neighbours that are
    alike, so that a part of one may be."""
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
    """STACKS: pointers into the stacks of threads, in their order."""
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
