"""The memory of another process: its bytes from /proc/PID/mem, and which of its pages are present from
/proc/PID/pagemap.

A page that is not present is not read: the kernel would fault it in, and the process would be changed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hakmem_lab.errors import LabError
from hakmem_lab.sight.mappings import Mapping
from hakmem_lab.sight.process import Process, ProcessGoneError

Bits = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

ENTRY_BYTES = 8
"""Bytes of pagemap for each page."""
ADDRESSES_END = 1 << 56
"""Beyond all addresses of a process: five levels of page tables."""
READ_BYTES_MAX = 2 << 30
"""No part of hakmem's metadata is longer."""


UNSURE = "it changes faster than it can be read, or it has overwritten them"


def _bit(number: int) -> np.uint64:
    return np.uint64(1 << number)


PRESENT, SWAPPED, OF_FILE, EXCLUSIVE = _bit(63), _bit(62), _bit(61), _bit(56)


@dataclass(frozen=True)
class Memory:
    process: Process
    memory: int
    pagemap: int
    """File descriptors. They stay with the program that ran when they were opened."""
    page: int
    """Bytes of a kernel page."""

    def read(self, address: int, length: int) -> bytes:
        parts = []
        self._check(address, length)
        with self._reading(address):
            while length > 0:
                part = os.pread(self.memory, length, address)
                if not part:
                    raise ProcessGoneError(f"process {self.process.pid} ended while it was read")
                parts.append(part)
                address, length = address + len(part), length - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def string(self, address: int) -> str:
        """Up to the final 0; empty for an empty text."""
        text = b""
        while address and b"\0" not in text and len(text) < self.page:
            room = self.page - (address + len(text)) % self.page
            text += self.read(address + len(text), min(room, 256))
        return text.partition(b"\0")[0].decode(errors="replace")

    def entries(self, start: int, end: int) -> Bits:
        """What pagemap reports for each page of START .. END, both multiples of a page."""
        length = (end - start) // self.page * ENTRY_BYTES
        place = start // self.page * ENTRY_BYTES
        parts = []
        with self.process.reading():
            while length > 0:
                part = os.pread(self.pagemap, min(length, 1 << 22), place)
                if not part:
                    raise ProcessGoneError(f"process {self.process.pid} ended while it was read")
                parts.append(part)
                place, length = place + len(part), length - len(part)
        return np.frombuffer(b"".join(parts), np.uint64)

    def read_present(self, address: int, length: int) -> bytes:
        """The same as read where the process has touched the memory; elsewhere zeros, without reading."""
        self._check(address, length)
        start, end = address // self.page * self.page, -(-(address + length) // self.page) * self.page
        found = bytearray(end - start)
        for first, last in runs((self.entries(start, end) & (PRESENT | SWAPPED)) != 0):
            low, high = first * self.page, last * self.page
            found[low:high] = self.read(start + low, high - low)
        return bytes(found[address - start : address - start + length])

    def _check(self, address: int, length: int) -> None:
        if not (0 <= address < ADDRESSES_END and 0 <= length <= READ_BYTES_MAX):
            raise self._nothing_at(address)

    def _nothing_at(self, address: int) -> LabError:
        return LabError(
            f"process {self.process.pid} has nothing at {address:#x}, where its books should go on: {UNSURE}"
        )

    @contextmanager
    def _reading(self, address: int) -> Iterator[None]:
        try:
            with self.process.reading():
                yield
        except OSError as error:
            if error.errno not in (errno.EIO, errno.EFAULT):
                raise
            raise self._nothing_at(address) from error


@contextmanager
def making_sense(process: Process) -> Iterator[None]:
    """Checks numbers from its memory: one line if they are impossible, instead of their consequences."""
    try:
        yield
    except (IndexError, ValueError, OverflowError, MemoryError) as error:
        raise LabError(f"hakmem's books in process {process.pid} make no sense: {UNSURE}") from error


@contextmanager
def memory_open(process: Process) -> Iterator[Memory]:
    opened: list[int] = []
    try:
        with process.reading():
            for name in ("mem", "pagemap"):
                opened.append(os.open(process.place(name), os.O_RDONLY | os.O_CLOEXEC))
        yield Memory(process, opened[0], opened[1], os.sysconf("SC_PAGE_SIZE"))
    finally:
        for descriptor in opened:
            os.close(descriptor)


def runs(flags: Flags) -> Iterator[tuple[int, int]]:
    """The first element of each run of true values, and the one after its last."""
    edges = np.flatnonzero(np.diff(flags.astype(np.int8), prepend=0, append=0))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


class Residency:
    """Which pages count as resident, as smaps does.

    pagemap also reports the page of zeros as "present", which stands in for memory that was read and never written;
    it belongs to no process. It is never mapped exclusively, and in a mapping of which nothing is shared it is the
    only page that is not.
    """

    def __init__(self, memory: Memory, mappings: Sequence[Mapping]) -> None:
        self._memory = memory
        self._mappings = mappings

    def pages(self, start: int, end: int) -> Flags:
        """For START .. END, both multiples of a page; there may be gaps between the mappings."""
        page = self._memory.page
        found = np.zeros((end - start) // page, np.bool_)
        for low, high, mapping in self._within(start, end):
            found[(low - start) // page : (high - start) // page] = self._there(low, high, mapping)
        return found

    def resident(self, start: int, end: int) -> int:
        """Resident bytes of START .. END, counted in whole pages."""
        page = self._memory.page
        within = self._within(start // page * page, -(-end // page) * page)
        return sum(int(self._there(low, high, mapping).sum()) for low, high, mapping in within) * page

    def huge(self, start: int, end: int, step: int) -> Flags:
        """For each STEP bytes from START on: whether it is in a mapping that has huge pages."""
        found = np.zeros((end - start) // step, np.bool_)
        for low, high, mapping in self._within(start, end):
            found[(low - start) // step : -((start - high) // step)] |= mapping.huge > 0
        return found

    def _there(self, low: int, high: int, mapping: Mapping) -> Flags:
        entries = self._memory.entries(low, high)
        there = (entries & PRESENT) != 0
        if not mapping.is_file and not mapping.shared:
            there &= (entries & EXCLUSIVE) != 0
        return there

    def _within(self, start: int, end: int) -> Iterator[tuple[int, int, Mapping]]:
        for mapping in self._mappings:
            low, high = max(start, mapping.start), min(end, mapping.end)
            if low < high and mapping.rss:
                yield low, high, mapping
