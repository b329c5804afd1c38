"""What `ab` and `sweep` print and keep."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields

from hakmem_lab.grid import Grid
from hakmem_lab.measure.pairs import Pair
from hakmem_lab.measure.runner import Measured
from hakmem_lab.statistics.estimate import Estimate, Verdict, ratio_estimate
from hakmem_lab.studies.ab import SAME, SLOWED, Answer, Control, Outcome

VECTOR = {
    "seconds": "time, s",
    "cpu_seconds": "processor time, s",
    "peak_rss_kib": "peak RSS, KiB",
    "rss_mean_kib": "mean RSS, KiB",
    "idle_rss_kib": "idle RSS, KiB",
    "minor_faults": "minor faults",
    "major_faults": "major faults",
    "involuntary_switches": "forced switches",
    "system_calls": "system calls",
    "touch_us": "first touch of 4 KiB before it, µs",
}


@dataclass(frozen=True)
class Figure:
    """One more figure beside the judged one: medians of both arms, and their ratio."""

    name: str
    base: float
    other: float
    ratio: Estimate | None


def vector(pairs: Sequence[Pair], confidence: float) -> list[Figure]:
    """Over the pairs of one question. The first arm of a pair is the one in question, the second the base."""
    known = {field.name for field in fields(Measured)}
    return [
        figure
        for name, title in VECTOR.items()
        if name in known and (figure := _figure(pairs, name, title, confidence))
    ]


def _figure(pairs: Sequence[Pair], name: str, title: str, confidence: float) -> Figure | None:
    values = [(getattr(pair.subject, name), getattr(pair.other, name)) for pair in pairs]
    if not values or any(value is None for both in values for value in both):
        return None
    other, base = (float(statistics.median(one)) for one in zip(*values, strict=True))
    if any(value <= 0 for both in values for value in both):
        return Figure(title, base, other, None)
    logs = [math.log(other / base) for other, base in values]
    return Figure(title, base, other, ratio_estimate(logs, confidence))


def ratio_text(estimate: Estimate, digits: int = 3) -> str:
    if not math.isfinite(estimate.high):
        return f"{estimate.ratio:.{digits}f} (too few pairs for an interval)"
    return f"{estimate.ratio:.{digits}f} ({estimate.low:.{digits}f} to {estimate.high:.{digits}f})"


def detectable_text(detectable: float) -> str:
    return f"{100 * (detectable - 1):.1f} %" if math.isfinite(detectable) else "unknown"


def outcome_grid(outcome: Outcome, base: str) -> Grid:
    def row(answer: Answer, verdict: str) -> tuple[str, ...]:
        estimate = answer.estimate
        return (
            answer.name,
            verdict,
            ratio_text(estimate),
            detectable_text(answer.detectable),
            str(estimate.pairs),
            str(answer.disturbed),
        )

    rows = [row(answer, answer.word) for answer in outcome.answers]
    same = {Control.FAILED: "failed: the run is void"}
    rows.append(row(outcome.same, same.get(outcome.same_state, outcome.same_state.value)))
    decided = all(answer.word in ("better", "worse") for answer in outcome.answers)
    missed = "not needed" if decided else "not seen: nothing is called equivalent"
    slowed = {Control.PASSED: "seen"}
    rows.append(row(outcome.slowed, slowed.get(outcome.slowed_state, missed)))
    percent = 100 * (1 - outcome.design.alpha)
    return Grid(
        title=f"Against {base}",
        columns=(
            "what",
            "verdict",
            f"times as fast ({percent:g} %)",
            "smallest detectable",
            "pairs",
            "disturbed",
        ),
        rows=tuple(rows),
        text_columns=2,
    )


def vector_grid(figures: Sequence[Figure], base: str, other: str) -> Grid:
    rows = tuple(
        (one.name, f"{one.base:.6g}", f"{one.other:.6g}", ratio_text(one.ratio) if one.ratio else "")
        for one in figures
    )
    return Grid("Besides (medians; shown, not judged)", ("what", base, other, "ratio"), rows)


def prediction_line(predicted: float, answer: Answer) -> str:
    estimate = answer.estimate
    inside = estimate.low <= predicted <= estimate.high
    said = "the interval holds it" if inside else "the interval does not hold it"
    if answer.verdict is Verdict.VOID:
        said = "the run is void"
    elif not math.isfinite(estimate.high):
        said = "too few pairs to tell"
    return f"predicted {100 * (predicted - 1):+.1f} %, observed {100 * (estimate.ratio - 1):+.1f} %: {said}"


def verdict_line(outcome: Outcome, base: str) -> str:
    answer = outcome.answers[0]
    percent = 100 * (1 - outcome.design.alpha)
    return (
        f"verdict: {answer.word}: {answer.name} is {ratio_text(answer.estimate)} times as fast as {base}"
        f" ({percent:g} % interval), smallest detectable effect {detectable_text(answer.detectable)}"
    )


def reason_lines(outcome: Outcome) -> list[str]:
    reasons = ((answer.name, outcome.reason(answer)) for answer in outcome.answers)
    return [f"{name}: {reason}" for name, reason in reasons if reason]


def answer_content(outcome: Outcome, answer: Answer) -> dict[str, object]:
    return {
        "name": answer.name,
        "verdict": answer.word,
        "reason": outcome.reason(answer),
        "disturbed": answer.disturbed,
        "smallest_detectable": answer.detectable,
        "estimate": asdict(answer.estimate),
    }


def outcome_content(outcome: Outcome) -> dict[str, object]:
    return {
        "design": asdict(outcome.design),
        "pairs_planned": outcome.planned,
        "seconds": outcome.seconds,
        "answers": [answer_content(outcome, answer) for answer in outcome.answers],
        "controls": {
            SAME: answer_content(outcome, outcome.same) | {"state": outcome.same_state.value},
            SLOWED: answer_content(outcome, outcome.slowed) | {"state": outcome.slowed_state.value},
        },
    }


def sweep_line(outcome: Outcome) -> str:
    """The best value that is certain, and the count of each verdict."""
    words = [answer.word for answer in outcome.answers]
    counts = [
        f"{words.count(word)} {word}"
        for word in ("better", "worse", "equivalent", "inconclusive")
        if word in words
    ]
    better = [answer for answer in outcome.answers if answer.word == "better"]
    best = max(better, key=lambda answer: answer.estimate.ratio, default=None)
    if best:
        said = f"{best.name}, {ratio_text(best.estimate)} times as fast"
    elif any(answer.verdict is Verdict.VOID for answer in outcome.answers):
        said = "the run is void"
    elif "inconclusive" in words:
        said = "no value is clearly better than the default"
    else:
        said = "no value beats the default"
    return f"verdict: {', '.join(counts)}; {said}"
