"""The confidence sequence: against its parts, under optional stopping, under noise that is not symmetric at all."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hakmem_lab.statistics.estimate import Estimate, Samples, Verdict, ratio_estimate
from hakmem_lab.statistics.sequential import (
    LOOKS,
    Look,
    budget_factor,
    holm_estimates,
    looks_plan,
    pairs_min,
    sequence_estimate,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

ALPHA = 0.01


def test_the_looks_spend_what_there_is_and_no_more() -> None:
    assert sum(share for _, share in LOOKS) == pytest.approx(1)


@settings(max_examples=30)
@given(st.integers(8, 150), st.sampled_from([0.001, 0.01, 0.05]))
def test_every_look_but_the_last_can_decide(pairs: int, alpha: float) -> None:
    planned = looks_plan(pairs, alpha)
    assert sum(look.share for look in planned) == pytest.approx(1)
    counts = [look.pairs for look in planned]
    assert counts == sorted(set(counts))
    assert counts[-1] == pairs
    for look in planned[:-1]:
        bounded = ratio_estimate([0.01 * index for index in range(look.pairs)], 1 - alpha * look.share)
        assert math.isfinite(bounded.high)


def test_few_pairs_are_looked_at_once_with_all_there_is() -> None:
    assert pairs_min(ALPHA) == 8
    assert [(look.pairs, round(look.share, 9)) for look in looks_plan(8, ALPHA)] == [(8, 1.0)]


def test_a_sequence_of_one_look_is_the_plain_interval() -> None:
    values = np.random.default_rng(1).normal(size=20)
    assert sequence_estimate([Look(values, 1.0)], ALPHA) == ratio_estimate(values, 1 - ALPHA)


def test_a_sequence_is_what_its_looks_have_in_common() -> None:
    values = np.random.default_rng(2).normal(size=30)
    looks = [Look(values[:15], 0.3), Look(values, 0.7)]
    first, second = (ratio_estimate(look.log_ratios, 1 - ALPHA * look.share) for look in looks)
    both = sequence_estimate(looks, ALPHA)
    assert (both.low, both.high) == (max(first.low, second.low), min(first.high, second.high))


def test_looks_that_contradict_each_other_leave_nothing_known() -> None:
    steps = np.linspace(-0.01, 0.01, 20)
    estimate = sequence_estimate([Look(steps, 0.5), Look(steps + 1, 0.5)], ALPHA)
    assert (estimate.low, estimate.high) == (0.0, math.inf)
    assert estimate.verdict(0.03) is Verdict.UNCLEAR


def looks_of(values: Samples, alpha: float) -> list[Look]:
    return [Look(values[: look.pairs], look.share) for look in looks_plan(len(values), alpha)]


@settings(max_examples=6)
@given(
    noise=st.sampled_from(["normal", "laplace", "cauchy"]),
    pairs=st.integers(10, 40),
    alpha=st.sampled_from([0.01, 0.05, 0.2]),
    seed=st.integers(0, 2**32 - 1),
)
def test_whoever_stops_when_it_pleases_is_wrong_no_more_than_alpha(
    noise: str, pairs: int, alpha: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    draw = {"normal": rng.normal, "laplace": rng.laplace, "cauchy": rng.standard_cauchy}[noise]
    truth, trials, missed = 0.05, 120, 0
    for _ in range(trials):
        looks = looks_of(truth + 1e-4 * draw(size=pairs), alpha)
        sequences = (sequence_estimate(looks[: end + 1], alpha) for end in range(len(looks)))
        missed += any(not one.low <= math.exp(truth) <= one.high for one in sequences)
    assert missed <= stats.binom.ppf(1 - 1e-6, trials, alpha)


def test_coins_for_the_order_make_it_exact_under_drift_and_bursts() -> None:
    # The second run of every pair is far slower, more so as the machine heats up, and now and then a run takes ten
    # times as long. Nothing here is symmetric, but for the coin that chose who went first.
    rng = np.random.default_rng(3)
    trials, pairs, wrong = 800, 24, 0
    for _ in range(trials):
        penalty = np.linspace(0.1, 0.5, pairs) + np.where(rng.random(pairs) < 0.2, math.log(10), 0)
        signs = rng.choice([-1.0, 1.0], pairs)
        estimate = sequence_estimate(looks_of(signs * penalty, 0.05), 0.05)
        wrong += not estimate.low <= 1 <= estimate.high
    assert wrong <= stats.binom.ppf(1 - 1e-6, trials, 0.05)


def test_twice_the_margin_is_found_at_the_spread_that_the_budget_is_for() -> None:
    rng = np.random.default_rng(4)
    found = sum(
        sequence_estimate(looks_of(math.log(1.06) + 0.02 * rng.normal(size=20), ALPHA), ALPHA).verdict(0.03)
        is Verdict.AHEAD
        for _ in range(200)
    )
    assert found >= 190


def centred(at: float, spread: float, count: int = 20) -> list[Look]:
    return [Look(at + spread * np.linspace(-1, 1, count), 1.0)]


def test_holm_lets_a_clear_answer_make_room_for_the_next() -> None:
    clear, close, none = centred(0.5, 0.1), centred(0.066, 0.0714), centred(0.0, 0.2)
    assert sequence_estimate(close, ALPHA / 3).verdict(0.03) is Verdict.UNCLEAR
    assert sequence_estimate(close, ALPHA / 2).verdict(0.03) is Verdict.AHEAD
    verdicts = [one.verdict(0.03) for one in holm_estimates([clear, close, none], ALPHA, 0.03)]
    assert verdicts == [Verdict.AHEAD, Verdict.AHEAD, Verdict.UNCLEAR]
    verdicts = [one.verdict(0.03) for one in holm_estimates([none, close, none], ALPHA, 0.03)]
    assert verdicts == [Verdict.UNCLEAR] * 3


def test_many_questions_make_no_more_errors_than_one() -> None:
    rng = np.random.default_rng(5)
    trials, alpha = 400, 0.1
    wrong = 0
    for _ in range(trials):
        questions = [[Look(rng.normal(size=20), 1.0)] for _ in range(5)]
        verdicts = [one.verdict(1e-9) for one in holm_estimates(questions, alpha, 1e-9)]
        wrong += any(verdict in (Verdict.AHEAD, Verdict.BEHIND) for verdict in verdicts)
    assert wrong <= stats.binom.ppf(1 - 1e-6, trials, alpha)


def test_a_budget_that_decides_grows_with_the_square_of_the_width() -> None:
    width = math.log1p(0.03)
    wide = Estimate(1.0, math.exp(-width), math.exp(width), 10)
    assert budget_factor(wide, 0.03) == pytest.approx(4)
    assert budget_factor(Estimate(1.0, 0.0, math.inf, 3), 0.03) == math.inf
