"""Carries the matrix out: finds the work of every row, shares the budget, runs the rounds, then the instruments."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from hakmem_lab.errors import LabError
from hakmem_lab.measure.calibrate import Work, work_find, work_fixed
from hakmem_lab.measure.observe import Observed, can_observe, observed_run
from hakmem_lab.measure.pairs import conditions_draw
from hakmem_lab.measure.rounds import (
    EXTRA_SHARE,
    Demand,
    Failure,
    Round,
    RoundPlan,
    Run,
    failure_of,
    rounds_run,
    rounds_share,
)
from hakmem_lab.measure.runner import Arm, Conditions, Measured
from hakmem_lab.measure.store import OBSERVED, TIMED, Sample, SampleStore
from hakmem_lab.measure.task import CellTask, Task
from hakmem_lab.statistics.estimate import pairs_needed
from hakmem_lab.studies.candidates import Candidate
from hakmem_lab.studies.matrix import SAME, SUBJECT, Row, Settings
from hakmem_lab.workloads.programs.task import ProgramTask

ROUNDS_MAX = 60
OBSERVED_WORK_SHARE = 0.25
"""A run with instruments does this share of a timed run's work: tails and counts need no precision."""
LONG_RUN_SECONDS = 5.0
LONG_RUN_ROUNDS = 3
"""A workload whose runs take longer, because it rests, gets so few rounds: what it holds while it rests is its
figure."""
OBSERVED_RUNS = 2
"""One with clock and memory, one with the counter of system calls."""


Step = Callable[[str, float], None]
"""Told after each part: its name, and the seconds that were planned for it."""


def works_find(
    candidates: Sequence[Candidate], arms: Sequence[Arm], settings: Settings, step: Step
) -> dict[str, Work]:
    works: dict[str, Work] = {}
    for candidate in candidates:
        task = candidate.task_of(candidate.first_count)
        conditions = conditions_draw(task, random.Random(f"{settings.seed}/{candidate.name}/work"))
        wanted = [arm for arm in arms if not candidate.control or arm.peer.name != SAME]
        if candidate.first_count:
            works[candidate.name] = work_find(
                candidate.task_of,
                candidate.first_count,
                wanted,
                conditions,
                settings.run_seconds_min,
                candidate.count_min,
                candidate.starts_count,
            )
        else:
            works[candidate.name] = work_fixed(task, wanted, conditions, program_observe)
        step(candidate.name, 1.0)
    return works


def observed_seconds(works: Iterable[Work]) -> float:
    """What the runs with instruments will take."""
    share = OBSERVED_RUNS * OBSERVED_WORK_SHARE
    return share * sum(wall for work in works for arm, wall in work.walls.items() if not arm.startswith(SAME))


def rows_plan(
    candidates: Sequence[Candidate],
    works: Mapping[str, Work],
    settings: Settings,
    seconds: float,
    limit: float,
) -> list[Row]:
    """SECONDS are left for the rounds of all rows; where they do not suffice for the fewest that are of use, those take
    up to LIMIT."""
    least = pairs_needed(settings.confidence)
    always = (SUBJECT, SAME, settings.slowed)
    served = [candidate for candidate in candidates if works[candidate.name].walls]
    sparse = {one.name: works[one.name].sparse(always) for one in served}
    demands = [
        works[one.name].demand(
            sparse[one.name], LONG_RUN_ROUNDS if works[one.name].wall > LONG_RUN_SECONDS else least
        )
        for one in served
    ]
    counts = rounds_share(demands, seconds / (1 + EXTRA_SHARE), limit / (1 + EXTRA_SHARE), ROUNDS_MAX)
    return [
        _row(candidate, works[candidate.name], sparse[candidate.name], count, demand)
        for candidate, demand, count in zip(served, demands, counts, strict=True)
    ]


def _row(candidate: Candidate, work: Work, sparse: tuple[str, ...], count: int, demand: Demand) -> Row:
    task = candidate.task_of(work.count)
    arms = sorted(work.walls, key=lambda name: name != SUBJECT)
    return Row(
        name=candidate.name,
        group=candidate.group,
        program=candidate.program,
        arguments=candidate.arguments,
        threads=task.threads,
        measure=task.measure,
        control=candidate.control,
        memory=candidate.memory,
        figure=candidate.figure,
        targets=candidate.targets,
        count=work.count,
        rounds=RoundPlan(count, tuple(arms), sparse, demand.least),
        failures=work.failures,
        seconds=demand.total(count),
    )


def rows_run(
    rows: Sequence[Row],
    tasks: Mapping[str, Task],
    arms: Sequence[Arm],
    seed: int,
    store: SampleStore,
    step: Step,
    kept: Sequence[Sample] = (),
) -> None:
    """Row by row; what is kept of an earlier run is not run again."""
    by_name = {arm.name: arm for arm in arms}
    done = rounds_of(kept)
    for row in rows:
        planned = row.seconds / row.rounds.rounds

        def keep(one: Round, row: Row = row, planned: float = planned) -> None:
            store.append(round_samples(row, by_name, one))
            step(row.name, planned)

        if SUBJECT in row.rounds.arms:
            rounds_run(tasks[row.name], row.rounds, by_name, str(seed), keep, done[row.name])
        store.compact()


def rows_observe(
    rows: Sequence[Row],
    task_of: Mapping[str, Callable[[int], Task]],
    arms: Sequence[Arm],
    seed: int,
    store: SampleStore,
    step: Step,
    kept: Sequence[Sample] = (),
) -> None:
    """Every allocator once, without the controls."""
    seen = {(one.task, one.arm) for one in kept if one.kind == OBSERVED}
    for row in rows:
        count = row.count if row.memory else max(1, round(OBSERVED_WORK_SHARE * row.count))
        task = task_of[row.name](count)
        conditions = conditions_draw(task, random.Random(f"{seed}/{row.name}/observed"))
        for arm in arms:
            if arm.peer.name == SAME or arm.name not in row.rounds.arms or (row.name, arm.name) in seen:
                continue
            sample = observe(row, task, arm, conditions, count)
            if sample is not None:
                store.append([sample])
        step(row.name, 1.0)
        store.compact()


def observe(row: Row, task: Task, arm: Arm, conditions: Conditions, count: int) -> Sample | None:
    """None where there is nothing to look at."""
    origin = Origin(OBSERVED, row.name, 0, 0, 0, 1, arm, conditions, count)
    if isinstance(task, CellTask):
        if not can_observe(task):
            return None
        return _observed_sample(origin, observed_run(task, arm, conditions))
    return origin.sample(program_observe(task, arm, conditions))


def program_observe(task: Task, arm: Arm, conditions: Conditions) -> Run:
    """Watched from outside, with the proof that the arm's library served it."""
    assert isinstance(task, ProgramTask)
    try:
        measured, service = task.observe(arm, conditions)
    except LabError as error:
        return failure_of(error)
    return Failure(f"failed: not served: {service.complaint}") if service.complaint else measured


@dataclass(frozen=True)
class Origin:
    """Which run a sample is of."""

    kind: str
    task: str
    slot: int
    attempt: int
    position: int
    runs: int
    arm: Arm
    conditions: Conditions
    count: int

    def sample(self, run: Run | Failure, mark: str = "", again: bool = False) -> Sample:
        peer = self.arm.peer
        fixed = {
            "kind": self.kind,
            "task": self.task,
            "slot": self.slot,
            "attempt": self.attempt,
            "position": self.position,
            "runs": self.runs,
            "arm": self.arm.name,
            "allocator": peer.name,
            "version": peer.version,
            "identity": peer.identity,
            "slowdown_percent": self.arm.slowdown_percent,
            "count": self.count,
            "seed": self.conditions.seed,
            "padding": self.conditions.padding,
            "cpus": " ".join(map(str, self.conditions.cpus)),
            "disturbed": mark,
            "again": again,
        }
        if isinstance(run, Failure):
            return Sample(**fixed, outcome=run.outcome)
        figures = {name: value for name, value in vars(run).items() if name != "latency"}
        return Sample(**fixed, **figures, **_latency_columns(run))


def _latency_columns(run: Measured | Observed) -> dict[str, float]:
    if run.latency is None:
        return {}
    return {f"latency_{name}_ns": value for name, value in vars(run.latency).items()}


def _observed_sample(origin: Origin, seen: Observed | Failure) -> Sample:
    if isinstance(seen, Failure):
        return origin.sample(seen)
    figures = {name: value for name, value in vars(seen).items() if name != "latency"}
    return replace(origin.sample(Failure("")), **figures, **_latency_columns(seen))


def round_samples(row: Row, arms: Mapping[str, Arm], one: Round) -> list[Sample]:
    return [
        Origin(
            TIMED,
            row.name,
            one.slot,
            one.attempt,
            position,
            len(one.runs),
            arms[name],
            one.conditions,
            row.count,
        ).sample(run, one.marks.get(name, ""), one.again)
        for position, (name, run) in enumerate(one.runs.items())
    ]


def rounds_of(samples: Iterable[Sample]) -> dict[str, list[Round]]:
    """Whole rounds; one that was cut off is measured anew."""
    grouped: dict[tuple[str, int, int], list[Sample]] = defaultdict(list)
    for sample in samples:
        if sample.kind == TIMED:
            grouped[sample.task, sample.slot, sample.attempt].append(sample)
    rounds: dict[str, list[Round]] = defaultdict(list)
    for (task, slot, attempt), runs in sorted(grouped.items()):
        first = runs[0]
        if len(runs) < first.runs:
            continue
        conditions = Conditions(first.seed, first.padding, tuple(map(int, first.cpus.split())))
        outcomes = {one.arm: Failure(one.outcome) if one.outcome else _measured(one) for one in runs}
        marks = {one.arm: one.disturbed for one in runs if one.disturbed}
        rounds[task].append(Round(slot, attempt, conditions, outcomes, marks, first.again))
    return rounds


def _measured(sample: Sample) -> Measured:
    kept = {field.name: getattr(sample, field.name) for field in fields(Measured) if field.name != "latency"}
    return Measured(**kept)
