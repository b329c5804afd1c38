"""Interleaved pairs: the unit of every timing.

A pair is two fresh processes, one of each arm, one after the other in random order, with the same seed, the same
environment size and the same processors, all drawn for the pair. The pairs of all comparisons of a cell are
shuffled together. The number of pairs is fixed by the budget before the first of them runs; nothing is
repeated because of what it showed. Pairs disturbed from outside, by a rule that does not look at their times,
are kept in the samples, marked, and measured again.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hakmem_lab.errors import LabError
from hakmem_lab.measure.runner import Arm, Conditions, Measured, workload_run
from hakmem_lab.measure.stage import Stage
from hakmem_lab.statistics.estimate import pairs_needed
from hakmem_lab.workloads.cells import Cell, Measure

PADDING_MAX = 4096
SEED_BITS = 32

CALIBRATION_SECONDS = 0.05
"""A run this long tells the speed well enough to choose the count."""
CALIBRATION_RESERVE = 1.2
"""Runs are made this much longer than required, since the machine may be faster later."""
SLOWEST_RUN_SECONDS = 10.0
"""Where arms are far apart, the slowest runs about this long at most, even if the fastest is then shorter than asked
for: the report says so, and such a difference needs no precision."""
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


@dataclass(frozen=True)
class Plan:
    """Everything that is fixed before the first pair of a cell."""

    cell: Cell
    count: int
    pairs: dict[str, int]
    """By comparison."""
    seconds: float
    """How long it will take."""


@dataclass(frozen=True)
class Budget:
    seconds_per_comparison: float = 5.0
    run_seconds_min: float = 0.2
    confidence: float = 0.99


def cpus_allowed() -> tuple[int, ...]:
    return tuple(sorted(os.sched_getaffinity(0)))


def conditions_draw(cell: Cell, rng: random.Random) -> Conditions:
    allowed = cpus_allowed()
    cpus = tuple(sorted(rng.sample(allowed, min(cell.threads, len(allowed)))))
    return Conditions(rng.getrandbits(SEED_BITS), rng.randrange(PADDING_MAX), cpus)


def disturbance(cell: Cell, run: Measured, cpus: Sequence[int]) -> str:
    """What disturbed the run from outside. Fixed in advance; it does not know how fast the run was."""
    if run.major_faults:
        return "major fault"
    ticks = run.wall_seconds * os.sysconf("SC_CLK_TCK") * (os.cpu_count() or 1)
    if run.steal_ticks > max(1.0, DISTURBED_STEAL_SHARE * ticks):
        return "steal"
    if cell.switches_are_noise and len(cpus) >= cell.threads:
        allowed = DISTURBED_SWITCHES_PER_SECOND * max(run.seconds, 0.2)
        if run.involuntary_switches > allowed:
            return "switches"
    return ""


def pair_run(
    stage: Stage,
    cell: Cell,
    count: int,
    comparison: Comparison,
    number: int,
    subject_first: bool,
    rng: random.Random,
) -> Pair:
    conditions = conditions_draw(cell, rng)
    program = stage.program(cell.program)
    arguments = cell.command(count, conditions.seed)

    def run(arm: Arm) -> Measured:
        return workload_run(program, arguments, arm, conditions)

    if subject_first:
        subject = run(comparison.subject)
        other = run(comparison.other)
    else:
        other = run(comparison.other)
        subject = run(comparison.subject)
    if subject.checksum != other.checksum:
        raise LabError(
            f"{cell.name}: {comparison.subject.name} and {comparison.other.name} did different work"
            f" with seed {conditions.seed}"
        )
    marks = (disturbance(cell, run, conditions.cpus) for run in (subject, other))
    disturbed = ", ".join(sorted({mark for mark in marks if mark}))
    return Pair(comparison, number, conditions, subject_first, subject, other, disturbed, cell.measure)


def cell_plan(
    stage: Stage,
    cell: Cell,
    comparisons: Sequence[Comparison],
    budget: Budget,
    rng: random.Random,
) -> Plan:
    """Finds the count with which the fastest arm runs long enough, and how many pairs fit."""
    program = stage.program(cell.program)
    arms = {arm for comparison in comparisons for arm in (comparison.subject, comparison.other)}
    conditions = conditions_draw(cell, rng)

    def run(arm: Arm, count: int) -> Measured:
        return workload_run(program, cell.command(count, conditions.seed), arm, conditions)

    count = cell.first_count
    runs = {arm: run(arm, count) for arm in arms}
    while min(measured.seconds for measured in runs.values()) < CALIBRATION_SECONDS:
        if max(measured.seconds for measured in runs.values()) > SLOWEST_RUN_SECONDS:
            break
        fastest = min(measured.seconds for measured in runs.values())
        count = math.ceil(count * min(20.0, 1.5 * CALIBRATION_SECONDS / fastest))
        runs = {arm: run(arm, count) for arm in arms}
    start = max(measured.wall_seconds - measured.seconds for measured in runs.values())
    starts = STARTS_PER_RUN if cell.switches_are_noise and not cell.ends_slowly else 0
    wanted = max(budget.run_seconds_min, starts * start)
    fastest = min(measured.seconds for measured in runs.values())
    slowest = max(measured.seconds for measured in runs.values())
    scale = min(CALIBRATION_RESERVE * wanted / fastest, max(1.0, SLOWEST_RUN_SECONDS / slowest))
    scale = max(scale, cell.count_min / count)
    walls = {
        arm: measured.wall_seconds - measured.seconds + measured.seconds * scale
        for arm, measured in runs.items()
    }
    pairs: dict[str, int] = {}
    seconds = 0.0
    for comparison in comparisons:
        cost = walls[comparison.subject] + walls[comparison.other]
        fitting = int(budget.seconds_per_comparison / cost)
        pairs[comparison.name] = max(pairs_needed(budget.confidence), fitting)
        seconds += pairs[comparison.name] * cost
    return Plan(cell, math.ceil(count * scale), pairs, seconds)


def schedule_make(pairs: dict[str, int], rng: random.Random) -> list[tuple[str, bool]]:
    """Names of comparisons and who comes first: all shuffled, each order equally often."""
    schedule: list[tuple[str, bool]] = []
    for name, count in pairs.items():
        offset = rng.randrange(2)
        schedule += [(name, (index + offset) % 2 == 0) for index in range(count)]
    rng.shuffle(schedule)
    return schedule


def cell_run(
    stage: Stage,
    plan: Plan,
    comparisons: Sequence[Comparison],
    rng: random.Random,
    keep: Callable[[Pair], None],
) -> list[Pair]:
    """Runs the plan; KEEP gets each pair as soon as it is there."""
    by_name = {comparison.name: comparison for comparison in comparisons}
    pending = schedule_make(plan.pairs, rng)
    extra = {name: int(DISTURBED_EXTRA_SHARE * count) for name, count in plan.pairs.items()}
    done: list[Pair] = []
    while pending:
        name, subject_first = pending.pop(0)
        pair = pair_run(stage, plan.cell, plan.count, by_name[name], len(done), subject_first, rng)
        done.append(pair)
        keep(pair)
        if pair.disturbed and extra[name]:
            extra[name] -= 1
            pending.insert(rng.randint(0, len(pending)), (name, subject_first))
    return done


def pairs_to_analyse(pairs: Sequence[Pair], confidence: float) -> list[Pair]:
    """The undisturbed pairs; all of them when too few were left in peace."""
    quiet = [pair for pair in pairs if not pair.disturbed]
    return quiet if len(quiet) >= pairs_needed(confidence) else list(pairs)
