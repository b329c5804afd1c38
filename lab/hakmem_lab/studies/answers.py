"""What a matrix answers to a goal: from its figures, and from what has none.

No planned workload that a goal is about is passed over: one in which hakmem failed misses it, and one without a
figure leaves it open.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from hakmem_lab.studies.comparing import NOT_MEASURED, Result
from hakmem_lab.studies.judging import EVERY_FAILS, Matrix

NAMED_MAX = 3
"""An answer names at most this many workloads; the tables have them all."""


class State(Enum):
    """In the order of a report."""

    MISSED = "missed"
    OPEN = "open"
    MET = "met"


@dataclass(frozen=True)
class Answer:
    state: State
    why: str


@dataclass(frozen=True)
class Gaps:
    """Workloads that a goal is about and that have no figure for it."""

    broken: Mapping[str, str] = field(default_factory=dict)
    """How hakmem failed, by workload: the goal is missed."""
    unknown: Mapping[str, str] = field(default_factory=dict)
    """Why nothing is known, by workload: the goal is not met."""
    void: Sequence[str] = ()
    """In these it is not met, either."""

    @property
    def leave_open(self) -> bool:
        return bool(self.unknown or self.void)

    @property
    def told(self) -> list[str]:
        ways: dict[str, list[str]] = {}
        for name, what in self.broken.items():
            ways.setdefault(what.partition(":")[0], []).append(name)
        told = [f"hakmem {way} in {named_text(names)}" for way, names in ways.items()]
        if self.void:
            told.append(f"void: {named_text(self.void)}")
        if self.unknown:
            told.append(f"not known: {named_text([f'{name} ({why})' for name, why in self.unknown.items()])}")
        return told


def gaps_of(matrix: Matrix, results: Iterable[Result], void: Sequence[str] = ()) -> Gaps:
    """A workload has a figure if it was compared with one of the peers, unless another is still to be measured: that one
    may be better. A peer that failed is not."""
    by_row: dict[str, list[Result]] = {}
    for one in results:
        by_row.setdefault(one.row.name, []).append(one)
    broken = {name: what for name, what in matrix.broken.items() if name in by_row}
    unknown = {
        name: why for name, against in by_row.items() if name not in broken and (why := _why_unknown(against))
    }
    return Gaps(broken, unknown, void)


def _why_unknown(against: Sequence[Result]) -> str:
    without = [one for one in against if one.estimate is None]
    if without and not without[0].row.served:
        return EVERY_FAILS
    if any(one.failure == NOT_MEASURED for one in without):
        return NOT_MEASURED
    return without[0].failure if len(without) == len(against) else ""


def answer_make(state: State, why: str, gaps: Gaps) -> Answer:
    """STATE is that of the workloads with a figure."""
    if gaps.broken:
        state = State.MISSED
    elif gaps.leave_open and state is State.MET:
        state = State.OPEN
    return Answer(state, "; ".join(text for text in (why, *gaps.told) if text))


def named_text(texts: Sequence[str]) -> str:
    more = len(texts) - NAMED_MAX
    return "; ".join([*texts[:NAMED_MAX], *([f"and {more} more"] if more > 0 else [])])
