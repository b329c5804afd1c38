"""What each resident page of hakmem's window is for.

The window is divided into pages of 64 KiB. Each belongs to one span, used or free; a used one is a slab of equal
blocks, perhaps of a single one, or a large block. The kernel's pages are smaller. For each that is resident the
metadata says whether a block in use lies on it, or only free ones, or nothing that was ever used.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from hakmem_lab.sight.books import NEVER, Books, ClassBooks
from hakmem_lab.sight.books_reader import IMPOSSIBLE_DEPTH
from hakmem_lab.sight.memory import Flags, Memory, Residency
from hakmem_lab.sight.options import SMALL_MAX_BYTES
from hakmem_lab.sight.page import Columns, Page

Addresses = npt.NDArray[np.int64]

SLABS_AT_ONCE = 512
"""Limits the memory of this process: a slab has up to 4096 blocks."""
POINTER_BYTES = 8


class Why(StrEnum):
    """Why free memory is still resident."""

    WAITING = "free for a short time: it waits for its half-life"
    CHANGED = "in slabs that changed lately"
    UNATTENDED = "no purge thread runs: the program's own calls give it back"
    HUGE = "part of a huge page, which goes whole or when the program rests"
    REFUSED = "the kernel would not take it back"
    NEVER = "the option decay is never"


@dataclass(frozen=True)
class ClassPages:
    """Resident bytes of the slabs of one class."""

    block_bytes: int
    slabs: int
    taken: int
    """Blocks in use, or cached by threads."""
    cached: int
    """Of these, in the caches of threads."""
    beside: int
    """Free blocks on kernel pages on which other blocks are in use."""
    holes: int
    """Kernel pages on which no block is in use."""

    @property
    def is_small(self) -> bool:
        return self.block_bytes <= SMALL_MAX_BYTES

    @property
    def live(self) -> int:
        return self.taken - self.cached

    @property
    def resident(self) -> int:
        return self.taken + self.beside + self.holes


@dataclass
class WindowPages:
    """Resident bytes."""

    classes: list[ClassPages] = field(default_factory=list)
    ends: int = 0
    """In slabs, after the last block."""
    unclassed: int = 0
    """Large blocks that belong to no size class."""
    reserve: int = 0
    """Reserve behind large blocks that had to move in order to grow."""
    holes: Counter[Why] = field(default_factory=Counter)
    """Kernel pages inside slabs on which no block is in use."""
    free: Counter[Why] = field(default_factory=Counter)
    """Free runs of pages."""
    untouched: int = 0
    """Never used, or returned to the kernel: a huge page faulted it in."""
    changing: int = 0
    """Just being taken or returned."""

    @property
    def live_small(self) -> int:
        """Blocks of 64 KiB or less in use."""
        return sum(one.live for one in self.classes if one.is_small)

    @property
    def large(self) -> int:
        """Larger blocks in use."""
        return self.unclassed + sum(one.live for one in self.classes if not one.is_small)

    @property
    def taken(self) -> int:
        return sum(one.taken for one in self.classes)

    @property
    def cached(self) -> int:
        return sum(one.cached for one in self.classes)

    @property
    def beside(self) -> int:
        return sum(one.beside for one in self.classes)

    @property
    def total(self) -> int:
        slabs = self.taken + self.beside + self.ends + sum(self.holes.values())
        large = self.unclassed + self.reserve
        return slabs + large + sum(self.free.values()) + self.untouched + self.changing


@dataclass(frozen=True)
class View:
    """What is known of the window's pages, from the first to END; each array has an element for each page."""

    page: int
    """Bytes of a kernel page."""
    resident: Flags
    """A row for each page of the window: its kernel pages."""
    words: npt.NDArray[np.uint32]
    records: Columns
    chunks: Columns
    """An element for each 2 MiB."""
    huge: Flags
    """For each 2 MiB: a huge page is behind it, as far as can be seen."""
    cached: Mapping[int, Addresses]
    """Blocks in the caches of threads, by the number of their class."""
    base: int
    """Address of the first page."""
    limits: Mapping[str, int]
    decay_is_never: bool
    purging: bool
    """A thread of hakmem is returning what is due."""

    def bit(self, name: str) -> Flags:
        """From the chunks' bits, one for each page."""
        bits = self.chunks[name].astype("<u4").view(np.uint8)
        return np.unpackbits(bits, bitorder="little").astype(np.bool_)


def view_read(memory: Memory, books: Books, residency: Residency) -> View:
    page, limits = books.page, books.limits
    end, chunk_pages = books.spans["end_page"], limits["chunk_pages"]
    pages = -(-end // chunk_pages) * chunk_pages
    base, size = books.window_base, books.page_bytes
    given = np.repeat(chunks_given(books), chunk_pages)
    there = residency.pages(base, base + pages * size).reshape(pages, size // memory.page)
    resident = there & given[:, None]
    in_huge_mapping = residency.huge(base, base + pages * size, chunk_pages * size)
    return View(
        page=memory.page,
        resident=resident,
        words=page.pointed("words", 0, pages)["word"].astype(np.uint32),
        records=page.pointed("records", 0, pages),
        chunks=page.pointed("chunks", 0, pages // chunk_pages),
        huge=in_huge_mapping & resident.reshape(len(in_huge_mapping), -1).all(axis=1),
        cached=cached_read(page),
        base=base,
        limits=limits,
        decay_is_never=books.half_life_ms == NEVER,
        purging=books.purge_running,
    )


def chunks_given(books: Books) -> Flags:
    """Which chunks of the window, as far as it was used, are hakmem's: it may reach over what others map."""
    chunks = -(-books.spans["end_page"] // books.limits["chunk_pages"])
    return books.page.pointed("chunks", 0, chunks)["given"] != 0


def cached_read(page: Page) -> dict[int, Addresses]:
    """Blocks in the stacks of threads, and in those that ended threads left for the next ones. Their owners move them
    meanwhile: an address may be of another moment."""
    found: dict[int, list[bytes]] = defaultdict(list)
    for heap, _record in page.linked("heaps"):
        stacks = page.inside("stacks", heap)
        for number, (low, top) in enumerate(zip(stacks["low"], stacks["top"], strict=True)):
            if 0 < int(top) - int(low) < IMPOSSIBLE_DEPTH * POINTER_BYTES:
                found[number].append(page.memory.read(int(low), int(top) - int(low)))
    return {
        number: np.frombuffer(b"".join(parts), np.uint64).astype(np.int64) for number, parts in found.items()
    }


def window_pages(view: View, classes: Sequence[ClassBooks], memory: Memory) -> WindowPages:
    found = WindowPages()
    left = view.resident.copy()
    """What is not yet accounted for."""
    before = resident_before(view)
    for number, shape in enumerate(classes):
        heads = slab_heads(view, number, shape.pages)
        if len(heads):
            cached = cached_bytes(view, number, shape.block_bytes, before)
            found.classes.append(_slabs_account(view, found, heads, shape, cached, memory))
            left[heads[:, None] + np.arange(shape.pages)] = False
    _large_account(view, found, left)
    _free_account(view, found, left)
    found.changing = int(left.sum()) * view.page
    return found


# ---- slabs -------------------------------------------------------------------------------------------------


def slab_heads(view: View, number: int, pages: int) -> npt.NDArray[np.intp]:
    """First pages of the slabs of a class. In a slab with one block no other page has a word."""
    words, heads = view.words, view.records["head"]
    mask, large = view.limits["word_class_mask"], view.limits["word_large"]
    of_class = (words != 0) & (words != large) & ((words & np.uint32(mask)) == number)
    found = np.flatnonzero(of_class & (heads == np.arange(len(words))) & (view.records["bits"] != 0))
    return found[found + pages <= len(words)]


def overlap(block_bytes: int, blocks: int, kernel_pages: int, page: int) -> npt.NDArray[np.float32]:
    """Bytes of each block of a slab on each of its kernel pages."""
    starts, lows = np.arange(blocks)[:, None] * block_bytes, np.arange(kernel_pages)[None, :] * page
    common = np.minimum(starts + block_bytes, lows + page) - np.maximum(starts, lows)
    return np.maximum(common, 0).astype(np.float32)


def free_blocks(view: View, heads: npt.NDArray[np.intp], blocks: int, memory: Memory) -> tuple[Flags, Flags]:
    """A row for each slab: which blocks were returned and are free, and which were never carved."""
    length = -(-blocks // 64) * 8
    addresses = view.records["bits"][heads].tolist()
    bits = np.frombuffer(b"".join(memory.read(address, length) for address in addresses), np.uint8)
    back = np.unpackbits(bits.reshape(len(heads), length), axis=1, bitorder="little")[:, :blocks]
    fresh = np.arange(blocks)[None, :] >= view.records["carved"][heads][:, None]
    return (back != 0) & ~fresh, fresh


def resident_before(view: View) -> Addresses:
    """Resident bytes before each kernel page, and before the end."""
    return np.concatenate([[0], np.cumsum(view.resident, dtype=np.int64)]) * view.page


def cached_bytes(view: View, number: int, block_bytes: int, before: Addresses) -> int:
    """Resident bytes of a class's blocks in the caches of threads; untouched memory is not resident."""
    starts = view.cached.get(number, np.zeros(0, np.int64)) - view.base
    starts = starts[(starts >= 0) & (starts + block_bytes <= view.resident.size * view.page)]
    resident = np.append(view.resident.reshape(-1), False)

    def up_to(place: Addresses) -> Addresses:
        return before[place // view.page] + resident[place // view.page] * (place % view.page)

    return int((up_to(starts + block_bytes) - up_to(starts)).sum())


def _slabs_account(
    view: View,
    found: WindowPages,
    heads: npt.NDArray[np.intp],
    shape: ClassBooks,
    cached: int,
    memory: Memory,
) -> ClassPages:
    kernel_pages = shape.pages * view.resident.shape[1]
    on_page = overlap(shape.block_bytes, shape.blocks, kernel_pages, view.page)
    taken = beside = holes = 0
    for start in range(0, len(heads), SLABS_AT_ONCE):
        some = heads[start : start + SLABS_AT_ONCE]
        resident = view.resident[some[:, None] + np.arange(shape.pages)].reshape(len(some), kernel_pages)
        back, fresh = free_blocks(view, some, shape.blocks, memory)
        in_use, free = (~(back | fresh)).astype(np.float32) @ on_page, back.astype(np.float32) @ on_page
        uncarved = fresh.astype(np.float32) @ on_page
        pinned = resident & (in_use > 0)
        empty = resident & ~pinned
        # A page of blocks that were never carved comes in with a huge page, or the slab is made of used memory.
        from_huge = empty & (free == 0) & _stands_on_huge(view, some)[:, None]
        hole = empty & ~from_huge
        rest = view.page - in_use - free - uncarved
        taken += int(in_use[pinned].sum())
        beside += int((free + uncarved)[pinned].sum())
        found.ends += int(rest[resident].sum())
        found.untouched += int((free + uncarved)[from_huge].sum())
        by_slab = ((free + uncarved) * hole).sum(axis=1)
        holes += int(by_slab.sum())
        for reason, size in zip(_hole_reasons(view, some), by_slab.tolist(), strict=True):
            found.holes[reason] += int(size)
    return ClassPages(shape.block_bytes, len(heads), taken, min(cached, taken), beside, holes)


def _chunk_of(view: View, pages: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    return pages // view.limits["chunk_pages"]


def _stands_on_huge(view: View, pages: npt.NDArray[np.intp]) -> Flags:
    return view.huge[_chunk_of(view, pages)]


def _hole_reasons(view: View, heads: npt.NDArray[np.intp]) -> list[Why]:
    if view.decay_is_never:
        return [Why.NEVER] * len(heads)
    huge = _stands_on_huge(view, heads)
    searched = view.records["age"][heads] == view.limits["slab_searched"]
    soon = Why.CHANGED if view.purging else Why.UNATTENDED
    return [
        Why.HUGE if on_huge else Why.REFUSED if was_searched else soon
        for on_huge, was_searched in zip(huge.tolist(), searched.tolist(), strict=True)
    ]


# ---- large blocks and free runs ----------------------------------------------------------------------------


def _covered(starts: npt.NDArray[np.intp], lengths: npt.NDArray[np.intp], size: int) -> Flags:
    """Which of SIZE pages are in one of the runs."""
    edges = np.zeros(size + 1, np.int64)
    np.add.at(edges, np.minimum(starts, size), 1)
    np.add.at(edges, np.minimum(starts + lengths, size), -1)
    return np.cumsum(edges[:-1]) > 0


def _large_account(view: View, found: WindowPages, left: Flags) -> None:
    heads = np.flatnonzero(view.words == view.limits["word_large"])
    held = view.records["block_pages"][heads].astype(np.intp)
    spans = np.maximum(view.records["pages"][heads].astype(np.intp), held)
    block = _covered(heads, held, len(view.words))
    reserve = _covered(heads + held, spans - held, len(view.words)) & ~block
    found.unclassed = int(left[block].sum()) * view.page
    found.reserve = int(left[reserve].sum()) * view.page
    left[block | reserve] = False


def _free_account(view: View, found: WindowPages, left: Flags) -> None:
    used, touched, refused = (view.bit(name) for name in ("used", "touched", "refused"))
    size = left.sum(axis=1) * view.page
    on_huge = np.repeat(view.huge, view.limits["chunk_pages"])
    dirty = ~used & touched & ~refused
    soon = Why.WAITING if view.purging else Why.UNATTENDED
    found.free[Why.REFUSED] += int(size[~used & touched & refused].sum())
    found.free[Why.NEVER if view.decay_is_never else Why.HUGE] += int(size[dirty & on_huge].sum())
    found.free[Why.NEVER if view.decay_is_never else soon] += int(size[dirty & ~on_huge].sum())
    found.untouched += int(size[~used & ~touched].sum())
    left[~used] = False
