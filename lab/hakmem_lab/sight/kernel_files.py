"""Files in which the kernel says one thing."""

from __future__ import annotations

from pathlib import Path

UNBOUNDED = 1 << 60
"""Control groups of version 1 write a number beyond this where there is no bound."""


def kernel_text(file: Path) -> str | None:
    """None: the kernel does not say."""
    try:
        return file.read_text().strip()
    except OSError:
        return None


def kernel_number(file: Path) -> int | None:
    """None also where it is a word, less than nothing, or without a bound."""
    text = kernel_text(file)
    value = int(text) if text is not None and text.isdigit() else UNBOUNDED
    return value if value < UNBOUNDED else None
