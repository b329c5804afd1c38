"""The last records of a kind, in slots that the process overwrites while they are read: src/watch/ring.h."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hakmem_lab.sight.page import Columns, Page, Record, columns_parse, record_at


def ring_rows(page: Page, name: str) -> list[Record]:
    """The consistent records, in the order of their numbers."""
    rows = whole_rows([_ring_read(page, name) for _ in range(3)])
    return sorted(rows, key=lambda row: row["number"])


def _ring_read(page: Page, name: str) -> Columns:
    """Without memory that the process never touched."""
    table = page.table(name)
    length = (table.count - 1) * table.record_bytes + table.extent
    return columns_parse(table, page.memory.read_present(table.address, length), table.count)


def whole_rows(copies: Sequence[Columns]) -> Iterator[Record]:
    """From three copies, one after the other: a record with the same number in the first and the last was not
    written to while the second was made."""
    first, second, last = copies
    for place, number in enumerate(second["number"].tolist()):
        if number and number == first["number"][place] == last["number"][place]:
            yield record_at(second, place)
