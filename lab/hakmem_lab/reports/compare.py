"""A comparison for a reader: two tables, and at the end one plain sentence."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path

from hakmem_lab.files import json_write
from hakmem_lab.grid import Grid
from hakmem_lab.measure.command import SHORT_SECONDS
from hakmem_lab.measure.provenance import Provenance
from hakmem_lab.statistics.estimate import Estimate, Verdict
from hakmem_lab.studies.compare import Course, Plan
from hakmem_lab.studies.compare_verdicts import (
    CPU,
    FAULTS,
    FIGURES,
    IDLE,
    MEMORY_MARGIN,
    PEAK,
    TIME,
    Answer,
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
    """How much more or less the other allocator takes than the user's own, in per cent."""
    if not math.isfinite(estimate.high) or not estimate.low:
        return f"{_change(estimate.ratio)} %"
    return f"{_change(estimate.ratio)} ({_change(estimate.high)} to {_change(estimate.low)}) %"


def _change(ratio: float) -> str:
    change = 100 * (1 / ratio - 1)
    return f"{change:+.1f}" if abs(change) < 9.95 else f"{change:+.0f}"


def verdict_grid(outcome: Outcome) -> Grid:
    figures = [one.name for one in FIGURES if any(one.name in row.judged for row in outcome.judged_rows)]
    figures = figures or [outcome.primary]
    rows = []
    for row in outcome.rows:
        if row.judged:
            cells = [_judged_text(row.judged[name]) if name in row.judged else "" for name in figures]
        else:
            cells = [_unjudged_text(row), *[""] * (len(figures) - 1)]
        rows.append((row.name, *cells, _visible_text(row, outcome)))
    title = f"Beside {outcome.baseline}: less is better; {100 * (1 - outcome.alpha):g} % over all rows of a column"
    return Grid(title, ("allocator", *figures, "seen from"), tuple(rows), text_columns=1 + len(figures))


def _visible_text(row: Row, outcome: Outcome) -> str:
    """The smallest gain that the primary figure's interval would have shown."""
    if outcome.primary not in row.judged or not math.isfinite(row.judged[outcome.primary].detectable):
        return ""
    return f"{100 * (1 - 1 / row.judged[outcome.primary].detectable):.0f} %"


def _judged_text(judged: Judged) -> str:
    return f"{WORDS[judged.verdict]} {change_text(judged.estimate)}"


def _unjudged_text(row: Row) -> str:
    if row.failure:
        return row.failure
    if row.screened is None:
        return "screened out by its one run"
    return f"screened out at {_change(row.screened)} %"


def medians_grid(course: Course, outcome: Outcome) -> Grid:
    screened = {row.name for row in outcome.rows if not row.judged}
    rows = []
    for name in (outcome.baseline, *(row.name for row in outcome.rows if not row.failure)):
        medians = medians_of(course, name)
        if name in screened:  # in other rounds, at another time: their ratio is in the other table
            medians = {key: value for key, value in medians.items() if key not in (TIME.name, CPU.name)}
        ops = course.observed[name].ops
        watched = course.observed[name]
        rows.append(
            (
                name,
                *(_seconds(medians.get(key), ops) for key in (TIME.name, CPU.name)),
                *(_mib(medians.get(key)) for key in (PEAK.name, IDLE.name)),
                _mib(watched.tree_peak_rss_kib),
                _mib(watched.rss_mean_kib),
                f"{medians[FAULTS.name] - 1:.0f}" if FAULTS.name in medians else "",
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


def _seconds(value: float | None, ops: int) -> str:
    return "" if value is None else f"{value * ops:.3f}"


def _mib(kib: float | None) -> str:
    return "" if kib is None else f"{kib / 1024:.1f}"


# ---- the sentence ------------------------------------------------------------------------------------------


def sentence(outcome: Outcome, plan: Plan) -> str:
    """What to use, what it gains, how sure."""
    own, decision = outcome.baseline, outcome.decision
    match decision.answer, decision.row:
        case Answer.NOBODY, _:
            return f"No answer: no other allocator than {own} ran the program to the end of the rounds."
        case Answer.VOID, _:
            differed = "" if outcome.same is None else f" ({change_text(outcome.same)} {outcome.primary})"
            return (
                f"No answer: {own} beside itself differed{differed}, so the machine was too noisy and every verdict is void;"
                " run it again when the machine is quieter."
            )
        case Answer.FASTER, Row() as best:
            return _recommend(outcome, best)
        case Answer.SMALLER, Row() as best:
            return (
                f"Nothing is clearly faster than {own}, but {best.name} takes as long within"
                f" {100 * outcome.margin:g} % and needs {_gain(best.judged[PEAK.name].estimate, 'memory')} at its peak;"
                f" {_sure(outcome)}."
            )
        case Answer.STAY, _:
            text = f"Nothing is clearly better than {own} for this program: stay with it; {_sure(outcome)}."
        case Answer.THRIFTY, Row() as best:
            gain = _gain(best.judged[CPU.name].estimate, CPU.name)
            text = (
                f"By the clock nothing is clearly better than {own}, in more noise than this budget can see through, but"
                f" {best.name} takes {gain}; {_sure(outcome)}."
            )
        case _:
            advice = "" if plan.enough else f": --budget {math.ceil(plan.seconds_needed / 10) * 10}s might do"
            text = f"Nothing is clearly better than {own}, but the budget was too small to be sure{advice}."
    return f"{text} {_visible(outcome)}".strip()


def _recommend(outcome: Outcome, best: Row) -> str:
    text = f"Use {best.name}: it takes {_gain(best.judged[outcome.primary].estimate, outcome.primary)} than {outcome.baseline}"
    peak = best.judged.get(PEAK.name)
    if peak is not None:
        text += {
            Verdict.AHEAD: f", and {_gain(peak.estimate, 'memory')} at its peak",
            Verdict.BEHIND: f", but {_cost(peak.estimate)} memory at its peak",
            Verdict.EQUAL: ", and as much memory at its peak",
        }.get(peak.verdict, ", with no clear difference in memory")
    return f"{text}; {_sure(outcome)}."


def _gain(estimate: Estimate, what: str) -> str:
    return (
        f"{100 * (1 - 1 / estimate.ratio):.0f} % less {what} (at least {100 * (1 - 1 / estimate.low):.0f} %)"
    )


def _cost(estimate: Estimate) -> str:
    return f"{100 * (1 / estimate.ratio - 1):.0f} % more"


def _sure(outcome: Outcome) -> str:
    many = len(outcome.judged_rows)
    of = f"{many} allocators were judged" if many > 1 else "one allocator was judged"
    return f"{100 * (1 - outcome.alpha):g} % sure, over {outcome.rounds} rounds in which {of}"


def _visible(outcome: Outcome) -> str:
    """The smallest effect that would have been reported."""
    found = [
        row.judged[outcome.primary].detectable for row in outcome.judged_rows if outcome.primary in row.judged
    ]
    if not found or not math.isfinite(max(found)):
        return ""
    return f"A gain of {100 * (1 - 1 / max(found)):.0f} % would have been seen."


def plan_line(plan: Plan, course: Course, outcome: Outcome) -> str:
    screened = f"{plan.screening} rounds to choose {plan.finalists}, then " if plan.screening else ""
    early = " (ended early: all was decided)" if outcome.rounds < plan.rounds else ""
    early = " (the budget ended: runs took longer than at first)" if course.late else early
    judged = f"{outcome.rounds - course.taken_back} of {plan.rounds} planned rounds"
    if course.taken_back:
        judged += f" and {course.taken_back} disturbed ones, without which they would be too few"
    return (
        f"{len(course.observed)} allocators were seen to serve it; {screened}{judged}{early}."
        f" Margins {100 * outcome.margin:g} % of time and {100 * MEMORY_MARGIN:g} % of memory and faults."
    )


def note_lines(outcome: Outcome) -> list[str]:
    lines = []
    if outcome.same is not None and outcome.slowed is not None:
        seen = "missed: no time is called equivalent" if outcome.blind else "seen"
        lines.append(
            f"Controls: {outcome.baseline} beside itself {change_text(outcome.same)}; its known slowdown of"
            f" {200 * outcome.margin:g} % was {seen} ({change_text(outcome.slowed)})."
        )
    others = [name for name in outcome.noisy if name != outcome.primary]
    if others:
        lines.append(f"Void, since {outcome.baseline} differed from itself there: {', '.join(others)}.")
    return lines


def short_line(seconds: float, repeat: int) -> str:
    """Advice for a run that is too short to be measured well; empty if it is not. It is REPEAT commands in a row, of so
    many SECONDS each."""
    one_run = seconds * repeat
    if one_run >= SHORT_SECONDS:
        return ""
    return (
        f"One run takes {1000 * one_run:.0f} ms: the start of the process and noise weigh much. Give it more to do, or"
        f" --repeat {round(2 * SHORT_SECONDS / seconds) + 1} for starts and all."
    )


# ---- as JSON -----------------------------------------------------------------------------------------------


def result_content(
    source: Provenance, course: Course, plan: Plan, outcome: Outcome, last: str
) -> dict[str, object]:
    return {
        "answer": last,
        "baseline": outcome.baseline,
        "medians": {name: medians_of(course, name) for name in course.observed},
        "observed": {name: asdict(run) for name, run in course.observed.items()},
        "plan": asdict(plan),
        "rounds": outcome.rounds,
        "noisy": outcome.noisy,
        "blind": outcome.blind,
        "itself": _estimate_content(outcome.same),
        "slowed": _estimate_content(outcome.slowed),
        "rows": [
            {
                "allocator": row.name,
                "failure": row.failure,
                "screened_ratio": row.screened,
                "figures": {
                    name: {"verdict": WORDS[one.verdict], **(_estimate_content(one.estimate) or {})}
                    for name, one in row.judged.items()
                },
            }
            for row in outcome.rows
        ],
        "provenance": asdict(source),
    }


def _estimate_content(estimate: Estimate | None) -> dict[str, float | None] | None:
    if estimate is None:
        return None
    return {
        "ratio": estimate.ratio,
        "low": estimate.low,
        "high": estimate.high,
        "rounds": estimate.pairs,
    }


def result_write(path: Path, content: dict[str, object], samples: str) -> None:
    json_write(path, {**content, "samples": samples})
