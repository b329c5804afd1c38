"""The matrix as tables and lines: the same for the terminal, Markdown and the HTML page."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from hakmem_lab.grid import Grid
from hakmem_lab.measure.store import Sample
from hakmem_lab.reports.report import mib_text, ratio_text
from hakmem_lab.statistics.estimate import Verdict
from hakmem_lab.studies.comparing import Memory, Result
from hakmem_lab.studies.goals import goals_reached
from hakmem_lab.studies.judging import CellResult, Matrix, Outcome
from hakmem_lab.studies.matrix import Row
from hakmem_lab.studies.suites import GroupMean

MARKS = {
    Verdict.AHEAD: "+",
    Verdict.BEHIND: "-",
    Verdict.EQUAL: "=",
    Verdict.UNCLEAR: "?",
    Verdict.VOID: "void",
}
"""Follows a ratio in the wide tables, so that they can be read without colours."""


def outcome_grid(matrix: Matrix) -> Grid:
    percent = 100 * matrix.plan.settings.confidence
    return Grid(
        "Each workload against the best of all peers, losses first",
        ("workload", "group", "outcome", "best peer", f"times as fast ({percent:g} %)", "p (Holm)", "pairs"),
        tuple(_outcome_row(one) for one in matrix.cells),
        text_columns=4,
    )


def _outcome_row(cell: CellResult) -> tuple[str, ...]:
    row = cell.row
    if cell.best is None:
        return (row.name, row.group, cell.outcome.value, cell.note, "", "", "")
    return (
        row.name,
        row.group,
        cell.outcome.value,
        cell.best.peer,
        ratio_text(cell.best.estimate),
        p_text(cell.p_adjusted),
        str(cell.best.estimate.pairs),
    )


def goals_grid(matrix: Matrix, means: Sequence[GroupMean]) -> Grid:
    reached = goals_reached(matrix, means)
    return Grid(
        "What it is to reach",
        ("what", "wanted", "state", "measured"),
        tuple((one.goal.area, one.goal.wanted, one.answer.state.value, one.answer.why) for one in reached),
        text_columns=4,
    )


def p_text(p_value: float) -> str:
    return "< 0.0001" if p_value < 0.0001 else f"{p_value:.4f}"


def _rows(matrix: Matrix) -> list[Row]:
    """Workloads about memory come last: they have no outcome."""
    return [*(one.row for one in matrix.cells), *(row for row in matrix.plan.rows if row.memory)]


def speed_grid(matrix: Matrix) -> Grid:
    """A wide table: a column for each peer."""

    def entry(row: Row, peer: str) -> str:
        result = matrix.result(row.name, peer)
        if result is None or result.estimate is None:
            return short_failure(result.failure) if result else ""
        return f"{result.estimate.ratio:.2f} {MARKS[result.verdict]}"

    return _wide(matrix, "Speed: hakmem's over each peer's", entry, matrix.plan.peers)


def memory_grid(matrix: Matrix) -> Grid:
    """Here, too, a plus is good: smaller."""
    marks = {
        **MARKS,
        Verdict.AHEAD: MARKS[Verdict.BEHIND],
        Verdict.BEHIND: MARKS[Verdict.AHEAD],
        Verdict.VOID: "",
    }

    def entry(row: Row, peer: str) -> str:
        result = matrix.result(row.name, peer)
        memory = result.memory if result else None
        return f"{memory.estimate.ratio:.2f} {marks[memory.verdict]}" if memory else ""

    return _wide(
        matrix, "Peak memory: hakmem's over each peer's, below one is smaller", entry, matrix.plan.peers
    )


def cpu_grid(matrix: Matrix) -> Grid:
    def entry(row: Row, peer: str) -> str:
        result = matrix.result(row.name, peer)
        return f"{result.cpu.ratio:.2f}" if result and result.cpu else ""

    title = "Processor time: operations for each second of it, hakmem's over each peer's"
    return _wide(matrix, title, entry, matrix.plan.peers)


def faults_grid(matrix: Matrix) -> Grid:
    def entry(row: Row, arm: str) -> str:
        if arm == matrix.plan.subject:
            found = [
                one.subject_faults for one in matrix.results if one.row.name == row.name and one.estimate
            ]
            return f"{found[0]:.0f}" if found else ""
        result = matrix.result(row.name, arm)
        return f"{result.peer_faults:.0f}" if result and result.estimate else ""

    return _wide(matrix, "Page faults of a run, medians", entry, (matrix.plan.subject, *matrix.plan.peers))


def observed_grid(matrix: Matrix, title: str, figure: Callable[[Sample], str]) -> Grid:
    def entry(row: Row, arm: str) -> str:
        sample = matrix.observed.get((row.name, arm))
        return figure(sample) if sample else ""

    return _wide(matrix, title, entry, (matrix.plan.subject, *matrix.plan.peers))


def figures_grid(matrix: Matrix) -> Grid:
    """For workloads that are about something other than speed."""
    arms = (matrix.plan.subject, *matrix.plan.peers)

    def entry(row: Row, arm: str) -> str:
        sample = matrix.observed.get((row.name, arm))
        return "" if sample is None or sample.figure is None else f"{sample.figure:.0f}"

    rows = [(row.name, row.figure, *(entry(row, arm) for arm in arms)) for row in _rows(matrix) if row.figure]
    title = "What workloads that are about memory tell, smaller is better"
    return Grid(
        title, ("workload", "figure", *arms), tuple(row for row in rows if any(row[2:])), text_columns=2
    )


def latency_text(sample: Sample) -> str:
    tail = (sample.latency_p50_ns, sample.latency_p99_ns, sample.latency_p999_ns)
    if None in tail or sample.latency_max_ns is None:
        return ""
    numbers = " / ".join(f"{value:.0f}" for value in tail)
    return f"{numbers} / {sample.latency_max_ns / 1000:.0f} µs"


def observed_grids(matrix: Matrix) -> list[Grid]:
    return [
        observed_grid(
            matrix, "Latency of single operations: p50 / p99 / p99.9 in ns / largest", latency_text
        ),
        observed_grid(
            matrix, "Resident memory over time: its mean in MiB", lambda one: mib_text(one.rss_mean_kib)
        ),
        observed_grid(
            matrix,
            "System calls of a run",
            lambda one: "" if one.system_calls is None else str(one.system_calls),
        ),
    ]


def _wide(matrix: Matrix, title: str, entry: Callable[[Row, str], str], columns: Iterable[str]) -> Grid:
    names = tuple(columns)
    rows = [(row.name, *(entry(row, name) for name in names)) for row in _rows(matrix)]
    return Grid(title, ("workload", *names), tuple(row for row in rows if any(row[1:])))


def short_failure(text: str) -> str:
    """hakmem crashed: signal 11 -> crashed."""
    return next((word for word in ("crashed", "hung", "failed") if word in text), "not run")


def failures_grid(matrix: Matrix) -> Grid:
    rows = [(row, arm, what) for (row, arm), what in sorted(matrix.failures.items())]
    return Grid(
        "What crashed, hung or refused", ("workload", "allocator", "what"), tuple(rows), text_columns=3
    )


def counts_grid(matrix: Matrix) -> Grid:
    groups = dict.fromkeys(cell.row.group for cell in matrix.cells)

    def count(group: str, outcome: Outcome) -> str:
        return str(sum(1 for one in matrix.cells if (one.row.group, one.outcome) == (group, outcome)))

    return Grid(
        "Outcomes by group",
        ("group", *(outcome.value for outcome in Outcome)),
        tuple((group, *(count(group, outcome) for outcome in Outcome)) for group in groups),
    )


def groups_grid(matrix: Matrix, means: Sequence[GroupMean]) -> Grid:
    by_place = {(one.peer, one.group): ratio_text(one.estimate) for one in means}
    groups = list(dict.fromkeys(one.group for one in means))
    return Grid(
        "Geometric means by group: hakmem's speed over each peer's",
        ("peer", *groups),
        tuple((peer, *(by_place.get((peer, group), "") for group in groups)) for peer in matrix.plan.peers)
        if means
        else (),
    )


def comparisons_grid(matrix: Matrix) -> Grid:
    """Every comparison with its interval and the other figures beside it."""
    percent = 100 * matrix.plan.settings.confidence
    columns = ("workload", "against", "verdict", f"times as fast ({percent:g} %)", "visible from")
    more = ("by processor time", "memory", "times as large", "MiB", "peer MiB", "faults", "peer faults")
    return Grid(
        "Every comparison, losses first",
        (*columns, *more, "pairs", "disturbed"),
        tuple(_comparison_row(one) for one in matrix.losses_first),
        text_columns=3,
    )


def _comparison_row(one: Result) -> tuple[str, ...]:
    if one.estimate is None:
        return (one.row.name, one.against, one.failure, *("" for _ in range(11)))
    return (
        one.row.name,
        one.against,
        one.verdict.value,
        ratio_text(one.estimate),
        f"{one.detectable:.2f}" if math.isfinite(one.detectable) else "",
        f"{one.cpu.ratio:.2f}" if one.cpu else "",
        *_memory_columns(one.memory),
        f"{one.subject_faults:.0f}",
        f"{one.peer_faults:.0f}",
        str(one.estimate.pairs),
        str(one.disturbed),
    )


def memory_word(memory: Memory) -> str:
    words = {Verdict.AHEAD: "larger", Verdict.BEHIND: "smaller"}
    return words.get(memory.verdict, memory.verdict.value)


def _memory_columns(memory: Memory | None) -> tuple[str, ...]:
    if memory is None:
        return ("", "", "", "")
    sizes = (mib_text(memory.subject_kib), mib_text(memory.peer_kib))
    return (memory_word(memory), ratio_text(memory.estimate), *sizes)


def controls_grid(matrix: Matrix, failed_only: bool = False) -> Grid:
    chosen = [one for one in matrix.controls if not (failed_only and one.passed)]
    return Grid(
        "Controls that failed" if failed_only else "Controls",
        ("workload", "hakmem against", "control", "meaning", "times as fast"),
        tuple(
            (
                one.row.name,
                one.name,
                "passed" if one.passed else "failed",
                one.means,
                ratio_text(one.estimate) if one.estimate else "",
            )
            for one in sorted(chosen, key=lambda one: one.passed)
        ),
        text_columns=4,
    )
