"""How much work a run of a cell gets, and what its rounds will cost.

Every arm is run alone, with more and more work until its speed can be determined. An arm that crashes or hangs here
is not run in the rounds; that is its result.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from hakmem_lab.measure.pairs import CALIBRATION_RESERVE, CALIBRATION_SECONDS, STARTS_PER_RUN
from hakmem_lab.measure.rounds import NEAR, Demand, Failure, Run, run_once
from hakmem_lab.measure.runner import Arm, Conditions, Measured
from hakmem_lab.measure.task import Task

SLOWEST_RUN_SECONDS = 5.0
"""If arms are far apart the slowest run takes about this long at most, even if the fastest is then shorter than
requested. With a dozen arms in a round a longer run would leave too little time for the others' rounds."""
GROWTH_MAX = 20.0
LONG_RUN_SECONDS = 5.0
"""A workload whose shortest run takes longer than this rests for most of it."""


@dataclass(frozen=True)
class Speed:
    """The speed of one arm."""

    count: int
    seconds: float
    start_seconds: float
    """Time besides the measured time: starting, ending, and reading the output."""

    def wall(self, count: int) -> float:
        return self.start_seconds + self.seconds * count / self.count


@dataclass(frozen=True)
class Work:
    """What the calibration of a task found."""

    count: int
    walls: Mapping[str, float]
    """Seconds of a run, by arm."""
    failures: Mapping[str, str]
    """Reasons, by arm."""
    observed: Mapping[str, Measured] = field(default_factory=dict)
    """By arm, if the runs were watched."""

    @property
    def wall(self) -> float:
        """Seconds of a typical run: the median over arms."""
        return statistics.median(self.walls.values()) if self.walls else 0.0

    def demand(self, interval: int, always: Collection[str] = (), named: Collection[str] = ()) -> Demand:
        """If ALWAYS names arms, these stay after one of the others was selected; so do those of NAMED."""
        everybody = sum(self.walls.values())
        if not always:
            return Demand(everybody, interval)
        left = sum(self.walls[name] for name in {*always, *named})
        selected = statistics.median(wall for name, wall in self.walls.items() if name not in always)
        near = sum(self.walls[name] for name in self.near(always) if name not in named)
        return Demand(everybody, interval, left + selected, left + near)

    def near(self, always: Collection[str]) -> tuple[str, ...]:
        """The arms, except those of ALWAYS, that are near the fastest of the others."""
        others = {name: wall for name, wall in self.walls.items() if name not in always}
        return tuple(name for name, wall in others.items() if wall <= NEAR * min(others.values()))


def speed_find(
    task_of: Callable[[int], Task], first: int, arm: Arm, conditions: Conditions
) -> Speed | Failure:
    count = first
    while True:
        run = run_once(task_of(count), arm, conditions)
        if isinstance(run, Failure):
            return run
        if run.seconds >= CALIBRATION_SECONDS:
            return Speed(count, run.seconds, max(0.0, run.wall_seconds - run.seconds))
        growth = GROWTH_MAX if run.seconds <= 0 else 1.5 * CALIBRATION_SECONDS / run.seconds
        count = math.ceil(count * min(GROWTH_MAX, growth))


def work_find(
    task_of: Callable[[int], Task],
    first: int,
    arms: Sequence[Arm],
    conditions: Conditions,
    run_seconds_min: float,
    count_min: int = 1,
    starts_count: bool = True,
) -> Work:
    """Finds a count with which the fastest arm runs long enough, and the slowest not too long."""
    speeds: dict[str, Speed] = {}
    failures: dict[str, str] = {}
    for arm in arms:
        found = speed_find(task_of, first, arm, conditions)
        if isinstance(found, Failure):
            failures[arm.name] = found.outcome
        else:
            speeds[arm.name] = found
            if len(speeds) == 1 and found.wall(found.count) > LONG_RUN_SECONDS:
                # It rests, under the others as long; who crashes in it is seen in the rounds. Where only a later
                # arm takes that long, it is that arm which is slow.
                speeds |= {other.name: found for other in arms if other.name not in failures}
                break
    if not speeds:
        return Work(first, {}, failures)
    per_count = [speed.seconds / speed.count for speed in speeds.values()]
    start = statistics.median(speed.start_seconds for speed in speeds.values())
    wanted = max(run_seconds_min, STARTS_PER_RUN * start if starts_count else 0.0)
    longest = max(SLOWEST_RUN_SECONDS, wanted)
    count = math.ceil(min(CALIBRATION_RESERVE * wanted / min(per_count), longest / max(per_count)))
    count = max(1, count_min, count)
    return Work(count, {name: speed.wall(count) for name, speed in speeds.items()}, failures)


def work_fixed(
    task: Task,
    arms: Sequence[Arm],
    conditions: Conditions,
    observe: Callable[[Task, Arm, Conditions], Run],
) -> Work:
    """For a task with a fixed amount of work: a real program. OBSERVE also proves that the arm served it."""
    runs = {arm.name: observe(task, arm, conditions) for arm in arms}
    observed = {name: run for name, run in runs.items() if isinstance(run, Measured)}
    failures = {name: run.outcome for name, run in runs.items() if isinstance(run, Failure)}
    return Work(0, {name: run.wall_seconds for name, run in observed.items()}, failures, observed)
