"""One page of all that the store knows: overall, strengths, weaknesses, change, bottlenecks, pictures."""

from __future__ import annotations

from collections.abc import Sequence

from hakmem_lab.grid import Grid
from hakmem_lab.reports.baseline import gates_grid
from hakmem_lab.reports.ceiling import answer_lines, ceiling_picture, shares_grid
from hakmem_lab.reports.drawing import Picture
from hakmem_lab.reports.matrix_lines import reading_lines, summary_lines, warning_lines
from hakmem_lab.reports.matrix_text import counts_grid, failures_grid, groups_grid, memory_word, outcome_grid
from hakmem_lab.reports.page import Page
from hakmem_lab.reports.pictures import pictures_make
from hakmem_lab.reports.report import mib_text, ratio_text
from hakmem_lab.reports.where import number_text
from hakmem_lab.statistics.estimate import Estimate
from hakmem_lab.studies.comparing import Result
from hakmem_lab.studies.overview import AS_BEFORE, FAILS, FASTER, RUNS, SLOWER, Change, Overview
from hakmem_lab.studies.suites import group_means
from hakmem_lab.studies.where import ALLOCATOR, Where

TITLE = "hakmem: where it stands"
ROWS_MAX = 15
UNREAD_MAX = 6
FUNCTIONS_EACH = 3


def page_make(overview: Overview, samples: str) -> Page:
    matrix = overview.matrix
    means = group_means(matrix)
    lines = [
        *(f"Overall: {line}" for line in summary_lines(matrix, means)),
        *change_lines(overview),
        *bottleneck_lines(overview),
        *unread_lines(overview),
        *warning_lines(matrix),
    ]
    grids = [
        counts_grid(matrix),
        groups_grid(matrix, means),
        results_grid("Strengths: clearly faster, most first", overview.strengths),
        results_grid("Weaknesses: clearly slower, most first", overview.weaknesses),
        memory_grid("Weaknesses: a clearly larger peak, most first", overview.larger),
        failures_grid(matrix),
        changes_grid(overview.changes),
        history_grid(overview),
        bottlenecks_grid(overview.where),
        *baseline_grids(overview),
        *([shares_grid(overview.ceiling)] if overview.ceiling else []),
        outcome_grid(matrix),
    ]
    pictures: list[Picture] = pictures_make(matrix)
    parts = ceiling_picture(overview.ceiling) if overview.ceiling else None
    if parts is not None:
        pictures.append(parts)
    return Page(TITLE, matrix.plan.source, lines, pictures, grids, reading_lines(matrix), samples)


def results_grid(title: str, results: Sequence[Result]) -> Grid:
    return Grid(
        title,
        ("workload", "group", "against", "times as fast", "pairs"),
        tuple(
            (one.row.name, one.row.group, one.against, ratio_text(one.estimate), str(one.estimate.pairs))
            for one in results[:ROWS_MAX]
            if one.estimate
        ),
        text_columns=3,
    )


def memory_grid(title: str, results: Sequence[Result]) -> Grid:
    return Grid(
        title,
        ("workload", "against", "is", "times as large", "MiB", "peer MiB"),
        tuple(
            (
                one.row.name,
                one.against,
                memory_word(one.memory),
                ratio_text(one.memory.estimate),
                mib_text(one.memory.subject_kib),
                mib_text(one.memory.peer_kib),
            )
            for one in results[:ROWS_MAX]
            if one.memory
        ),
        text_columns=3,
    )


# ---- change -----------------------------------------------------------------------------------------------


def change_lines(overview: Overview) -> list[str]:
    if overview.before is None:
        return [
            "Change: there is no earlier run on this machine with most of these workloads; --since FOLDER names one."
        ]
    words = [one.word for one in overview.changes]
    slower, faster, same = (words.count(word) for word in (SLOWER, FASTER, AS_BEFORE))
    since = f"since {overview.before.source.date}, commit {overview.before.source.commit}"
    fails = [f"{one.row} ({one.now})" for one in overview.changes if one.word == FAILS]
    runs = [one.row for one in overview.changes if one.word == RUNS]
    return [
        f"Change {since}: of {slower + faster + same} comparisons {slower} are clearly slower beside their peer,"
        f" {faster} clearly faster, {same} not clearly different.",
        *([f"Change: hakmem fails now in {'; '.join(fails)}."] if fails else []),
        *([f"Change: hakmem no longer fails in {'; '.join(runs)}."] if runs else []),
        *(
            [f"Change: left out, since they are others now: {'; '.join(overview.others)}."]
            if overview.others
            else []
        ),
    ]


def changes_grid(changes: Sequence[Change]) -> Grid:
    clear = [one for one in changes if one.word != AS_BEFORE]
    return Grid(
        "Change since the earlier run, beside the same peers: losses first",
        ("workload", "against", "is", "then", "now", "change"),
        tuple(
            (
                one.row,
                one.against,
                one.word,
                _then_or_now(one.then),
                _then_or_now(one.now),
                "" if one.ratio is None else f"{100 * (one.ratio - 1):+.0f} %",
            )
            for one in clear
        ),
        text_columns=3,
    )


def _then_or_now(found: Estimate | str) -> str:
    return found if isinstance(found, str) else ratio_text(found)


def history_grid(overview: Overview) -> Grid:
    return Grid(
        "Every run in the store: times as fast as glibc in the same run, over these workloads",
        ("date", "commit", "workloads", "geometric mean of medians"),
        tuple(
            (one.date, one.commit, str(one.workloads), f"{one.times_glibc:.2f}") for one in overview.history
        ),
        text_columns=2,
    )


def baseline_grids(overview: Overview) -> list[Grid]:
    if overview.baseline is None:
        return []
    return [gates_grid(overview.baseline.gates)]


# ---- bottlenecks ------------------------------------------------------------------------------------------


def bottleneck_lines(overview: Overview) -> list[str]:
    lines = []
    if overview.ceiling is None:
        lines.append(
            "Bottlenecks: no ceiling was measured; ./hakmem ceiling says whether structure or checks cost."
        )
    else:
        lines += answer_lines(overview.ceiling)
    if overview.baseline is None:
        lines.append("Baseline: it was not checked; ./hakmem baseline check does.")
    else:
        lost = sum(1 for one in overview.baseline.gates if one.state == "missed")
        lines.append(f"Baseline of {overview.baseline.before}: {lost} figures lost in the last check.")
    looked = {one.task for one in overview.where}
    weak = list(dict.fromkeys(one.row.name for one in overview.weaknesses if one.row.name not in looked))
    if weak:
        lines.append(
            f"Nobody looked yet where the work goes in: {'; '.join(weak)} (./hakmem where --bench NAME)."
        )
    return lines


def unread_lines(overview: Overview) -> list[str]:
    if not overview.unread:
        return []
    more = len(overview.unread) - UNREAD_MAX
    named = ", ".join(overview.unread[:UNREAD_MAX]) + (f" and {more} more" if more > 0 else "")
    return [f"Passed over, since this version of the laboratory cannot read them: {named}."]


def bottlenecks_grid(looked: Sequence[Where]) -> Grid:
    """Hypotheses: instructions are not time."""
    return Grid(
        "Bottlenecks by instructions: the allocator's dearest functions, each a hypothesis",
        ("workload", "commit", "function", "instructions", "of the allocator's", "of all"),
        tuple(row for where in looked for row in _function_rows(where)),
        text_columns=3,
    )


def _function_rows(where: Where) -> list[tuple[str, ...]]:
    own = [one for one in where.functions if one.object == ALLOCATOR][:FUNCTIONS_EACH]
    return [
        (
            where.task,
            where.commit,
            one.function,
            number_text(one.instructions),
            f"{100 * one.instructions / where.allocator:.0f} %",
            f"{100 * one.instructions / where.total:.0f} %",
        )
        for one in own
    ]
