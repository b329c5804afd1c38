"""Why RSS is what it is: one table of every resident byte, one of size classes, and what would help."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from hakmem_lab.grid import Grid
from hakmem_lab.sight.account import DIFFERENCE_MAX, Account, CopyAccount, Row
from hakmem_lab.sight.advice import Advice, use_lines
from hakmem_lab.sight.growth import READINGS, Growth
from hakmem_lab.sight.sizes import count_text, mib_text, size_text

FORM = "1.0"
"""Version of the JSON: the first number grows when something is removed or changes its meaning."""
CLASSES_SHOWN = 10
GROWTHS_SHOWN = 10
MOSTLY = 0.5
"""Share of RSS."""
SHOWN_BYTES = 5 << 10
"""Less than this would be printed as 0.00 MiB."""


def rows_of(account: Account) -> list[Row]:
    """Every resident byte, hakmem's first; the difference from what the kernel counts last."""
    rows = [row for copy in account.copies for row in _copy_rows(copy, len(account.copies) > 1)]
    rows += account.others
    note = "" if account.is_reconciled else "it changes faster than it can be read"
    return [*rows, Row("difference", "counted otherwise by the kernel", account.difference, note)]


def _copy_rows(copy: CopyAccount, several: bool) -> Iterator[Row]:
    """Without the rows that are empty."""
    owner = f"{copy.name}: " if several else ""
    for row in _all_copy_rows(copy):
        if row.size:
            yield Row(row.key, owner + row.text, row.size, row.note)


def _all_copy_rows(copy: CopyAccount) -> Iterator[Row]:
    window, totals = copy.window, copy.books.totals
    blocks = sum(one.live_blocks for one in copy.books.classes if one.is_small)
    slack = f"{count_text(blocks, 'block')}; at most {size_text(copy.slack_most)} beyond what was asked for"
    yield Row("small_blocks", "small blocks in use", copy.live, slack)
    outside = len(copy.books.outside)
    yield Row(
        "large_blocks",
        "large blocks in use",
        window.large,
        f"{count_text(totals.large_blocks - outside, 'block')} above 64 KiB",
    )
    yield Row("outside", "blocks outside the window", copy.outside, count_text(outside, "block"))
    yield Row(
        "cached",
        "cached by threads",
        window.cached,
        f"free, and at hand; threads: {_live_threads(copy)}",
    )
    beside = "fragmentation: only the program can free the blocks in use"
    yield Row("beside", "free blocks beside used ones", window.beside, beside)
    for hole, size in window.holes.most_common():
        yield Row(f"holes_{hole.name.lower()}", "free pages inside slabs", size, hole.value)
    for why, size in window.free.most_common():
        yield Row(f"free_{why.name.lower()}", "free runs of pages", size, why.value)
    inflation = "never used, or given back: a huge page brought it in"
    yield Row("untouched", "inflation by huge pages", window.untouched, inflation)
    yield Row("reserve", "behind large blocks that grew", window.reserve)
    yield Row("ends", "ends of slabs, where no block fits", window.ends)
    yield Row("changing", "just being taken or given back", window.changing)
    yield Row("window_books", "hakmem's books: of the window's pages", copy.window_books)
    yield Row("other_books", "hakmem's books: heaps, bitmaps, stacks of blocks", copy.other_books)


def _live_threads(copy: CopyAccount) -> int:
    return sum(heap.live for heap in copy.books.heaps)


def account_grid(account: Account) -> Grid:
    """Rows that are large enough to be seen, and the difference in any case."""

    def cells(row: Row) -> tuple[str, ...]:
        return (row.text, row.note, mib_text(row.size), f"{100 * row.size / max(1, account.rss):.1f} %")

    *shown, difference = rows_of(account)
    rows = [cells(row) for row in shown if row.size >= SHOWN_BYTES] + [cells(difference)]
    total = ("resident, as the kernel counts it", "", mib_text(account.rss), "")
    return Grid(
        title=f"Process {account.process.pid}, {account.name}: where {size_text(account.rss)} of RSS are",
        columns=("what", "why", "MiB", "of RSS"),
        rows=(*rows, total),
        text_columns=2,
    )


def classes_grid(account: Account) -> Grid:
    """The classes with the most resident bytes."""
    rows = []
    for copy in account.copies:
        books = {one.block_bytes: one for one in copy.books.classes}
        for one in copy.window.classes:
            mine = books[one.block_bytes]
            cells = (
                f"{one.block_bytes} B",
                str(mine.live_blocks),
                mib_text(one.live),
                mib_text(min(mine.slack_bytes_most, one.live)),
                mib_text(one.cached),
                mib_text(one.beside),
                mib_text(one.holes),
            )
            if one.resident >= SHOWN_BYTES:
                rows.append((one.resident, cells))
    rows.sort(key=lambda row: -row[0])
    return Grid(
        title="Blocks by size, MiB resident, the most first",
        columns=("size", "blocks in use", "in use", "slack at most", "cached", "free beside", "free pages"),
        rows=tuple(cells for _resident, cells in rows[:CLASSES_SHOWN]),
    )


def growth_grid(growths: Sequence[Growth]) -> Grid:
    return Grid(
        title="What grew while it was watched, the most first",
        columns=("what", "steadily", "MiB in use", "grown, MiB", "MiB an hour"),
        rows=tuple(
            (
                growth.what,
                "yes" if growth.steady else "no",
                mib_text(growth.last),
                mib_text(growth.added),
                f"{growth.per_hour / (1 << 20):.0f}",
            )
            for growth in growths[:GROWTHS_SHOWN]
            if growth.added >= SHOWN_BYTES
        ),
        text_columns=2,
    )


def note_lines(account: Account, when: str, watch: float, looks: int) -> list[str]:
    """WATCH: the requested number of seconds."""
    lines = [when] if when else []
    if watch and looks < READINGS:
        lines.append(f"It ended while it was watched: {looks} of {READINGS} looks.")
    if account.swap:
        lines.append(f"Swapped out, and not resident: {size_text(account.swap)}.")
    if not account.is_reconciled:
        lines.append(
            f"The counts differ by more than {100 * DIFFERENCE_MAX:g} %: the process changes faster than it"
            " can be read."
        )
    return lines


def hint_lines(account: Account, watched: bool) -> list[str]:
    """Where to look next."""
    share = sum(copy.own for copy in account.copies) / max(1, account.rss)
    if watched or share < MOSTLY:
        return []
    return [f"The program's own blocks are {100 * share:.0f} % of RSS: --watch 30s shows which of them grow."]


def advice_lines(account: Account, advice: Sequence[Advice], watched: bool) -> list[str]:
    helps = [f"  {number}. {one.text}" for number, one in enumerate(advice, start=1)]
    return [
        *use_lines(account),
        "What would help:"
        if helps
        else "hakmem holds little beyond that: no option would make it much less.",
        *helps,
        *hint_lines(account, watched),
    ]


def explain_content(
    account: Account, growths: Sequence[Growth], advice: Sequence[Advice], seconds: float | None
) -> dict[str, object]:
    return {
        "form": FORM,
        "pid": account.process.pid,
        "program": account.name,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seconds_after_start": seconds,
        "rss_bytes": account.rss,
        "swap_bytes": account.swap,
        "locked_bytes": account.locked,
        "reconciled": account.is_reconciled,
        "rows": [
            {"key": row.key, "text": row.text, "bytes": row.size, "why": row.note} for row in rows_of(account)
        ],
        "classes": [
            {
                "copy": number,
                "block_bytes": one.block_bytes,
                "slabs": one.slabs,
                "taken_bytes": one.taken,
                "cached_bytes": one.cached,
                "beside_bytes": one.beside,
                "hole_bytes": one.holes,
            }
            for number, copy in enumerate(account.copies)
            for one in copy.window.classes
        ],
        "growth": [asdict(growth) | {"bytes_per_hour": growth.per_hour} for growth in growths],
        "in_use": list(use_lines(account)),
        "advice": [{"bytes": one.size, "text": one.text} for one in advice],
    }
