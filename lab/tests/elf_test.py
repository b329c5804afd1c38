"""What is read of an ELF file, and that a damaged one is no traceback."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hakmem_lab.allocators import elf
from hakmem_lab.errors import LabError
from hakmem_lab.measure.service import preload_obstacle
from toolbox import compile_c

SECTIONS_AT, TABLE_ENTRY = slice(0x28, 0x30), 0x3A
"""Of the header: where the table of sections begins; the size of one of them."""
HEADER_BYTES, DAMAGES = 64, 300


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return compile_c(tmp_path / "program", "int main(void) { return 0; }\n", "-rdynamic")


def test_what_a_program_defines_is_read(program: Path) -> None:
    assert elf.defined(program, ("main", "malloc")) == ("main",)
    assert elf.has_interpreter(program) and preload_obstacle(program) == ""


def test_the_dynamic_linker_is_no_static_program() -> None:
    """A program that it is told to start is seen as it."""
    loader = re.search(rb"/lib[^\0]*/ld-[^\0]*", Path("/bin/true").read_bytes())
    assert loader is not None
    path = Path(loader[0].decode())
    assert elf.is_loader(path) and preload_obstacle(path) == ""
    assert not elf.is_loader(Path("/bin/true"))


def tables_begin_before_the_file(content: bytearray) -> None:
    content[SECTIONS_AT] = b"\xff" * 8


def names_are_cut_off(content: bytearray) -> None:
    del content[len(content) - 200 :]


def sections_are_of_another_size(content: bytearray) -> None:
    content[TABLE_ENTRY] = 1


@pytest.mark.parametrize(
    "damage", [tables_begin_before_the_file, names_are_cut_off, sections_are_of_another_size]
)
def test_a_damaged_file_is_one_line(program: Path, damage: Callable[[bytearray], None]) -> None:
    content = bytearray(program.read_bytes())
    damage(content)
    program.write_bytes(content)
    for read in (elf.build_id, elf.compilers):
        with pytest.raises(LabError, match=r"^program is not an ELF file, or a damaged one: "):
            read(program)
    assert elf.defined(program, ("main",)) == ()
    assert preload_obstacle(program) in ("", "a static binary: nothing can be preloaded into it")


@pytest.mark.parametrize(
    "content", [b"", b"#!/bin/sh\n", elf.MARK, elf.MARK + bytes(60)], ids=["empty", "script", "mark", "zeros"]
)
def test_what_is_no_program_is_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "random_mixed"
    path.write_bytes(content)
    for read in (elf.build_id, elf.compilers):
        with pytest.raises(LabError, match=r"^random_mixed is not an ELF file, or a damaged one: "):
            read(path)


def test_no_damage_is_a_traceback(program: Path) -> None:
    """Bytes of the header and of the tables, changed at random; the same each time."""
    whole, rng = program.read_bytes(), random.Random(1)
    for number in range(DAMAGES):
        content = bytearray(whole)
        if number % 3 == 0:
            del content[rng.randrange(5, len(content)) :]
        for _ in range(rng.randrange(1, 4)):
            content[rng.randrange(4, min(len(content), HEADER_BYTES * (1 if number % 3 else 14)))] = (
                rng.randrange(256)
            )
        program.write_bytes(content)
        elf.defined(program, ("main", "malloc"))
        preload_obstacle(program)
        for read in (elf.build_id, elf.compilers):
            try:
                read(program)
            except LabError as error:
                assert str(error).startswith("program is not")
