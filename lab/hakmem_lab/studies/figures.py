"""hakmem against its peers over a table of cells, with the controls that judge the run itself.

Beside the peers every cell carries three arms that must come out as known: the same library under another name
(A/A: no difference), that copy slowed by twice the margin (a difference), and in the suite a cell that
allocates nothing. A cell whose A/A arm differs is void; one whose slowdown was missed cannot call anything
equal.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hakmem_lab.allocators.peers import Peer
from hakmem_lab.measure.pairs import (
    Budget,
    Comparison,
    Pair,
    Plan,
    cell_plan,
    pairs_run,
    pairs_to_analyse,
)
from hakmem_lab.measure.runner import Arm, Measured
from hakmem_lab.measure.stage import Stage
from hakmem_lab.statistics.estimate import Estimate, Verdict, ratio_estimate, suite_estimate
from hakmem_lab.workloads.cells import Cell, Target

SAME = "itself"
SLOWED = "itself, slowed"
RSS_MARGIN = 0.05


@dataclass(frozen=True)
class Settings:
    budget: Budget
    margin: float = 0.03

    @property
    def slowdown_percent(self) -> float:
        return 200 * self.margin


@dataclass(frozen=True)
class Memory:
    """Medians of a cell's runs."""

    subject_rss_kib: float | None
    other_rss_kib: float | None
    rss: Estimate | None
    """The ratio of peak RSS: below one, hakmem is smaller."""
    subject_faults: float
    other_faults: float


@dataclass(frozen=True)
class Result:
    """One cell against one peer."""

    cell: Cell
    against: str
    estimate: Estimate
    verdict: Verdict
    detectable: float
    target: Target | None
    disturbed: int
    shortest_run: float
    memory: Memory
    log_ratios: tuple[float, ...]

    @property
    def target_state(self) -> str:
        """met, missed, or open where the interval does not decide."""
        if self.target is None:
            return ""
        if self.verdict is Verdict.VOID:
            return "open"
        if self.target.at_least is not None:
            if self.estimate.low >= self.target.at_least:
                return "met"
            return "missed" if self.estimate.high < self.target.at_least else "open"
        if self.verdict is Verdict.BEHIND:
            return "missed"
        return "open" if self.verdict is Verdict.UNCLEAR else "met"


@dataclass(frozen=True)
class Control:
    """An arm whose outcome is known."""

    cell: Cell
    name: str
    estimate: Estimate
    passed: bool
    means: str


@dataclass(frozen=True)
class Figures:
    settings: Settings
    results: tuple[Result, ...]
    controls: tuple[Control, ...]

    @classmethod
    def of(cls, settings: Settings, results: Sequence[Result], controls: Sequence[Control]) -> Figures:
        """A negative control that moved makes every verdict of the run void."""
        if any(control.cell.control and not control.passed for control in controls):
            results = [replace(result, verdict=Verdict.VOID) for result in results]
        return cls(settings, tuple(results), tuple(controls))

    @property
    def losses_first(self) -> list[Result]:
        order = [
            Verdict.BEHIND,
            Verdict.VOID,
            Verdict.UNCLEAR,
            Verdict.EQUAL,
            Verdict.AHEAD,
        ]
        return sorted(
            (result for result in self.results if not result.cell.control),
            key=lambda result: (
                result.target_state != "missed",
                order.index(result.verdict),
                result.estimate.ratio,
            ),
        )

    def suite(self, against: str, seed: int) -> Estimate | None:
        """The geometric mean over the cells against one peer."""
        cells = [
            np.array(result.log_ratios)
            for result in self.results
            if result.against == against and not result.cell.control
        ]
        if len(cells) < 2:
            return None
        rng = np.random.default_rng(seed)
        return suite_estimate(cells, self.settings.budget.confidence, rng)

    @property
    def missed(self) -> list[Result]:
        return [result for result in self.results if result.target_state == "missed"]


def comparisons_make(
    hakmem: Peer, again: Peer, peers: Sequence[Peer], settings: Settings
) -> list[Comparison]:
    subject = Arm(hakmem)
    against = [Comparison(peer.name, subject, Arm(peer)) for peer in peers]
    same = Comparison(SAME, subject, Arm(again))
    slowed = Comparison(SLOWED, subject, Arm(again, settings.slowdown_percent))
    return [*against, same, slowed]


def cell_measure(
    stage: Stage,
    cell: Cell,
    comparisons: Sequence[Comparison],
    settings: Settings,
    rng: random.Random,
    planned: Callable[[Plan], None],
    keep: Callable[[Pair], None],
) -> tuple[list[Result], list[Control]]:
    """Plans, runs and judges one cell."""
    if cell.control:
        comparisons = [one for one in comparisons if one.name not in (SAME, SLOWED)]
    plan = cell_plan(stage, cell, comparisons, settings.budget, rng)
    planned(plan)
    pairs = pairs_run(plan, comparisons, rng, keep)
    return cell_judge(cell, comparisons, pairs, settings)


def cell_judge(
    cell: Cell, comparisons: Sequence[Comparison], pairs: Sequence[Pair], settings: Settings
) -> tuple[list[Result], list[Control]]:
    """From the pairs of a cell to its verdicts. Needs no machine: it can be run again on kept samples."""
    results = {
        comparison.name: _result(
            cell,
            comparison,
            [pair for pair in pairs if pair.comparison.name == comparison.name],
            settings,
        )
        for comparison in comparisons
    }
    controls = _controls(cell, results)
    failed = {control.name for control in controls if not control.passed}
    judged = [
        _with_controls(result, failed) for name, result in results.items() if name not in (SAME, SLOWED)
    ]
    return judged, controls


def _result(cell: Cell, comparison: Comparison, pairs: Sequence[Pair], settings: Settings) -> Result:
    confidence = settings.budget.confidence
    used = pairs_to_analyse(pairs, confidence)
    log_ratios = tuple(pair.log_ratio for pair in used)
    estimate = ratio_estimate(log_ratios, confidence)
    return Result(
        cell=cell,
        against=comparison.name,
        estimate=estimate,
        verdict=estimate.verdict(settings.margin),
        detectable=estimate.detectable(settings.margin),
        target=cell.targets.get(comparison.name),
        disturbed=sum(1 for pair in pairs if pair.disturbed),
        shortest_run=min(run.seconds for pair in used for run in (pair.subject, pair.other)),
        memory=_memory(used, confidence),
        log_ratios=log_ratios,
    )


def _memory(pairs: Sequence[Pair], confidence: float) -> Memory:
    def median(runs: Sequence[Measured], field: str) -> float | None:
        values = [getattr(run, field) for run in runs]
        return None if None in values else float(statistics.median(values))

    subjects = [pair.subject for pair in pairs]
    others = [pair.other for pair in pairs]
    logs = [
        math.log(pair.subject.peak_rss_kib / pair.other.peak_rss_kib)
        for pair in pairs
        if pair.subject.peak_rss_kib and pair.other.peak_rss_kib
    ]
    return Memory(
        subject_rss_kib=median(subjects, "peak_rss_kib"),
        other_rss_kib=median(others, "peak_rss_kib"),
        rss=ratio_estimate(logs, confidence) if logs else None,
        subject_faults=median(subjects, "minor_faults") or 0.0,
        other_faults=median(others, "minor_faults") or 0.0,
    )


def _controls(cell: Cell, results: dict[str, Result]) -> list[Control]:
    controls = []
    for name, result in results.items():
        differs = result.verdict in (Verdict.AHEAD, Verdict.BEHIND)
        if name == SLOWED:
            passed = result.verdict is Verdict.AHEAD
            means = "the slowdown was seen" if passed else "missed: nothing can be called equal"
        elif name == SAME or cell.control:
            passed = not differs
            means = "no false win" if passed else "a false win: the verdicts are void"
        else:
            continue
        controls.append(Control(cell, name, result.estimate, passed, means))
    return controls


def _with_controls(result: Result, failed: set[str]) -> Result:
    if SAME in failed:
        return replace(result, verdict=Verdict.VOID)
    if SLOWED in failed and result.verdict is Verdict.EQUAL:
        return replace(result, verdict=Verdict.UNCLEAR)
    return result
