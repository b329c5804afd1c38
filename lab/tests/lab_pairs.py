"""Made-up runs and pairs for the tests of what judges them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from hakmem_lab.allocators.peers import Peer
from hakmem_lab.measure.pairs import Comparison, Pair
from hakmem_lab.measure.runner import Arm, Conditions, Measured

HAKMEM = Arm(Peer("hakmem", "0", None, "id"))
GLIBC = Arm(Peer("glibc", "2.36", None, "id"))

RUN = Measured(
    ops=1_000_000,
    seconds=0.25,
    wall_seconds=0.26,
    cpu_seconds=0.25,
    peak_rss_kib=2000,
    minor_faults=10,
    major_faults=0,
    involuntary_switches=1,
    steal_ticks=0,
    checksum="aa",
)


def pair_make(name: str, ratio: float, number: int = 0, disturbed: str = "") -> Pair:
    """hakmem is RATIO times as fast."""
    comparison = Comparison(name, HAKMEM, GLIBC)
    slower = replace(RUN, seconds=RUN.seconds * ratio)
    return Pair(comparison, number, Conditions(1, 0, (0,)), True, RUN, slower, disturbed)


def pairs_make(name: str, ratio: float, spread: float = 0.005, count: int = 12) -> list[Pair]:
    """Ratios spread evenly around RATIO."""
    steps: Sequence[float] = [spread * (2 * index / (count - 1) - 1) for index in range(count)]
    return [pair_make(name, ratio * math.exp(step), index) for index, step in enumerate(steps)]
