"""hakmem's metadata of a process at one moment: what it says, and sums over it. books_reader.py reads it.

The sums are those of the library's own report (src/watch/stats.c), so that both agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hakmem_lab.sight.options import SMALL_MAX_BYTES, Option
from hakmem_lab.sight.page import Page, Record

NEVER = (1 << 64) - 1
"""An infinite half-life."""
CAUSES = ("threshold", "exhaustion", "map_failure")
PRESSURES = ("limit", "high", "stalls")
"""Without the first entry of the page's table, which means none."""


@dataclass(frozen=True)
class ClassBooks:
    """One size class, over all heaps."""

    block_bytes: int
    blocks: int
    """Blocks in a slab."""
    pages: int
    """Pages of a slab: 64 KiB each."""
    slack_most: int
    """The most that a block holds beyond what malloc was asked for, in bytes; the least is 0."""
    slabs: int = 0
    taken_blocks: int = 0
    """In use, or cached by threads."""
    cached_blocks: int = 0
    refills: int = 0
    refilled_blocks: int = 0
    spills: int = 0
    spilled_blocks: int = 0
    remote_blocks: int = 0
    adopted_slabs: int = 0

    @property
    def is_small(self) -> bool:
        return self.block_bytes <= SMALL_MAX_BYTES

    @property
    def live_blocks(self) -> int:
        return self.taken_blocks - self.cached_blocks

    @property
    def live_bytes(self) -> int:
        return self.live_blocks * self.block_bytes

    @property
    def cached_bytes(self) -> int:
        return self.cached_blocks * self.block_bytes

    @property
    def slack_bytes_most(self) -> int:
        return self.live_blocks * self.slack_most

    @property
    def free_blocks(self) -> int:
        return self.slabs * self.blocks - self.taken_blocks

    @property
    def is_used(self) -> bool:
        """The value now, or at an earlier time."""
        return bool(self.refills or self.slabs)


@dataclass(frozen=True)
class HeapBooks:
    thread_id: int
    """Number of its thread, or of its last one."""
    live: bool
    """Whether the thread is alive."""
    slabs: int
    cached_bytes: int
    depth_bytes: int
    """The size that its stacks are made for."""
    remote_blocks: int
    """Kept for other heaps, until more of them have accumulated."""
    remote_bytes: int


@dataclass(frozen=True)
class Call:
    name: str
    made: int
    refused: int


@dataclass(frozen=True)
class SpanSize:
    """Spans of PAGES_LEAST to twice as many pages, exclusive."""

    pages_least: int
    live: int
    taken: int


@dataclass(frozen=True)
class Failure:
    number: int
    cause: str
    size: int
    """Requested bytes."""
    alignment: int
    limit_bytes: int
    in_use_bytes: int
    thread_id: int
    time_ms: int
    block_bytes: int | None
    """Block size of the class; None: too large for any."""
    call: str
    """The call that the kernel refused; empty if it refused none."""
    error: str


@dataclass(frozen=True)
class Totals:
    """In bytes, unless the name says otherwise: sums over everything."""

    held: int
    in_use: int
    live_small: int
    cached: int
    large: int
    """A block of a medium class, or larger than any class."""
    large_blocks: int
    free_small: int
    free_small_blocks: int
    dirty: int


@dataclass(frozen=True)
class Books:
    page: Page
    limits: Record
    """Constants of the library: bytes of a page, marks of its words."""
    classes: tuple[ClassBooks, ...]
    """By their numbers."""
    heaps: tuple[HeapBooks, ...]
    spans: Record
    span_sizes: tuple[SpanSize, ...]
    kernel: Record
    calls: tuple[Call, ...]
    failures: Mapping[str, int]
    """Counts by cause."""
    last_failures: tuple[Failure, ...]
    options: tuple[Option, ...]
    other_variables: tuple[str, ...]
    outside: tuple[tuple[int, int], ...]
    """Address and bytes of each block outside the window."""
    window_base: int
    window_pages: int
    books_bytes: int
    foreign_frees: int
    purge_running: bool
    purge_started: int
    pressed: Mapping[str, int]
    """How often all free memory was returned together because memory was short, by reason."""

    @property
    def is_started(self) -> bool:
        """Whether anything was allocated."""
        return self.window_pages != 0

    @property
    def page_bytes(self) -> int:
        return self.limits["page_bytes"]

    @property
    def half_life_ms(self) -> int:
        return self.spans["half_life_ms"]

    def option(self, name: str) -> Option:
        return next(option for option in self.options if option.name == name)

    @property
    def unclassed_blocks(self) -> int:
        """Large blocks in use that no size class has."""
        return max(0, self.spans["taken"] - self.spans["given"] - sum(one.slabs for one in self.classes))

    @property
    def unclassed_bytes(self) -> int:
        """Of these, with the reserve behind them."""
        slab_pages = sum(one.slabs * one.pages for one in self.classes)
        return max(0, self.spans["used_pages"] - slab_pages) * self.page_bytes

    @property
    def totals(self) -> Totals:
        used = self.spans["used_pages"] * self.page_bytes
        dirty = self.spans["dirty_pages"] * self.page_bytes
        live = sum(one.live_bytes for one in self.classes if one.is_small)
        medium = [one for one in self.classes if not one.is_small]
        cached = sum(one.cached_bytes for one in self.classes)
        outside = sum(size for _address, size in self.outside)
        large = sum(one.live_bytes for one in medium) + self.unclassed_bytes + outside
        held = used + dirty + outside
        return Totals(
            held=held,
            in_use=min(live + cached + large, held),
            live_small=live,
            cached=cached,
            large=large,
            large_blocks=sum(one.live_blocks for one in medium) + self.unclassed_blocks + len(self.outside),
            free_small=sum(one.free_blocks * one.block_bytes for one in self.classes),
            free_small_blocks=sum(one.free_blocks for one in self.classes),
            dirty=dirty,
        )
