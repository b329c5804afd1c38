"""Which peer's tail is the shortest is told by other runs than those that judge it."""

from __future__ import annotations

from hakmem_lab.studies.tails import Tail, peer_shortest, tail_judge
from lab_matrix import row_make, tails_make

ROW = row_make("cell")
MARGIN = 0.03


def judged(own: list[float], **peers: list[float]) -> Tail | None:
    return tail_judge(ROW, tails_make(ROW, {"hakmem": own, **peers}), MARGIN)


def test_luck_in_the_rounds_that_select_is_none_in_those_that_judge() -> None:
    lucky, steady = [30.0, 30.0, 60.0, 60.0, 60.0, 60.0], [40.0] * 6
    tail = judged([50.0] * 6, glibc=lucky, jemalloc=steady)
    assert tail is not None
    assert (tail.peer, tail.behind) == ("glibc", False)
    assert tail.ratio == 50 / 60


def test_behind_is_longer_in_every_run_by_more_than_the_margin() -> None:
    for own, behind in (
        ([44.0] * 6, True),
        ([44.0] * 5 + [41.0], False),  # within the margin
        ([90.0] * 5 + [40.0], False),  # one was not longer
        ([39.0] * 2 + [44.0] * 4, True),  # hakmem's own in the rounds that select say nothing
    ):
        tail = judged(own, glibc=[40.0] * 6)
        assert tail is not None
        assert tail.behind is behind


def test_who_failed_once_is_not_selected() -> None:
    samples = tails_make(ROW, {"hakmem": [1.0] * 6, "glibc": [40.0] * 6, "jemalloc": [20.0]})
    assert peer_shortest(samples) == "glibc"


def test_too_little_is_no_answer() -> None:
    assert judged([40.0] * 6) is None
    assert judged([40.0] * 5, glibc=[40.0] * 6) is None
    assert judged([40.0] * 6, glibc=[40.0] * 5) is None
