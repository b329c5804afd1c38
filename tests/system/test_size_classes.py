"""The class table as text: generated, and right. What must hold is computed here from the sizes alone;
tests/unit/base/size_classes_test.c looks at what the compiler made of it."""

import re
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from toolbox import ROOT, run, run_well

HEADER = ROOT / "src/base/size_classes.h"
GENERATOR = ROOT / "tools/size_classes.py"

PAGE_BYTES = 64 * 1024
KERNEL_PAGE_BYTES = 4096
QUANTUM = 16
MOST_PAGES = 8
MEDIUM_MOST_PAGES = 16

ROW = re.compile(
    r"X\( *(?P<index>\d+), *(?P<size>\d+), *(?P<pages>\d+), *(?P<blocks>\d+), "
    r"0x(?P<inverse>[0-9a-f]+)u, *(?P<shift>\d+)\) /\* *(?P<inside>[\d.]+) % *(?P<tail>[\d.]+) % \*/"
)
LOOKUP = re.compile(r"^    \[(?P<first>\d+)(?: \.\.\. (?P<last>\d+))?\] = (?P<index>\d+),", re.MULTILINE)


@dataclass(frozen=True)
class Row:
    index: int
    size: int
    pages: int
    blocks: int
    inverse: int
    shift: int
    inside_percent: float
    tail_percent: float

    @property
    def slab_bytes(self) -> int:
        return self.pages * PAGE_BYTES


def table(text: str) -> list[Row]:
    return [
        Row(
            *(int(found[name]) for name in ("index", "size", "pages", "blocks")),
            int(found["inverse"], 16),
            int(found["shift"]),
            float(found["inside"]),
            float(found["tail"]),
        )
        for found in ROW.finditer(text)
    ]


def defined(text: str, name: str) -> int:
    found = re.search(rf"^#define {name} (\d+)", text, re.MULTILINE)
    assert found, name
    return int(found[1])


TEXT = HEADER.read_text()
ROWS = table(TEXT)
SMALL, MEDIUM = ([row for row in ROWS if (row.size <= PAGE_BYTES) is is_small] for is_small in (True, False))
ALIGNED = ROWS[defined(TEXT, "ALIGNED_CLASS") : len(SMALL)]
# Those of plain requests, which the last for alignments is as well.
PLAIN = [row for row in ROWS if row not in ALIGNED[:-1]]


def smallest_class(n: int) -> int:
    return next(row.index for row in PLAIN if row.size >= n)


def test_the_header_is_what_the_generator_prints() -> None:
    run_well(sys.executable, GENERATOR, "--check")
    assert run_well(sys.executable, GENERATOR) == TEXT


def test_the_check_can_fail(tmp_path: Path) -> None:
    """A copy of the tree with one digit changed."""
    tree = tmp_path / "tree"
    (tree / "tools").mkdir(parents=True)
    (tree / "src/base").mkdir(parents=True)
    (tree / "tools/size_classes.py").write_text(GENERATOR.read_text())
    (tree / "src/base/size_classes.h").write_text(TEXT.replace("  4096,", "  4112,", 1))
    result = run(sys.executable, tree / "tools/size_classes.py", "--check")
    assert result.returncode == 1
    assert "size_classes.h" in result.stderr


def test_the_table_is_complete() -> None:
    assert len(ROWS) == defined(TEXT, "SIZE_CLASSES") == TEXT.count("    X(")
    assert [row.index for row in ROWS] == list(range(len(ROWS)))
    assert all(before.size < after.size for before, after in pairwise(PLAIN))
    assert ROWS[0].size == defined(TEXT, "SMALLEST_BLOCK_BYTES") == QUANTUM
    assert [row.index for row in SMALL] == list(range(defined(TEXT, "SMALL_CLASSES")))
    assert SMALL[-1].size == defined(TEXT, "SMALL_MAX_BYTES") == PAGE_BYTES
    assert MEDIUM[-1].size == defined(TEXT, "MEDIUM_MAX_BYTES") == MEDIUM_MOST_PAGES * PAGE_BYTES
    assert max(row.pages for row in SMALL) == defined(TEXT, "SLAB_MAX_PAGES") <= MOST_PAGES
    powers = [1 << log for log in range(10, PAGE_BYTES.bit_length())]
    assert [row.size for row in ALIGNED] == sorted(
        {defined(TEXT, "ALIGNED_LEAST_BYTES"), *powers, *(power * 3 // 2 for power in powers[:-1])}
    )
    assert sum(row.pages for row in SMALL if row not in ALIGNED) == defined(
        TEXT, "SLABS_OF_SMALL_CLASSES_PAGES"
    )
    assert max(-(-row.blocks // 64) for row in ROWS) == defined(TEXT, "SLAB_MAX_WORDS")


def lookup(text: str) -> dict[int, int]:
    classes: dict[int, int] = {}
    for found in LOOKUP.finditer(text):
        first = int(found["first"])
        for at in range(first, int(found["last"] or first) + 1):
            assert at not in classes
            classes[at] = int(found["index"])
    return classes


def test_the_lookup_gives_the_smallest_class() -> None:
    small, aligned, medium = re.split(r"#define (?:ALIGNED|MEDIUM)_CLASS_LOOKUP", TEXT)
    assert lookup(small) == {at: smallest_class(at * QUANTUM) for at in range(PAGE_BYTES // QUANTUM + 1)}
    least = defined(TEXT, "ALIGNED_LEAST_BYTES")
    assert lookup(aligned) == {
        at: next(row.index for row in ALIGNED if row.size >= at * least)
        for at in range(1, PAGE_BYTES // least + 1)
    }
    assert lookup(medium) == {
        pages: smallest_class(pages * PAGE_BYTES) for pages in range(2, MEDIUM_MOST_PAGES + 1)
    }


@pytest.mark.parametrize(
    "row", [row for row in PLAIN if row.size < PAGE_BYTES], ids=lambda row: str(row.size)
)
def test_blocks_are_spread_over_the_sets_of_a_cache(row: Row) -> None:
    """Of one that has a set for each line of 4 KiB: those side by side begin in most of them, or in as many as there are blocks."""
    sets = {block * row.size // 64 % 64 for block in range(row.blocks)}
    assert len(sets) >= (13 if row.size > 1024 else 4) / 16 * min(row.blocks, 64)
    assert row.size <= 1040 or row.size % 128 == 64


@pytest.mark.parametrize("row", MEDIUM, ids=lambda row: str(row.size))
def test_a_medium_block_is_a_slab(row: Row) -> None:
    assert (row.blocks, row.slab_bytes) == (1, row.size)


@pytest.mark.parametrize("row", SMALL, ids=lambda row: str(row.size))
def test_a_slab(row: Row) -> None:
    assert row.blocks == row.slab_bytes // row.size
    assert row.blocks >= 8
    assert row.slab_bytes - row.blocks * row.size < min(0.016 * row.slab_bytes, KERNEL_PAGE_BYTES)
    # No shorter slab would have done as well.
    wanted = 256 if row.size <= 1040 else 16
    for pages in range(1, row.pages):
        blocks, tail = divmod(pages * PAGE_BYTES, row.size)
        assert blocks < min(row.blocks, wanted) or tail >= min(
            0.016 * pages * PAGE_BYTES, KERNEL_PAGE_BYTES
        ), pages


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row.size))
def test_the_waste_columns(row: Row) -> None:
    before = row.size // 2 if row == ALIGNED[0] else ROWS[row.index - 1].size if row.index else 0
    smallest = max(before + 1, 1)
    assert row.inside_percent == pytest.approx(100 * (row.size - smallest) / row.size, abs=0.06)
    tail = row.slab_bytes - row.blocks * row.size
    assert row.tail_percent == pytest.approx(100 * tail / row.slab_bytes, abs=0.006)
    if row in MEDIUM:
        assert row.size - before == max(PAGE_BYTES, 1 << (before.bit_length() - 3))
    elif row.size > 128 and row not in ALIGNED:
        assert row.inside_percent <= (12.5 if row.size <= 4096 else 20.0)
    elif row.size > 1024:
        assert row.inside_percent <= 33.3


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row.size))
def test_the_inverse_divides_exactly(row: Row) -> None:
    """The number of a block is its offset times the inverse, rotated; everything else lies beyond."""
    modulus = 1 << 64
    assert row.size % (1 << row.shift) == 0
    assert (row.size >> row.shift) * row.inverse % modulus == 1
    offsets = {block * row.size + off for block in (0, 1, 7, row.blocks - 1) for off in (-8, -1, 0, 1, 8)}
    offsets |= {row.blocks * row.size, row.slab_bytes, -row.size, row.size // 2}
    for offset in offsets:
        product = offset * row.inverse % modulus
        number = product >> row.shift | product << (64 - row.shift) & (modulus - 1)
        block, rest = divmod(offset, row.size)
        assert (number == block) if rest == 0 <= block < row.blocks else (number >= row.blocks), offset


def test_an_argument_that_is_mistyped_does_not_pass() -> None:
    result = run(sys.executable, GENERATOR, "--chek")
    assert (result.returncode, result.stdout) == (2, "")
