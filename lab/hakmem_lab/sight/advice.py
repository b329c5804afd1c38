"""What would make a process smaller, in sentences that are each based on a number of its account.

Only what is worth it is reported, largest first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hakmem_lab.sight.account import ANONYMOUS, HEAP, Account, CopyAccount
from hakmem_lab.sight.books import HeapBooks
from hakmem_lab.sight.growth import Growth
from hakmem_lab.sight.sizes import count_text, size_text
from hakmem_lab.sight.window import ClassPages, Why

WORTH_BYTES, WORTH_SHARE = 1 << 20, 0.02
"""Less than this, and less than this share of RSS, is not worth a sentence."""
LEAK_BYTES = 256 << 10
"""Growth in the time of --watch: less may be chance."""
SMALL_CACHE = 256 << 10
"""Bytes; a bound below this costs much time."""
LARGEST_CLASSES = 3
WORTH_OF_ALL = 0.05
"""Sizes with a smaller share are not named."""


@dataclass(frozen=True)
class Advice:
    size: int
    """Bytes of RSS that it is about."""
    text: str


def advice_find(account: Account, growths: Sequence[Growth] = ()) -> list[Advice]:
    """Largest first."""
    found = list(_of_process(account))
    for copy in account.copies:
        found += _of_copy(copy, len(account.threads))
    worth = max(WORTH_BYTES, WORTH_SHARE * account.rss)
    sentences = sorted((one for one in found if one.size >= worth), key=lambda one: -one.size)
    return [*_of_growth(growths), *sentences]


def _of_growth(growths: Sequence[Growth]) -> Iterator[Advice]:
    grown = [one for one in growths if one.steady and one.added >= LEAK_BYTES]
    if grown:
        named = ", ".join(f"{one.what} by {size_text(one.added)}" for one in grown[:LARGEST_CLASSES])
        hourly = size_text(sum(one.per_hour for one in grown))
        yield Advice(
            sum(one.last for one in grown),
            f"A leak, perhaps: in {grown[0].seconds:.0f} s grew, and never became less, {named}; that is"
            f" {hourly} an hour. No option helps: the program must free them.",
        )


def _of_process(account: Account) -> Iterator[Advice]:
    others = {row.key: row.size for row in account.others}
    heap, mapped = others.get(HEAP, 0), others.get(ANONYMOUS, 0)
    yield Advice(
        mapped,
        f"{size_text(mapped)} are mappings that hakmem did not make: the program's own, JIT code, the memory of"
        " another allocator. hakmem doctor names libraries that bring one.",
    )
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
        " hak_collect() or malloc_trim(0) gives back what is free of them; huge_pages:never keeps them from coming,"
        " and costs page faults and TLB misses.",
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
        cached = copy.window.cached
        yield Advice(
            cached,
            f"{size_text(cached)} are cached by {_threads_text(live, most, threads)}{_left_text(copy)}:"
            f" {_cache_bound(copy, most)}hak_collect() empties the caches.",
        )
    heaps = max(1, len(copy.books.heaps))
    yield Advice(
        copy.other_books,
        f"{size_text(copy.other_books)} are hakmem's records of {heaps} heaps, {size_text(copy.other_books / heaps)}"
        " each; every thread that allocates has one, and later threads take over those of threads that ended:"
        " fewer threads at a time need less.",
    )


def _threads_text(live: Sequence[HeapBooks], most: HeapBooks, threads: int) -> str:
    if threads == 1:
        return "its one thread"
    return (
        f"{len(live)} of {threads} threads, most by thread {most.thread_id} ({size_text(most.cached_bytes)})"
    )


def _left_text(copy: CopyAccount) -> str:
    left = sum(heap.cached_bytes for heap in copy.books.heaps if not heap.live)
    return (
        f", or left by threads that ended ({size_text(left)})"
        if left > WORTH_OF_ALL * copy.window.cached
        else ""
    )


def _cache_bound(copy: CopyAccount, most: HeapBooks) -> str:
    """The bound that would make the largest cache smaller."""
    if most.cached_bytes <= SMALL_CACHE:
        return ""
    return f"thread_cache:256KiB (now {copy.books.option('thread_cache').value}) bounds each thread's; "


def _of_slabs(copy: CopyAccount) -> Iterator[Advice]:
    beside = copy.window.beside
    worst = sorted(copy.window.classes, key=lambda one: -one.beside)[:LARGEST_CLASSES]
    named = "; ".join(_pinned_text(copy, one) for one in worst if one.beside >= WORTH_OF_ALL * beside)
    yield Advice(
        beside,
        f"{size_text(beside)} are free blocks on pages where others are in use (fragmentation): {named}. The"
        " program will use them again; no option gives them back. Long-lived blocks among short-lived ones of the"
        " same size do that: it ends when the long-lived ones are freed too, or are allocated before or after"
        " the burst, or by a thread of their own.",
    )


def _pinned_text(copy: CopyAccount, one: ClassPages) -> str:
    return (
        f"{_blocks_text(copy, one)} in use, {size_text(one.live)}, keep {size_text(one.beside)} beside them"
    )


def _blocks_text(copy: CopyAccount, one: ClassPages) -> str:
    books = copy.books.classes
    count = sum(each.live_blocks for each in books if each.block_bytes == one.block_bytes)
    return f"{count_text(count, 'block')} of {one.block_bytes} B"


def use_lines(account: Account) -> Iterator[str]:
    """What no option changes: the memory of the program itself."""
    for copy in account.copies:
        in_use = copy.own
        if not copy.books.spans["taken"] and not copy.books.outside:
            yield f"{copy.name} is in this process, and nothing was ever allocated from it: hakmem doctor says why."
            continue
        largest = sorted(copy.window.classes, key=lambda one: -one.live)[:LARGEST_CLASSES]
        named = [_live_text(copy, one) for one in largest if one.live >= max(1, WORTH_OF_ALL * in_use)]
        if copy.window.unclassed >= WORTH_OF_ALL * in_use:
            blocks = count_text(copy.books.unclassed_blocks, "large block")
            named.append(f"{size_text(copy.window.unclassed)} in {blocks}")
        if copy.outside >= max(1, WORTH_OF_ALL * in_use):
            blocks = count_text(len(copy.books.outside), "block")
            named.append(f"{size_text(copy.outside)} in {blocks} outside the window")
        most = f", most of it {', '.join(named)}" if named else ""
        yield f"The program itself has {size_text(in_use)} in use{most}."


def _live_text(copy: CopyAccount, one: ClassPages) -> str:
    return f"{size_text(one.live)} in {_blocks_text(copy, one)}"
