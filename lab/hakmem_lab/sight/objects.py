"""The objects of a process in the order in which the dynamic linker looks for a symbol, and which of them contain a
malloc."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hakmem_lab.allocators import elf
from hakmem_lab.sight.mappings import Mapping
from hakmem_lab.sight.memory import Memory
from hakmem_lab.sight.process import Process

AT_PHDR, AT_PHNUM = 3, 5
PT_DYNAMIC, PT_PHDR = 2, 6
DT_NULL, DT_DEBUG = 0, 21

PAIR = struct.Struct("<QQ")
SEGMENT = struct.Struct("<IIQQQQQQ")
LINK = struct.Struct("<QQQQQ")
MAP_OFFSET = 8
"""Of r_map in struct r_debug: the first link."""
LINKS_MAX = 100_000
"""A longer list is damaged."""

PREFIXED = (
    "je_malloc",
    "_rjem_malloc",
    "mi_malloc",
    "tc_malloc",
    "rpmalloc",
    "nedmalloc",
    "xxmalloc",
    "scudo_malloc",
)
"""Allocators under names of their own."""
LIBC = ("libc.so", "libc-", "libc.musl", "ld-musl", "ld-linux", "ld-2.")


@dataclass(frozen=True)
class LoadedObject:
    path: str
    mallocs: tuple[str, ...]
    """Functions of allocators that it exports."""

    @property
    def name(self) -> str:
        return Path(self.path).name

    @property
    def is_libc(self) -> bool:
        return self.name.startswith(LIBC)

    @property
    def has_malloc(self) -> bool:
        return "malloc" in self.mallocs


def objects_read(
    memory: Memory, mappings: Sequence[Mapping], holders: Collection[str] = ()
) -> list[LoadedObject]:
    """The program first. What was opened later by dlopen stands at the end.

    HOLDERS: paths of the objects that hold a page of hakmem. The file of an object may be gone, when the library was
    replaced by a newer one: these and the C library are then known to define malloc.
    """
    process = memory.process
    program = LoadedObject(str(process.program()), _defined([process.place("exe")]) or ())
    objects = {program.path: program}
    for mapping in _linked(memory, mappings):
        if mapping.name not in objects:
            objects[mapping.name] = _object(process, mapping, mapping.name in holders)
    return list(objects.values())


def malloc_owner(objects: Sequence[LoadedObject]) -> LoadedObject | None:
    """The object whose malloc the others call."""
    return next((one for one in objects if one.has_malloc), None)


def _object(process: Process, mapping: Mapping, is_holder: bool) -> LoadedObject:
    read = _defined(_files(process, mapping))
    one = LoadedObject(mapping.name, read or ())
    return LoadedObject(one.path, ("malloc",)) if read is None and (is_holder or one.is_libc) else one


def _files(process: Process, mapping: Mapping) -> list[Path]:
    """Where the file of MAPPING can be read: by its path; by the mapping itself, also when it was deleted, which needs
    the rights of root."""
    by_mapping = process.place("map_files") / f"{mapping.start:x}-{mapping.end:x}"
    return [process.file(mapping.name), by_mapping]


def _defined(files: Sequence[Path]) -> tuple[str, ...] | None:
    """The functions of allocators that the first of FILES that can be read defines; None when none can."""
    for file in files:
        with suppress(OSError):
            return elf.defined(file, ("malloc", *PREFIXED))
    return None


def _linked(memory: Memory, mappings: Sequence[Mapping]) -> Iterator[Mapping]:
    """A mapping of the file of each object that the dynamic linker lists. The linker knows it by the name that was asked
    for, perhaps a link's; the kernel by its own."""
    link, seen = _first_link(memory), set[int]()
    while link and link not in seen and len(seen) < LINKS_MAX:
        seen.add(link)
        _base, _name, dynamic, link, _before = LINK.unpack(memory.read(link, LINK.size))
        for mapping in mappings:
            if mapping.holds(dynamic) and mapping.name.startswith("/"):  # the kernel's own object has no path
                yield mapping


def _first_link(memory: Memory) -> int:
    """From the program's dynamic section, in which the linker leaves the address for debuggers; 0 in a static one."""
    with memory.process.reading(), memory.process.place("auxv").open("rb") as file:
        auxiliary = dict(PAIR.iter_unpack(file.read() or b""))
    headers, count = auxiliary.get(AT_PHDR, 0), auxiliary.get(AT_PHNUM, 0)
    segments = list(SEGMENT.iter_unpack(memory.read(headers, count * SEGMENT.size))) if headers else []
    bias = next((headers - one[3] for one in segments if one[0] == PT_PHDR), 0)
    for segment in segments:
        if segment[0] == PT_DYNAMIC:
            tags = dict(_tags(memory, bias + segment[3], segment[6]))
            debug = tags.get(DT_DEBUG, 0)
            return int.from_bytes(memory.read(debug + MAP_OFFSET, 8), "little") if debug else 0
    return 0


def _tags(memory: Memory, address: int, size: int) -> Iterator[tuple[int, int]]:
    for tag, value in PAIR.iter_unpack(memory.read(address, size // PAIR.size * PAIR.size)):
        if tag == DT_NULL:
            return
        yield tag, value
