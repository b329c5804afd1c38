"""The tail of single operations' latencies: the peer with the shortest tail in one run is compared with hakmem in
others."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hakmem_lab.measure.store import Sample
from hakmem_lab.studies.matrix import SUBJECT, Row

JUDGED = range(4)
"""Rounds of hakmem and that peer."""
BEHIND_CHANCE = 1 / math.comb(2 * len(JUDGED), len(JUDGED))
"""That all of one are above all of the other happens by chance once in 70 times."""


@dataclass(frozen=True)
class Tail:
    """p99.9 of hakmem beside that of the peer with the shortest."""

    row: str
    peer: str
    ratio: float
    """Ratio of the medians; above one, hakmem's is longer."""
    behind: bool
    """Each of hakmem's is longer than any of the peer's, by more than the margin."""


def peer_shortest(observed: Iterable[Sample]) -> str | None:
    """By one run of each. The luckiest of a dozen there need not be the shortest in the rounds that judge."""
    tails = [(one.latency_p999_ns, one.arm) for one in observed if one.arm != SUBJECT and one.latency_p999_ns]
    return min(tails)[1] if tails else None


def tail_judge(row: Row, observed: Iterable[Sample], rounds: Sequence[Sample], margin: float) -> Tail | None:
    """None if too little was measured."""
    peer = peer_shortest(observed)
    judged = [one for one in rounds if one.slot in JUDGED]
    own, other = (
        [one.latency_p999_ns for one in judged if one.arm == arm and one.latency_p999_ns]
        for arm in (SUBJECT, peer)
    )
    if peer is None or len(own) < len(JUDGED) or len(other) < len(JUDGED):
        return None
    ratio = statistics.median(own) / statistics.median(other)
    return Tail(row.name, peer, ratio, min(own) > (1 + margin) * max(other))
