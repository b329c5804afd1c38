"""From the rounds of a comparison to a verdict on each allocator and each figure. Needs no machine: it can be
repeated on kept samples.

A ratio is the user's own allocator over the other one: above 1 the other is faster, or smaller. For each figure
Holm's steps keep the chance of any false verdict among all allocators below alpha.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from hakmem_lab.measure.runner import Measured
from hakmem_lab.measure.task import Task
from hakmem_lab.statistics.estimate import Estimate, Verdict
from hakmem_lab.statistics.sequential import Look, holm_estimates
from hakmem_lab.studies.ab import Control, same_state
from hakmem_lab.studies.compare import Arms, Course, Round
from hakmem_lab.workloads.cells import Measure

MEMORY_MARGIN = 0.05


@dataclass(frozen=True)
class Figure:
    name: str
    value: Callable[[Measured], float | None]
    is_time: bool = False

    def margin(self, time_margin: float) -> float:
        return time_margin if self.is_time else MEMORY_MARGIN


TIME = Figure("time", lambda run: run.seconds / run.ops, is_time=True)
CPU = Figure("processor time", lambda run: run.cpu_seconds / run.ops, is_time=True)
PEAK = Figure("peak RSS", lambda run: run.peak_rss_kib)
IDLE = Figure("idle RSS", lambda run: run.idle_rss_kib)
FAULTS = Figure("page faults", lambda run: run.minor_faults + run.major_faults + 1)
FIGURES = (TIME, CPU, PEAK, IDLE, FAULTS)


@dataclass(frozen=True)
class Judged:
    """One allocator in one figure."""

    estimate: Estimate
    verdict: Verdict
    detectable: float


@dataclass(frozen=True)
class Row:
    """One allocator. Without verdicts it was not judged; FAILURE says why it could not be."""

    name: str
    judged: dict[str, Judged]
    """Verdicts by figure."""
    medians: dict[str, float]
    screened: float | None = None
    """The median ratio of time, if it was only screened."""
    failure: str = ""

    def verdict(self, figure: str) -> Verdict | None:
        return self.judged[figure].verdict if figure in self.judged else None


class Answer(Enum):
    """What a comparison comes to."""

    NOBODY = "no other allocator ran the program to the end of the rounds"
    VOID = "the user's own allocator differed from itself"
    FASTER = "another is faster"
    SMALLER = "none is faster, but another is as fast and smaller"
    STAY = "none is better"
    THRIFTY = "not decided by the clock, but another takes less processor time"
    OPEN = "not decided"


@dataclass(frozen=True)
class Decision:
    answer: Answer
    row: Row | None = None
    """The allocator that it is about."""

    @property
    def is_conclusive(self) -> bool:
        return self.answer in (Answer.FASTER, Answer.SMALLER, Answer.STAY)


@dataclass(frozen=True)
class Outcome:
    primary: str
    """The figure that decides: time or processor time."""
    baseline: str
    margin: float
    alpha: float
    rounds: int
    rows: tuple[Row, ...]
    """Best first; those that were not judged at the end."""
    same: Estimate | None
    slowed: Estimate | None
    noisy: tuple[str, ...]
    """Figures in which the same allocator differed from itself: their verdicts are void."""
    blind: bool
    """The known slowdown was missed: no time is called equal."""

    @property
    def is_void(self) -> bool:
        return self.primary in self.noisy

    @property
    def judged_rows(self) -> list[Row]:
        return [row for row in self.rows if row.judged]

    @property
    def is_decided(self) -> bool:
        """Every finalist has a verdict in the primary figure."""
        verdicts = [row.verdict(self.primary) for row in self.judged_rows]
        return bool(verdicts) and all(one not in (None, Verdict.UNCLEAR, Verdict.VOID) for one in verdicts)

    @property
    def decision(self) -> Decision:
        """The fastest of those that are clearly faster; otherwise what else is sure."""
        if not self.judged_rows:
            return Decision(Answer.NOBODY)
        if self.is_void:
            return Decision(Answer.VOID)
        if faster := self._most_ahead(self.primary):
            return Decision(Answer.FASTER, faster)
        if smaller := self._most_ahead(PEAK.name, lambda row: row.verdict(self.primary) is Verdict.EQUAL):
            return Decision(Answer.SMALLER, smaller)
        if self.is_decided:
            return Decision(Answer.STAY)
        if thrifty := self._most_ahead(CPU.name):
            return Decision(Answer.THRIFTY, thrifty)
        return Decision(Answer.OPEN)

    def _most_ahead(self, figure: str, also: Callable[[Row], bool] = lambda _: True) -> Row | None:
        """Of those that are clearly ahead in this figure."""
        ahead = [row for row in self.judged_rows if row.verdict(figure) is Verdict.AHEAD and also(row)]
        return max(ahead, key=lambda row: row.judged[figure].estimate.ratio, default=None)


def log_ratios(rounds: Sequence[Round], figure: Figure, baseline: str, name: str) -> list[float]:
    """Empty if a run does not have the figure."""
    found = []
    for one in rounds:
        if baseline in one.runs and name in one.runs:
            mine, its = figure.value(one.runs[baseline]), figure.value(one.runs[name])
            if not mine or not its:
                return []
            found.append(math.log(mine / its))
    return found


def outcome_make(course: Course, arms: Arms, task: Task, margin: float, alpha: float) -> Outcome:
    """The looks that were taken so far."""
    primary = CPU if task.measure is Measure.CPU else TIME
    baseline = arms.baseline.name
    names = [arm.name for arm in course.finalists]

    def looks(figure: Figure, name: str) -> list[Look]:
        ratios = np.array(log_ratios(course.rounds, figure, baseline, name))
        return [Look(ratios[: look.pairs], look.share) for look in course.looks] if len(ratios) else []

    def control(figure: Figure, name: str) -> Estimate | None:
        taken = looks(figure, name)
        return holm_estimates([taken], alpha, figure.margin(margin))[0] if taken else None

    noisy = tuple(
        figure.name
        for figure in FIGURES
        if same_state(looks(figure, arms.again.name), alpha) is Control.FAILED
    )
    slowed = control(primary, arms.slowed.name)
    blind = slowed is None or slowed.verdict(margin) is not Verdict.BEHIND
    judged: dict[str, dict[str, Judged]] = {name: {} for name in names}
    for figure in FIGURES:
        asked = {name: taken for name in names if (taken := looks(figure, name))}
        limit = figure.margin(margin)
        estimates = holm_estimates(list(asked.values()), alpha, limit) if asked else []
        for name, estimate in zip(asked, estimates, strict=True):
            verdict = estimate.verdict(limit)
            if figure.name in noisy:
                verdict = Verdict.VOID
            elif blind and figure.is_time and verdict is Verdict.EQUAL:
                verdict = Verdict.UNCLEAR
            judged[name][figure.name] = Judged(estimate, verdict, estimate.detectable(limit))
    rows = [_row(course, primary, baseline, arm.name, judged.get(arm.name, {})) for arm in arms.candidates]
    return Outcome(
        primary=primary.name,
        baseline=baseline,
        margin=margin,
        alpha=alpha,
        rounds=len(course.rounds),
        rows=(*sorted(rows, key=lambda row: _rank(row, primary.name)),),
        same=control(primary, arms.again.name),
        slowed=slowed,
        noisy=noisy,
        blind=blind,
    )


def _row(course: Course, primary: Figure, baseline: str, name: str, judged: dict[str, Judged]) -> Row:
    if name in course.failures:
        return Row(name, {}, {}, failure=course.failures[name])
    screened = log_ratios(course.screening, primary, baseline, name)
    return Row(
        name,
        judged,
        medians_of(course, name),
        None if judged or not screened else math.exp(statistics.median(screened)),
    )


def medians_of(course: Course, name: str) -> dict[str, float]:
    """Medians by figure, of the judged rounds or, without these, of the screening."""
    judged, screened = (
        [one.runs[name] for one in rounds if name in one.runs] for rounds in (course.rounds, course.screening)
    )
    runs = judged or screened
    medians = {}
    for figure in FIGURES:
        values = [value for run in runs if (value := figure.value(run)) is not None]
        if values:
            medians[figure.name] = float(statistics.median(values))
    return medians


def _rank(row: Row, primary: str) -> tuple[int, float]:
    if row.failure:
        return 2, 0.0
    if primary in row.judged:
        return 0, -row.judged[primary].estimate.ratio
    return 1, -(row.screened or 0.0)
