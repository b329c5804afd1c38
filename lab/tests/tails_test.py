"""Which peer's tail is the shortest is told by other runs than those that judge it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hakmem_lab.measure.store import Sample
from hakmem_lab.studies.tails import JUDGED, Tail, peer_shortest, tail_judge
from lab_matrix import observed_make, row_make, tails_make

ROW = row_make("cell")
MARGIN = 0.03
FEW = len(JUDGED) - 1


def seen(**tails: float) -> list[Sample]:
    return [replace(observed_make(ROW, arm), latency_p999_ns=tail) for arm, tail in tails.items()]


def judged(own: list[float], observed: list[Sample], **peers: list[float]) -> Tail | None:
    return tail_judge(ROW, observed, tails_make(ROW, {"hakmem": own, **peers}), MARGIN)


def test_luck_in_the_run_that_selects_is_none_in_those_that_judge() -> None:
    tail = judged(
        [50.0] * 4, seen(hakmem=90.0, glibc=30.0, jemalloc=40.0), glibc=[60.0] * 4, jemalloc=[40.0] * 4
    )
    assert tail is not None
    assert (tail.peer, tail.behind) == ("glibc", False)
    assert tail.ratio == pytest.approx(50 / 60)


@pytest.mark.parametrize(
    ("own", "behind"),
    [
        ([44.0] * 4, True),
        ([44.0] * FEW + [41.0], False),  # within the margin
        ([90.0] * FEW + [40.0], False),  # one was not longer
    ],
)
def test_behind_is_longer_in_every_run_by_more_than_the_margin(own: list[float], behind: bool) -> None:
    tail = judged(own, seen(hakmem=1.0, glibc=40.0), glibc=[40.0] * 4)
    assert tail is not None
    assert tail.behind is behind


def test_too_little_is_no_answer() -> None:
    assert peer_shortest(seen(hakmem=1.0)) is None
    assert judged([40.0] * 4, seen(hakmem=40.0)) is None
    assert judged([40.0] * FEW, seen(glibc=40.0), glibc=[40.0] * 4) is None
    assert judged([40.0] * 4, seen(glibc=40.0), glibc=[40.0] * FEW) is None
