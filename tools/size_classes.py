"""Generates src/base/size_classes.h, the reviewed table of block sizes.

    python3 tools/size_classes.py            print the header
    python3 tools/size_classes.py --check    fail if src/base/size_classes.h differs

The ladder: steps of 16 bytes to 128, then FINE_STEPS sizes a doubling, with wider steps from WIDE_FROM up.

Caches are indexed by address. Blocks whose distance is a large power of two begin in the same few sets: what a program looks at first
in each of a thousand blocks of 4 KiB does not fit into a cache of 2 MiB. So from SPREAD_FROM on no size is a power of two, and beyond
LINES_FROM each is an odd multiple of a cache line (Afek, Dice, Morrison: Cache Index-Aware Memory Allocation, ISMM 2011).

Requests for an alignment that no size of the ladder has are served by powers of two and, from LINES_FROM on, by one and a half times
these, which serve nothing else but for the last. What lies between a power of two and one and a half times it is a multiple of half that
power at most, and so is one and a half times it: whatever the alignment, the smallest of them that is large enough has it.

A slab is the shortest run of at most MAX_SLAB_PAGES pages of 64 KiB that wastes less than MAX_TAIL_WASTE at its end, and no page of the
kernel's, and holds WANTED_BLOCKS blocks, or FEWEST_BLOCKS where that many do not fit. Where there is none, the size grows until there is:
what lies behind the last block could not be given back while all are in use. Blocks of at most MANY_UP_TO bytes come in slabs of
MANY_BLOCKS: making and releasing a slab costs as much as passing hundreds of blocks.

Beyond LARGEST the medium blocks, to MEDIUM_PAGES pages: each is a slab by itself. Four sizes a doubling, as before, but no
part of a page.
"""

import sys
from collections.abc import Callable
from pathlib import Path

QUANTUM = 16
LINE = 64
PAGE_BYTES = 64 * 1024
KERNEL_PAGE_BYTES = 4096
LARGEST = 64 * 1024
FINE_STEPS = 8
WIDE_STEPS = 4
WIDE_FROM = 8192
SPREAD_FROM = 512
LINES_FROM = 1024
MANY_BLOCKS = 256
MANY_UP_TO = 1040
WANTED_BLOCKS = 16
FEWEST_BLOCKS = 8
MAX_TAIL_WASTE = 0.016
MAX_SLAB_PAGES = 8
MEDIUM_PAGES = 16

HEADER = Path(__file__).resolve().parent.parent / "src/base/size_classes.h"


def ladder() -> list[int]:
    sizes = list(range(QUANTUM, 128 + 1, QUANTUM))
    base = 128
    while base < LARGEST:
        steps = FINE_STEPS if base < WIDE_FROM else WIDE_STEPS
        sizes += [base + base * step // steps for step in range(1, steps + 1)]
        base *= 2
    return sizes


def fewest_pages(size: int) -> int | None:
    """Of a slab of so large blocks that is long enough and wastes little, or at least does not waste a kernel page."""
    for fewest in (MANY_BLOCKS if size <= MANY_UP_TO else WANTED_BLOCKS, FEWEST_BLOCKS):
        for pages in range(1, MAX_SLAB_PAGES + 1):
            blocks, tail = divmod(pages * PAGE_BYTES, size)
            if blocks >= fewest and tail < min(MAX_TAIL_WASTE * pages * PAGE_BYTES, KERNEL_PAGE_BYTES):
                return pages
    return None


def spread(step: int) -> list[int]:
    """The block sizes for this step of the ladder."""
    if step == SPREAD_FROM:
        return [step + QUANTUM]
    if step == LINES_FROM:
        return [step + QUANTUM, step + LINE]
    if step < LINES_FROM:
        return [step]
    size = step + LINE
    while fewest_pages(size) is None:
        size += 2 * LINE
    return [size]


def plain_sizes() -> list[int]:
    return [size for step in ladder()[:-1] for size in spread(step)]


def aligned_sizes() -> list[int]:
    """The last serves plain requests, too."""
    sizes = [SPREAD_FROM, LINES_FROM]
    while sizes[-1] < LARGEST:
        sizes += [sizes[-1] * 3 // 2, sizes[-1] * 2]
    return sizes


def medium_pages() -> list[int]:
    """Lengths of the medium blocks, in pages."""
    lengths: list[int] = []
    base = LARGEST // PAGE_BYTES
    while base < MEDIUM_PAGES:
        steps = min(base, WIDE_STEPS)
        lengths += [base + base * step // steps for step in range(1, steps + 1)]
        base *= 2
    return lengths


def slab_pages(size: int) -> int:
    pages = fewest_pages(size)
    if pages is None:
        raise SystemExit(f"no slab length serves blocks of {size} bytes")
    return pages


def inverse(size: int) -> tuple[int, int]:
    """(m, k) such that rotating (offset * m mod 2^64) right by k divides exact multiples of size."""
    shift = (size & -size).bit_length() - 1
    return pow(size >> shift, -1, 1 << 64), shift


def lookup(sizes: list[int], quantum: int, number: Callable[[int], int], previous: int = 0) -> list[str]:
    """For sizes beyond PREVIOUS in quanta, the class of the smallest of SIZES that holds them."""
    lines = []
    for size in sizes:
        first, last = previous // quantum + 1, size // quantum
        quanta = f"{first} ... {last}" if first < last else f"{first}"
        lines.append(f"    [{quanta}] = {number(size)},")
        previous = size
    return [line + " \\" for line in lines[:-1]] + lines[-1:]


def header() -> str:
    plain, aligned, medium = plain_sizes(), aligned_sizes(), [pages * PAGE_BYTES for pages in medium_pages()]
    small = plain + aligned
    sizes = small + medium
    rows, words = [], 0
    for index, size in enumerate(sizes):
        pages = slab_pages(size) if index < len(small) else size // PAGE_BYTES
        blocks, tail = divmod(pages * PAGE_BYTES, size)
        multiplier, shift = inverse(size)
        previous = size // 2 if size == aligned[0] else sizes[index - 1] if index else 0
        inside = (size - previous - 1) / size
        rows.append(
            f"    X({index:2}, {size:7}, {pages:2}, {blocks:4}, 0x{multiplier:016x}u, {shift:2})"
            f" /* {100 * inside:4.1f} % {100 * tail / (pages * PAGE_BYTES):4.2f} % */ \\"
        )
        words = max(words, (blocks + 63) // 64)
    rows[-1] = rows[-1].rstrip(" \\")
    return "\n".join(
        [
            "/* size_classes.h - the block sizes, generated by tools/size_classes.py and reviewed as text.",
            " *",
            " * First the plain small classes, by size. Then the small classes for alignments, which serve requests whose plain class",
            " * does not have the alignment: powers of two and one and a half times these; the last, SMALL_MAX_BYTES, serves plain",
            " * requests, too. Then the medium classes. */",
            "#ifndef HAK_BASE_SIZE_CLASSES_H",
            "#define HAK_BASE_SIZE_CLASSES_H",
            "",
            f"#define SIZE_CLASSES {len(sizes)}",
            f"#define SMALL_CLASSES {len(small)} /* these come first; the others are the medium classes, whose slabs have one block */",
            f"#define ALIGNED_CLASS {len(plain)} /* the first of those for alignments */",
            f"#define ALIGNED_LEAST_BYTES {aligned[0]} /* its block size; those of the others are multiples of it */",
            f"#define SMALL_MAX_BYTES {LARGEST}",
            f"#define MEDIUM_MAX_BYTES {MEDIUM_PAGES * PAGE_BYTES}",
            f"#define SMALLEST_BLOCK_BYTES {QUANTUM}",
            f"#define SLAB_MAX_PAGES {max(slab_pages(s) for s in small)} /* of small blocks */",
            f"#define SLAB_MAX_WORDS {words} /* words of a slab's bitmap */",
            f"#define SLABS_OF_SMALL_CLASSES_PAGES {sum(slab_pages(size) for size in plain)} /* one of each plain class */",
            "",
            "/* class, block bytes, pages of a slab, blocks in it, and for exact division of an offset in a",
            " * slab by the block size: multiplier modulo 2^64, then rotation to the right.",
            " * Beside each: waste of the worst request, waste at the slab's end. */",
            "#define SIZE_CLASS_TABLE(X) \\",
            *rows,
            "",
            f"/* Class of a request of n bytes, at most SMALL_MAX_BYTES, by (n + {QUANTUM - 1}) / {QUANTUM}. */",
            "#define SIZE_CLASS_LOOKUP \\",
            "    [0] = 0, \\",
            *lookup([*plain, LARGEST], QUANTUM, sizes.index),
            "",
            f"/* Class for an alignment that the blocks of that class do not have, by (n + {aligned[0] - 1}) / {aligned[0]}. */",
            "#define ALIGNED_CLASS_LOOKUP \\",
            *lookup(aligned, aligned[0], sizes.index),
            "",
            "/* Class of a larger request, at most MEDIUM_MAX_BYTES, by its pages. */",
            "#define MEDIUM_CLASS_LOOKUP \\",
            *lookup(medium, PAGE_BYTES, sizes.index, previous=LARGEST),
            "",
            "#endif",
            "",
        ]
    )


def main() -> int:
    arguments = sys.argv[1:]
    if arguments not in ([], ["--check"]):
        print("usage: size_classes.py [--check]", file=sys.stderr)
        return 2
    text = header()
    if arguments:
        if HEADER.read_text() != text:
            print("src/base/size_classes.h is not what tools/size_classes.py generates", file=sys.stderr)
            return 1
        return 0
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
