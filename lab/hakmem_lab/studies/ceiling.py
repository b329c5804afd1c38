"""How much of what its own structure allows does hakmem reach, and what takes the rest?

Three allocators run in the same interleaved rounds: hakmem; the ceiling, which is its front without checks,
refills, spills and owners, with all memory prepared before main; and the null allocator below it, which hands out a
thread's one block of a class again and again. So hakmem's time for an operation falls into three parts:

    the workload's own     what it takes on the null allocator
    the structure          what the ceiling takes beyond that
    the checks             what hakmem takes beyond the ceiling: checks, refills, spills, ownership, page faults

A workload that the ceiling cannot serve is left out, with its reason. One in which the ceiling is slower than
hakmem is void: there it bounds nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from hakmem_lab.errors import LabError, ProcessFailedError
from hakmem_lab.measure.prepare import plan_of
from hakmem_lab.measure.stage import Stage
from hakmem_lab.statistics.estimate import (
    Estimate,
    Samples,
    Verdict,
    pairs_needed,
    student_interval,
    suite_estimate,
)
from hakmem_lab.studies.candidates import Candidate, cell_candidate
from hakmem_lab.studies.comparing import Result
from hakmem_lab.studies.judging import Matrix
from hakmem_lab.studies.matrix import Row
from hakmem_lab.workloads.cells import Cell

KIND = "ceiling"
CEILING, NULL = "ceiling", "null"
ALL = "all"
RESAMPLES = 4000


class State(Enum):
    """The state of a workload, in the order of a report."""

    VOID = "void"
    BELOW = "below"
    REACHED = "reached"
    OPEN = "open"


@dataclass(frozen=True)
class Interval:
    """A share, with its interval."""

    middle: float
    low: float
    high: float


@dataclass(frozen=True)
class Times:
    """Nanoseconds for one operation, medians."""

    hakmem: float
    ceiling: float
    null: float


@dataclass(frozen=True)
class Share:
    """One workload as a share of its ceiling."""

    row: Row
    state: State
    result: Result
    """hakmem compared with the ceiling: its ratio is the share."""
    times: Times
    checks: Interval | None
    """The share that the checks take of hakmem's time beyond the null allocator; None if that time is too short to
    divide."""

    @property
    def share(self) -> Estimate:
        assert self.result.estimate is not None
        return self.result.estimate


@dataclass(frozen=True)
class Answer:
    """Is it the structure or the checks? For all workloads, or for those of a group."""

    group: str
    share: Estimate
    """The geometric mean of the shares."""
    checks: Interval | None
    """The mean over workloads; None if fewer than two could be divided."""
    workloads: int
    divided: int

    @property
    def word(self) -> str:
        if self.checks is None:
            return "not decided"
        if self.checks.low > 0.5:
            return "the checks"
        return "the structure" if self.checks.high < 0.5 else "not decided"


@dataclass(frozen=True)
class Ceiling:
    matrix: Matrix
    shares: tuple[Share, ...]
    """The lowest first, with void ones before them."""
    answers: tuple[Answer, ...]
    """For all workloads first, then by group."""


# ---- measuring --------------------------------------------------------------------------------------------


def ceiling_candidates(stage: Stage, cells: Sequence[Cell]) -> tuple[list[Candidate], dict[str, str]]:
    """Cells that the ceiling can serve, and why it cannot serve the others. What it prepares before main does not
    count as the cost of a start."""
    candidates: list[Candidate] = []
    refused: dict[str, str] = {}
    for cell in cells:
        try:
            plan_of(stage, cell)
            candidates.append(replace(cell_candidate(stage, cell), starts_count=False))
        except ProcessFailedError as error:
            refused[cell.name] = error.outcome
    if not any(not one.control for one in candidates):
        reasons = "; ".join(f"{name}: {why}" for name, why in refused.items())
        raise LabError(f"the ceiling serves none of these workloads: {reasons}")
    return candidates, refused


# ---- judging ----------------------------------------------------------------------------------------------


def ceiling_judge(matrix: Matrix) -> Ceiling:
    """From a run's samples alone."""
    shares = [share for row in matrix.plan.rows if not row.control and (share := _share(matrix, row))]
    shares.sort(key=lambda one: (one.state is not State.VOID, one.share.ratio))
    counted = [one for one in shares if one.state is not State.VOID]
    groups = list(dict.fromkeys(one.row.group for one in counted))
    answers = [_answer(matrix, ALL, counted)] if counted else []
    if len(groups) > 1:
        answers += [
            _answer(matrix, group, [one for one in counted if one.row.group == group]) for group in groups
        ]
    return Ceiling(matrix, tuple(shares), tuple(answers))


def _share(matrix: Matrix, row: Row) -> Share | None:
    result, below = matrix.result(row.name, CEILING), matrix.result(row.name, NULL)
    if result is None or below is None or result.estimate is None or below.estimate is None:
        return None
    medians = (matrix.medians[row.name, arm] for arm in (matrix.plan.subject, CEILING, NULL))
    return Share(
        row=row,
        state=_state(result),
        result=result,
        times=Times(*(1e9 / speed for speed in medians)),
        checks=_checks(result, below, matrix.plan.settings.confidence),
    )


def _state(result: Result) -> State:
    """VOID: its controls failed, or the whole interval says that the ceiling is slower."""
    assert result.estimate is not None
    if result.verdict is Verdict.VOID or result.estimate.low > 1:
        return State.VOID
    states = {Verdict.BEHIND: State.BELOW, Verdict.EQUAL: State.REACHED}
    return states.get(result.verdict, State.OPEN)


def _checks(result: Result, below: Result, confidence: float) -> Interval | None:
    """From medians over rounds, with hakmem's time as 1: the quotient of a single round says nothing if its null
    allocator came near hakmem by noise. There is nothing to divide if the workload itself takes nearly all of the
    time, or if the null allocator is not faster than the ceiling."""
    slots = sorted(result.log_ratios.keys() & below.log_ratios.keys())
    rounds = np.exp([(result.log_ratios[slot], below.log_ratios[slot]) for slot in slots])
    if not len(rounds):
        return None
    share, workload = np.median(rounds, axis=0)
    if 1 - workload <= result.margin or workload >= share:
        return None
    low, high = -math.inf, math.inf
    if len(rounds) >= pairs_needed(confidence):
        low, high = _checks_interval(rounds, confidence)
    return Interval(float((1 - share) / (1 - workload)), low, high)


def _checks_interval(rounds: Samples, confidence: float) -> tuple[float, float]:
    """By resampling the rounds, the same way each time; unbounded if too many of the resamples leave nothing to
    divide."""
    drawn = np.random.default_rng(0).integers(len(rounds), size=(RESAMPLES, len(rounds)))
    share, workload = np.median(rounds[drawn], axis=1).T
    parts = np.full(RESAMPLES, math.inf)
    np.divide(1 - share, 1 - workload, out=parts, where=workload < 1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(parts, (tail, 1 - tail), method="inverted_cdf")
    return float(low), float(high)


def _answer(matrix: Matrix, group: str, shares: Sequence[Share]) -> Answer:
    settings = matrix.plan.settings
    cells = [list(one.result.log_ratios.values()) for one in shares]
    parts = [one.checks.middle for one in shares if one.checks is not None]
    return Answer(
        group=group,
        share=suite_estimate(cells, settings.confidence),
        checks=_mean(parts, settings.confidence),
        workloads=len(shares),
        divided=len(parts),
    )


def _mean(parts: Sequence[float], confidence: float) -> Interval | None:
    """With Student's interval: the workloads are the sample."""
    if len(parts) < 2:
        return None
    return Interval(*student_interval(parts, confidence))
