"""A verdict as early as the pairs allow, without more false ones from looking several times.

The total error allowed, ALPHA, is divided over looks at numbers of pairs that are fixed before the first pair. Each
look has an exact signed rank interval at its own share of ALPHA. By the union bound all of them hold together with
confidence 1 - ALPHA, and so does their intersection: a confidence sequence. Stopping at a look because of what it
shows adds no error that is not already accounted for.

The order of each pair is a fair coin. So between arms that do not differ, every sign of a log ratio is that coin,
whatever the machine did to both runs: the signed rank distribution is then exact under drift, bursts and heavy
tails alike. docs/decisions/0016 compares this design with others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hakmem_lab.statistics.estimate import Estimate, Samples, Verdict, pairs_needed, ratio_estimate

LOOKS = ((0.25, 0.05), (0.4, 0.05), (0.6, 0.1), (0.8, 0.1), (1.0, 0.7))
"""When to look, as shares of the planned pairs, and the share of ALPHA that each look may spend. The last has the
most, because the budget is chosen so that it decides."""


@dataclass(frozen=True)
class PlannedLook:
    pairs: int
    share: float
    """Share of ALPHA."""


@dataclass(frozen=True)
class Look:
    """What was known at one look."""

    log_ratios: Samples
    share: float


def pairs_min(alpha: float) -> int:
    """The fewest pairs with which a sequence can have a bounded interval: one look, all of ALPHA."""
    return pairs_needed(1 - alpha)


def looks_plan(pairs: int, alpha: float) -> tuple[PlannedLook, ...]:
    """A look whose share cannot bound an interval is skipped; its share goes to the next."""
    planned: list[PlannedLook] = []
    saved = 0.0
    for at, share in LOOKS:
        count = math.ceil(at * pairs)
        last = at == LOOKS[-1][0]
        if not last and pairs_needed(1 - alpha * share) > count:
            saved += share
            continue
        planned.append(PlannedLook(count, share + saved))
        saved = 0.0
    return tuple(planned)


def sequence_estimate(looks: Sequence[Look], alpha: float) -> Estimate:
    """The intersection of the intervals of all looks; the estimate is the last look's. Looks that contradict each
    other (a chance below ALPHA) leave nothing known."""
    low, high = 0.0, math.inf
    latest = Estimate(1.0, low, high, 0)
    for look in looks:
        latest = ratio_estimate(look.log_ratios, 1 - alpha * look.share)
        low, high = max(low, latest.low), min(high, latest.high)
    if low > high:
        return Estimate(latest.ratio, 0.0, math.inf, latest.pairs)
    return Estimate(min(max(latest.ratio, low), high), low, high, latest.pairs)


def holm_estimates(questions: Sequence[Sequence[Look]], alpha: float, margin: float) -> list[Estimate]:
    """An estimate for each of several questions asked together, so that the chance of any false better or worse
    among them stays below ALPHA: Holm's steps. What is called equal is called so at the first, strictest level."""
    levels = [alpha / len(questions)] * len(questions)
    claimed: set[int] = set()
    while True:
        level = alpha / max(1, len(questions) - len(claimed))
        found = {
            index
            for index, looks in enumerate(questions)
            if index not in claimed
            and sequence_estimate(looks, level).verdict(margin) in (Verdict.AHEAD, Verdict.BEHIND)
        }
        if not found:
            return [sequence_estimate(looks, level) for looks, level in zip(questions, levels, strict=True)]
        for index in found:
            levels[index] = level
        claimed |= found


def budget_factor(estimate: Estimate, margin: float) -> float:
    """How many times as many pairs would narrow the interval to the width that always decides between equal and
    twice the margin; widths shrink with the square root."""
    if not math.isfinite(estimate.high) or estimate.low <= 0:
        return math.inf
    width = math.log(estimate.high / estimate.low)
    return max(1.0, (width / math.log1p(margin)) ** 2)
