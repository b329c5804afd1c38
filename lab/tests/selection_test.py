from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hakmem_lab.statistics.selection import best_compare, fastest_beside, holm, margin_p_value, mean_estimate
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats


def test_holm_against_a_published_example() -> None:
    """The worked example of Wikipedia's "Holm-Bonferroni method": the first and the last are rejected at 0.05."""
    adjusted = holm([0.01, 0.04, 0.03, 0.005])
    assert adjusted == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert [value <= 0.05 for value in adjusted] == [True, False, False, True]


def test_holm_keeps_the_order_it_was_given() -> None:
    assert holm([0.04, 0.001, 0.03]) == pytest.approx([0.06, 0.003, 0.06])
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_holm_lies_between_no_correction_and_bonferroni(p_values: list[float]) -> None:
    for raw, adjusted in zip(p_values, holm(p_values), strict=True):
        assert raw <= adjusted <= min(1.0, len(p_values) * raw) + 1e-12


def test_holm_keeps_the_chance_of_any_false_rejection() -> None:
    rng = np.random.default_rng(5)
    trials = 2000
    false = sum(min(holm(list(rng.uniform(size=20)))) <= 0.05 for _ in range(trials))
    assert stats.binomtest(false, trials, 0.05, alternative="greater").pvalue > 0.001


def test_the_interval_of_the_mean_is_scipys() -> None:
    sample = [0.11, 0.13, 0.08, 0.12, 0.1, 0.14]
    estimate = mean_estimate(sample, 0.99)
    expected = stats.ttest_1samp(sample, 0).confidence_interval(0.99)
    assert math.log(estimate.low) == pytest.approx(expected.low)
    assert math.log(estimate.high) == pytest.approx(expected.high)
    assert math.log(estimate.ratio) == pytest.approx(np.mean(sample))


def test_the_p_value_is_that_of_a_t_test_against_the_nearer_margin() -> None:
    sample = [-0.11, -0.13, -0.08, -0.12, -0.1, -0.14]
    expected = stats.ttest_1samp(sample, -math.log(1.03)).pvalue
    assert margin_p_value(sample, 0.03) == pytest.approx(expected)


def test_within_the_margin_nothing_is_clear() -> None:
    assert margin_p_value([0.01, 0.012, 0.009, 0.011], 0.03) == 1.0
    assert margin_p_value([0.01] * 4, 0.03) == 1.0
    assert margin_p_value([0.5] * 4, 0.03) == 0.0


def noise(rng: random.Random, centre: float, spread: float, rounds: int = 24) -> dict[int, float]:
    return {number: rng.gauss(centre, spread) for number in range(rounds)}


def test_the_best_peer_is_the_fastest() -> None:
    rng = random.Random(2)
    peers = {"slow": noise(rng, 0.5, 0.01), "fast": noise(rng, -0.2, 0.01), "level": noise(rng, 0.0, 0.01)}
    assert fastest_beside(peers) == "fast"
    best = best_compare("fast", list(peers["fast"].values()), 0.03, 0.99)
    assert best is not None
    assert best.estimate.ratio == pytest.approx(math.exp(-0.2), rel=0.01)
    assert best.p_value < 1e-6


def test_the_luckiest_of_many_equal_peers_wins_nothing() -> None:
    """Compared on the rounds on which it was selected, the best of a dozen looks faster than it is."""
    rng = random.Random(3)
    honest, naive = [], []
    for _ in range(300):
        peers = {f"peer {number}": noise(rng, 0.0, 0.05, 12) for number in range(12)}
        selected = fastest_beside({name: dict(list(one.items())[:6]) for name, one in peers.items()})
        assert selected is not None
        best = best_compare(selected, list(peers[selected].values())[6:], 0.0, 0.99)
        assert best is not None
        honest.append(math.log(best.estimate.ratio))
        naive.append(min(float(np.mean(list(ratios.values()))) for ratios in peers.values()))
    error = 0.05 / math.sqrt(6) / math.sqrt(300)
    assert abs(np.mean(honest)) < 4 * error
    assert np.mean(naive) < -10 * error


def test_a_peer_with_too_few_rounds_is_neither_selected_nor_compared() -> None:
    rng = random.Random(4)
    assert fastest_beside({"often": noise(rng, 0.0, 0.01), "once": {3: -2.0}}) == "often"
    assert fastest_beside({"once": {3: -2.0}}) is None
    assert best_compare("once", [-2.0], 0.03, 0.99) is None
