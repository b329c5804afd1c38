"""Sizes of memory in a form for people."""

from __future__ import annotations

UNITS = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def size_text(size: float) -> str:
    """1536 is 1.5 KiB."""
    for unit, factor in UNITS:
        if abs(size) >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size:.0f} B"


def mib_text(size: int) -> str:
    """For columns."""
    return f"{size / (1 << 20):.2f}"


def count_text(count: int, what: str) -> str:
    """1 block, 2 blocks, no blocks."""
    return f"{count or 'no'} {what}{'' if count == 1 else 's'}"
