"""From kept samples to verdicts. Needs no machine.

Every cell has two arms with a known outcome: the same library under another name (A/A: no difference), and that
copy slowed by twice the margin (a difference). A cell whose A/A arm differs is void; one whose slowdown was missed
calls nothing equal. A workload that allocates nothing must not move under any allocator, or the whole run is void.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from hakmem_lab.measure.rounds import UNDECIDED
from hakmem_lab.measure.store import OBSERVED, TAIL, TIMED, Sample
from hakmem_lab.statistics.estimate import Estimate, Verdict
from hakmem_lab.statistics.selection import Best, best_compare, holm, margin_p_value
from hakmem_lab.studies.comparing import NOT_MEASURED, ArmSamples, Result, compare, peer_select
from hakmem_lab.studies.matrix import SAME, MatrixPlan, Row, Settings
from hakmem_lab.studies.tails import Tail, tail_judge


class Outcome(Enum):
    """The outcome of a cell against the best of all peers, in the order of a report."""

    LOST = "lost"
    VOID = "void"
    OPEN = "open"
    TIE = "tie"
    WON = "won"


TOO_FEW_ROUNDS = "too few rounds"
NOT_SELECTED = "no peer is selected here"
EVERY_FAILS = "every allocator fails in it"

WATCHED = {OBSERVED: "in the run with instruments", TAIL: "in the runs with a clock"}
"""What failed there stands with these words beside what failed in the rounds."""

VERDICT_ORDER = (Verdict.BEHIND, Verdict.VOID, Verdict.UNCLEAR, Verdict.EQUAL, Verdict.AHEAD)


@dataclass(frozen=True)
class Control:
    """An arm whose outcome is known."""

    row: Row
    name: str
    estimate: Estimate | None
    passed: bool
    means: str


@dataclass(frozen=True)
class CellResult:
    """One cell against the best of its peers."""

    row: Row
    outcome: Outcome
    best: Best | None
    p_adjusted: float
    note: str = ""


@dataclass(frozen=True)
class Matrix:
    plan: MatrixPlan
    results: tuple[Result, ...]
    cells: tuple[CellResult, ...]
    """Losses first."""
    controls: tuple[Control, ...]
    failures_timed: Mapping[tuple[str, str], str]
    """By row and arm: what failed in the rounds or before them, so that nothing can be compared."""
    failures_watched: Mapping[tuple[str, str], str]
    """By row and arm: what failed in the runs with instruments or with a clock."""
    observed: Mapping[tuple[str, str], Sample]
    """By row and allocator."""
    tails: tuple[Tail, ...]
    """For the rows whose latencies were measured in rounds."""
    medians: Mapping[tuple[str, str], float]
    """Operations per second by row and allocator."""
    touches: tuple[float, ...] = ()
    """What the first touch of a page took before each timed run, in microseconds, where that is known."""
    in_turns: frozenset[str] = frozenset()
    """The rows in which the processes of a round took turns."""

    @property
    def losses_first(self) -> list[Result]:
        return sorted(
            (one for one in self.results if not one.row.control),
            key=lambda one: (
                VERDICT_ORDER.index(one.verdict) if one.estimate else len(VERDICT_ORDER),
                one.estimate.ratio if one.estimate else math.inf,
            ),
        )

    @property
    def failures(self) -> dict[tuple[str, str], str]:
        """All of them, by row and arm."""
        both = (self.failures_timed, self.failures_watched)
        keys = sorted({key for some in both for key in some})
        return {key: "; ".join(some[key] for some in both if key in some) for key in keys}

    @property
    def broken(self) -> dict[str, str]:
        """By row: how hakmem failed where there is an allocator that could be run."""
        return {row.name: what for row in self.plan.rows if row.served and (what := self.failed(row.name))}

    @property
    def lost(self) -> list[CellResult]:
        return [one for one in self.cells if one.outcome is Outcome.LOST]

    def failed(self, row: str) -> str:
        """How hakmem failed in it; empty if it did not."""
        return own_failure(self.plan, row, self.failures_timed)

    def was_compared(self, row: str) -> bool:
        return any(one.estimate for one in self.results if one.row.name == row)

    def result(self, row: str, against: str) -> Result | None:
        return next((one for one in self.results if (one.row.name, one.against) == (row, against)), None)


def own_failure(plan: MatrixPlan, row: str, failures: Mapping[tuple[str, str], str]) -> str:
    """How hakmem's library failed in a ROW, under whichever name; empty if it did not, or if nobody knows."""
    own = (failures.get((row, arm), "") for arm in plan.own)
    return next((what for what in own if what not in ("", UNDECIDED)), "")


def judge(plan: MatrixPlan, samples: Iterable[Sample]) -> Matrix:
    timed: dict[str, list[Sample]] = defaultdict(list)
    observed: dict[tuple[str, str], Sample] = {}
    watched: list[Sample] = []
    clocked: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        if sample.kind == TIMED:
            timed[sample.task].append(sample)
        elif sample.outcome:
            watched.append(sample)
        elif sample.kind == TAIL:
            clocked[sample.task].append(sample)
        elif sample.kind == OBSERVED:
            observed[sample.task, sample.allocator] = sample
    results: list[Result] = []
    controls: list[Control] = []
    failures: dict[tuple[str, str], str] = {}
    medians: dict[tuple[str, str], float] = {}
    best: dict[str, Best | None] = {}
    notes: dict[str, str] = {}
    for row in plan.rows:
        arms = ArmSamples(row, timed[row.name])
        failures |= {(row.name, arm): what for arm, what in arms.failures.items()}
        medians |= {(row.name, arm): value for arm, value in arms.medians().items()}
        selected = peer_select(row, timed[row.name]) if row.rounds.selection else None
        judged, known = _row_judge(plan, row, arms, selected)
        results += judged
        controls += known
        best[row.name] = _best(plan.settings, row, selected, judged)
        notes[row.name] = _without_best(row, selected, judged, arms.failures)
    if any(one.row.control and not one.passed for one in controls):
        results = [_void(one) for one in results]
    cells = _cells_judge(plan, best, notes, results, controls, failures)
    tails = tuple(
        tail
        for row in plan.rows
        if not row.control
        and (tail := _tail(row, observed, clocked[row.name], plan.settings.margin)) is not None
    )
    return Matrix(
        plan=plan,
        results=tuple(results),
        cells=cells,
        controls=tuple(controls),
        failures_timed=failures,
        failures_watched=_failures_watched(watched),
        observed=observed,
        tails=tails,
        medians=medians,
        touches=tuple(one.touch_us for some in timed.values() for one in some if one.touch_us is not None),
        in_turns=frozenset(name for name, some in timed.items() if any(one.in_turns for one in some)),
    )


def _failures_watched(samples: Sequence[Sample]) -> dict[tuple[str, str], str]:
    """The first of each kind."""
    first: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for kind, where in WATCHED.items():
        for one in sorted((one for one in samples if one.kind == kind), key=lambda one: one.slot):
            first[one.task, one.arm].setdefault(kind, f"{where}: {one.outcome}")
    return {key: "; ".join(told.values()) for key, told in first.items()}


def _tail(
    row: Row, observed: Mapping[tuple[str, str], Sample], rounds: Sequence[Sample], margin: float
) -> Tail | None:
    return tail_judge(row, [one for (name, _), one in observed.items() if name == row.name], rounds, margin)


def _row_judge(
    plan: MatrixPlan, row: Row, arms: ArmSamples, selected: str | None
) -> tuple[list[Result], list[Control]]:
    settings = plan.settings
    results = [compare(settings, row, arms, plan.subject, peer, peer == selected) for peer in plan.peers]
    if row.control:
        return results, _stillness(settings, row, results) or _not_run(plan, row, arms.failures)
    if not any(one.estimate for one in results):
        return results, []  # nothing was measured that could be controlled
    same = compare(settings, row, arms, plan.subject, SAME)
    slowed = compare(settings, row, arms, plan.subject, settings.slowed)
    false_win = same.verdict in (Verdict.AHEAD, Verdict.BEHIND)
    seen = slowed.verdict is Verdict.AHEAD
    controls = [
        Control(
            row,
            "itself",
            same.estimate,
            same.estimate is not None and not false_win,
            same.failure or ("a false win: the verdicts are void" if false_win else "no false win"),
        ),
        Control(
            row,
            "itself, slowed",
            slowed.estimate,
            seen,
            slowed.failure or ("the slowdown was seen" if seen else "missed: nothing can be called equal"),
        ),
    ]
    if not controls[0].passed:
        results = [_void(one) for one in results]
    elif not seen:
        results = [
            replace(one, verdict=Verdict.UNCLEAR) if one.verdict is Verdict.EQUAL else one for one in results
        ]
    return results, controls


def _stillness(settings: Settings, row: Row, results: Sequence[Result]) -> list[Control]:
    """Corrected for the number of peers: one of a dozen is easily clear of 1 by chance."""
    measured = [one for one in results if len(one.log_ratios) > 1]
    adjusted = holm([margin_p_value(list(one.log_ratios.values()), settings.margin) for one in measured])
    return [
        Control(
            row,
            one.against,
            one.estimate,
            p_value > 1 - settings.confidence,
            "did not move" if p_value > 1 - settings.confidence else "moved: the run's verdicts are void",
        )
        for one, p_value in zip(measured, adjusted, strict=True)
    ]


def _not_run(plan: MatrixPlan, row: Row, failures: Mapping[str, str]) -> list[Control]:
    """Without hakmem, or without every peer, nothing shows that the laboratory is still. A control that was not measured
    yet is none."""
    if plan.subject in failures:
        whom = plan.subject
    elif all(peer in failures for peer in plan.peers):
        whom = "every peer"
    else:
        return []
    return [Control(row, whom, None, False, "could not be run: the run's verdicts are void")]


def _void(result: Result) -> Result:
    return replace(result, verdict=Verdict.VOID) if result.estimate else result


def _best(settings: Settings, row: Row, selected: str | None, results: Sequence[Result]) -> Best | None:
    """From the rounds that did not select it; from all of them if there is only one peer."""
    measured = {one.against: one.log_ratios for one in results if one.estimate}
    if not row.rounds.selection and len(measured) == 1:
        selected = next(iter(measured))
    if selected not in measured:
        return None
    return best_compare(selected, list(measured[selected].values()), settings.margin, settings.confidence)


def _cells_judge(
    plan: MatrixPlan,
    best: Mapping[str, Best | None],
    notes: Mapping[str, str],
    results: Sequence[Result],
    controls: Sequence[Control],
    failures: Mapping[tuple[str, str], str],
) -> tuple[CellResult, ...]:
    """Every cell against the best of its peers, corrected for the number of cells; without those whose figure is
    memory."""
    settings = plan.settings
    unseen = {one.row.name for one in controls if one.name == "itself, slowed" and not one.passed}
    rows = [row for row in plan.rows if not row.control and not row.memory]
    void = {one.row.name for one in results if one.verdict is Verdict.VOID}
    found = [(row, best[row.name]) for row in rows]
    adjusted = holm([one.p_value if one else 1.0 for _, one in found])
    cells = []
    for (row, one), p_value in zip(found, adjusted, strict=True):
        broken = own_failure(plan, row.name, failures)
        if broken and row.served:
            cells.append(CellResult(row, Outcome.LOST, None, p_value, f"{plan.subject} {broken}"))
        elif one is None:
            cells.append(CellResult(row, Outcome.OPEN, None, p_value, notes[row.name]))
        else:
            seen = row.name not in unseen
            outcome = Outcome.VOID if row.name in void else _outcome(one, p_value, settings, seen)
            cells.append(CellResult(row, outcome, one, p_value))
    order = list(Outcome)
    return tuple(
        sorted(
            cells, key=lambda one: (order.index(one.outcome), one.best.estimate.ratio if one.best else 0.0)
        )
    )


def _without_best(
    row: Row, selected: str | None, results: Sequence[Result], failures: Mapping[str, str]
) -> str:
    """Why there is no best peer, if there is none. If all arms have all rounds, as in a row that rests, none of
    several peers is selected, however many rounds there are."""
    if not row.served:
        return f"{EVERY_FAILS}: {next(iter(failures.values()), '')}"
    if selected in failures:
        return f"{selected}, which was selected, {failures[selected]}"
    compared = sum(1 for one in results if one.estimate)
    if not compared:
        failed = [f"{one.against} {failures[one.against]}" for one in results if one.against in failures]
        return "; ".join(failed) or NOT_MEASURED
    return NOT_SELECTED if compared > 1 and not row.rounds.selection else TOO_FEW_ROUNDS


def _outcome(best: Best, p_value: float, settings: Settings, slowdown_seen: bool) -> Outcome:
    if p_value <= 1 - settings.confidence:
        return Outcome.WON if best.estimate.ratio > 1 else Outcome.LOST
    if slowdown_seen and best.estimate.verdict(settings.margin) is Verdict.EQUAL:
        return Outcome.TIE
    return Outcome.OPEN
