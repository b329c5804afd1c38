"""What is measured: each cell is one program of bench/ with one set of arguments.

A later suite, or a user's own program, is one more table of cells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from hakmem_lab.measure.runner import PRELOAD_PLACE

COUNT_PLACE = "{count}"
SEED_PLACE = "{seed}"


class Measure(Enum):
    """What a speed is: operations per second of this."""

    TIME = "time"
    CPU = "processor time"


@dataclass(frozen=True)
class Target:
    """What is asked of hakmem against one peer."""

    at_least: float | None = None
    """The ratio of speeds that must be reached; None: not behind by more than the margin."""

    @property
    def text(self) -> str:
        return f"at least {self.at_least:g}" if self.at_least else "not behind"


NOT_BEHIND = Target()


@dataclass(frozen=True)
class Cell:
    name: str
    program: str
    arguments: tuple[str, ...]
    """COUNT_PLACE stands for the calibrated count, SEED_PLACE for the pair's seed."""
    first_count: int
    """Where calibration begins: a few milliseconds."""
    threads: int = 1
    targets: Mapping[str, Target] = field(default_factory=dict)
    """By peer."""
    control: bool = False
    """Allocates nothing: any difference is the laboratory's fault."""
    switches_are_noise: bool = True
    """False where the program itself makes the scheduler switch."""
    measure: Measure = Measure.TIME
    count_min: int = 1
    """A program that runs by the clock needs this much of it, whatever the calibration says."""
    ends_slowly: bool = False
    """It gives back much memory after its clock has stopped: that is not the cost of a start."""

    def command(self, count: int, seed: int) -> list[str]:
        places = {COUNT_PLACE: str(count), SEED_PLACE: str(seed)}
        return [places.get(argument, argument) for argument in self.arguments]


def _faster(against_glibc: Target) -> dict[str, Target]:
    return {"glibc": against_glibc, "mimalloc3": NOT_BEHIND, "jemalloc": NOT_BEHIND}


_FASTER = _faster(Target(at_least=1.2))


def _random_mixed(slots: int) -> Cell:
    return Cell(
        name=f"random mix, {slots} slots",
        program="random_mixed",
        arguments=(COUNT_PLACE, str(slots), SEED_PLACE, "16", "1024"),
        first_count=200_000,
        targets=_FASTER,
    )


def _lifo_burst(blocks: int, size: int) -> Cell:
    what = f"{size} B" if size else "16-256 B"
    return Cell(
        name=f"LIFO burst, {blocks} of {what}",
        program="lifo_burst",
        arguments=(str(blocks), str(size), COUNT_PLACE, SEED_PLACE),
        first_count=max(1, 200_000 // blocks),
        targets=_FASTER,
    )


def _realloc_growth(blocks: int, step: int) -> Cell:
    what = "1 block" if blocks == 1 else f"{blocks} blocks"
    by = f"{step >> 10} KiB" if step else "a quarter"
    return Cell(
        name=f"growth by realloc, {what}, by {by}",
        program="realloc_growth",
        arguments=(COUNT_PLACE, str(blocks), str(step), SEED_PLACE),
        first_count=1,
        targets=_faster(NOT_BEHIND),
        ends_slowly=True,
    )


FIRST_FIGURES = (
    _random_mixed(256),
    _random_mixed(8192),
    *(_lifo_burst(blocks, size) for size in (64, 0) for blocks in (64, 1000, 4000)),
    Cell(
        name="producer and consumer",
        program="producer_consumer",
        arguments=(COUNT_PLACE, "64", "100", SEED_PLACE),
        first_count=100_000,
        threads=2,
        targets=_FASTER,
    ),
    Cell(
        name="hand-over of 1000 blocks",
        program="hand_over",
        arguments=(COUNT_PLACE, "1000", "0", SEED_PLACE),
        first_count=100_000,
        threads=2,
        targets=_FASTER,
    ),
    Cell(
        name="two writers, 16 B blocks",
        program="shared_write",
        arguments=(COUNT_PLACE, "16", SEED_PLACE),
        first_count=5_000_000,
        threads=2,
        targets=_faster(NOT_BEHIND),
    ),
    Cell(
        name="512 KiB-2 MiB, 256 slots",
        program="vm_mixed",
        arguments=(COUNT_PLACE, "256", SEED_PLACE),
        first_count=20_000,  # half of it warms up
        targets=_faster(NOT_BEHIND),
        ends_slowly=True,
    ),
    _realloc_growth(1, 0),
    _realloc_growth(8, 0),
    _realloc_growth(1, 256 << 10),
    Cell(
        name="no allocation (control)",
        program="no_alloc",
        arguments=(COUNT_PLACE, SEED_PLACE),
        first_count=2_000_000,
        control=True,
    ),
)

SERVER_PEAKS = Cell(
    name="server with peaks",
    program="server_peaks",
    arguments=(COUNT_PLACE, SEED_PLACE),
    first_count=1,
    threads=2,
    switches_are_noise=False,
    measure=Measure.CPU,
    count_min=4,
)

PROCESS_START = Cell(
    name="start of `true`",
    program="start_loop",
    arguments=(COUNT_PLACE, PRELOAD_PLACE, "--", "true"),
    first_count=50,
    targets={"mimalloc3": NOT_BEHIND},
    switches_are_noise=False,
)
