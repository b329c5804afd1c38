"""The lines of /proc/PID/maps and smaps."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

HEAD = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) ([0-9a-f]+) \S+ (\d+) *(.*)")


@dataclass
class Mapping:
    """Sizes in bytes; without smaps they are 0."""

    start: int
    end: int
    permissions: str
    offset: int
    inode: int
    name: str
    """A path, "[heap]" and the like, or empty."""
    page: int = 0
    """Flags of the kernel."""
    rss: int = 0
    anonymous: int = 0
    """Resident private pages, also if a file is mapped."""
    shared: int = 0
    """Resident pages that other processes have mapped, too."""
    huge: int = 0
    """Resident in huge pages."""
    swap: int = 0
    locked: int = 0

    @property
    def is_file(self) -> bool:
        return self.inode != 0

    @property
    def is_private(self) -> bool:
        return self.permissions[3] == "p"

    @property
    def is_readable(self) -> bool:
        return self.permissions[0] == "r"

    @property
    def is_executable(self) -> bool:
        return self.permissions[2] == "x"

    def holds(self, address: int) -> bool:
        return self.start <= address < self.end


FIELDS = {
    "KernelPageSize": "page",
    "Rss": "rss",
    "Anonymous": "anonymous",
    "Shared_Clean": "shared",
    "Shared_Dirty": "shared",
    "AnonHugePages": "huge",
    "Swap": "swap",
    "Locked": "locked",
}
"""Fields of smaps, in kB; two of them are added up."""


def mappings_parse(text: str) -> list[Mapping]:
    mappings: list[Mapping] = []
    for line in text.splitlines():
        if line[:1].isupper():  # "Rss:     12 kB"; addresses are of small letters
            name, _, value = line.partition(":")
            field = FIELDS.get(name)
            if field is not None:
                setattr(mappings[-1], field, getattr(mappings[-1], field) + 1024 * int(value.split()[0]))
        elif match := HEAD.match(line):
            start, end, permissions, offset, inode, path = match.groups()
            mappings.append(
                Mapping(int(start, 16), int(end, 16), permissions, int(offset, 16), int(inode), path)
            )
    return mappings


def mappings_with_owners(mappings: Sequence[Mapping]) -> Iterator[tuple[Mapping, str]]:
    """Each mapping with the file that it belongs to: its own, or that of the mapping directly before it, which
    needs memory beyond its contents (.bss); empty if there is none."""
    owner, end = "", 0
    for mapping in mappings:
        if mapping.is_file:
            owner = mapping.name
        elif mapping.name or mapping.start != end:
            owner = ""
        end = mapping.end
        yield mapping, owner
