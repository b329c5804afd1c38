"""The statistics against enumeration, published tables and examples, SciPy, and simulated coverage."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hakmem_lab.statistics.estimate import (
    Estimate,
    Samples,
    Verdict,
    hodges_lehmann,
    interval_rank,
    pairs_needed,
    ratio_estimate,
    signed_rank_distribution,
    suite_estimate,
    walsh_averages,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

finite = st.floats(-10, 10, allow_nan=False)
samples = st.lists(finite, min_size=8, max_size=24)


@pytest.mark.parametrize("count", range(9))
def test_distribution_is_that_of_all_sign_patterns(count: int) -> None:
    sums = [
        sum(rank for rank, positive in enumerate(signs, start=1) if positive)
        for signs in itertools.product([False, True], repeat=count)
    ]
    expected = np.bincount(sums, minlength=count * (count + 1) // 2 + 1) / 2**count
    assert signed_rank_distribution(count) == pytest.approx(expected)


# Critical values of the signed rank test as printed in statistics textbooks: the largest rank sum that
# is significant, two-sided.
@pytest.mark.parametrize(
    ("confidence", "critical"),
    [
        (0.95, {5: -1, 6: 0, 7: 2, 8: 3, 9: 5, 10: 8, 12: 13, 15: 25, 20: 52, 25: 89}),
        (0.99, {7: -1, 8: 0, 9: 1, 10: 3, 12: 7, 15: 15, 20: 37, 25: 68}),
    ],
)
def test_interval_rank_agrees_with_the_printed_tables(confidence: float, critical: dict[int, int]) -> None:
    for count, value in critical.items():
        assert interval_rank(count, confidence) == value + 1


def test_pairs_needed_is_the_first_count_in_the_tables() -> None:
    assert pairs_needed(0.95) == 6
    assert pairs_needed(0.99) == 8


def test_published_example() -> None:
    # Hollander and Wolfe, Nonparametric Statistical Methods, example 3.1 (depression scale before and
    # after a tranquillizer): estimate -0.46, 96.1 % interval from -0.786 to -0.010.
    before = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30]
    after = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29]
    centre, low, high = hodges_lehmann(np.subtract(after, before), 0.96)
    assert (centre, low, high) == pytest.approx((-0.46, -0.786, -0.010), abs=0.0005)


@given(samples, st.sampled_from([0.9, 0.95, 0.99]))
def test_interval_holds_what_the_test_does_not_reject(values: list[float], confidence: float) -> None:
    _, low, high = hodges_lehmann(values, confidence)
    if not math.isfinite(low):
        assert len(values) < pairs_needed(confidence)
        return
    edges = walsh_averages(values)
    inside = [
        a + (b - a) / 2 for a, b in itertools.pairwise(edges) if low <= a and b <= high and b - a > 1e-6
    ]
    outside = [low - 1e-3, high + 1e-3]
    for theta, rejected in [(t, False) for t in inside[::7]] + [(t, True) for t in outside]:
        shifted = np.subtract(values, theta)
        if len(set(np.abs(shifted))) < len(values) or np.any(shifted == 0):
            continue  # SciPy's exact test wants no ties
        p = stats.wilcoxon(shifted, method="exact").pvalue
        assert (p <= (1 - confidence) * (1 + 1e-9)) == rejected


@given(samples, finite)
def test_estimate_moves_with_the_data(values: list[float], shift: float) -> None:
    centre, low, high = hodges_lehmann(values, 0.95)
    moved = hodges_lehmann(np.add(values, shift), 0.95)
    assert moved == pytest.approx((centre + shift, low + shift, high + shift), abs=1e-9)


@given(samples)
def test_exchanging_the_arms_mirrors_the_estimate(values: list[float]) -> None:
    centre, low, high = hodges_lehmann(values, 0.95)
    mirrored = hodges_lehmann(np.negative(values), 0.95)
    assert mirrored == pytest.approx((-centre, -high, -low), abs=1e-12)


@settings(max_examples=30)
@given(
    noise=st.sampled_from(["normal", "laplace", "cauchy", "uniform"]),
    count=st.integers(8, 25),
    confidence=st.sampled_from([0.9, 0.95, 0.99]),
    seed=st.integers(0, 2**32 - 1),
)
def test_coverage_is_at_least_what_is_promised(noise: str, count: int, confidence: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    draws: dict[str, Callable[[tuple[int, int]], Samples]] = {
        "normal": lambda size: rng.normal(size=size),
        "laplace": lambda size: rng.laplace(size=size),
        "cauchy": lambda size: rng.standard_cauchy(size=size),
        "uniform": lambda size: rng.uniform(-1, 1, size),
    }
    trials = 1500
    truth = 0.05
    hits = 0
    for row in truth + draws[noise]((trials, count)):
        _, low, high = hodges_lehmann(row, confidence)
        hits += low <= truth <= high
    # With exactly the promised coverage, fewer hits than this have a chance of one in a million.
    assert hits >= stats.binom.ppf(1e-6, trials, confidence)


@settings(max_examples=20)
@given(count=st.integers(8, 25), seed=st.integers(0, 2**32 - 1))
def test_coverage_is_not_bought_with_needless_width(count: int, seed: int) -> None:
    # The interval is the shortest of its kind: one Walsh average less on each side breaks the promise.
    confidence = 0.95
    chances = np.cumsum(signed_rank_distribution(count))
    rank = interval_rank(count, confidence)
    assert chances[rank - 1] <= 0.025 < chances[rank]
    sample = np.random.default_rng(seed).normal(size=count)
    averages = walsh_averages(sample)
    _, low, high = hodges_lehmann(sample, confidence)
    assert (low, high) == (averages[rank - 1], averages[-rank])


def test_false_wins_are_rare_without_a_difference() -> None:
    rng = np.random.default_rng(20261121)
    trials = 2000
    wins = sum(
        ratio_estimate(row, 0.99).verdict(0.03) in (Verdict.AHEAD, Verdict.BEHIND)
        for row in 0.05 * rng.standard_t(3, size=(trials, 10))
    )
    assert wins <= stats.binom.ppf(1 - 1e-6, trials, 0.01)


def test_too_few_pairs_give_an_unbounded_interval() -> None:
    estimate = ratio_estimate([0.5] * 7, 0.99)
    assert (estimate.low, estimate.high) == (0.0, math.inf)
    assert estimate.verdict(0.03) is Verdict.UNCLEAR
    assert estimate.detectable(0.03) == math.inf


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (1.04, 1.10, Verdict.AHEAD),
        (0.90, 0.96, Verdict.BEHIND),
        (0.98, 1.02, Verdict.EQUAL),
        (1.01, 1.05, Verdict.UNCLEAR),
        (0.95, 0.99, Verdict.UNCLEAR),
        (0.90, 1.10, Verdict.UNCLEAR),
        (1.03, 1.10, Verdict.UNCLEAR),
    ],
)
def test_verdict(low: float, high: float, verdict: Verdict) -> None:
    assert Estimate((low * high) ** 0.5, low, high, 10).verdict(0.03) is verdict


def test_detectable_is_where_a_win_begins() -> None:
    estimate = Estimate(1.0, 0.98, 1.02, 10)
    needed = estimate.detectable(0.03)
    half = math.sqrt(estimate.high / estimate.low)
    assert Estimate(needed, needed / half * 1.0001, needed * half, 10).verdict(0.03) is Verdict.AHEAD
    assert Estimate(needed, needed / half * 0.9999, needed * half, 10).verdict(0.03) is Verdict.UNCLEAR


def test_suite_is_the_geometric_mean_of_its_cells() -> None:
    rng = np.random.default_rng(7)
    cells = [np.log(ratio) + 0.01 * rng.normal(size=10) for ratio in (1.0, 2.0, 4.0)]
    suite = suite_estimate(cells, 0.95)
    assert suite.ratio == pytest.approx(2.0, rel=0.02)
    assert suite.low < suite.ratio < suite.high
    assert suite.pairs == 30
    assert suite_estimate(cells[:1], 0.95) == ratio_estimate(cells[0], 0.95)


@pytest.mark.parametrize("cells", [2, 4, 12])
def test_the_interval_over_few_cells_holds_the_mean_of_all(cells: int) -> None:
    rng = np.random.default_rng(cells)
    held = 0
    for _ in range(400):
        suite = suite_estimate([rng.normal(0.3, 0.2) + 0.02 * rng.normal(size=6) for _ in range(cells)], 0.9)
        held += suite.low <= math.exp(0.3) <= suite.high
    assert 0.86 <= held / 400 <= 0.94
