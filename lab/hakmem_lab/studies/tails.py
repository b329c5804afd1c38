"""The tail of single operations' latencies: the peer that had the shortest in the first rounds is held against hakmem in others."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hakmem_lab.measure.store import Sample
from hakmem_lab.studies.matrix import SUBJECT, Row

SELECTING = range(2)
"""The rounds of every allocator. Who is the luckiest of a dozen in one run says little of the next."""
JUDGED = range(SELECTING.stop, SELECTING.stop + 4)
"""Those of hakmem and the one that was selected. All four of one above all four of the other is chance once in 70 times."""


@dataclass(frozen=True)
class Tail:
    """p99.9 of hakmem beside that of the peer with the shortest."""

    row: str
    peer: str
    ratio: float
    """Of the medians; above one, hakmem's is longer."""
    behind: bool
    """Each of hakmem's is longer than any of the peer's, by more than the margin."""


def peer_shortest(samples: Iterable[Sample]) -> str | None:
    """Of the rounds that select."""
    seen: dict[str, list[float]] = defaultdict(list)
    for one in samples:
        if one.slot in SELECTING and one.latency_p999_ns is not None and one.arm != SUBJECT:
            seen[one.arm].append(one.latency_p999_ns)
    whole = {arm: statistics.median(tails) for arm, tails in seen.items() if len(tails) == len(SELECTING)}
    return min(whole, key=lambda arm: (whole[arm], arm)) if whole else None


def tail_judge(row: Row, samples: Sequence[Sample], margin: float) -> Tail | None:
    """None where too little was measured."""
    peer = peer_shortest(samples)
    judged = [one for one in samples if one.slot in JUDGED]
    own, other = (
        [one.latency_p999_ns for one in judged if one.arm == arm and one.latency_p999_ns]
        for arm in (SUBJECT, peer)
    )
    if peer is None or len(own) < len(JUDGED) or len(other) < len(JUDGED):
        return None
    ratio = statistics.median(own) / statistics.median(other)
    return Tail(row.name, peer, ratio, min(own) > (1 + margin) * max(other))
