"""Interleaved pairs: the unit of every timing.

A pair is two fresh processes, one of each arm, in turns or in random order, with the same seed, the same
environment size and the same processors, all drawn for the pair. Pairs that share an arm share its run. Pairs that
were disturbed from outside are marked. The rule for that knows how long a run took, but not whether that is fast.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hakmem_lab.errors import LabError
from hakmem_lab.measure.runner import Arm, Conditions, Measured
from hakmem_lab.measure.stage import Stage
from hakmem_lab.measure.task import CellTask, Task, runs_side_by_side
from hakmem_lab.statistics.estimate import pairs_needed
from hakmem_lab.workloads.cells import Cell, Measure

PADDING_MAX = 4096
SEED_BITS = 32

CALIBRATION_SECONDS = 0.05
"""A run this long shows the speed well enough to choose the count."""
CALIBRATION_RESERVE = 1.2
"""Runs are made this much longer than required, because the machine may be faster later."""
SLOWEST_RUN_SECONDS = 10.0
"""If arms are far apart the slowest runs about this long at most, even if the fastest is then shorter than
requested. The report says so, and such a difference needs no precision."""
STARTS_PER_RUN = 50
"""A run lasts at least this many times the cost of starting its process."""

DISTURBED_STEAL_SHARE = 0.02
DISTURBED_SWITCHES_PER_SECOND = 50
DISTURBED_EXTRA_SHARE = 0.5
"""At most this share of the planned pairs is measured again."""


@dataclass(frozen=True)
class Comparison:
    """The first arm against the second: a ratio above one says that the first is faster."""

    name: str
    subject: Arm
    other: Arm


@dataclass(frozen=True)
class Pair:
    comparison: Comparison
    number: int
    conditions: Conditions
    subject_first: bool
    subject: Measured
    other: Measured
    disturbed: str
    """Why this pair was marked; empty when it was not."""
    measure: Measure = Measure.TIME

    @property
    def log_ratio(self) -> float:
        subject, other = (_speed(run, self.measure) for run in (self.subject, self.other))
        return math.log(subject / other)


def _speed(run: Measured, measure: Measure) -> float:
    return run.ops / (run.cpu_seconds if measure is Measure.CPU else run.seconds)


def cpus_allowed() -> tuple[int, ...]:
    return tuple(sorted(os.sched_getaffinity(0)))


def conditions_draw(task: Task, rng: random.Random) -> Conditions:
    allowed = cpus_allowed()
    cpus = tuple(sorted(rng.sample(allowed, min(task.threads, len(allowed)))))
    return Conditions(rng.getrandbits(SEED_BITS), rng.randrange(PADDING_MAX), cpus)


def disturbance(task: Task, run: Measured, cpus: Sequence[int]) -> str:
    """What disturbed the run from outside. Fixed in advance; it does not know how fast the run was."""
    if run.major_faults:
        return "major fault"
    if run.in_turns:  # the rest meets all of them alike, and their switches are our own
        return ""
    ticks = run.wall_seconds * os.sysconf("SC_CLK_TCK") * (os.cpu_count() or 1)
    if run.steal_ticks > max(1.0, DISTURBED_STEAL_SHARE * ticks):
        return "steal"
    if task.switches_are_noise and len(cpus) >= task.threads:
        allowed = DISTURBED_SWITCHES_PER_SECOND * max(run.seconds, 0.2)
        if run.involuntary_switches > allowed:
            return "switches"
    return ""


def round_run(task: Task, comparisons: Sequence[Comparison], number: int, rng: random.Random) -> list[Pair]:
    """Runs every arm of COMPARISONS, which share an arm, once, under the same conditions and in random order. This
    gives a pair for each comparison with fewer processes than separate pairs would take. Which arm of a pair comes
    first is a fair coin."""
    conditions = conditions_draw(task, rng)
    arms = arms_of(comparisons)
    order = rng.sample(arms, len(arms))
    made = runs_side_by_side(task, order, lambda arm, seat: task.run(arm, conditions, seat))
    runs = dict(zip(order, made, strict=True))

    def pair_of(one: Comparison) -> Pair:
        first = order.index(one.subject) < order.index(one.other)
        return _pair_make(task, one, number, conditions, first, runs[one.subject], runs[one.other])

    return [pair_of(one) for one in comparisons]


def _pair_make(
    task: Task,
    comparison: Comparison,
    number: int,
    conditions: Conditions,
    subject_first: bool,
    subject: Measured,
    other: Measured,
) -> Pair:
    if None not in (subject.checksum, other.checksum) and subject.checksum != other.checksum:
        raise LabError(
            f"{task.name}: {comparison.subject.name} and {comparison.other.name} did different work"
            f" with seed {conditions.seed}"
        )
    marks = (disturbance(task, run, conditions.cpus) for run in (subject, other))
    disturbed = ", ".join(sorted({mark for mark in marks if mark}))
    return Pair(comparison, number, conditions, subject_first, subject, other, disturbed, task.measure)


@dataclass(frozen=True)
class Calibrated:
    """A task that runs long enough, and how long a run takes under each arm, including start and end."""

    task: Task
    wall_seconds: dict[Arm, float]

    def pair_seconds(self, comparison: Comparison) -> float:
        return self.wall_seconds[comparison.subject] + self.wall_seconds[comparison.other]


def arms_of(comparisons: Sequence[Comparison]) -> list[Arm]:
    return list(dict.fromkeys(arm for one in comparisons for arm in (one.subject, one.other)))


def cell_calibrate(
    stage: Stage, cell: Cell, arms: Sequence[Arm], run_seconds_min: float, rng: random.Random
) -> Calibrated:
    """Finds the count with which the fastest arm runs long enough."""
    task = CellTask(stage, cell, cell.first_count)
    conditions = conditions_draw(task, rng)

    def runs_of(task: CellTask) -> dict[Arm, Measured]:
        return {arm: task.run(arm, conditions) for arm in arms}

    runs = runs_of(task)
    while min(measured.seconds for measured in runs.values()) < CALIBRATION_SECONDS:
        if max(measured.seconds for measured in runs.values()) > SLOWEST_RUN_SECONDS:
            break
        fastest = min(measured.seconds for measured in runs.values())
        task = replace(task, count=math.ceil(task.count * min(20.0, 1.5 * CALIBRATION_SECONDS / fastest)))
        runs = runs_of(task)
    start = max(measured.wall_seconds - measured.seconds for measured in runs.values())
    starts = STARTS_PER_RUN if cell.switches_are_noise and not cell.ends_slowly else 0
    wanted = max(run_seconds_min, starts * start)
    fastest = min(measured.seconds for measured in runs.values())
    slowest = max(measured.seconds for measured in runs.values())
    scale = min(CALIBRATION_RESERVE * wanted / fastest, max(1.0, SLOWEST_RUN_SECONDS / slowest))
    scale = max(scale, cell.count_min / task.count)
    walls = {
        arm: measured.wall_seconds - measured.seconds + measured.seconds * scale
        for arm, measured in runs.items()
    }
    return Calibrated(replace(task, count=math.ceil(task.count * scale)), walls)


def pairs_to_analyse(pairs: Sequence[Pair], confidence: float) -> list[Pair]:
    """The undisturbed pairs; all pairs if too few are undisturbed."""
    quiet = [pair for pair in pairs if not pair.disturbed]
    return quiet if len(quiet) >= pairs_needed(confidence) else list(pairs)
