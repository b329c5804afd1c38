"""Is B faster than A? A sequential answer in interleaved pairs, with controls that judge the run itself.

One or several questions (B against A; each value of an option against the default) share a run with two controls:
A/A, the same binary under another name, which must not differ, and that copy slowed by twice the margin, which must
be detected. All get the same number of pairs, because calling two arms equal takes the same width of interval as
detecting twice the margin. A round runs each arm once, in random order under the same conditions, and gives a pair
for each question and control; A's run serves them all. Margin, budget, the number of pairs and the looks are fixed
before the first pair. statistics/sequential.py says why looking early adds no errors.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import count

import numpy as np

from hakmem_lab.measure.pairs import (
    DISTURBED_EXTRA_SHARE,
    Calibrated,
    Comparison,
    Pair,
    arms_of,
    pairs_to_analyse,
    round_run,
)
from hakmem_lab.statistics.estimate import Estimate, Verdict
from hakmem_lab.statistics.sequential import (
    Look,
    budget_factor,
    holm_estimates,
    looks_plan,
    pairs_min,
    sequence_estimate,
)

SAME = "control: itself"
SLOWED = "control: itself, slowed"
PAIRS_MAX = 600
"""For one comparison; more is beyond any precision that a noisy machine allows."""

WORDS = {
    Verdict.AHEAD: "better",
    Verdict.BEHIND: "worse",
    Verdict.EQUAL: "equivalent",
    Verdict.UNCLEAR: "inconclusive",
    Verdict.VOID: "inconclusive",
}


@dataclass(frozen=True)
class Design:
    """What is fixed before the first run."""

    budget_seconds: float = 60.0
    margin: float = 0.03
    alpha: float = 0.01
    run_seconds_min: float = 0.2

    @property
    def slowdown_percent(self) -> float:
        return 200 * self.margin


@dataclass(frozen=True)
class Answer:
    """The answer to one question, or to one control. A ratio above one: the first arm is faster."""

    name: str
    estimate: Estimate
    verdict: Verdict
    detectable: float
    disturbed: int

    @property
    def word(self) -> str:
        return WORDS[self.verdict]


def time_text(seconds: float) -> str:
    """In the form that --budget accepts."""
    if seconds < 600:
        return f"{seconds:.0f}s"
    return f"{seconds / 60:.0f}m" if seconds < 36000 else f"{seconds / 3600:.0f}h"


class Control(Enum):
    PASSED = "passed"
    FAILED = "failed"
    OPEN = "too few pairs"


@dataclass(frozen=True)
class Outcome:
    design: Design
    planned: int
    """Pairs of each comparison."""
    answers: tuple[Answer, ...]
    same: Answer
    slowed: Answer
    same_state: Control
    slowed_state: Control
    seconds: float

    def reason(self, answer: Answer) -> str:
        """Why there is no verdict; empty if there is one."""
        if answer.verdict is Verdict.VOID:
            return "the run is void: the same binary under another name came out as different"
        if answer.verdict is not Verdict.UNCLEAR:
            return ""
        if self.same_state is Control.OPEN:
            return f"the budget ended before there were enough pairs; {self._needed(answer)}"
        if answer.estimate.verdict(self.design.margin) is Verdict.EQUAL:
            return f"they look equivalent, but a known slowdown of {self.design.slowdown_percent:g} % was not seen"
        factor = budget_factor(answer.estimate, self.design.margin)
        if not math.isfinite(factor):
            return f"the budget ended before there were enough pairs; {self._needed(answer)}"
        return f"the budget ended first; about {time_text(factor * self.seconds)} would decide"

    def _needed(self, answer: Answer) -> str:
        """The fewest rounds that can show anything, at the pace of those that were run."""
        share = pairs_min(self.design.alpha / len(self.answers)) / max(1, answer.estimate.pairs)
        return f"at least {time_text(1.1 * share * self.seconds)} are needed"


@dataclass
class _Progress:
    """The state of one comparison while it runs."""

    comparison: Comparison
    pairs: list[Pair]
    looks: list[Look]
    extra: int
    """How many disturbed pairs may still be measured again."""
    active: bool = True


def questions_ask(
    calibrated: Calibrated,
    questions: Sequence[Comparison],
    controls: Mapping[str, Comparison],
    design: Design,
    rng: random.Random,
    keep: Callable[[Pair], None],
    seconds_used: float = 0.0,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """All questions have the same base; CONTROLS are those named SAME and SLOWED. KEEP gets each pair immediately.
    SECONDS_USED of the budget are already spent."""
    started = clock() - seconds_used
    deadline = started + design.budget_seconds
    everything = [*questions, controls[SAME], controls[SLOWED]]
    level = design.alpha / len(questions)
    round_seconds = sum(calibrated.wall_seconds[arm] for arm in arms_of(everything))
    fitting = int((deadline - clock()) / round_seconds)
    planned = min(PAIRS_MAX, max(pairs_min(level), fitting))
    extra = int(DISTURBED_EXTRA_SHARE * planned)
    running = {one.name: _Progress(one, [], [], extra) for one in everything}
    asked = [running[question.name] for question in questions]
    same, slowed = running[SAME], running[SLOWED]
    share_left = 1.0
    before = 0
    numbers = count()
    for planned_look in looks_plan(planned, level):
        rounds = planned_look.pairs - before
        _block_run(calibrated, running, rounds, numbers, rng, keep, lambda: clock() >= deadline)
        before = planned_look.pairs
        late = clock() >= deadline and before < planned
        # When the clock ends the run, the look it ends with may spend all that is left: the clock knows
        # nothing of who was faster.
        share = share_left if late else min(share_left, planned_look.share)
        share_left -= share
        for one in running.values():
            if one.active:
                _look_take(one, share, level)
        if late or _decided(asked, same, slowed, design, level):
            break
    return _outcome(asked, same, slowed, design, planned, clock() - started)


def _block_run(
    calibrated: Calibrated,
    running: Mapping[str, _Progress],
    rounds: int,
    numbers: Iterator[int],
    rng: random.Random,
    keep: Callable[[Pair], None],
    late: Callable[[], bool],
) -> None:
    """Runs ROUNDS of every comparison that is still open, but at least one; disturbed pairs again, within limits."""
    active = [name for name, one in running.items() if one.active]
    pending = [active] * rounds if active else []
    while pending:
        comparisons = [running[name].comparison for name in pending.pop(0)]
        again = []
        for pair in round_run(calibrated.task, comparisons, next(numbers), rng):
            one = running[pair.comparison.name]
            one.pairs.append(pair)
            keep(pair)
            if pair.disturbed and one.extra:
                one.extra -= 1
                again.append(pair.comparison.name)
        if again:
            pending.insert(rng.randint(0, len(pending)), again)
        if late():
            return


def _look_take(one: _Progress, share: float, level: float) -> None:
    used = pairs_to_analyse(one.pairs, 1 - level * share)
    if used:
        one.looks.append(Look(np.array([pair.log_ratio for pair in used]), share))


def _decided(
    asked: Sequence[_Progress], same: _Progress, slowed: _Progress, design: Design, level: float
) -> bool:
    """Whether going on cannot change anything. Closes the comparisons that are decided."""
    state = same_state(same.looks, design.alpha)
    if state is Control.FAILED:
        return True
    if state is Control.OPEN:
        return False
    slowed.active = slowed.active and _slowed_state(slowed, design) is not Control.PASSED
    verdicts = []
    for one in asked:
        verdicts.append(sequence_estimate(one.looks, level).verdict(design.margin))
        one.active = one.active and verdicts[-1] is Verdict.UNCLEAR
    waits = slowed.active and Verdict.EQUAL in verdicts
    return not any(one.active for one in asked) and not waits


def same_state(looks: Sequence[Look], alpha: float) -> Control:
    """A/A is significant if its interval does not contain 1, however far inside the margin it lies."""
    estimate = sequence_estimate(looks, alpha)
    if not math.isfinite(estimate.high):
        return Control.OPEN
    return Control.PASSED if estimate.low <= 1 <= estimate.high else Control.FAILED


def _slowed_state(slowed: _Progress, design: Design) -> Control:
    """The slowed copy comes first in its pairs, so the slowdown is detected if it is behind."""
    estimate = sequence_estimate(slowed.looks, design.alpha)
    if not math.isfinite(estimate.high):
        return Control.OPEN
    return Control.PASSED if estimate.verdict(design.margin) is Verdict.BEHIND else Control.FAILED


def _outcome(
    asked: Sequence[_Progress],
    same: _Progress,
    slowed: _Progress,
    design: Design,
    planned: int,
    seconds: float,
) -> Outcome:
    margin = design.margin
    estimates = holm_estimates([one.looks for one in asked], design.alpha, margin)
    of_same, of_slowed = same_state(same.looks, design.alpha), _slowed_state(slowed, design)

    def answer(one: _Progress, estimate: Estimate) -> Answer:
        disturbed = sum(1 for pair in one.pairs if pair.disturbed)
        verdict = estimate.verdict(margin)
        return Answer(one.comparison.name, estimate, verdict, estimate.detectable(margin), disturbed)

    def control(one: _Progress) -> Answer:
        return answer(one, sequence_estimate(one.looks, design.alpha))

    def judged(found: Answer) -> Answer:
        if of_same is Control.FAILED:
            return replace(found, verdict=Verdict.VOID)
        unseen = found.verdict is Verdict.EQUAL and of_slowed is not Control.PASSED
        if of_same is Control.OPEN or unseen:
            return replace(found, verdict=Verdict.UNCLEAR)
        return found

    answers = (judged(answer(one, found)) for one, found in zip(asked, estimates, strict=True))
    return Outcome(
        design=design,
        planned=planned,
        answers=tuple(answers),
        same=control(same),
        slowed=control(slowed),
        same_state=of_same,
        slowed_state=of_slowed,
        seconds=seconds,
    )
