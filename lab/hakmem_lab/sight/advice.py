"""What would make a process smaller, in sentences that each stand on a number of its account.

Only what is worth it is said, the most first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hakmem_lab.sight.account import HEAP, Account, CopyAccount
from hakmem_lab.sight.growth import Growth
from hakmem_lab.sight.sizes import size_text
from hakmem_lab.sight.window import ClassPages, Why

WORTH_BYTES, WORTH_SHARE = 1 << 20, 0.02
"""Less than that, and less than this share of RSS, is not worth a sentence."""
LEAK_BYTES = 256 << 10
"""Grown in the time of --watch: less may be chance."""
LARGEST_CLASSES = 3


@dataclass(frozen=True)
class Advice:
    size: int
    """Bytes of RSS that it is about."""
    text: str


def advice_find(account: Account, growths: Sequence[Growth] = ()) -> list[Advice]:
    """The most first."""
    found = list(_of_process(account))
    for copy in account.copies:
        found += _of_copy(copy, len(account.threads))
    worth = max(WORTH_BYTES, WORTH_SHARE * account.rss)
    sentences = sorted((one for one in found if one.size >= worth), key=lambda one: -one.size)
    return [*_of_growth(growths), *sentences]


def _of_growth(growths: Sequence[Growth]) -> Iterator[Advice]:
    for growth in growths:
        if growth.steady and growth.added >= LEAK_BYTES:
            yield Advice(
                growth.last,
                f"A leak, perhaps: {growth.what} grew by {size_text(growth.added)} in {growth.seconds:.0f} s and"
                f" never became less, {size_text(growth.per_hour)} an hour; {size_text(growth.last)} are in use."
                " No option helps: the program must free them.",
            )


def _of_process(account: Account) -> Iterator[Advice]:
    heap = next((row.size for row in account.others if row.key == HEAP), 0)
    yield Advice(
        heap,
        f"{size_text(heap)} lie in libc's own heap: from before hakmem was there, or from a library that was"
        " opened with RTLD_DEEPBIND or brings a malloc along. hakmem doctor names such libraries; hakmem run"
        " --no-deepbind brings the first kind to hakmem.",
    )
    if account.locked:
        yield Advice(
            account.locked,
            f"{size_text(account.locked)} are locked (mlock, mlockall): the kernel takes nothing back of them.",
        )


def _of_copy(copy: CopyAccount, threads: int) -> Iterator[Advice]:
    yield from _of_free_memory(copy)
    yield from _of_caches(copy, threads)
    yield from _of_slabs(copy)


def _of_free_memory(copy: CopyAccount) -> Iterator[Advice]:
    window, books = copy.window, copy.books
    never = window.free[Why.NEVER] + window.holes[Why.NEVER]
    yield Advice(
        never,
        f"{size_text(never)} are free and kept because the option decay is never"
        f" ({books.option('decay').source}): decay:500ms gives them back by and by, hak_collect() or"
        " malloc_trim(0) at once.",
    )
    soon = window.free[Why.WAITING] + window.holes[Why.CHANGED]
    yield Advice(
        soon,
        f"{size_text(soon)} are free and on their way back to the kernel: half of them every"
        f" {books.half_life_ms} ms once the program works less. hak_collect() or malloc_trim(0) gives them back"
        " at once; a shorter decay, as decay:100ms, does so sooner and costs page faults.",
    )
    unattended = window.free[Why.UNATTENDED] + window.holes[Why.UNATTENDED]
    why = (
        "with purge_thread:off there is none"
        if books.option("purge_thread").value == "off"
        else "it is started for 1 MiB that could go back, in a process of one thread for 32 MiB"
    )
    yield Advice(
        unattended,
        f"{size_text(unattended)} are free, and no purge thread runs ({why}): the program's own calls give them back"
        " by and by, so while it sleeps they stay. hak_collect() or malloc_trim(0) before it rests gives them"
        " back at once.",
    )
    huge = window.free[Why.HUGE] + window.holes[Why.HUGE] + window.untouched
    yield Advice(
        huge,
        f"{size_text(huge)} are resident only because a huge page of 2 MiB brought them in, or holds them:"
        " huge_pages:never saves them and costs page faults and TLB misses.",
    )
    refused = window.free[Why.REFUSED] + window.holes[Why.REFUSED]
    yield Advice(
        refused,
        f"{size_text(refused)} are free, and the kernel would not take them back: memory that is locked, or a"
        " sandbox that forbids madvise.",
    )


def _of_caches(copy: CopyAccount, threads: int) -> Iterator[Advice]:
    live = [heap for heap in copy.books.heaps if heap.live]
    most = max(live, key=lambda heap: heap.cached_bytes, default=None)
    if most is not None:
        yield Advice(
            copy.window.cached,
            f"{size_text(copy.window.cached)} are cached by {len(live)} of {threads} threads, most by thread"
            f" {most.thread_id} ({size_text(most.cached_bytes)}): thread_cache:256KiB (now"
            f" {copy.books.option('thread_cache').value}) bounds each; fewer threads that allocate need less;"
            " hak_collect() empties the caches.",
        )


def _of_slabs(copy: CopyAccount) -> Iterator[Advice]:
    beside = copy.window.beside
    worst = sorted(copy.window.classes, key=lambda one: -one.beside)[:LARGEST_CLASSES]
    named = ", ".join(f"{one.block_bytes} B ({size_text(one.beside)})" for one in worst if one.beside)
    yield Advice(
        beside,
        f"{size_text(beside)} are free blocks on pages where others are still in use, most of all of the sizes"
        f" {named}: the program will use them again, but no option gives them back. They came about because"
        " short-lived and long-lived blocks of one size lie side by side; what frees the long-lived ones too, or"
        " a restart after the peak, ends that.",
    )


def use_lines(account: Account) -> Iterator[str]:
    """What no option changes: what the program itself has."""
    for copy in account.copies:
        largest = sorted(copy.window.classes, key=lambda one: one.cached - one.taken)[:LARGEST_CLASSES]
        named = ", ".join(_taken_text(copy, one) for one in largest if one.taken > one.cached)
        yield (
            f"The program itself has {size_text(copy.live + copy.window.large)} in use:"
            f" {size_text(copy.window.large)} in {copy.books.totals.large_blocks} large blocks,"
            f" {size_text(copy.live)} in small ones, most of {named or 'no size'}."
        )


def _taken_text(copy: CopyAccount, one: ClassPages) -> str:
    blocks = sum(books.live_blocks for books in copy.books.classes if books.block_bytes == one.block_bytes)
    return f"{one.block_bytes} B ({size_text(one.taken - one.cached)}, {blocks} blocks)"
