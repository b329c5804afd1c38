"""Runs the matrix: the rounds of every row, then the runs with instruments."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from hakmem_lab.errors import RunFailedError
from hakmem_lab.measure.observe import Observed, can_observe, latency_run, observed_run
from hakmem_lab.measure.pairs import conditions_draw
from hakmem_lab.measure.rounds import Failure, Round, Run, rounds_run, slots_pending
from hakmem_lab.measure.runner import Arm, Conditions, Latency, Measured
from hakmem_lab.measure.store import OBSERVED, TAIL, TIMED, Sample, SampleStore
from hakmem_lab.measure.task import CellTask, Task
from hakmem_lab.studies.comparing import peers_left
from hakmem_lab.studies.matrix import SAME, SUBJECT, Row
from hakmem_lab.studies.tails import JUDGED, peer_shortest
from hakmem_lab.workloads.programs.task import ProgramTask

OBSERVED_WORK_SHARE = 0.1
"""A run with instruments does this share of a timed run's work, because tails and counts need no precision."""
Step = Callable[[str, float], None]
"""Called after each part with its name and the seconds that were planned for it."""


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

        def keep(one: Round, row: Row = row) -> None:
            store.append(round_samples(row, by_name, one))
            step(row.name, row.seconds * row.rounds.share(one.slot))

        def select(before: int, rounds: Sequence[Round], row: Row = row) -> list[str]:
            return peers_left(
                row, [sample for one in rounds for sample in round_samples(row, by_name, one)], before
            )

        if SUBJECT in row.rounds.arms:
            rounds_run(tasks[row.name], row.rounds, by_name, str(seed), keep, done[row.name], select)
        store.compact()


def seconds_left(rows: Sequence[Row], kept: Sequence[Sample]) -> float:
    """Seconds left of those planned for the rounds."""
    done = rounds_of(kept)
    return sum(
        row.seconds * row.rounds.share(slot)
        for row in rows
        for stage in slots_pending(row.rounds, done[row.name])
        for slot in stage
    )


def rows_observe(
    rows: Sequence[Row],
    task_of: Mapping[str, Callable[[int], Task]],
    arms: Sequence[Arm],
    seed: int,
    store: SampleStore,
    step: Step,
    kept: Sequence[Sample] = (),
) -> None:
    """Every allocator once, without the controls; then the rounds of latencies, if the program reports them and
    memory is not the figure."""
    for row in rows:
        count = row.count if row.memory else max(1, round(OBSERVED_WORK_SHARE * row.count))
        task = task_of[row.name](count)
        conditions = conditions_draw(task, random.Random(f"{seed}/{row.name}/observed"))
        watched = [arm for arm in arms if arm.peer.name != SAME and arm.name in row.rounds.arms]
        seen = {one.arm: one for one in kept if one.kind == OBSERVED and one.task == row.name}
        for arm in watched:
            sample = None if arm.name in seen else observe(row, task, arm, conditions, count)
            if sample is not None:
                store.append([sample])
                seen[arm.name] = sample
        pair = [arm for arm in watched if arm.name in (SUBJECT, peer_shortest(seen.values()))]
        if len(pair) == 2 and isinstance(task, CellTask) and not row.memory:
            before = [one for one in kept if one.kind == TAIL and one.task == row.name]
            tails_run(row, task, pair, seed, store, before)
        step(row.name, 1.0)
        store.compact()


def tails_run(
    row: Row, task: CellTask, arms: Sequence[Arm], seed: int, store: SampleStore, kept: Sequence[Sample]
) -> None:
    """What is KEPT of an earlier run is not run again."""
    done = {(one.slot, one.arm) for one in kept}
    for slot in JUDGED:
        rng = random.Random(f"{seed}/{row.name}/tail/{slot}")
        conditions = conditions_draw(task, rng)
        for position, arm in enumerate(rng.sample(arms, len(arms))):
            if (slot, arm.name) in done:
                continue
            origin = Origin(TAIL, row.name, slot, 0, position, len(arms), arm, conditions, task.count)
            store.append([_tail_sample(origin, latency_run(task, arm, conditions))])


def observe(row: Row, task: Task, arm: Arm, conditions: Conditions, count: int) -> Sample | None:
    """None if there is nothing to observe."""
    origin = Origin(OBSERVED, row.name, 0, 0, 0, 1, arm, conditions, count)
    if isinstance(task, CellTask):
        if not can_observe(task.cell):
            return None
        return _observed_sample(origin, observed_run(task, arm, conditions))
    return origin.sample(program_observe(task, arm, conditions))


def program_observe(task: Task, arm: Arm, conditions: Conditions) -> Run:
    """Watched from outside, with the proof that the arm's library served it."""
    assert isinstance(task, ProgramTask)
    try:
        measured, service = task.observe(arm, conditions)
    except RunFailedError as error:
        return Failure(error.outcome)
    return Failure(f"failed: not served: {service.complaint}") if service.complaint else measured


@dataclass(frozen=True)
class Origin:
    """Which run a sample belongs to."""

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
        return Sample(**fixed, **figures, **_latency_columns(run.latency))


def _latency_columns(latency: Latency | None) -> dict[str, float]:
    return {f"latency_{name}_ns": value for name, value in vars(latency).items()} if latency else {}


def _tail_sample(origin: Origin, told: Latency | Failure) -> Sample:
    if isinstance(told, Failure):
        return origin.sample(told)
    return replace(origin.sample(Failure("")), **_latency_columns(told))


def _observed_sample(origin: Origin, seen: Observed | Failure) -> Sample:
    if isinstance(seen, Failure):
        return origin.sample(seen)
    figures = {name: value for name, value in vars(seen).items() if name != "latency"}
    return replace(origin.sample(Failure("")), **figures, **_latency_columns(seen.latency))


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
    """Whole rounds only; one that was cut off is measured again."""
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
