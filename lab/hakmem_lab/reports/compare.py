"""What a comparison is to a reader: two tables, and at the end one plain sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hakmem_lab.reports.report import Grid
from hakmem_lab.statistics.estimate import Estimate, Verdict
from hakmem_lab.studies.compare import Course
from hakmem_lab.studies.compare_verdicts import (
    FIGURES,
    IDLE,
    PEAK,
    Judged,
    Outcome,
    Row,
    medians_of,
)

WORDS = {
    Verdict.AHEAD: "better",
    Verdict.BEHIND: "worse",
    Verdict.EQUAL: "equivalent",
    Verdict.UNCLEAR: "inconclusive",
    Verdict.VOID: "void",
}


def change_text(estimate: Estimate) -> str:
    """What the other allocator takes, less or more than the user's own."""
    if not math.isfinite(estimate.high) or not estimate.low:
        return f"{_percent(estimate.ratio)}"
    return f"{_percent(estimate.ratio)} ({_percent(estimate.high)} to {_percent(estimate.low)})"


def _percent(ratio: float) -> str:
    change = 100 * (1 / ratio - 1)
    return f"{change:+.1f} %" if abs(change) < 9.95 else f"{change:+.0f} %"


def verdict_grid(outcome: Outcome) -> Grid:
    figures = [one.name for one in FIGURES if any(one.name in row.judged for row in outcome.judged_rows)]
    figures = figures or [outcome.primary]
    rows = []
    for row in outcome.rows:
        if row.judged:
            cells = [_judged_text(row.judged[name]) if name in row.judged else "" for name in figures]
        else:
            cells = [_unjudged_text(row, outcome), *[""] * (len(figures) - 1)]
        rows.append((row.name, *cells))
    title = f"Beside {outcome.baseline}: less is better; {100 * (1 - outcome.alpha):g} % over all rows of a column"
    return Grid(title, ("allocator", *figures), tuple(rows), text_columns=1 + len(figures))


def _judged_text(judged: Judged) -> str:
    return f"{WORDS[judged.verdict]}: {change_text(judged.estimate)}"


def _unjudged_text(row: Row, outcome: Outcome) -> str:
    if row.failure:
        return row.failure
    if row.screened is None:
        return f"not among the fastest of the one run of each: not judged ({outcome.primary})"
    return f"screened out at {_percent(row.screened)}: not judged"


def medians_grid(course: Course, outcome: Outcome) -> Grid:
    rows = []
    for name in (outcome.baseline, *(row.name for row in outcome.rows if not row.failure)):
        medians = medians_of(course, name)
        watched = course.observed[name]
        rows.append(
            (
                name,
                *(_seconds(medians.get(key)) for key in ("time", "processor time")),
                *(_mib(medians.get(key)) for key in (PEAK.name, IDLE.name)),
                _mib(watched.tree_peak_rss_kib),
                _mib(watched.rss_mean_kib),
                f"{medians['page faults'] - 1:.0f}" if "page faults" in medians else "",
            )
        )
    columns = (
        "allocator",
        *("s", "processor s", "peak MiB", "idle MiB", "all processes MiB", "mean MiB", "page faults"),
    )
    return Grid(
        "Medians of one run; all processes together and the mean over time as observed once",
        columns,
        tuple(rows),
    )


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _mib(kib: float | None) -> str:
    return "" if kib is None else f"{kib / 1024:.1f}"


# ---- the sentence ------------------------------------------------------------------------------------------


def sentence(outcome: Outcome, enough: bool, seconds_needed: float) -> str:
    """What to use, what it gains, how sure."""
    own = outcome.baseline
    if outcome.is_void and outcome.same is not None:
        return (
            f"No answer: {own} beside itself differed ({change_text(outcome.same)} {outcome.primary}), so the machine was"
            " too noisy and every verdict is void; run it again when the machine is quieter."
        )
    faster = outcome.with_verdict(outcome.primary, Verdict.AHEAD)
    if faster:
        return _recommend(outcome, faster[0])
    smaller = [
        row
        for row in outcome.with_verdict(PEAK.name, Verdict.AHEAD)
        if row.judged[outcome.primary].verdict is Verdict.EQUAL
    ]
    if smaller:
        best = max(smaller, key=lambda row: row.judged[PEAK.name].estimate.ratio)
        return (
            f"Nothing is clearly faster than {own}, but {best.name} takes as long within"
            f" {100 * outcome.margin:g} % and needs {_gain(best.judged[PEAK.name].estimate)} memory at its peak;"
            f" {_sure(outcome)}."
        )
    if outcome.is_decided:
        return (
            f"Nothing is clearly better than {own} for this program: stay with it; {_sure(outcome)}."
            f" {_visible(outcome)}"
        )
    advice = f": --budget {math.ceil(seconds_needed / 10) * 10}s might do" if not enough else ""
    return f"Nothing is clearly better than {own}, but the budget was too small to be sure{advice}. {_visible(outcome)}".strip()


def _recommend(outcome: Outcome, best: Row) -> str:
    what = "processor time" if outcome.primary == "processor time" else "time"
    text = f"Use {best.name}: it takes {_gain(best.judged[outcome.primary].estimate)} {what} than {outcome.baseline}"
    peak = best.judged.get(PEAK.name)
    if peak is not None:
        text += {
            Verdict.AHEAD: f", and {_gain(peak.estimate)} memory at its peak",
            Verdict.BEHIND: f", but {_cost(peak.estimate)} memory at its peak",
            Verdict.EQUAL: ", and as much memory at its peak",
        }.get(peak.verdict, ", with no clear difference in memory")
    return f"{text}; {_sure(outcome)}."


def _gain(estimate: Estimate) -> str:
    return f"{100 * (1 - 1 / estimate.ratio):.0f} % less (at least {100 * (1 - 1 / estimate.low):.0f} %)"


def _cost(estimate: Estimate) -> str:
    return f"{100 * (1 / estimate.ratio - 1):.0f} % more"


def _sure(outcome: Outcome) -> str:
    many = len(outcome.judged_rows)
    of = f"{many} allocators were judged" if many > 1 else "one allocator was judged"
    return f"{100 * (1 - outcome.alpha):g} % sure, over {outcome.rounds} rounds in which {of}"


def _visible(outcome: Outcome) -> str:
    """The smallest effect that would have been called one."""
    found = [
        row.judged[outcome.primary].detectable for row in outcome.judged_rows if outcome.primary in row.judged
    ]
    if not found or not math.isfinite(max(found)):
        return ""
    return f"A gain of {100 * (1 - 1 / max(found)):.0f} % would have been seen."


def note_lines(outcome: Outcome) -> list[str]:
    lines = []
    if outcome.same is not None and outcome.slowed is not None:
        seen = "missed: nothing is called equivalent" if outcome.blind else "seen"
        lines.append(
            f"Controls: {outcome.baseline} beside itself {change_text(outcome.same)}; its known slowdown of"
            f" {200 * outcome.margin:g} % was {seen} ({change_text(outcome.slowed)})."
        )
    others = [name for name in outcome.noisy if name != outcome.primary]
    if others:
        lines.append(f"Void, since {outcome.baseline} differed from itself there: {', '.join(others)}.")
    return lines


def missing_lines(missing: Sequence[tuple[str, str]]) -> list[str]:
    return [f"not measured: {name}: {why.removeprefix(f'{name}: ')}" for name, why in missing]
