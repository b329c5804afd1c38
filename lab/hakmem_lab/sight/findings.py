"""What a doctor reports: one finding for each thing checked, problems first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum


class Level(IntEnum):
    PROBLEM = 0
    """Something does not work, or soon will not."""
    NOTICE = 1
    """It works, but has a cost, or could be better."""
    FINE = 2


@dataclass(frozen=True)
class Finding:
    level: Level
    what: str
    value: str
    means: str
    """What it costs or gains, in a few words."""


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: finding.level)


def problem(what: str, value: str, means: str) -> Finding:
    return Finding(Level.PROBLEM, what, value, means)


def notice(what: str, value: str, means: str) -> Finding:
    return Finding(Level.NOTICE, what, value, means)


def fine(what: str, value: str, means: str) -> Finding:
    return Finding(Level.FINE, what, value, means)
