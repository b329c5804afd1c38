"""Before the first round of the matrix: the work of every row, and its share of the budget."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hakmem_lab.measure.calibrate import LONG_RUN_SECONDS, Work, work_find, work_fixed
from hakmem_lab.measure.pairs import conditions_draw
from hakmem_lab.measure.rounds import EXTRA_SHARE, Demand, RoundPlan, rounds_share
from hakmem_lab.measure.runner import Arm, Conditions
from hakmem_lab.measure.store import OBSERVED, Sample
from hakmem_lab.measure.task import Task
from hakmem_lab.statistics.estimate import pairs_needed
from hakmem_lab.studies.candidates import Candidate
from hakmem_lab.studies.goals import is_named
from hakmem_lab.studies.matrix import SAME, SUBJECT, Row, Settings
from hakmem_lab.studies.matrix_run import Origin, Step, program_observe

ROUNDS_MAX = 60
LONG_RUN_ROUNDS = 2
"""A workload that rests gets only this many rounds: its figure is what it holds while it rests."""


def works_find(
    candidates: Sequence[Candidate], arms: Sequence[Arm], settings: Settings, step: Step
) -> dict[str, Work]:
    works: dict[str, Work] = {}
    for candidate in candidates:
        task = candidate.task_of(candidate.first_count)
        conditions = work_conditions(task, settings)
        wanted = [arm for arm in arms if arm.peer.name != SAME]
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
        if not candidate.control:
            works[candidate.name] = controls_added(works[candidate.name], settings)
        step(candidate.name, 1.0)
    return works


def work_conditions(task: Task, settings: Settings) -> Conditions:
    return conditions_draw(task, random.Random(f"{settings.seed}/{task.name}/work"))


def controls_added(work: Work, settings: Settings) -> Work:
    """The controls are hakmem, and take as long as it does."""
    own = work.walls.get(SUBJECT)
    if own is None:
        return work
    slowed = own * (1 + settings.slowdown_percent / 100)
    return replace(work, walls={**work.walls, SAME: own, settings.slowed: slowed})


def observed_seconds(works: Iterable[Work]) -> float:
    """Seconds that the runs with instruments will take; none for workloads that were already observed. A tenth of
    the work with a clock around every operation, and again under strace, takes about as long as a timed run; a
    workload that rests takes as long again."""
    walls = (work.walls.items() for work in works if not work.observed)
    return sum(wall for items in walls for arm, wall in items if not arm.startswith(SAME))


def rows_plan(
    candidates: Sequence[Candidate],
    works: Mapping[str, Work],
    settings: Settings,
    seconds: float,
    limit: float,
    best_only: bool,
) -> list[Row]:
    """SECONDS are left for the rounds of all rows. If they are too few for the fewest useful rounds, those take up
    to LIMIT. BEST_ONLY: the best of the peers is selected, and the others leave their time to it. A row in which
    every allocator failed has no rounds, but is one: its failures are results."""
    always = {one.name: _always(one, works[one.name], settings) if best_only else () for one in candidates}
    named = {one.name: _named(one, works[one.name], always[one.name]) for one in candidates}
    least = pairs_needed(settings.confidence)
    demands = {
        one.name: works[one.name].demand(
            LONG_RUN_ROUNDS if works[one.name].wall > LONG_RUN_SECONDS else least,
            always[one.name],
            named[one.name],
        )
        for one in candidates
    }
    served = [one.name for one in candidates if works[one.name].walls]
    within, most = (time / (1 + EXTRA_SHARE) for time in (seconds, limit))
    shared = rounds_share([demands[name] for name in served], within, most, ROUNDS_MAX)
    counts = dict(zip(served, shared, strict=True))
    return [
        _row(
            one,
            works[one.name],
            always[one.name],
            named[one.name],
            counts.get(one.name, 0),
            demands[one.name],
        )
        for one in candidates
    ]


def _always(candidate: Candidate, work: Work, settings: Settings) -> tuple[str, ...]:
    """The arms that take part whichever peer is selected; none if there is nothing to select, or if every peer's
    figure is wanted."""
    own = (SUBJECT, SAME, settings.slowed)
    choice = len(work.walls) > len(own) + 1 and SUBJECT in work.walls
    wanted = candidate.control or candidate.memory or work.wall > LONG_RUN_SECONDS
    return own if choice and not wanted else ()


def _named(candidate: Candidate, work: Work, always: tuple[str, ...]) -> tuple[str, ...]:
    """The peers that a goal is about, unless all take part in all rounds anyway."""
    others = [name for name in work.walls if name not in always] if always else []
    return tuple(name for name in others if is_named(name, candidate.name, candidate.group))


def _row(
    candidate: Candidate,
    work: Work,
    always: tuple[str, ...],
    named: tuple[str, ...],
    count: int,
    demand: Demand,
) -> Row:
    arms = sorted(work.walls, key=lambda name: name != SUBJECT)
    return Row(
        name=candidate.name,
        **workload_of(candidate, work.count),
        count=work.count,
        rounds=RoundPlan(
            count, tuple(arms), demand.selection(count), always, work.near(always) if always else (), named
        ),
        failures=work.failures,
        seconds=demand.total(count),
    )


def workload_of(candidate: Candidate, count: int) -> dict[str, Any]:
    """The fields of its row that say what is run, and what its figure is."""
    task = candidate.task_of(count)
    return {
        "group": candidate.group,
        "program": candidate.program,
        "arguments": candidate.arguments,
        "threads": task.threads,
        "measure": task.measure,
        "control": candidate.control,
        "memory": candidate.memory,
        "figure": candidate.figure,
    }


def works_observed(
    rows: Iterable[Row],
    works: Mapping[str, Work],
    tasks: Mapping[str, Task],
    arms: Sequence[Arm],
    settings: Settings,
) -> list[Sample]:
    """What was watched while the work was found need not be watched again."""
    return [
        Origin(
            OBSERVED, row.name, 0, 0, 0, 1, arm, work_conditions(tasks[row.name], settings), row.count
        ).sample(works[row.name].observed[arm.name])
        for row in rows
        for arm in arms
        if arm.name in works[row.name].observed
    ]
