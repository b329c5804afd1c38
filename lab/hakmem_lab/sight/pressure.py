"""Pressure stall information: the share of the time in which work waited for memory."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

LINE = re.compile(r"(some|full) avg10=([\d.]+)")


@dataclass(frozen=True)
class Pressure:
    """Shares of the last ten seconds, in per cent."""

    some: float
    """Some task waited."""
    full: float
    """All tasks waited."""


def pressure_read(file: Path) -> Pressure | None:
    """None if the kernel does not report it."""
    try:
        shares = {word: float(share) for word, share in LINE.findall(file.read_text())}
    except OSError:
        return None
    return Pressure(shares.get("some", 0.0), shares.get("full", 0.0))
