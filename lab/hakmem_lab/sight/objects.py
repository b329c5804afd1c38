"""The objects of a process in the order in which the dynamic linker looks for a symbol, and which of them contain a
malloc."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
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
"""Offset of r_map in struct r_debug: the first link."""
OBJECTS_MAX = 100_000

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


def objects_read(memory: Memory, mappings: Sequence[Mapping]) -> list[LoadedObject]:
    """The program first. Objects opened later by dlopen are at the end."""
    process = memory.process
    return [LoadedObject(path, _mallocs(process, path)) for path in _paths(memory, mappings)]


def malloc_owner(objects: Sequence[LoadedObject]) -> LoadedObject | None:
    """The object whose malloc the others call."""
    return next((one for one in objects if one.has_malloc), None)


def _mallocs(process: Process, path: str) -> tuple[str, ...]:
    """From the process's own view of the files, because it may be in a container."""
    try:
        return elf.defined(process.folder / "root" / path.lstrip("/"), ("malloc", *PREFIXED))
    except OSError:  # deleted or replaced since
        return ()


def _paths(memory: Memory, mappings: Sequence[Mapping]) -> list[str]:
    """The names that the kernel uses: the linker knows an object by the requested name, which may be that of a
    link."""
    program = str(memory.process.program())
    link = _first_link(memory)
    paths = [program]
    while link and len(paths) < OBJECTS_MAX:
        _base, _name, dynamic, link, _before = LINK.unpack(memory.read(link, LINK.size))
        path = next((mapping.name for mapping in mappings if mapping.holds(dynamic)), "")
        if path.startswith("/") and path not in paths:  # the kernel's own object has no path
            paths.append(path)
    return paths


def _first_link(memory: Memory) -> int:
    """From the program's dynamic section, in which the linker leaves the address for debuggers; 0 in a static one."""
    with memory.process.reading(), (memory.process.folder / "auxv").open("rb") as file:
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
