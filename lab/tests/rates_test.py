from __future__ import annotations

import pytest
from hakmem_lab.statistics.rates import chance_of_so_many, rate_estimate
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats


@pytest.mark.parametrize(
    ("hits", "trials", "confidence", "low", "high"),
    [
        # Exact limits as printed in tables of the binomial distribution.
        (10, 100, 0.95, 0.0490, 0.1762),
        (0, 10, 0.95, 0.0, 0.3085),
        (5, 10, 0.95, 0.1871, 0.8129),
        (0, 100, 0.99, 0.0, 0.0516),
    ],
)
def test_published_limits(hits: int, trials: int, confidence: float, low: float, high: float) -> None:
    rate = rate_estimate(hits, trials, confidence)
    assert (rate.low, rate.high) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(1, 300), st.floats(0.001, 0.999), st.data())
def test_a_rate_outside_is_refuted_by_its_own_tail(trials: int, share: float, data: st.DataObject) -> None:
    hits = data.draw(st.integers(0, trials))
    rate = rate_estimate(hits, trials)
    if share < rate.low:
        assert stats.binom.sf(hits - 1, trials, share) < 0.005
    if share > rate.high:
        assert stats.binom.cdf(hits, trials, share) < 0.005


def test_nothing_tried_is_nothing_known() -> None:
    rate = rate_estimate(0, 0)
    assert (rate.low, rate.high, rate.text) == (0.0, 1.0, "none tried")


@pytest.mark.parametrize(
    ("hits", "trials", "chance", "expected"),
    [(0, 5, 0.1, 1.0), (1, 53, 1 / 70, 1 - (69 / 70) ** 53), (2, 2, 0.25, 0.0625), (9, 10, 0.5, 11 / 1024)],
)
def test_the_chance_of_at_least_so_many(hits: int, trials: int, chance: float, expected: float) -> None:
    assert chance_of_so_many(hits, trials, chance) == pytest.approx(expected)
