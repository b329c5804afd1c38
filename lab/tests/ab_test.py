"""The engine of `ab` over made-up runs whose truth is known."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hakmem_lab.allocators.peers import Peer
from hakmem_lab.commands.units import seconds_parse
from hakmem_lab.measure.backing import Backing
from hakmem_lab.measure.pairs import Calibrated, Comparison, Pair
from hakmem_lab.measure.runner import Arm, Conditions, Measured
from hakmem_lab.measure.turns import Seat
from hakmem_lab.reports.ab import prediction_line, sweep_line, vector, verdict_line
from hakmem_lab.studies.ab import SAME, SLOWED, Control, Design, Outcome, questions_ask, time_text
from hakmem_lab.workloads.cells import Measure
from lab_pairs import RUN

DESIGN = Design(budget_seconds=15.0)


def arm(name: str) -> Arm:
    return Arm(Peer(name, "", None, ""))


A, B, AGAIN = arm("A"), arm("B"), arm("A again")
SLOW = replace(AGAIN, slowdown_percent=DESIGN.slowdown_percent)
CONTROLS = {SAME: Comparison(SAME, AGAIN, A), SLOWED: Comparison(SLOWED, SLOW, A)}


class Made:
    """Runs of 0.2 s with a spread; by arm, how many times as long they take."""

    name = "made"
    threads = 1
    measure = Measure.TIME
    switches_are_noise = True
    takes_turns = False
    backing = Backing()

    def __init__(
        self, times: Mapping[str, float], spread: float = 0.01, slows: bool = True, switches: int = 0
    ) -> None:
        self.clock = 0.0
        self.order: list[str] = []
        self._times = times
        self._spread = spread
        self._slows = slows
        self._switches = switches
        self._rng = random.Random(7)

    def run(self, arm: Arm, _conditions: Conditions, _seat: Seat | None = None) -> Measured:
        self.order.append(arm.name)
        slowdown = arm.slowdown_percent / 100 if self._slows else 0.0
        seconds = 0.2 * self._times.get(arm.peer.name, 1.0) * (1 + slowdown)
        seconds *= math.exp(self._rng.gauss(0, self._spread))
        self.clock += seconds
        return replace(
            RUN, seconds=seconds, wall_seconds=seconds, involuntary_switches=self._switches, checksum=None
        )


def ask(made: Made, design: Design = DESIGN, kept: list[Pair] | None = None, *others: Arm) -> Outcome:
    asked = others or (B,)
    walls = dict.fromkeys((A, *asked, AGAIN, SLOW), 0.2)
    questions = [Comparison(other.name, other, A) for other in asked]
    keep = (kept if kept is not None else []).append
    return questions_ask(
        Calibrated(made, walls), questions, CONTROLS, design, random.Random(1), keep, clock=lambda: made.clock
    )


@pytest.mark.parametrize(
    ("time", "word"), [(0.9, "better"), (1.1, "worse"), (1.0, "equivalent"), (1.03, "inconclusive")]
)
def test_the_verdict_is_about_b(time: float, word: str) -> None:
    outcome = ask(Made({"B": time}))
    assert outcome.answers[0].word == word
    assert outcome.same_state is Control.PASSED
    assert verdict_line(outcome, "A").startswith(f"verdict: {word}: B is ")
    assert outcome.answers[0].estimate.ratio == pytest.approx(1 / time, rel=0.02)


def test_a_clear_answer_ends_the_run_early() -> None:
    made = Made({"B": 2.0}, spread=0.005)
    outcome = ask(made, Design(budget_seconds=60.0))
    assert outcome.answers[0].word == "worse"
    assert outcome.seconds < 20
    assert outcome.answers[0].estimate.pairs < outcome.planned / 2


def test_the_budget_ends_the_run() -> None:
    # The machine became four times slower than it was when the run was planned.
    made = Made({"A": 4, "B": 4, "A again": 4}, spread=0.2)
    outcome = ask(made)
    assert DESIGN.budget_seconds <= outcome.seconds < DESIGN.budget_seconds + 2
    assert outcome.answers[0].word == "inconclusive"
    reason = outcome.reason(outcome.answers[0])
    assert reason.startswith("the budget ended before there were enough pairs; at least ")
    assert 20 < seconds_parse(reason.split()[-3]) < 60


def test_noise_without_a_difference_is_inconclusive_and_says_what_would_decide() -> None:
    outcome = ask(Made({}, spread=0.2))
    answer = outcome.answers[0]
    assert answer.word == "inconclusive"
    assert answer.detectable > 1.1
    assert outcome.reason(answer).startswith("the budget ended first; about ")


def test_a_control_that_differs_voids_the_run() -> None:
    outcome = ask(Made({"A again": 1.05, "B": 1.2}))
    assert outcome.same_state is Control.FAILED
    answer = outcome.answers[0]
    assert answer.word == "inconclusive"
    assert outcome.reason(answer).startswith("the run is void")


def test_a_control_that_differs_within_the_margin_voids_the_run_too() -> None:
    outcome = ask(Made({"A again": 1.02}, spread=0.003))
    assert outcome.same_state is Control.FAILED


def test_without_a_seen_slowdown_nothing_is_equivalent() -> None:
    outcome = ask(Made({}, slows=False))
    answer = outcome.answers[0]
    assert answer.word == "inconclusive"
    assert outcome.reason(answer) == ("they look equivalent, but a known slowdown of 6 % was not seen")


def test_what_the_clock_ends_is_judged_by_all_that_is_left_of_alpha() -> None:
    # Twice as slow as planned: the budget ends before the first look, which could have spent a fifth.
    slow = {"A": 2.0, "B": 2.4, "A again": 2.0}
    outcome = ask(Made(slow, spread=0.005))
    answer = outcome.answers[0]
    assert answer.estimate.pairs < 0.6 * outcome.planned
    assert answer.word == "worse"


def test_disturbed_pairs_are_kept_and_measured_again_within_a_limit() -> None:
    kept: list[Pair] = []
    quick = {"A": 0.5, "B": 0.515, "A again": 0.5}
    outcome = ask(Made(quick, switches=1000), DESIGN, kept)
    assert all(pair.disturbed == "switches" for pair in kept)
    of_b = [pair for pair in kept if pair.comparison.name == "B"]
    assert len(of_b) == outcome.answers[0].disturbed == outcome.planned + outcome.planned // 2


def test_the_order_of_a_pair_is_a_coin_and_controls_are_interleaved() -> None:
    kept: list[Pair] = []
    made = Made({"B": 1.03})
    ask(made, Design(budget_seconds=120.0), kept)
    firsts = [pair.subject_first for pair in kept if pair.comparison.name == "B"]
    assert 0.35 < sum(firsts) / len(firsts) < 0.65
    assert [made.order.index("B") < made.order.index("A")] == firsts[:1]
    for start in range(0, 24, 3):
        together = kept[start : start + 3]
        assert {pair.comparison.name for pair in together} == {"B", SAME, SLOWED}
        assert len({id(pair.other) for pair in together}) == 1


class Disturbed(Made):
    """Of the slowed copy the first ten runs are disturbed."""

    def run(self, arm: Arm, conditions: Conditions, _seat: Seat | None = None) -> Measured:
        run = super().run(arm, conditions)
        disturbed = arm == SLOW and self.order.count(SLOW.name) <= 10
        return replace(run, involuntary_switches=1000 if disturbed else 0)


def test_every_round_has_a_number_of_its_own() -> None:
    """Also after a control is closed that was run more often than the rest."""
    kept: list[Pair] = []
    ask(Disturbed({"B": 1.03}), Design(budget_seconds=120.0), kept)
    assert {pair.comparison.name for pair in kept[-2:]} == {"B", SAME}
    rounds = {id(pair.other): pair.number for pair in kept}
    assert list(rounds.values()) == list(range(len(rounds)))


def test_values_of_a_sweep_share_a_run_and_are_judged_each() -> None:
    times = {"B": 1.0, "C": 0.8, "D": 1.3}
    outcome = ask(Made(times), Design(budget_seconds=40.0), None, B, arm("C"), arm("D"))
    assert [answer.word for answer in outcome.answers] == ["equivalent", "better", "worse"]
    line = sweep_line(outcome)
    assert line.startswith("verdict: 1 better, 1 worse, 1 equivalent; C, 1.2")


def test_a_sweep_without_a_better_value_says_so() -> None:
    outcome = ask(Made({"B": 1.0}))
    assert sweep_line(outcome) == "verdict: 1 equivalent; no value beats the default"


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ({"B": 1.03}, "1 inconclusive; no value is clearly better than the default"),
        ({"B": 0.8, "A again": 1.05}, "1 inconclusive; the run is void"),
    ],
)
def test_a_sweep_that_decided_nothing_says_no_more(times: dict[str, float], said: str) -> None:
    assert sweep_line(ask(Made(times))) == f"verdict: {said}"


def test_a_void_run_says_nothing_of_the_prediction() -> None:
    answer = ask(Made({"B": 0.8, "A again": 1.05})).answers[0]
    assert prediction_line(1.25, answer).endswith(": the run is void")


def test_the_prediction_is_held_against_what_was_seen() -> None:
    answer = ask(Made({"B": 1 / 1.1})).answers[0]
    assert prediction_line(1.1, answer).startswith("predicted +10.0 %, observed +")
    assert prediction_line(1.1, answer).endswith("the interval holds it")
    assert prediction_line(1.0, answer).endswith("the interval does not hold it")


def test_everything_that_was_seen_is_shown_beside() -> None:
    kept: list[Pair] = []
    ask(Made({"B": 2.0}), DESIGN, kept)
    figures = {one.name: one for one in vector([one for one in kept if one.comparison.name == "B"], 0.99)}
    time = figures["time, s"]
    assert time.ratio is not None
    assert (time.base, time.other, time.ratio.ratio) == pytest.approx((0.2, 0.4, 2.0), rel=0.02)
    assert (figures["peak RSS, KiB"].base, figures["major faults"].ratio) == (2000, None)
    assert "system calls" not in figures


@pytest.mark.parametrize(
    ("seconds", "text"), [(42.4, "42s"), (599, "599s"), (900, "15m"), (36000 * 2, "20h")]
)
def test_times_are_told_as_the_budget_takes_them(seconds: float, text: str) -> None:
    assert time_text(seconds) == text
