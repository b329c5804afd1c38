"""Files in which the kernel reports a single value."""

from __future__ import annotations

from pathlib import Path

UNBOUNDED = 1 << 60
"""Control groups of version 1 contain a number beyond this if there is no limit."""


def kernel_text(file: Path) -> str | None:
    """None: the kernel does not report it."""
    try:
        return file.read_text().strip()
    except OSError:
        return None


def kernel_number(file: Path) -> int | None:
    """None also if it is a word, negative, or unlimited."""
    text = kernel_text(file)
    value = int(text) if text is not None and text.isdigit() else UNBOUNDED
    return value if value < UNBOUNDED else None
