"""A figure beside its limit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hakmem_lab.grid import Grid


@dataclass(frozen=True)
class Check:
    what: str
    value: str
    limit: str
    state: str
    """met, missed or open."""

    @classmethod
    def at_most(cls, what: str, value: float, limit: float) -> Check:
        return cls(what, f"{value:g}", f"at most {limit:g}", "met" if value <= limit else "missed")


def checks_grid(checks: Iterable[Check]) -> Grid:
    ordered = sorted(checks, key=lambda check: check.state != "missed")
    return Grid(
        title="Limits, missed first",
        columns=("what", "state", "value", "limit"),
        rows=tuple((check.what, check.state, check.value, check.limit) for check in ordered),
        text_columns=2,
    )
