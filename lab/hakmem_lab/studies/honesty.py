"""How often `ab` is wrong, and how often it detects a real difference.

Simulated: the engine of `ab` itself, with its controls, over recorded noise, where the truth is known. Live: `ab`
on this machine with the same binary in both arms, and with one of them slowed by twice the margin. For comparison
there are the rates of the naive design under the same noise: all runs of A, then all runs of B, compared by their
means, by Welch's test, or by the best run of each.
"""

from __future__ import annotations

import random
import statistics
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.stats import ttest_ind

from hakmem_lab.allocators.peers import Peer
from hakmem_lab.measure.pairs import Calibrated, Comparison
from hakmem_lab.measure.runner import Arm
from hakmem_lab.studies.ab import SAME, SLOWED, Control, Design, Outcome, questions_ask
from hakmem_lab.studies.noise import Playback, Trace

FALSE_WINS_PER_1000 = 4

NAIVE = ("means differ by the margin", "Welch's test", "best runs differ by the margin")


@dataclass(frozen=True)
class Truth:
    name: str
    factor: float
    """B takes this many times as long as A."""
    right: str
    """The correct verdict."""
    false: tuple[str, ...]
    """Wrong verdicts."""


def truths(margin: float) -> tuple[Truth, ...]:
    return (
        Truth("no difference", 1.0, "equivalent", ("better", "worse")),
        Truth("slower by the margin itself", 1 + margin, "inconclusive", ("better", "worse")),
        Truth("slower by twice the margin", 1 + 2 * margin, "worse", ("better", "equivalent")),
    )


@dataclass(frozen=True)
class Simulated:
    """The results for one truth in one condition."""

    condition: str
    budget_seconds: float
    truth: Truth
    trials: int
    words: Counter[str]
    """Counts of the verdicts of ab."""
    void: int
    naive: Counter[str]
    """How often each naive design reported a difference."""
    pairs_median: float

    @property
    def wrong(self) -> int:
        return sum(self.words[word] for word in self.truth.false)

    @property
    def right(self) -> int:
        return self.words[self.truth.right]


def _arm(name: str) -> Arm:
    return Arm(Peer(name, "", None, ""))


BASE, OTHER, AGAIN = _arm("A"), _arm("B"), _arm("A again")


def simulated_ask(trace: Trace, truth: Truth, design: Design, rng: random.Random) -> Outcome:
    """One `ab` over recorded noise, from its plan to its verdict."""
    playback = Playback(trace, {OTHER.name: truth.factor}, rng)
    wall = statistics.median(run.wall_seconds for run in trace.runs)
    slowed = Arm(AGAIN.peer, design.slowdown_percent)
    calibrated = Calibrated(playback, dict.fromkeys((BASE, OTHER, AGAIN, slowed), wall))
    questions = [Comparison(OTHER.name, OTHER, BASE)]
    controls = {SAME: Comparison(SAME, AGAIN, BASE), SLOWED: Comparison(SLOWED, slowed, BASE)}
    return questions_ask(
        calibrated, questions, controls, design, rng, lambda _: None, clock=lambda: playback.clock
    )


def naive_ask(trace: Trace, truth: Truth, design: Design, rng: random.Random) -> set[str]:
    """The naive designs that report a difference, each with the whole budget."""
    playback = Playback(trace, {}, rng)
    arms: list[list[float]] = []
    for factor in (1.0, truth.factor):
        times: list[float] = []
        spent = 0.0
        while spent < design.budget_seconds / 2 or len(times) < 2:
            run = playback.take()
            spent += run.wall_seconds
            times.append(run.seconds * factor)
        arms.append(times)
    first, second = arms
    margin = float(np.log1p(design.margin))
    calls = {
        NAIVE[0]: abs(np.log(np.mean(first) / np.mean(second))) > margin,
        NAIVE[1]: ttest_ind(first, second, equal_var=False).pvalue < design.alpha,
        NAIVE[2]: abs(np.log(min(first) / min(second))) > margin,
    }
    return {name for name, called in calls.items() if called}


def simulate(
    trace: Trace, truth: Truth, design: Design, trials: int, rng: random.Random, ran: Callable[[], None]
) -> Simulated:
    words: Counter[str] = Counter()
    naive: Counter[str] = Counter()
    pairs = []
    void = 0
    for _ in range(trials):
        outcome = simulated_ask(trace, truth, design, rng)
        answer = outcome.answers[0]
        words[answer.word] += 1
        void += outcome.same_state is Control.FAILED
        pairs.append(answer.estimate.pairs)
        naive.update(naive_ask(trace, truth, design, rng))
        ran()
    return Simulated(
        trace.condition, design.budget_seconds, truth, trials, words, void, naive, statistics.median(pairs)
    )
