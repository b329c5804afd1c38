"""What grows: several readings of one process, so that fluctuation is not mistaken for a leak."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

from hakmem_lab.sight.account import Account
from hakmem_lab.sight.page import NoPageError
from hakmem_lab.sight.process import ProcessGoneError

READINGS = 5


@dataclass(frozen=True)
class Growth:
    """Growth of blocks in use, over SECONDS."""

    what: str
    block_bytes: int | None
    """Block size of the class; None: blocks larger than any class."""
    first: int
    """Bytes in use at the first reading."""
    last: int
    seconds: float
    steady: bool
    """Whether it never decreased."""

    @property
    def added(self) -> int:
        return self.last - self.first

    @property
    def per_hour(self) -> float:
        """Bytes."""
        return 3600 * self.added / self.seconds


def readings_take(first: Account, read: Callable[[], Account], seconds: float) -> list[Account]:
    """Takes READINGS readings, starting with FIRST; the last is SECONDS later. Fewer if the process ends before."""
    begun = time.monotonic()
    readings = [first]
    with suppress(
        ProcessGoneError, NoPageError
    ):  # it ended, or is another program: what was read before is told
        for number in range(1, READINGS):
            time.sleep(max(0.0, begun + seconds * number / (READINGS - 1) - time.monotonic()))
            reading = read()
            if not reading.is_of_same_program(first):
                break
            readings.append(reading)
    return readings


def growths_find(readings: Sequence[Account]) -> list[Growth]:
    """What grew, the fastest first."""
    sizes: dict[int | None, list[int]] = {}
    for reading in readings:
        for number, size in _in_use(reading).items():
            sizes.setdefault(number, []).append(size)
    seconds = readings[-1].seconds - readings[0].seconds
    found = [_growth(block, values, seconds) for block, values in sizes.items() if values[-1] > values[0]]
    return sorted(found, key=lambda growth: growth.added, reverse=True)


def _growth(block: int | None, values: Sequence[int], seconds: float) -> Growth:
    return Growth(
        what="large blocks" if block is None else f"blocks of {block} B",
        block_bytes=block,
        first=values[0],
        last=values[-1],
        seconds=seconds,
        steady=all(before <= after for before, after in pairwise(values)),
    )


def _in_use(account: Account) -> dict[int | None, int]:
    """Bytes in use by the size of a block, over all copies of hakmem."""
    sizes: dict[int | None, int] = {None: 0}
    for copy in account.copies:
        sizes[None] += copy.books.unclassed_bytes + sum(size for _address, size in copy.books.outside)
        for one in copy.books.classes:
            sizes[one.block_bytes] = sizes.get(one.block_bytes, 0) + one.live_bytes
    return sizes
