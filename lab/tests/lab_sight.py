"""What the tests of sight/ build: pages as the library writes them, in bytes of their own."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import numpy as np
from hakmem_lab.errors import LabError
from hakmem_lab.sight.memory import Memory
from hakmem_lab.sight.page import FIELD, HEAD, MAGIC, TABLE, Page, Place, page_read
from hakmem_lab.sight.process import Process
from hakmem_lab.sight.window import View

KERNEL_PAGE = 4096
Fields = Sequence[tuple[str, int, int]]
"""Name, offset and bytes of each."""


class BytesMemory(Memory):
    """Bytes at addresses; elsewhere nothing is mapped."""

    def __init__(self, segments: Mapping[int, bytes]) -> None:
        super().__init__(Process(4711), -1, -1, KERNEL_PAGE)
        object.__setattr__(self, "segments", segments)

    segments: Mapping[int, bytes]

    def read(self, address: int, length: int) -> bytes:
        for start, data in self.segments.items():
            if start <= address and address + length <= start + len(data):
                return data[address - start : address - start + length]
        raise LabError(f"nothing at {address:#x}")

    def read_present(self, address: int, length: int) -> bytes:
        return self.read(address, length)


class PageBuilder:
    """Lays tables and their records out as a library would, from BASE on."""

    def __init__(self, base: int = 0x7F00_0000_0000) -> None:
        self.base = base
        self.data = bytearray()
        self.tables: list[bytes] = []

    @property
    def next_address(self) -> int:
        return self.base + -(-len(self.data) // 16) * 16

    def put(self, data: bytes) -> int:
        address = self.next_address
        self.data += bytes(address - self.base - len(self.data)) + data
        return address

    def string(self, text: str) -> int:
        return self.put(text.encode() + b"\0" * 257)

    def table(
        self,
        name: str,
        address: int,
        fields: Fields,
        place: int = Place.ARRAY,
        record_bytes: int = 0,
        count: int = 1,
        link: int = 0,
        parent: int = 0,
    ) -> None:
        rows = b"".join(FIELD.pack(one.encode(), offset, size, 0) for one, offset, size in fields)
        self.tables.append(
            TABLE.pack(
                name.encode(), address, self.put(rows), len(fields), place, record_bytes, count, link, parent
            )
        )

    def numbers(self, name: str, values: Mapping[str, int]) -> None:
        """A table of one record of numbers of 8 bytes."""
        address = self.put(struct.pack(f"<{len(values)}Q", *values.values()))
        self.table(name, address, [(field, 8 * place, 8) for place, field in enumerate(values)], count=1)

    def head(self, version: tuple[int, int] = (1, 0), magic: bytes = MAGIC) -> int:
        """The page itself; returns its address."""
        tables = self.put(b"".join(self.tables))
        address = self.next_address
        return self.put(HEAD.pack(magic, address, tables, len(self.tables), *version, b"9.8.7"))

    def memory(self) -> BytesMemory:
        return BytesMemory({self.base: bytes(self.data)})

    def page(self, version: tuple[int, int] = (1, 0)) -> Page:
        address = self.head(version)
        return page_read(self.memory(), address, "/lib/libhakmem.so")


BASE = 0x2000_0000_0000
"""Of the window."""
LIMITS = {
    "page_bytes": 65536,
    "chunk_pages": 32,
    "word_class_mask": 127,
    "word_large": 127,
    "slab_searched": 255,
}


def view_make(pages: int, **changes: object) -> View:
    """Of a window of which nothing is used; whatever is resident there is given by CHANGES."""
    chunks = pages // 32
    records = {
        name: np.zeros(pages, np.uint64) for name in ("pages", "head", "carved", "age", "bits", "block_pages")
    }
    values: dict[str, object] = {
        "page": KERNEL_PAGE,
        "resident": np.zeros((pages, 16), np.bool_),
        "words": np.zeros(pages, np.uint32),
        "records": records,
        "chunks": {name: np.zeros(chunks, np.uint32) for name in ("used", "touched", "refused")},
        "huge": np.zeros(chunks, np.bool_),
        "limits": LIMITS,
        "cached": {},
        "base": BASE,
        "decay_is_never": False,
        "purging": True,
    }
    return View(**(values | changes))  # type: ignore[arg-type]
