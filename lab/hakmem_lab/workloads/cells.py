"""What is measured: CELLS is the table of every workload, with arguments that test allocators.

FIRST_FIGURES are those of the earliest reports. Names never change, because reports of different days are compared
by them.
"""

from __future__ import annotations

from dataclasses import replace

from hakmem_lab.measure.runner import PRELOAD_PLACE
from hakmem_lab.workloads.cell import (
    COUNT_PLACE,
    SEED_PLACE,
    Cell,
    Group,
    Measure,
    Suite,
)

__all__ = [
    "CELLS",
    "COUNT_PLACE",
    "FIRST_FIGURES",
    "PROCESS_START",
    "SEED_PLACE",
    "SERVER_PEAKS",
    "Cell",
    "Group",
    "Measure",
    "Suite",
    "suite_cells",
]

QUICK, FULL = Suite.QUICK, Suite.FULL


def _cell(
    group: Group,
    suite: Suite,
    name: str,
    command: str,
    first_count: int,
    threads: int = 1,
) -> Cell:
    """COMMAND as it is typed, with placeholders for what is drawn."""
    program, *arguments = command.split()
    return Cell(
        name=name,
        program=program,
        arguments=tuple(arguments),
        first_count=first_count,
        group=group,
        suite=suite,
        threads=threads,
        # Where threads are more than two processors, they switch by themselves.
        switches_are_noise=threads <= 2,
    )


# ---- one thread ---------------------------------------------------------------------------------------------


def _random_mixed(slots: int, suite: Suite) -> Cell:
    command = f"random_mixed {COUNT_PLACE} {slots} {SEED_PLACE} 16 1024"
    return _cell(Group.SMALL, suite, f"random mix, {slots} slots", command, 200_000)


def _lifo_burst(blocks: int, size: int, suite: Suite) -> Cell:
    name = f"LIFO burst, {blocks} of {size} B" if size else f"LIFO burst, {blocks} of 16-256 B"
    command = f"lifo_burst {blocks} {size} {COUNT_PLACE} {SEED_PLACE}"
    return _cell(Group.SMALL, suite, name, command, max(1, 200_000 // blocks))


def _tiny_hot(size: int, suite: Suite) -> Cell:
    command = f"tiny_hot {size} 100 {COUNT_PLACE} {SEED_PLACE}"
    return _cell(Group.SMALL, suite, f"tiny and hot, {size} B", command, 2_000)


def _fixed_size(size: int, suite: Suite) -> Cell:
    command = f"fixed_size {COUNT_PLACE} {size} 256 {SEED_PLACE}"
    return _cell(Group.SMALL, suite, f"one size, {size} B", command, 200_000)


def _realloc_growth(blocks: int, step: int, suite: Suite) -> Cell:
    what = "1 block" if blocks == 1 else f"{blocks} blocks"
    by = f"{step >> 10} KiB" if step else "a quarter"
    command = f"realloc_growth {COUNT_PLACE} {blocks} {step} {SEED_PLACE}"
    cell = _cell(Group.LARGE, suite, f"growth by realloc, {what}, by {by}", command, 1)
    return replace(cell, ends_slowly=True)


# Half of its count warms up.
_VM_MIXED = replace(
    _cell(Group.LARGE, QUICK, "512 KiB-2 MiB, 256 slots", f"vm_mixed {COUNT_PLACE} 256 {SEED_PLACE}", 20_000),
    ends_slowly=True,
)

_MEDIUM_TOUCHED = replace(
    _cell(
        Group.LARGE,
        FULL,
        "64 KiB-1 MiB, 32 slots",
        f"vm_mixed {COUNT_PLACE} 32 {SEED_PLACE} 65537 1048576",
        50_000,
    ),
    ends_slowly=True,
)

_MEDIUM = _cell(
    Group.LARGE,
    FULL,
    "64 KiB-1 MiB, 32 slots, hardly touched",
    f"random_mixed {COUNT_PLACE} 32 {SEED_PLACE} 65537 1048576",
    100_000,
)

# ---- threads ------------------------------------------------------------------------------------------------


def _mid_large_mt(threads: int, suite: Suite) -> Cell:
    group = Group.MID if threads <= 2 else Group.THREADS
    command = f"mid_large_mt {threads} {COUNT_PLACE} 100 {SEED_PLACE}"
    return _cell(group, suite, f"{threads} threads, 8-32 KiB", command, 20_000, threads)


def _spans_mt(threads: int, size: int, suite: Suite) -> Cell:
    """Of whole pages, above the small size classes; only the first words of a block are written."""
    name = f"{threads} threads, {size * 3 // 4 >> 10}-{size >> 10} KiB"
    command = f"scaling {threads} {64 << 20} {size} {COUNT_PLACE} {SEED_PLACE}"
    return _cell(Group.LARGE, suite, name, command, 20_000, threads)


def _larson(threads: int, suite: Suite, most: int = 128) -> Cell:
    """Its count is seconds. Its threads come and go, which makes the scheduler switch."""
    name = f"larson, {threads} {'thread' if threads == 1 else 'threads'}, 8-{most} B"
    command = f"larson {COUNT_PLACE} 8 {most} 1024 100 {SEED_PLACE} {threads}"
    cell = _cell(Group.THREADS, suite, name, command, 1, threads)
    return replace(cell, switches_are_noise=False, by_clock=True)


_LARSON_MEDIUM = replace(
    _cell(
        Group.LARGE,
        FULL,
        "larson, 2 threads, 64 KiB-1 MiB",
        f"larson {COUNT_PLACE} 65537 1048576 16 1000 {SEED_PLACE} 2",
        1,
        threads=2,
    ),
    switches_are_noise=False,
    by_clock=True,
)


_EXCHANGE = _cell(
    Group.THREADS,
    FULL,
    "exchange, 16 threads, 16 B-4 KiB",
    f"exchange 16 {COUNT_PLACE} 32 {SEED_PLACE}",
    200_000,
    threads=16,
)


def _writers(name: str, program: str) -> Cell:
    command = f"{program} {COUNT_PLACE} 16 {SEED_PLACE}"
    return _cell(Group.THREADS, QUICK, name, command, 5_000_000, threads=2)


def _producer(name: str, batch: int, consumers: int, suite: Suite) -> Cell:
    command = f"producer_consumer {COUNT_PLACE} 64 {batch} {SEED_PLACE} {consumers}"
    return _cell(Group.HAND_OVER, suite, name, command, 100_000, 1 + consumers)


_HAND_OVER = _cell(
    Group.HAND_OVER,
    QUICK,
    "hand-over of 1000 blocks",
    f"hand_over {COUNT_PLACE} 1000 0 {SEED_PLACE}",
    100_000,
    threads=2,
)

_THREAD_CHURN = replace(
    _cell(
        Group.THREADS,
        QUICK,
        "short-lived threads, 100 blocks each",
        f"thread_churn {COUNT_PLACE} 100 0 {SEED_PLACE}",
        400,
        threads=2,
    ),
    switches_are_noise=False,
)

# ---- memory, start, control ---------------------------------------------------------------------------------

_FRAGMENTATION = replace(
    _cell(
        Group.MEMORY,
        QUICK,
        "long run, Zipf sizes and lifetimes",
        f"fragmentation {COUNT_PLACE} {SEED_PLACE}",
        3_000_000,
    ),
    count_min=3_000_000,  # six times the longest lifetime
    ends_slowly=True,
    memory=True,
    figure="footprint_percent_mean",
)

_PEAK_THEN_IDLE = replace(
    _cell(Group.MEMORY, FULL, "peak, then idle for 10 s", f"peak_then_idle {COUNT_PLACE} {SEED_PLACE}", 256),
    count_min=256,
    ends_slowly=True,
    memory=True,
    figure="idle_rss_kib",
)

SERVER_PEAKS = replace(
    _cell(
        Group.MEMORY,
        FULL,
        "server with peaks",
        f"server_peaks {COUNT_PLACE} {SEED_PLACE}",
        1,
        threads=2,
    ),
    switches_are_noise=False,
    measure=Measure.CPU,
    count_min=4,
)

_COLD_START = replace(
    _cell(Group.START, QUICK, "cold start, 64 of each class", f"cold_start 64 {SEED_PLACE} {COUNT_PLACE}", 2),
    ends_slowly=True,
)

PROCESS_START = replace(
    _cell(Group.START, QUICK, "start of `true`", f"start_loop {COUNT_PLACE} {PRELOAD_PLACE} -- true", 50),
    switches_are_noise=False,
)

_NO_ALLOCATION = replace(
    _cell(Group.CONTROL, QUICK, "no allocation (control)", f"no_alloc {COUNT_PLACE} {SEED_PLACE}", 2_000_000),
    control=True,
)

# ---- the tables ---------------------------------------------------------------------------------------------

FIRST_FIGURES = (
    _random_mixed(256, QUICK),
    _random_mixed(8192, QUICK),
    _lifo_burst(64, 64, QUICK),
    _lifo_burst(1000, 64, QUICK),
    _lifo_burst(4000, 64, FULL),
    _lifo_burst(64, 0, FULL),
    _lifo_burst(1000, 0, FULL),
    _lifo_burst(4000, 0, QUICK),
    _producer("producer and consumer", 100, 1, QUICK),
    _HAND_OVER,
    _writers("two writers, 16 B blocks", "shared_write"),
    _VM_MIXED,
    _realloc_growth(1, 0, QUICK),
    _realloc_growth(8, 0, FULL),
    _realloc_growth(1, 256 << 10, QUICK),
    _NO_ALLOCATION,
)

CELLS = (
    *FIRST_FIGURES,
    _random_mixed(400, FULL),
    _cell(
        Group.SMALL,
        QUICK,
        "random mix, 90 % allocating",
        f"random_mixed {COUNT_PLACE} 8192 {SEED_PLACE} 16 1024 90",
        100_000,
    ),
    _tiny_hot(16, FULL),
    _tiny_hot(32, FULL),
    _tiny_hot(64, QUICK),
    _tiny_hot(128, FULL),
    _fixed_size(128, FULL),
    _fixed_size(256, QUICK),
    _fixed_size(512, FULL),
    _fixed_size(1024, FULL),
    _cell(
        Group.MID,
        QUICK,
        "random mix to 8 KiB, 1024 slots",
        f"random_mixed {COUNT_PLACE} 1024 {SEED_PLACE} 16 8192",
        100_000,
    ),
    _cell(
        Group.MID,
        FULL,
        "1000 blocks of 4 KiB",
        f"random_mixed {COUNT_PLACE} 1000 {SEED_PLACE} 4096 4096",
        100_000,
    ),
    _cell(Group.MID, QUICK, "every class, four patterns", f"comprehensive {COUNT_PLACE} {SEED_PLACE}", 1),
    _cell(
        Group.MID,
        QUICK,
        "aligned and plain, 1000 slots",
        f"aligned_mix {COUNT_PLACE} 1000 {SEED_PLACE}",
        50_000,
    ),
    _cell(
        Group.MID,
        QUICK,
        "change of phase, 8192 slots",
        f"phase_change {COUNT_PLACE} 8192 {SEED_PLACE}",
        100_000,
    ),
    _cell(Group.MID, QUICK, "2 threads, 1-8 KiB", f"mid_mt_gap {COUNT_PLACE} 256 {SEED_PLACE}", 50_000, 2),
    _mid_large_mt(2, QUICK),
    _mid_large_mt(8, QUICK),
    _mid_large_mt(32, FULL),
    _MEDIUM_TOUCHED,
    _MEDIUM,
    _spans_mt(2, 256 << 10, QUICK),
    _spans_mt(8, 128 << 10, FULL),
    _spans_mt(2, 1 << 20, FULL),
    _LARSON_MEDIUM,
    _larson(1, FULL),
    _larson(2, QUICK),
    _larson(8, QUICK),
    _larson(32, FULL),
    _larson(32, FULL, most=1000),
    _EXCHANGE,
    _THREAD_CHURN,
    _writers("two writers, 16 B blocks of their own", "own_write"),
    _producer("producer and consumer, one by one", 1, 1, QUICK),
    _producer("producer and consumer, batches of 1000", 1000, 1, FULL),
    _producer("1 producer, 3 consumers", 100, 3, QUICK),
    _FRAGMENTATION,
    _PEAK_THEN_IDLE,
    SERVER_PEAKS,
    _COLD_START,
    PROCESS_START,
)


def suite_cells(suite: Suite) -> tuple[Cell, ...]:
    return tuple(cell for cell in CELLS if suite in (FULL, cell.suite))
