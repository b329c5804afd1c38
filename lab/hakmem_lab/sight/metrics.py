"""The statistics of a process, from outside, in the forms of the library's own report.

METRICS is the counterpart of src/watch/metrics.h: the same sections, names, kinds and texts. A process that
contains several copies of hakmem has a report for each.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from hakmem_lab.sight.books import NEVER, Books, ClassBooks, Failure, HeapBooks, Totals
from hakmem_lab.sight.books_reader import books_read
from hakmem_lab.sight.decisions import Decisions, decision_content, decisions_read
from hakmem_lab.sight.memory import memory_open
from hakmem_lab.sight.page import Page, pages_find
from hakmem_lab.sight.process import Process

FORM = "1.2"


class Kind(StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"


@dataclass(frozen=True)
class Usage:
    """What the kernel reports about the process."""

    rss_bytes: int
    peak_rss_bytes: int
    minor_faults: int
    major_faults: int
    mappings: int


@dataclass(frozen=True)
class Numbers:
    """All that a report is made of."""

    pid: int
    program: str
    usage: Usage
    books: Books
    totals: Totals
    decisions: Decisions


@dataclass(frozen=True)
class Metric:
    section: str
    name: str
    kind: Kind
    text: str
    value: Callable[[Numbers], int]

    @property
    def is_bytes(self) -> bool:
        return "bytes" in self.name.split("_")


@dataclass(frozen=True)
class ClassMetric:
    name: str
    kind: Kind
    text: str
    value: Callable[[ClassBooks], int]


def _kernel(name: str) -> Callable[[Numbers], int]:
    return lambda now: now.books.kernel[name]


def _spans(name: str) -> Callable[[Numbers], int]:
    return lambda now: now.books.spans[name]


def _heaps(
    value: Callable[[HeapBooks], int], total: Callable[[Iterable[int]], int] = sum
) -> Callable[[Numbers], int]:
    return lambda now: total([value(heap) for heap in now.books.heaps] or [0])


GAUGE, COUNTER = Kind.GAUGE, Kind.COUNTER
METRICS = (
    Metric(
        "process",
        "rss_bytes",
        GAUGE,
        "resident memory of the process, all of it",
        lambda now: now.usage.rss_bytes,
    ),
    Metric(
        "process", "peak_rss_bytes", GAUGE, "the most that was resident", lambda now: now.usage.peak_rss_bytes
    ),
    Metric(
        "process",
        "minor_faults",
        COUNTER,
        "page faults without input or output",
        lambda now: now.usage.minor_faults,
    ),
    Metric(
        "process",
        "major_faults",
        COUNTER,
        "page faults with input or output",
        lambda now: now.usage.major_faults,
    ),
    Metric(
        "process",
        "mappings",
        GAUGE,
        "mappings of the process; 0 where the kernel does not say",
        lambda now: now.usage.mappings,
    ),
    Metric(
        "memory",
        "held_bytes",
        GAUGE,
        "memory for blocks, used or free, not given back",
        lambda now: now.totals.held,
    ),
    Metric(
        "memory",
        "in_use_bytes",
        GAUGE,
        "of it, blocks in use or cached by threads",
        lambda now: now.totals.in_use,
    ),
    Metric(
        "memory",
        "live_small_bytes",
        GAUGE,
        "of these, blocks of 64 KiB or less in use",
        lambda now: now.totals.live_small,
    ),
    Metric("memory", "cached_bytes", GAUGE, "blocks cached by threads", lambda now: now.totals.cached),
    Metric("memory", "large_bytes", GAUGE, "larger blocks in use", lambda now: now.totals.large),
    Metric("memory", "large_blocks", GAUGE, "how many these are", lambda now: now.totals.large_blocks),
    Metric("memory", "free_small_bytes", GAUGE, "free blocks in slabs", lambda now: now.totals.free_small),
    Metric(
        "memory", "free_small_blocks", GAUGE, "how many these are", lambda now: now.totals.free_small_blocks
    ),
    Metric(
        "memory", "dirty_bytes", GAUGE, "free runs of pages, not given back", lambda now: now.totals.dirty
    ),
    Metric(
        "memory",
        "books_bytes",
        GAUGE,
        "hakmem's own records outside the window's",
        lambda now: now.books.books_bytes,
    ),
    *(
        Metric("kernel", name, COUNTER, text, _kernel(name))
        for name, text in (
            ("reserved_bytes", "address space asked of the kernel"),
            ("committed_bytes", "memory made usable"),
            ("purged_bytes", "memory given back"),
            ("unmapped_bytes", "address space given back"),
        )
    ),
    *(
        Metric("spans", name, kind, text, _spans(name))
        for name, kind, text in (
            ("used_pages", GAUGE, "pages of 64 KiB in spans in use"),
            ("used_pages_peak", GAUGE, "the most at once, since peaks were reset"),
            ("lost_pages", GAUGE, "pages given up: the kernel failed as it moved them, or took them back"),
            ("dirty_pages", GAUGE, "free pages that were not given back"),
            ("fresh_pages", COUNTER, "pages asked of the window"),
            ("huge_pages", COUNTER, "of these, for which huge pages were asked"),
            ("taken", COUNTER, "spans taken"),
            ("given", COUNTER, "spans given back"),
            ("returned_pages", COUNTER, "free pages given back to the kernel"),
            ("retaken_pages", COUNTER, "of these, used again: each costs faults"),
            ("part_bytes", COUNTER, "given back inside slabs"),
            ("moves", COUNTER, "spans moved by their page tables"),
            ("copies", COUNTER, "spans moved by copying"),
        )
    ),
    Metric("heaps", "created", GAUGE, "heaps that there are", lambda now: len(now.books.heaps)),
    Metric("heaps", "live", GAUGE, "of these, of living threads", _heaps(lambda heap: heap.live)),
    Metric(
        "heaps",
        "cached_bytes_most",
        GAUGE,
        "cached by the thread with the most",
        _heaps(lambda heap: heap.cached_bytes, max),
    ),
    Metric(
        "heaps",
        "depth_bytes",
        GAUGE,
        "what the caches of threads are sized for",
        _heaps(lambda heap: heap.depth_bytes),
    ),
    Metric(
        "heaps",
        "remote_blocks",
        GAUGE,
        "kept until more go to the same heaps",
        _heaps(lambda heap: heap.remote_blocks),
    ),
    Metric("heaps", "remote_bytes", GAUGE, "their bytes", _heaps(lambda heap: heap.remote_bytes)),
    Metric(
        "purge", "thread_running", GAUGE, "1 while a purge thread runs", lambda now: now.books.purge_running
    ),
    Metric(
        "purge", "thread_starts", COUNTER, "how often one was started", lambda now: now.books.purge_started
    ),
    Metric(
        "purge",
        "pressed_by_limit",
        COUNTER,
        "times that all went back since the control group's limit was near",
        lambda now: now.books.pressed["limit"],
    ),
    Metric(
        "purge",
        "pressed_by_high",
        COUNTER,
        "since its high mark was near",
        lambda now: now.books.pressed["high"],
    ),
    Metric(
        "purge",
        "pressed_by_stalls",
        COUNTER,
        "since programs waited for memory",
        lambda now: now.books.pressed["stalls"],
    ),
    Metric(
        "foreign",
        "frees",
        COUNTER,
        "pointers freed that hakmem never returned",
        lambda now: now.books.foreign_frees,
    ),
)

CLASS_METRICS = (
    ClassMetric("slabs", GAUGE, "slabs", lambda one: one.slabs),
    ClassMetric("taken_blocks", GAUGE, "blocks in use or cached by threads", lambda one: one.taken_blocks),
    ClassMetric("cached_blocks", GAUGE, "blocks cached by threads", lambda one: one.cached_blocks),
    ClassMetric(
        "live_blocks",
        GAUGE,
        "blocks in use, or on their way back to another thread",
        lambda one: one.live_blocks,
    ),
    ClassMetric(
        "slack_bytes_most",
        GAUGE,
        "the most that live blocks hold beyond what malloc was asked for",
        lambda one: one.slack_bytes_most,
    ),
    ClassMetric("refills", COUNTER, "times that a thread's cache was filled", lambda one: one.refills),
    ClassMetric(
        "refilled_blocks", COUNTER, "blocks that it was filled with", lambda one: one.refilled_blocks
    ),
    ClassMetric("spills", COUNTER, "times that a thread's cache overflowed", lambda one: one.spills),
    ClassMetric(
        "spilled_blocks", COUNTER, "blocks that went back from caches", lambda one: one.spilled_blocks
    ),
    ClassMetric(
        "remote_blocks", COUNTER, "blocks given back by other threads", lambda one: one.remote_blocks
    ),
    ClassMetric(
        "adopted_slabs",
        COUNTER,
        "slabs taken over from threads that ended, or, where threads are many, wait",
        lambda one: one.adopted_slabs,
    ),
)


# ---- reading -----------------------------------------------------------------------------------------------


def numbers_read(process: Process) -> list[Numbers]:
    """For each copy of hakmem in the process."""
    usage, name = _usage_read(process), process.name
    with memory_open(process) as memory:
        return [_numbers_of(page, name, usage) for page in pages_find(memory, process.mappings())]


def _numbers_of(page: Page, name: str, usage: Usage) -> Numbers:
    books = books_read(page)
    return Numbers(page.memory.process.pid, name, usage, books, books.totals, decisions_read(page, books))


def _usage_read(process: Process) -> Usage:
    status, stat = process.status(), process.stat()

    def size(name: str) -> int:
        return 1024 * int(status.get(name, "0 kB").split()[0])

    return Usage(size("VmRSS"), size("VmHWM"), int(stat[7]), int(stat[9]), process.mapping_count())


# ---- JSON --------------------------------------------------------------------------------------------------


def report_json(now: Numbers) -> str:
    """In the form of docs/statistics.schema.json."""
    return json.dumps(report_content(now), indent=2) + "\n"


def report_content(now: Numbers) -> dict[str, Any]:
    books = now.books
    content: dict[str, Any] = {
        "form": FORM,
        "hakmem": books.page.library,
        "pid": now.pid,
        "program": printable(now.program),
    }
    for metric in METRICS:
        content.setdefault(metric.section, {})[metric.name] = int(metric.value(now))
    return content | {
        "half_life_ms": None if books.half_life_ms == NEVER else books.half_life_ms,
        "system_calls": [{"call": one.name, "made": one.made, "refused": one.refused} for one in books.calls],
        "span_sizes": [
            {"pages_least": one.pages_least, "live": one.live, "taken": one.taken}
            for one in books.span_sizes
            if one.taken
        ],
        "classes": [
            {"block_bytes": one.block_bytes, **{metric.name: metric.value(one) for metric in CLASS_METRICS}}
            for one in books.classes
            if one.is_used
        ],
        "threads": [_thread_content(heap) for heap in books.heaps if heap.live],
        "options": [
            {"name": one.name, "value": printable(one.value), "source": one.source} for one in books.options
        ],
        "decisions": {
            "made": now.decisions.made,
            "counts": [
                {"kind": kind, "reason": reason, "times": times}
                for (kind, reason), times in now.decisions.counts.items()
                if times
            ],
            "last": [decision_content(one) for one in now.decisions.last],
        },
        "failures": {**books.failures, "last": [_failure_content(one) for one in books.last_failures]},
    }


def printable(text: str) -> str:
    """As the library writes it: a character that is not printable ASCII is a question mark."""
    return "".join(letter if " " <= letter <= "~" else "?" for letter in text)


def _thread_content(heap: HeapBooks) -> dict[str, int]:
    return {
        "thread_id": heap.thread_id,
        "slabs": heap.slabs,
        "cached_bytes": heap.cached_bytes,
        "depth_bytes": heap.depth_bytes,
        "remote_blocks": heap.remote_blocks,
    }


def _failure_content(failure: Failure) -> dict[str, int | str | None]:
    content: dict[str, int | str | None] = {
        "number": failure.number,
        "cause": failure.cause,
        "bytes": failure.size,
        "alignment": failure.alignment,
        "limit_bytes": None if failure.limit_bytes == NEVER else failure.limit_bytes,
        "in_use_bytes": failure.in_use_bytes,
        "thread_id": failure.thread_id,
        "time_ms": failure.time_ms,
    }
    if failure.block_bytes is not None:
        content["block_bytes"] = failure.block_bytes
    if failure.call:
        content |= {"call": failure.call, "error": failure.error}
    return content


# ---- OpenMetrics -------------------------------------------------------------------------------------------

Samples = Iterable[tuple[str, int]]
"""Labels, in braces or empty, and values."""


def report_openmetrics(now: Numbers) -> str:
    return "".join(f"{line}\n" for line in _openmetrics_lines(now))


def _openmetrics_lines(now: Numbers) -> Iterator[str]:
    books = now.books
    yield "# TYPE hakmem_build info"
    yield "# HELP hakmem_build what is running"
    program = printable(now.program).replace("\\", "\\\\").replace('"', '\\"')
    yield f'hakmem_build_info{{version="{books.page.library}",program="{program}"}} 1'
    for metric in METRICS:
        yield from _family(
            metric.section, metric.name, metric.kind, metric.text, [("", int(metric.value(now)))]
        )
    calls = [(f'{{call="{one.name}"}}', one.made) for one in books.calls]
    yield from _family("kernel", "calls", COUNTER, "system calls made", calls)
    refusals = [(f'{{call="{one.name}"}}', one.refused) for one in books.calls]
    yield from _family("kernel", "refusals", COUNTER, "system calls that were refused", refusals)
    causes = [(f'{{cause="{cause}"}}', count) for cause, count in books.failures.items()]
    yield from _family("failures", "allocations", COUNTER, "allocations that failed, by cause", causes)
    made = [
        (f'{{kind="{kind}",reason="{reason}"}}', times)
        for (kind, reason), times in now.decisions.counts.items()
    ]
    yield from _family(
        "decisions", "made", COUNTER, "decisions of the engine that adapts, by kind and reason", made
    )
    for one in CLASS_METRICS:
        rows = [
            (f'{{block_bytes="{row.block_bytes}"}}', one.value(row)) for row in books.classes if row.is_used
        ]
        yield from _family("class", one.name, one.kind, one.text, rows)
    sizes = [(f'{{pages="{size.pages_least}"}}', size.live) for size in books.span_sizes if size.taken]
    yield from _family(
        "span_sizes", "live", GAUGE, "spans in use, slabs included, by the least pages of their size", sizes
    )
    yield "# EOF"


def _family(section: str, name: str, kind: Kind, text: str, samples: Samples) -> Iterator[str]:
    family = f"hakmem_{section}_{name}"
    yield f"# TYPE {family} {kind}"
    if name.endswith("_bytes"):
        yield f"# UNIT {family} bytes"
    yield f"# HELP {family} {text}"
    total = "_total" if kind is COUNTER else ""
    for labels, value in samples:
        yield f"{family}{total}{labels} {value}"
