"""What a cell is: one program of bench/ with one set of arguments, and how it is to be measured and judged."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum

COUNT_PLACE = "{count}"
SEED_PLACE = "{seed}"


class Measure(Enum):
    """What a speed is: operations per second of this."""

    TIME = "time"
    CPU = "processor time"


class Suite(StrEnum):
    """The smallest suite that runs a cell; the full one runs all."""

    QUICK = "quick"
    FULL = "full"


class Group(StrEnum):
    """What a cell tests."""

    SMALL = "small"
    """Blocks up to 1 KiB, one thread."""
    MID = "mid"
    """Up to 32 KiB, and mixtures of all sizes."""
    LARGE = "large"
    THREADS = "threads"
    """Threads that come and go, share lines, or outnumber the processors."""
    HAND_OVER = "hand-over"
    """Blocks that another thread frees."""
    MEMORY = "memory"
    """Footprint over a long life, and memory returned to the kernel."""
    START = "start"
    CONTROL = "control"


@dataclass(frozen=True)
class Cell:
    name: str
    program: str
    arguments: tuple[str, ...]
    """COUNT_PLACE stands for the calibrated count, SEED_PLACE for the pair's seed."""
    first_count: int
    """Where calibration starts: a few milliseconds."""
    group: Group = Group.SMALL
    suite: Suite = Suite.FULL
    threads: int = 1
    control: bool = False
    """Allocates nothing: any difference is caused by the laboratory."""
    switches_are_noise: bool = True
    """False where the program itself makes the scheduler switch."""
    measure: Measure = Measure.TIME
    count_min: int = 1
    """A program that runs by the clock needs at least this count, whatever the calibration finds."""
    by_clock: bool = False
    """It works until its time is over: the amount differs from run to run."""
    ends_slowly: bool = False
    """It goes on for long outside its clock, returns much memory or sleeps; that is not the cost of a start."""
    memory: bool = False
    """Its figure is memory; its speed is only shown beside it."""
    figure: str = ""
    """The figure that it is about, named as in the program's line, if it is not one that every program has."""

    def command(self, count: int, seed: int) -> list[str]:
        places = {COUNT_PLACE: str(count), SEED_PLACE: str(seed)}
        return [places.get(argument, argument) for argument in self.arguments]
