from __future__ import annotations

import pytest
from hakmem_lab.measure.observe import TRACE_POINTS_MAX, summary_total, thinned, trace_mean


def test_the_mean_is_that_of_all_points_and_the_picture_keeps_the_peaks() -> None:
    """Memory that goes up and down: of what is kept for the picture only the peaks are left."""
    points = tuple((0.002 * step, 1000 if step % 10 else 5000) for step in range(2001))
    assert trace_mean(points) == pytest.approx(1400, rel=0.01)
    shown = thinned(points)
    assert len(shown) <= TRACE_POINTS_MAX
    assert {kib for _, kib in shown[:-1]} == {5000}


def test_a_run_that_was_seen_once_has_a_mean_and_one_that_was_not_has_none() -> None:
    assert trace_mean(((0.0, 700),)) == 700
    assert trace_mean(()) is None
    assert thinned(()) == ()


def test_the_total_of_system_calls_is_the_last_line() -> None:
    assert summary_total(" 3 mmap\n 1 total\n---- ------\n  12 total\n") == 12
    assert summary_total("strace: nothing\n") is None
