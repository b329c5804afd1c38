from __future__ import annotations

import ctypes
import mmap
import os
import struct
from pathlib import Path

import pytest
from hakmem_lab.errors import LabError
from hakmem_lab.sight.memory import memory_open
from hakmem_lab.sight.page import MAGIC, NoPageError, Place, page_read, pages_find
from hakmem_lab.sight.process import process_open
from lab_sight import PageBuilder

# ---- tables ---------------------------------------------------------------------------------------------


def test_a_page_says_what_it_is() -> None:
    page = PageBuilder().page((1, 7))
    assert (page.version, page.library, dict(page.tables)) == ((1, 7), "9.8.7", {})


def test_records_of_an_array() -> None:
    builder = PageBuilder()
    rows = b"".join(struct.pack("<QIHB x", 10 + n, 20 + n, 30 + n, 40 + n) for n in range(3))
    fields = [("eight", 0, 8), ("four", 8, 4), ("two", 12, 2), ("one", 14, 1)]
    builder.table("rows", builder.put(rows), fields, record_bytes=16, count=3)
    columns = builder.page().array("rows")
    assert {name: values.tolist() for name, values in columns.items()} == {
        "eight": [10, 11, 12],
        "four": [20, 21, 22],
        "two": [30, 31, 32],
        "one": [40, 41, 42],
    }


def test_two_arrays_that_are_read_as_one() -> None:
    """As calls and refusals: a record is eight bytes of each, far from each other."""
    builder = PageBuilder()
    address = builder.put(struct.pack("<6Q", 1, 2, 3, 10, 20, 30))
    builder.table("calls", address, [("made", 0, 8), ("refused", 24, 8)], record_bytes=8, count=3)
    columns = builder.page().array("calls")
    assert (columns["made"].tolist(), columns["refused"].tolist()) == ([1, 2, 3], [10, 20, 30])


def test_one_record() -> None:
    builder = PageBuilder()
    builder.numbers("spans", {"used": 5, "dirty": 7})
    assert builder.page().one("spans") == {"used": 5, "dirty": 7}


def linked(builder: PageBuilder, last: int = 0) -> list[int]:
    """Two records; each holds a number, and the address of the next at byte 8."""
    second = builder.put(struct.pack("<QQ", 22, last))
    first = builder.put(struct.pack("<QQ", 11, second))
    builder.table("list", builder.put(struct.pack("<Q", first)), [("number", 0, 8)], Place.LIST, link=8)
    return [first, second]


def test_a_linked_list() -> None:
    builder = PageBuilder()
    addresses = linked(builder)
    assert list(builder.page().linked("list")) == [
        (addresses[0], {"number": 11}),
        (addresses[1], {"number": 22}),
    ]


def test_a_list_that_comes_back_to_itself_ends() -> None:
    builder = PageBuilder()
    second = builder.next_address
    linked(builder, last=second)
    with pytest.raises(LabError, match="comes back to itself"):
        list(builder.page().linked("list"))


def test_what_lies_in_a_record() -> None:
    builder = PageBuilder()
    record = builder.put(struct.pack("<4Q", 0, 5, 6, 7))
    builder.table("inside", 8, [("number", 0, 8)], Place.INSIDE, record_bytes=8, count=3)
    assert builder.page().inside("inside", record)["number"].tolist() == [5, 6, 7]


def test_what_is_pointed_to() -> None:
    builder = PageBuilder()
    words = builder.put(struct.pack("<4I", 1, 2, 3, 4))
    pointer = builder.put(struct.pack("<Q", words))
    builder.table("words", pointer, [("word", 0, 4)], Place.POINTED, record_bytes=4, count=0)
    page = builder.page()
    assert page.pointed("words", 1, 2)["word"].tolist() == [2, 3]
    assert page.pointed("words", 0, 0)["word"].tolist() == []


def test_strings() -> None:
    builder = PageBuilder()
    names = [builder.string("mmap"), builder.string("")]
    builder.table(
        "names", builder.put(struct.pack("<3Q", *names, 0)), [("name", 0, 8)], record_bytes=8, count=3
    )
    assert builder.page().strings("names", "name") == ["mmap", "", ""]


# ---- what is refused ------------------------------------------------------------------------------------


def test_a_newer_minor_version_is_read_and_what_is_unknown_is_left_out() -> None:
    builder = PageBuilder()
    builder.table("new", builder.put(bytes(32)), [("wide", 0, 16), ("known", 16, 8)], record_bytes=24)
    assert list(builder.page((1, 99)).array("new")) == ["known"]


def test_another_major_version_is_refused() -> None:
    with pytest.raises(LabError, match=r"libhakmem.so has books of version 2\.0, of hakmem 9\.8\.7"):
        PageBuilder().page((2, 0))


def test_a_table_that_is_missing_is_an_error() -> None:
    with pytest.raises(LabError, match="has no table 'spans'"):
        PageBuilder().page().one("spans")


def test_a_damaged_page_is_an_error() -> None:
    builder = PageBuilder()
    builder.tables = [bytes(56)] * 1001
    with pytest.raises(LabError, match="names 1001 tables"):
        builder.page()


# ---- finding it -----------------------------------------------------------------------------------------


class Mapped:
    """A file of one kernel page mapped privately into this process, with something at BYTE of it."""

    def __init__(self, folder: Path) -> None:
        file = folder / "libhakmem-made-up.so"
        file.write_bytes(bytes(mmap.PAGESIZE))
        descriptor = os.open(file, os.O_RDWR)
        self.map = mmap.mmap(descriptor, mmap.PAGESIZE, access=mmap.ACCESS_COPY)
        os.close(descriptor)
        self.view = (ctypes.c_char * mmap.PAGESIZE).from_buffer(self.map)
        self.start = ctypes.addressof(self.view)

    def build(self, version: tuple[int, int] = (1, 0), shift: int = 0) -> int:
        """A page whose addresses are right, moved by SHIFT bytes."""
        builder = PageBuilder(self.start + 64)
        builder.numbers("spans", {"used_pages": 77})
        address = builder.head(version)
        self.map[64 + shift : 64 + shift + len(builder.data)] = bytes(builder.data)
        return address


def own_pages() -> list[tuple[int, str]]:
    process = process_open(os.getpid())
    with memory_open(process) as memory:
        try:
            return [(page.address, page.owner) for page in pages_find(memory, process.mappings())]
        except NoPageError:
            return []


def test_it_is_found_where_it_says_it_is(tmp_path: Path) -> None:
    mapped = Mapped(tmp_path)
    assert own_pages() == []
    address = mapped.build()
    assert own_pages() == [(address, str(tmp_path / "libhakmem-made-up.so"))]
    process = process_open(os.getpid())
    with memory_open(process) as memory:
        assert page_read(memory, address, "").one("spans") == {"used_pages": 77}


def test_the_magic_alone_is_not_enough(tmp_path: Path) -> None:
    mapped = Mapped(tmp_path)
    mapped.build(shift=16)
    assert MAGIC in mapped.map[:]
    assert own_pages() == []


def test_an_unknown_version_is_an_error_not_a_silence(tmp_path: Path) -> None:
    mapped = Mapped(tmp_path)
    mapped.build((3, 0))
    with pytest.raises(LabError, match=r"books of version 3\.0"):
        own_pages()


def test_a_process_without_one_is_named() -> None:
    process = process_open(os.getpid())
    with (
        memory_open(process) as memory,
        pytest.raises(NoPageError, match=rf"process {os.getpid()} \(.*\) is not on"),
    ):
        pages_find(memory, process.mappings())
