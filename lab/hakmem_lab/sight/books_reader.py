"""Reads hakmem's metadata of a process once, from its page, and knows what the page's tables mean.

The process continues meanwhile. Each number is consistent; two of them may be of slightly different moments.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence

import numpy as np

from hakmem_lab.sight.books import CAUSES, PRESSURES, Books, Call, ClassBooks, Failure, HeapBooks, SpanSize
from hakmem_lab.sight.memory import ADDRESSES_END, making_sense
from hakmem_lab.sight.options import SOURCES, Kind, Option, OptionInfo
from hakmem_lab.sight.page import Columns, Page, Record, record_at
from hakmem_lab.sight.ring import ring_rows

IMPOSSIBLE_DEPTH = 1 << 16
"""Deeper than any stack of blocks: a larger difference means that two moments were mixed."""
MAP_FAILURE = 2
NO_BLOCK = 2
"""In the table of blocks outside the window, addresses up to this mark empty places."""
LIVE = 1
"""State of a heap whose thread is alive."""


def books_read(page: Page) -> Books:
    with making_sense(page.memory.process):
        books = _books_read(page)
        window_bytes = books.window_pages * books.page_bytes
        if books.window_base + window_bytes > ADDRESSES_END or books.spans["end_page"] > books.window_pages:
            raise ValueError("a window that is larger than all memory")
        return books


def _books_read(page: Page) -> Books:
    shapes = page.array("classes")
    limits = page.one("limits")
    heaps, classes = _heaps_read(page, shapes)
    spans, window = page.one("spans"), page.one("window")
    calls = _calls_read(page)
    sizes = page.array("span_sizes")
    counts = page.array("failure_counts")["count"]
    return Books(
        page=page,
        limits=limits,
        classes=tuple(classes),
        heaps=tuple(heaps),
        spans=spans,
        span_sizes=tuple(
            SpanSize(1 << number, int(live), int(taken))
            for number, (live, taken) in enumerate(zip(sizes["live"], sizes["taken"], strict=True))
        ),
        kernel=page.one("kernel"),
        calls=calls,
        failures={cause: int(count) for cause, count in zip(CAUSES, counts, strict=True)},
        last_failures=tuple(_failures_read(page, calls, classes)),
        options=tuple(_options_read(page, spans, window, limits, shapes["block_bytes"].tolist())),
        other_variables=tuple(page.strings("other_variables", "name")),
        outside=tuple(_outside_read(page)),
        window_base=window["base"],
        window_pages=window["pages"],
        books_bytes=page.one("book_bytes")["taken_bytes"],
        foreign_frees=page.one("foreign")["frees"],
        purge_running=bool(page.one("purge_running")["running"]),
        purge_started=page.one("purge_started")["started"],
        pressed=dict(zip(PRESSURES, page.array("pressed")["times"].tolist()[1:], strict=True)),
    )


# ---- classes and heaps -------------------------------------------------------------------------------------


def _heaps_read(page: Page, shapes: Columns) -> tuple[list[HeapBooks], list[ClassBooks]]:
    """The heaps of threads; and for each class the sum over them and the commons, the heap of no thread."""
    bins = [page.inside("commons_bins", page.table("commons").address)]
    cached = [0] * len(shapes["block_bytes"])
    heaps = []
    for address, heap in page.linked("heaps"):
        bins.append(page.inside("bins", address))
        live = heap["live"] == LIVE
        held = _held_blocks(page.inside("stacks", address))
        cached = [one + more for one, more in zip(cached, held, strict=True)]
        sizes = shapes["block_bytes"].tolist()
        heaps.append(
            HeapBooks(
                thread_id=heap["thread_id"],
                live=live,
                slabs=heap["slabs"],
                cached_bytes=sum(count * size for count, size in zip(held, sizes, strict=True)),
                depth_bytes=heap["small_depth_bytes"] + heap["medium_depth_bytes"] if live else 0,
                # Its owner moves one end meanwhile, and others the other.
                remote_blocks=max(0, (heap["buffer_top"] - heap["buffer_bottom"]) // 8),
                remote_bytes=max(0, heap["buffer_bytes"] - heap["buffer_given_bytes"]),
            )
        )
    return heaps, [_class_make(shapes, bins, cached, number) for number in range(len(cached))]


def _held_blocks(stacks: Columns) -> list[int]:
    """Blocks in the stacks of a thread, by class. Its owner moves both ends meanwhile."""
    held = [(top - low) // 8 for low, top in zip(stacks["low"].tolist(), stacks["top"].tolist(), strict=True)]
    return [count if 0 <= count < IMPOSSIBLE_DEPTH else 0 for count in held]


def _slack_most(sizes: list[int], number: int) -> int:
    """The smallest size that a class serves: one byte more than the class before holds, or half of the first
    aligned one."""
    before = sizes[number - 1] if number else -1
    return sizes[number] - (before if before < sizes[number] else sizes[number] // 2) - 1


def _class_make(shapes: Columns, bins: list[Columns], cached: list[int], number: int) -> ClassBooks:
    def total(field: str) -> int:
        return sum(int(columns[field][number]) for columns in bins)

    sizes = shapes["block_bytes"].tolist()
    blocks, slabs = int(shapes["blocks"][number]), total("slabs")
    # Heaps go on while they are summed up: a slab that changes hands meanwhile counts twice, or not at all.
    taken = min(total("taken_blocks"), slabs * blocks)
    return ClassBooks(
        block_bytes=sizes[number],
        blocks=blocks,
        pages=int(shapes["pages"][number]),
        slack_most=_slack_most(sizes, number),
        slabs=slabs,
        taken_blocks=taken,
        cached_blocks=min(cached[number], taken),
        refills=total("refills"),
        refilled_blocks=total("refilled_blocks"),
        spills=total("spills"),
        spilled_blocks=total("spilled_blocks"),
        remote_blocks=total("remote_blocks"),
        adopted_slabs=total("adopted_slabs"),
    )


# ---- blocks outside the window -----------------------------------------------------------------------------


def _outside_read(page: Page) -> Iterator[tuple[int, int]]:
    tables = [page.array("outside")]
    tables += [page.inside("outside_later", address) for address, _table in page.linked("outside_parts")]
    for table in tables:
        for address, size in zip(table["address"].tolist(), table["bytes"].tolist(), strict=True):
            if address > NO_BLOCK:
                yield address, size


# ---- calls and failures ------------------------------------------------------------------------------------


def _calls_read(page: Page) -> tuple[Call, ...]:
    counts, names = page.array("calls"), page.strings("call_names", "name")
    made, refused = counts["made"].tolist(), counts["refused"].tolist()
    return tuple(Call(*one) for one in zip(names, made, refused, strict=True))


def _failures_read(page: Page, calls: tuple[Call, ...], classes: list[ClassBooks]) -> list[Failure]:
    return [_failure_make(row, calls, classes) for row in ring_rows(page, "failures")]


def _failure_make(row: Record, calls: tuple[Call, ...], classes: list[ClassBooks]) -> Failure:
    refused = row["cause"] == MAP_FAILURE
    return Failure(
        number=row["number"],
        cause=CAUSES[row["cause"]],
        size=row["bytes"],
        alignment=row["alignment"],
        limit_bytes=row["limit"],
        in_use_bytes=row["in_use"],
        thread_id=row["thread_id"],
        time_ms=row["time_ms"],
        block_bytes=classes[row["class"]].block_bytes if row["class"] < len(classes) else None,
        call=calls[row["call"]].name if refused else "",
        error=errno.errorcode.get(row["error"], str(row["error"])) if refused else "",
    )


# ---- options -----------------------------------------------------------------------------------------------


def _options_read(
    page: Page, spans: Record, window: Record, limits: Record, sizes: Sequence[int]
) -> list[Option]:
    """SIZES: block sizes of the classes."""
    places, sources = page.array("options"), page.array("sources")["source"].tolist()
    profile_file = page.memory.string(page.table("profile_file").address)
    options = []
    for number, info in enumerate(_infos_read(page)):
        address, size = int(places["value"][number]), int(places["bytes"][number])
        value = ""
        if info.kind is Kind.PATH:
            value = page.memory.string(address)
        elif info.kind is Kind.DEPTHS:
            depths = np.frombuffer(page.memory.read(address, size), "<u2", len(sizes))
            value = info.format_depths(dict(zip(sizes, depths.tolist(), strict=True)))
        elif info.name == "profile" and profile_file:
            value = profile_file
        number_set = int.from_bytes(page.memory.read(address, min(size, 8)), "little")
        options.append(
            Option(
                name=info.name,
                value=value or info.format(number_set),
                source=SOURCES[sources[number]],
                default=info.format(info.initial),
                decided=_decided(info, number_set, spans, window, limits),
                accepts=info.describe(),
                anytime=info.anytime,
                text=info.text,
                cost=info.cost,
            )
        )
    return options


def _decided(info: OptionInfo, value: int, spans: Record, window: Record, limits: Record) -> str:
    if info.name == "window" and value == info.word_value:
        return info.format(window["pages"] * limits["page_bytes"])
    if info.name == "decay" and spans["half_life_ms"] != value:
        return info.format(spans["half_life_ms"])
    return ""


def _infos_read(page: Page) -> list[OptionInfo]:
    columns = page.array("option_infos")
    string = page.memory.string
    rows = (record_at(columns, place) for place in range(len(columns["name"])))
    return [
        OptionInfo(
            name=string(row["name"]),
            kind=Kind(row["type"]),
            anytime=bool(row["anytime"]),
            minimum=row["minimum"],
            maximum=row["maximum"],
            word=string(row["word"]),
            word_value=row["word_value"],
            choices=tuple(_choices_read(page, row["choices"], row["choice_count"])),
            initial=row["initial"],
            cost=string(row["cost"]),
            text=string(row["text"]),
        )
        for row in rows
    ]


def _choices_read(page: Page, address: int, count: int) -> list[str]:
    words = page.columns(page.table("option_choices"), address, count)["word"] if count else ()
    return [page.memory.string(int(word)) for word in words]
