"""hakmem's page in the memory of another process: include/hakmem/stats_page.h, read in place.

The page names its tables, and each table its numbers, where they are and how long they are. So this module knows
nothing of hakmem's structures; books_reader.py knows what the numbers mean.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from hakmem_lab.errors import LabError
from hakmem_lab.sight.mappings import Mapping as MemoryMapping
from hakmem_lab.sight.mappings import mappings_with_owners
from hakmem_lab.sight.memory import OF_FILE, PRESENT, SWAPPED, Memory, making_sense, runs

MAGIC = b"hakmem\0\xb2\x1cbooks\x7f\0"
VERSION_MAJOR = 1
ALIGNMENT = 16

HEAD = struct.Struct("<16sQQIHH16s")
TABLE = struct.Struct("<16sQQIIIIII")
FIELD = struct.Struct("<24sIHH")

NUMBERS = {1: np.dtype("u1"), 2: np.dtype("<u2"), 4: np.dtype("<u4"), 8: np.dtype("<u8")}
"""Types by the number of bytes."""

SCANNED_BYTES_MAX = 64 << 20
"""The most that is scanned of one mapping: a page lies in data, and no program has this much data."""
TABLES_MAX, FIELDS_MAX, RECORDS_MAX = 1000, 1000, 1 << 28
"""Beyond these limits the page is damaged."""

Columns = Mapping[str, npt.NDArray[np.unsignedinteger]]
"""Records, field by field."""
Record = Mapping[str, int]


class Place(IntEnum):
    ARRAY = 0
    LIST = 1
    POINTED = 2
    INSIDE = 3


class NoPageError(LabError):
    """The process is not on hakmem, or not yet."""


T = TypeVar("T")


class Fields(dict[str, T]):
    """Numbers of one table, by name."""

    def __missing__(self, name: str) -> T:
        raise LabError(
            f"a table of hakmem's books has no field '{name}': they are of an older hakmem, or damaged"
        )


@dataclass(frozen=True)
class Field:
    name: str
    offset: int
    size: int
    """Bytes."""


@dataclass(frozen=True)
class Table:
    name: str
    address: int
    place: Place
    record_bytes: int
    count: int
    next: int
    fields: tuple[Field, ...]

    @property
    def extent(self) -> int:
        """Bytes of a record that contain its fields and the link to the next record."""
        ends = [field.offset + field.size for field in self.fields]
        return max([*ends, self.next + 8 if self.place is Place.LIST else 0])


@dataclass(frozen=True)
class Page:
    memory: Memory
    address: int
    owner: str
    """Path of the object that contains it."""
    version: tuple[int, int]
    library: str
    """hakmem's own version."""
    tables: Mapping[str, Table]

    def table(self, name: str) -> Table:
        try:
            return self.tables[name]
        except KeyError:
            version = ".".join(map(str, self.version))
            raise LabError(
                f"the page of hakmem {self.library} (version {version}) has no table '{name}': it is an older one"
            ) from None

    # ---- records -------------------------------------------------------------------------------------

    def one(self, name: str) -> Record:
        """The record of a table that has exactly one."""
        return record_at(self.array(name), 0)

    def array(self, name: str) -> Columns:
        table = self.table(name)
        return self.columns(table, table.address, table.count)

    def pointed(self, name: str, first: int, count: int) -> Columns:
        """COUNT records, starting with number FIRST. Memory that the process never touched is 0, and not read."""
        table = self.table(name)
        start = self.pointer(table.address) + first * table.record_bytes
        length = (count - 1) * table.record_bytes + table.extent if count else 0
        return columns_parse(table, self.memory.read_present(start, length), count)

    def linked(self, name: str) -> Iterator[tuple[int, Record]]:
        """The records of a linked list, with their addresses."""
        table = self.table(name)
        address, seen = self.pointer(table.address), set[int]()
        while address:
            if address in seen:
                raise LabError(f"the list '{name}' of hakmem's books comes back to itself: they are damaged")
            seen.add(address)
            data = self.memory.read(address, table.extent)
            yield address, record_at(columns_parse(table, data, 1), 0)
            address = int.from_bytes(data[table.next : table.next + 8], "little")

    def inside(self, name: str, record: int) -> Columns:
        """What is in the record at that address of the table's parent."""
        table = self.table(name)
        return self.columns(table, record + table.address, table.count)

    def columns(self, table: Table, address: int, count: int) -> Columns:
        length = (count - 1) * table.record_bytes + table.extent if count else 0
        return columns_parse(table, self.memory.read(address, length), count)

    def pointer(self, address: int) -> int:
        return int.from_bytes(self.memory.read(address, 8), "little")

    def strings(self, name: str, field: str) -> list[str]:
        return [self.memory.string(int(address)) for address in self.array(name)[field]]


def columns_parse(table: Table, data: bytes, count: int) -> Columns:
    """Views of DATA: records may overlap, as for two arrays that are read as one."""
    if count > RECORDS_MAX:
        raise LabError(f"the table '{table.name}' of hakmem's books is too long: they are damaged")
    step = (table.record_bytes or 1,)
    return Fields(
        (field.name, np.ndarray((count,), NUMBERS[field.size], data, field.offset if count else 0, step))
        for field in table.fields
    )


def record_at(columns: Columns, place: int) -> Record:
    return Fields((field, int(values[place])) for field, values in columns.items())


# ---- finding it --------------------------------------------------------------------------------------------


def pages_find(memory: Memory, mappings: Sequence[MemoryMapping]) -> list[Page]:
    """Every copy of hakmem in the process: the library, and copies linked from the archive. Never empty."""
    found: dict[int, str] = {}
    for mapping, owner in _candidates(mappings, memory.process.program()):
        for start, data in _pieces(memory, mapping, owner):
            found |= dict.fromkeys(_magics(start, data), owner)
    if not found:
        raise NoPageError(
            f"process {memory.process.pid} ({memory.process.name}) is not on hakmem: none of its objects holds"
            " hakmem's page"
        )
    return [page_read(memory, address, owner) for address, owner in found.items()]


def _candidates(mappings: Sequence[MemoryMapping], program: Path) -> list[tuple[MemoryMapping, str]]:
    """Places whose data may contain it: hakmem's own library first, then the program, then the others."""
    found = [
        (mapping, owner)
        for mapping, owner in mappings_with_owners(mappings)
        if owner and mapping.is_private and mapping.is_readable and not mapping.is_executable
    ]
    return sorted(found, key=lambda one: ("hakmem" not in Path(one[1]).name, one[1] != str(program)))


def _pieces(memory: Memory, mapping: MemoryMapping, owner: str) -> Iterator[tuple[int, bytes]]:
    """The data of MAPPING in which a page may be, with its addresses.

    A page contains addresses. The dynamic linker writes them, so the page is in private memory of the process. In a
    program that runs at the address it was linked for they are already in its file.
    """
    end = min(mapping.end, mapping.start + SCANNED_BYTES_MAX)
    if mapping.anonymous or mapping.swap:
        entries = memory.entries(mapping.start, end)
        own = ((entries & (PRESENT | SWAPPED)) != 0) & ((entries & OF_FILE) == 0)
        for first, last in runs(own):
            start = mapping.start + first * memory.page
            yield start, memory.read(start, (last - first) * memory.page)
    if mapping.is_file and owner == str(memory.process.program()):
        with memory.process.reading(), memory.process.place("exe").open("rb") as file:
            file.seek(mapping.offset)
            data = file.read(end - mapping.start)
        yield mapping.start, data


def _magics(start: int, data: bytes) -> Iterator[int]:
    """Addresses at which a page starts: each contains its own address."""
    place = data.find(MAGIC)
    while place >= 0:
        own = start + place
        if own % ALIGNMENT == 0 and data[place + 16 : place + 24] == struct.pack("<Q", own):
            yield own
        place = data.find(MAGIC, place + 1)


def page_read(memory: Memory, address: int, owner: str) -> Page:
    _, _, tables, count, major, minor, library = HEAD.unpack(memory.read(address, HEAD.size))
    if major != VERSION_MAJOR:
        raise LabError(
            f"{Path(owner).name} has books of version {major}.{minor}, of hakmem {_text(library)}: this command"
            f" reads version {VERSION_MAJOR}; use the one that came with that hakmem"
        )
    if count > TABLES_MAX:
        raise LabError(f"the page of {Path(owner).name} is damaged: it names {count} tables")
    rows = memory.read(tables, count * TABLE.size)
    with making_sense(memory.process):
        read = [_table(memory, row) for row in TABLE.iter_unpack(rows)]
    return Page(memory, address, owner, (major, minor), _text(library), {table.name: table for table in read})


def _table(memory: Memory, row: tuple[bytes, int, int, int, int, int, int, int, int]) -> Table:
    name, address, fields, field_count, place, record_bytes, count, link, _parent = row
    if field_count > FIELDS_MAX:
        raise LabError(
            f"the table '{_text(name)}' of hakmem's page is damaged: it names {field_count} fields"
        )
    data = memory.read(fields, field_count * FIELD.size)
    read = [Field(_text(one), offset, size) for one, offset, size, _kind in FIELD.iter_unpack(data)]
    known = tuple(field for field in read if field.size in NUMBERS)
    return Table(_text(name), address, Place(place), record_bytes, count, link, known)


def _text(data: bytes) -> str:
    return data.partition(b"\0")[0].decode("ascii", "replace")
