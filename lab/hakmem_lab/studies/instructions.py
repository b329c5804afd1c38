"""The cost in instructions of the fast path, and of the passage through refill and spill, by differences.

A pair of malloc and free: a loop of N pairs and one of 2N; the difference is N pairs, without start-up. A passage
through refill and spill: bursts of B and of 2B blocks, both deeper than any cache, each run for C and for 2C
cycles. The difference per cycle is B further blocks, each of which was refilled and spilled once; what it costs
beyond a plain pair is the passage. It includes the share of a slab's creation and release, which is one in a
thousand blocks at 64 bytes and one in sixty at 1024.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hakmem_lab.allocators.peers import Peer
from hakmem_lab.grid import Grid
from hakmem_lab.measure.pairs import cpus_allowed
from hakmem_lab.measure.runner import Arm
from hakmem_lab.measure.stage import Stage
from hakmem_lab.studies.callgrind import allocator_instructions
from hakmem_lab.studies.checks import Check

PAIR_LIMIT = 38
PASSAGE_LIMIT = 30

SIZES = (16, 64, 256, 1024)
PAIRS = 50_000
BURST_BLOCKS = {16: 32768, 64: 32768, 256: 32768, 1024: 16384}
BURST_CYCLES = 3


@dataclass(frozen=True)
class Instructions:
    peer: str
    size: int
    pair: float
    passage: float


Count = Callable[[int, int], int]
"""From (blocks, cycles) to the allocator's instructions in that burst."""


def pair_cost(count: Count) -> float:
    return (count(1, 2 * PAIRS) - count(1, PAIRS)) / PAIRS


def burst_cost_per_cycle(count: Count, blocks: int) -> float:
    return (count(blocks, 2 * BURST_CYCLES) - count(blocks, BURST_CYCLES)) / BURST_CYCLES


def passage_cost(count: Count, blocks: int) -> float:
    """One block's malloc and free with a refill and a spill in between."""
    deep = burst_cost_per_cycle(count, blocks)
    deeper = burst_cost_per_cycle(count, 2 * blocks)
    return (deeper - deep) / blocks


def instructions_measure(stage: Stage, peer: Peer, size: int) -> Instructions:
    cpus = cpus_allowed()[:1]

    def count(blocks: int, cycles: int) -> int:
        arguments = [str(blocks), str(size), str(cycles), "1"]
        instructions, _ = allocator_instructions(stage, "lifo_burst", arguments, Arm(peer), cpus)
        return instructions

    pair = pair_cost(count)
    return Instructions(peer.name, size, pair, passage_cost(count, BURST_BLOCKS[size]) - pair)


def instructions_grid(measured: Sequence[Instructions]) -> Grid:
    return Grid(
        title="Instructions inside the allocator (callgrind)",
        columns=("peer", "size", "malloc and free", "refill and spill besides"),
        rows=tuple((one.peer, str(one.size), f"{one.pair:.1f}", f"{one.passage:.1f}") for one in measured),
    )


def instructions_checks(measured: Sequence[Instructions]) -> list[Check]:
    pairs = [
        Check.at_most(f"malloc and free of {one.size} B: instructions", round(one.pair, 1), PAIR_LIMIT)
        for one in measured
    ]
    passages = [
        Check.at_most(
            f"refill and spill of {one.size} B besides: instructions", round(one.passage, 1), PASSAGE_LIMIT
        )
        for one in measured
    ]
    return pairs + passages
