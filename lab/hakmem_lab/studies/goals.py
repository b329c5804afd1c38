"""hakmem's goals, each compared with a matrix: met, missed, or open if the matrix does not decide it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hakmem_lab.measure.service import LIBC
from hakmem_lab.statistics.estimate import Estimate, Verdict
from hakmem_lab.statistics.rates import chance_of_so_many
from hakmem_lab.studies.answers import Answer, Gaps, State, answer_make, gaps_of, named_text
from hakmem_lab.studies.comparing import NOT_MEASURED, Result
from hakmem_lab.studies.judging import CellResult, Matrix, Outcome
from hakmem_lab.studies.starting_figures import STARTING_FIGURES
from hakmem_lab.studies.suites import GroupMean
from hakmem_lab.studies.tails import BEHIND_CHANCE

ASKS_FOR_HUGE_PAGES = frozenset({"mimalloc3", "mimalloc2"})
"""Peers that by default ask for huge pages from the first block: they take few faults, but much memory."""
FAULTS_SLACK = 1.02
"""Page faults of two runs of one program differ by this much."""
RSS_MOST = 1.15
LARGE_KIB = 64 << 10
EVERY_CLASS = "every class, four patterns"
MANY_SLOTS = ("random mix, 8192 slots", "random mix, 90 % allocating")
MID = (
    "random mix to 8 KiB, 1024 slots",
    "2 threads, 1-8 KiB",
    "2 threads, 8-32 KiB",
    "8 threads, 8-32 KiB",
    "32 threads, 8-32 KiB",
)
LARGE = "512 KiB-2 MiB, 256 slots"
PHASES = "change of phase, 8192 slots"
START = "start of `true`"
STARTING_ROWS = tuple(then.row for then in STARTING_FIGURES)


@dataclass(frozen=True)
class Goal:
    area: str
    wanted: str
    answer: Callable[[Matrix, Sequence[GroupMean]], Answer | None]
    """None if the matrix has nothing about it."""
    peers: Callable[[str], bool] = lambda _: False
    """The peers that the goal is about, whichever is best,"""
    rows: tuple[str, ...] = ()
    """in these workloads, given by name or group."""


@dataclass(frozen=True)
class Reached:
    goal: Goal
    answer: Answer


def is_named(peer: str, row: str, group: str) -> bool:
    """Whether a goal is about this peer in this workload."""
    return any(goal.peers(peer) and (row in goal.rows or group in goal.rows) for goal in GOALS)


def goals_reached(matrix: Matrix, means: Sequence[GroupMean]) -> list[Reached]:
    """Missed goals first."""
    found = [(goal, goal.answer(matrix, means)) for goal in GOALS]
    reached = [Reached(goal, answer) for goal, answer in found if answer]
    order = list(State)
    return sorted(reached, key=lambda one: order.index(one.answer.state))


# ---- speed --------------------------------------------------------------------------------------------------


def _behind_none(*names: str) -> Callable[[Matrix, Sequence[GroupMean]], Answer | None]:
    """Not behind the best peer in any of these workloads, given by name or group."""

    def answer(matrix: Matrix, _: Sequence[GroupMean]) -> Answer | None:
        cells = [one for one in matrix.cells if one.row.name in names or one.row.group in names]
        if not cells:
            return None
        lost = [one for one in cells if one.outcome is Outcome.LOST]
        undecided = [one for one in cells if one.outcome in (Outcome.OPEN, Outcome.VOID)]
        state = State.MISSED if lost else State.OPEN if undecided else State.MET
        counts = ", ".join(
            f"{number} {outcome.value}"
            for outcome in Outcome
            if (number := sum(1 for one in cells if one.outcome is outcome))
        )
        slowest = min((one for one in cells if one.best), key=_ratio, default=None)
        why = counts + (f"; slowest: {_cell_text(slowest)}" if slowest else "")
        return answer_make(state, why, Gaps(_broken_of(matrix, cells)))

    return answer


def _broken_of(matrix: Matrix, cells: Iterable[CellResult]) -> dict[str, str]:
    names = {one.row.name for one in cells}
    return {name: what for name, what in matrix.broken.items() if name in names}


def _ratio(cell: CellResult) -> float:
    return cell.best.estimate.ratio if cell.best else math.inf


def _cell_text(cell: CellResult) -> str:
    assert cell.best is not None
    return f"{cell.row.name}, {_times(cell.best.estimate)} {cell.best.peer}"


def _times(estimate: Estimate) -> str:
    if not math.isfinite(estimate.high):
        return f"{estimate.ratio:.2f} of"
    return f"{estimate.ratio:.2f} ({estimate.low:.2f} to {estimate.high:.2f}) of"


def _times_the_best(least: float, *names: str) -> Callable[[Matrix, Sequence[GroupMean]], Answer | None]:
    """Or at the ceiling, which a matrix does not contain; so what is below stays open."""

    def answer(matrix: Matrix, _: Sequence[GroupMean]) -> Answer | None:
        cells = [one for one in matrix.cells if one.row.name in names]
        broken = _broken_of(matrix, cells)
        void = [one.row.name for one in cells if one.outcome is Outcome.VOID]
        unknown = {one.row.name: one.note for one in cells if one.best is None and one.row.name not in broken}
        figures = [
            (_cell_text(one), one.best.estimate)
            for one in cells
            if one.best and one.outcome is not Outcome.VOID
        ]
        found = _at_least(least, figures, Gaps(broken, unknown, void))
        below = found is not None and found.state is State.MISSED and not broken
        return replace(found, state=State.OPEN) if found and below else found

    return answer


def _times_a_peer(
    least: float, peer: str, *names: str
) -> Callable[[Matrix, Sequence[GroupMean]], Answer | None]:
    def answer(matrix: Matrix, _: Sequence[GroupMean]) -> Answer | None:
        return _each_at_least(matrix, least, [one for name in names if (one := matrix.result(name, peer))])

    return answer


def _each_at_least(matrix: Matrix, least: float, results: Sequence[Result]) -> Answer | None:
    figures = [
        (f"{one.row.name}, {_times(one.estimate)} {one.against}", one.estimate)
        for one in results
        if one.estimate and one.verdict is not Verdict.VOID
    ]
    return _at_least(least, figures, gaps_of(matrix, results, _void_rows(results)))


def _void_rows(results: Iterable[Result]) -> list[str]:
    return list(dict.fromkeys(one.row.name for one in results if one.verdict is Verdict.VOID))


def _at_least(least: float, figures: Sequence[tuple[str, Estimate]], gaps: Gaps) -> Answer | None:
    """Each interval must be clear of the goal."""
    if not figures and not gaps.told:
        return None
    below = any(estimate.high < least for _, estimate in figures)
    reached = all(estimate.low >= least for _, estimate in figures)
    state = State.MISSED if below else State.MET if reached else State.OPEN
    ordered = [text for text, _ in sorted(figures, key=lambda one: one[1].ratio)]
    return answer_make(state, named_text(ordered), gaps)


def _not_behind(peer: str, group: str) -> Callable[[Matrix, Sequence[GroupMean]], Answer | None]:
    def answer(matrix: Matrix, _: Sequence[GroupMean]) -> Answer | None:
        return _within_the_margin(
            matrix, [one for one in matrix.results if (one.against, one.row.group) == (peer, group)]
        )

    return answer


def _not_behind_the_preloaded(name: str) -> Callable[[Matrix, Sequence[GroupMean]], Answer | None]:
    """The C library's own malloc is there before any preloaded object is looked for, so it is left out."""

    def answer(matrix: Matrix, _: Sequence[GroupMean]) -> Answer | None:
        return _within_the_margin(
            matrix, [one for one in matrix.results if one.row.name == name and one.against != LIBC]
        )

    return answer


def _within_the_margin(matrix: Matrix, results: Iterable[Result]) -> Answer | None:
    return _each_at_least(matrix, 1 / (1 + matrix.plan.settings.margin), list(results))


def _ahead_in_the_mean(group: str) -> Callable[[Matrix, Sequence[GroupMean]], Answer | None]:
    """A mean over a part of the workloads says nothing about all of them."""

    def answer(matrix: Matrix, means: Sequence[GroupMean]) -> Answer | None:
        own = [(f"{_times(one.estimate)} {one.peer}", one.estimate) for one in means if one.group == group]
        results = [one for one in matrix.results if one.row.group == group]
        gaps = gaps_of(matrix, results, _void_rows(results))
        found = _at_least(1.0, own, gaps)
        in_part = gaps.leave_open and not gaps.broken
        return replace(found, state=State.OPEN) if found and in_part else found

    return answer


# ---- memory and faults: medians, which hardly differ from run to run ----------------------------------------


def _rss(one: Result) -> tuple[float, float]:
    return (one.memory.subject_kib, one.memory.peer_kib) if one.memory else (0.0, 0.0)


def _faults(one: Result) -> tuple[float, float]:
    return one.subject_faults, one.peer_faults


def _over_peers(
    matrix: Matrix, medians: Callable[[Result], tuple[float, float]]
) -> dict[str, dict[str, float]]:
    """By workload and peer: hakmem's figure over the peer's; MEDIANS gives both."""
    figures: dict[str, dict[str, float]] = {}
    for one in _of_workloads(matrix):
        own, other = medians(one)
        if own and other:
            figures.setdefault(one.row.name, {})[one.against] = own / other
    return figures


def _rss_in_the_mean(matrix: Matrix, _: Sequence[GroupMean]) -> Answer | None:
    figures, gaps = _over_peers(matrix, _rss), gaps_of(matrix, _of_workloads(matrix))
    means = {
        peer: _geometric(row[peer] for row in figures.values() if peer in row) for peer in matrix.plan.peers
    }
    known = sorted(((mean, peer) for peer, mean in means.items() if mean), reverse=True)
    if not known and not gaps.told:
        return None
    state = State.MISSED if known and known[0][0] > 1 else State.MET
    return answer_make(state, named_text([f"{mean:.2f} of {peer}" for mean, peer in known]), gaps)


def _of_workloads(matrix: Matrix, without: frozenset[str] = frozenset()) -> list[Result]:
    """Against the peers other than those."""
    return [one for one in matrix.results if not one.row.control and one.against not in without]


def _geometric(ratios: Iterable[float]) -> float:
    logs = [math.log(ratio) for ratio in ratios]
    return math.exp(float(np.mean(logs))) if logs else 0.0


def _largest(
    matrix: Matrix,
    medians: Callable[[Result], tuple[float, float]],
    most: float,
    without: frozenset[str] = frozenset(),
) -> Answer | None:
    """No workload above this many times the smallest peer's figure."""
    gaps = gaps_of(matrix, _of_workloads(matrix, without))
    worst = sorted(
        (
            (max(known.items(), key=lambda one: one[1]), name)
            for name, row in _over_peers(matrix, medians).items()
            if (known := {peer: ratio for peer, ratio in row.items() if peer not in without})
        ),
        key=lambda one: -one[0][1],
    )
    if not worst:
        return answer_make(State.MET, "", gaps) if gaps.told else None
    above = [f"{name}, {ratio:.2f} of {peer}" for (peer, ratio), name in worst if ratio > most]
    (peer, ratio), name = worst[0]
    if not above:
        return answer_make(State.MET, f"at most {ratio:.2f} of {peer} in {name}", gaps)
    return answer_make(State.MISSED, f"{len(above)} of {len(worst)} are: {named_text(above)}", gaps)


def _rss_everywhere(matrix: Matrix, _: Sequence[GroupMean]) -> Answer | None:
    return _largest(matrix, _rss, RSS_MOST)


def _faults_everywhere(matrix: Matrix, _: Sequence[GroupMean]) -> Answer | None:
    return _largest(matrix, _faults, FAULTS_SLACK, ASKS_FOR_HUGE_PAGES)


def _faults_of_large(matrix: Matrix, _: Sequence[GroupMean]) -> Answer | None:
    """Whether a workload without a figure is a large one is not known, either."""
    peer = "mimalloc3-nothp"
    found = gaps_of(matrix, [one for one in _of_workloads(matrix) if one.against == peer])
    failed = {name: f"hakmem {what}" for name, what in found.broken.items()}
    gaps = Gaps(unknown={**failed, **found.unknown})
    large = {
        one.row.name
        for one in matrix.results
        if one.against == peer and one.memory and one.memory.peer_kib >= LARGE_KIB
    }
    figures = _over_peers(matrix, _faults)
    ratios = [row[peer] for name, row in figures.items() if name in large and peer in row]
    if not ratios:
        return answer_make(State.OPEN, "", gaps) if gaps.told else None
    mean = _geometric(ratios)
    state = State.MET if mean <= 1 / 3 else State.MISSED
    return answer_make(state, f"{mean:.2f} in {len(ratios)} workloads", gaps)


# ---- the rest -----------------------------------------------------------------------------------------------


def _tails(matrix: Matrix, _: Sequence[GroupMean]) -> Answer | None:
    """Missed if so many are behind that chance does not explain it: of fifty workloads in which it is as long as the
    peer's, one is behind as often as not."""
    gaps = _tail_gaps(matrix)
    if not matrix.tails:
        return answer_make(State.OPEN, "", gaps) if gaps.told else None
    behind = sorted((one for one in matrix.tails if one.behind), key=lambda one: -one.ratio)
    longer = sum(one.ratio > 1 for one in matrix.tails) - len(behind)
    chance = chance_of_so_many(len(behind), len(matrix.tails), BEHIND_CHANCE)
    missed = chance <= 1 - matrix.plan.settings.confidence
    state = State.MISSED if missed else State.OPEN if behind or longer else State.MET
    doubt = " (by chance, perhaps)" if behind and not missed else ""
    counts = f"behind in {len(behind)} of {len(matrix.tails)}{doubt}, longer without being clear in {longer}"
    behinds = named_text([f"{one.row}, {one.ratio:.2f} of {one.peer}" for one in behind])
    return answer_make(state, f"{counts}; {behinds}" if behinds else counts, gaps)


def _tail_gaps(matrix: Matrix) -> Gaps:
    """Of the workloads that tell latencies under any allocator. A crash with a clock or with instruments is one, but
    perhaps theirs."""
    subject = matrix.plan.subject
    telling = {row for (row, _), one in matrix.observed.items() if one.latency_p999_ns}
    rows = [
        one.name for one in matrix.plan.rows if one.name in telling and not one.control and not one.memory
    ]
    judged = {one.row for one in matrix.tails}
    broken = {name: what for name, what in matrix.broken.items() if name in rows}
    failed = {
        row: f"hakmem, {what}" for (row, arm), what in matrix.failures_watched.items() if arm == subject
    }
    unknown = {
        name: failed.get(name, NOT_MEASURED)
        for name in rows
        if name not in broken and (name in failed or name not in judged)
    }
    return Gaps(broken, unknown)


GOALS = (
    Goal("blocks to 1 KiB, one thread", "behind in none", _behind_none("small", EVERY_CLASS)),
    Goal(
        "4096 slots and more",
        "1.25 of mimalloc 3",
        _times_a_peer(1.25, "mimalloc3", *MANY_SLOTS),
        lambda peer: peer == "mimalloc3",
        MANY_SLOTS,
    ),
    Goal(
        "1 to 8 KiB, 8 to 32 KiB",
        "1.5 of the best peer, or 0.92 of the ceiling",
        _times_the_best(1.5, *MID),
    ),
    Goal(
        "512 KiB to 2 MiB",
        "twice the best peer, or 0.92 of the ceiling",
        _times_the_best(2.0, LARGE),
    ),
    Goal(
        "larson, short-lived threads, change of phase, false sharing",
        "behind in none",
        _behind_none("threads", PHASES),
    ),
    Goal(
        "producers and consumers",
        "not behind snmalloc",
        _not_behind("snmalloc", "hand-over"),
        lambda peer: peer == "snmalloc",
        ("hand-over",),
    ),
    Goal("real programs", "ahead of every peer in the geometric mean", _ahead_in_the_mean("programs")),
    Goal("real programs", "behind in none", _behind_none("programs")),
    Goal("peak RSS", "no more than the smallest peer in the geometric mean", _rss_in_the_mean),
    Goal("peak RSS", f"in no workload above {RSS_MOST} of the smallest", _rss_everywhere),
    Goal("page faults", "in no workload above the best peer without huge pages", _faults_everywhere),
    Goal(
        "page faults, above 64 MiB",
        "a third of mimalloc 3's without huge pages in the geometric mean",
        _faults_of_large,
    ),
    Goal("latency", "p99.9 not behind the best peer", _tails),
    Goal(
        "start of a process",
        "not behind the lightest preloaded peer",
        _not_behind_the_preloaded(START),
        lambda peer: peer != LIBC,
        (START,),
    ),
    Goal(
        "the figures it starts from",
        "each above glibc's",
        _times_a_peer(1.0, LIBC, *STARTING_ROWS),
        lambda peer: peer == LIBC,
        STARTING_ROWS,
    ),
)
