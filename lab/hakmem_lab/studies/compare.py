"""One program under many allocators: measured in rounds, within a budget that is fixed in advance.

First every arm is observed once: the program must run, the allocator must be seen to serve it, and its memory is
watched over time. Then come rounds. In each, every arm has one fresh process, in random order or in turns, with one
seed, environment size and set of processors. The log ratio of the user's own allocator to another one within a round is a
sample.

If the budget does not allow a verdict on all, a third of it screens: these rounds only choose the fastest
allocators, as many as the rest of the budget can judge, and are not used again for the judgement. Allocators that
were left out are shown as screened out, not judged. Every judged round also contains the user's allocator a second
time, and slowed by twice the margin.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from hakmem_lab.errors import LabError, ProcessFailedError
from hakmem_lab.measure.pairs import DISTURBED_EXTRA_SHARE, conditions_draw, disturbance
from hakmem_lab.measure.runner import Arm, Conditions, Measured
from hakmem_lab.measure.service import Service
from hakmem_lab.measure.task import Task, runs_side_by_side
from hakmem_lab.measure.turns import Seat
from hakmem_lab.statistics.sequential import PlannedLook, looks_plan, pairs_min
from hakmem_lab.workloads.cells import Measure

SCREENING_SHARE = 1 / 3
"""Share of the budget, if not all can be judged."""
ROUNDS_WISHED = 2
"""Multiple of the minimum that a verdict needs; with the minimum only very clear differences are detected."""
ROUNDS_MAX = 500
HANGS_TIMES, HANGS_SECONDS_MIN = 20, 10.0
"""A run that takes this many times what the user's own allocator took, and at least this long, counts as hung."""

OBSERVED, SCREENED, JUDGED = "observed", "screened", "judged"


class ObservedTask(Task, Protocol):
    """A task that can also be watched from outside."""

    def observe(self, arm: Arm, conditions: Conditions) -> tuple[Measured, Service]: ...

    def limited(self, seconds: float) -> ObservedTask:
        """A run that takes longer than this counts as hung."""
        ...


@dataclass(frozen=True)
class Arms:
    """The user's own allocator, the same again, the same slowed, and the candidates."""

    baseline: Arm
    again: Arm
    slowed: Arm
    candidates: tuple[Arm, ...]

    @classmethod
    def of(cls, baseline: Arm, candidates: Sequence[Arm], slowdown_percent: float) -> Arms:
        again = replace(baseline, peer=replace(baseline.peer, name=f"{baseline.name} again"))
        return cls(baseline, again, Arm(baseline.peer, slowdown_percent), tuple(candidates))

    @property
    def controls(self) -> tuple[Arm, ...]:
        return (self.baseline, self.again, self.slowed)


@dataclass(frozen=True)
class Sample:
    """One run."""

    phase: str
    round: int
    order: int
    arm: Arm
    conditions: Conditions
    run: Measured
    disturbed: str


@dataclass(frozen=True)
class Round:
    runs: Mapping[str, Measured]
    """Runs by arm."""
    disturbed: bool


@dataclass(frozen=True)
class Plan:
    """Fixed after the observation, before the first round."""

    screening: int
    finalists: int
    rounds: int
    """Number of judged rounds."""
    seconds: float
    enough: bool
    """False: even a single candidate gets fewer rounds than any verdict needs."""
    seconds_needed: float
    """After the observation, for the finalists."""


@dataclass
class Course:
    """What has been measured so far."""

    observed: dict[str, Measured] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    """By arm: why it is not compared."""
    screening: list[Round] = field(default_factory=list)
    finalists: list[Arm] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    """The rounds that count: disturbed ones were measured again, as far as the plan allows."""
    set_aside: list[Round] = field(default_factory=list)
    """The disturbed rounds that were measured again."""
    taken_back: int = 0
    """How many of these count after all, since the others were too few."""
    looks: list[PlannedLook] = field(default_factory=list)
    """The looks that were taken."""
    late: bool = False
    """Runs took longer than when they were observed, and the budget ended the rounds."""


Keep = Callable[[Sample], None]


@dataclass(frozen=True)
class Observation:
    """Of the user's own allocator, under whatever name: it tells which one that is."""

    conditions: Conditions
    measured: Measured
    service: Service

    @property
    def hangs_seconds(self) -> float:
        return max(HANGS_SECONDS_MIN, HANGS_TIMES * self.measured.wall_seconds)


def observe_first(task: ObservedTask, own: Arm, rng: random.Random) -> Observation:
    conditions = conditions_draw(task, rng)
    measured, service = task.observe(own, conditions)
    if service.complaint:
        raise LabError(f"{task.name}: {service.complaint}")
    return Observation(conditions, measured, service)


@dataclass(frozen=True)
class Comparing:
    """The task, its arms, and the random choices of this run."""

    task: ObservedTask
    first: Observation
    arms: Arms
    alpha: float
    rng: random.Random
    keep: Keep

    # ---- observing --------------------------------------------------------------------------------------

    def observe(self, course: Course) -> None:
        """A candidate that fails, or that did not serve, is excluded. The user's own allocator was observed before."""
        own = self.first
        self._keep(OBSERVED, 0, 0, self.arms.baseline, own.conditions, own.measured)
        course.observed[self.arms.baseline.name] = own.measured
        for order, arm in enumerate(self.arms.candidates, 1):
            try:
                measured, service = self.task.observe(arm, own.conditions)
            except ProcessFailedError as error:
                course.failures[arm.name] = error.outcome
                continue
            self._keep(OBSERVED, 0, order, arm, own.conditions, measured)
            if service.complaint:
                course.failures[arm.name] = f"did not serve: {service.complaint}"
            else:
                course.observed[arm.name] = measured
            if self._other_work(own.measured, measured):
                course.failures[arm.name] = "its output is another"

    # ---- planning ---------------------------------------------------------------------------------------

    def candidates(self, course: Course) -> list[Arm]:
        return [arm for arm in self.arms.candidates if arm.name not in course.failures]

    def plan(self, course: Course, seconds_left: float) -> Plan:
        """As many finalists as can get enough rounds to be judged well; at least one."""
        count = len(self.candidates(course))
        if not count:
            raise LabError(_nobody_left(course))
        left = max(0.0, seconds_left)  # observing may take more than the budget
        for finalists in range(count, 0, -1):
            plan = self._plan(course, finalists, left)
            if plan.rounds >= ROUNDS_WISHED * pairs_min(self.alpha / finalists):
                break
        return plan

    def _plan(self, course: Course, finalists: int, seconds_left: float) -> Plan:
        arms = self.candidates(course)
        cost = sum(course.observed[arm.name].wall_seconds for arm in arms)
        baseline = course.observed[self.arms.baseline.name].wall_seconds
        needs_screening = finalists < len(arms)
        screening = int(SCREENING_SHARE * seconds_left / (baseline + cost)) if needs_screening else 0
        spent = screening * (baseline + cost)
        per_round = len(self.arms.controls) * baseline + finalists * cost / len(arms)
        rounds = min(ROUNDS_MAX, max(1, int((seconds_left - spent) / per_round)))
        least = pairs_min(self.alpha / finalists)
        needed = least * per_round / (1 - SCREENING_SHARE * needs_screening)
        return Plan(screening, finalists, rounds, spent + rounds * per_round, rounds >= least, needed)

    # ---- measuring --------------------------------------------------------------------------------------

    def screen(self, course: Course, plan: Plan) -> None:
        """Chooses the finalists by the median of their speed, from rounds that are not judged; if the budget allows
        none, from the observed runs."""
        for number in range(plan.screening):
            arms = [self.arms.baseline, *self.candidates(course)]
            course.screening.append(self._round(SCREENED, number, arms, course))

        def seconds(arm: Arm) -> float:
            runs = [one.runs[arm.name] for one in course.screening] or [course.observed[arm.name]]
            return statistics.median(figure(run, self.task) for run in runs)

        course.finalists = sorted(self.candidates(course), key=seconds)[: plan.finalists]

    def judge_rounds(
        self, course: Course, plan: Plan, decided: Callable[[], bool], is_late: Callable[[], bool]
    ) -> None:
        """DECIDED is called at the planned looks, and may end the rounds. So may the clock: how long a round takes
        in all does not tell which of its runs was faster, so all remaining error goes to a last look."""
        alpha = self.alpha / max(1, len(course.finalists))
        looks = {look.pairs: look for look in looks_plan(plan.rounds, alpha)}
        extra = int(DISTURBED_EXTRA_SHARE * plan.rounds)
        number = 0
        while len(course.rounds) < plan.rounds and course.finalists:
            one = self._round(JUDGED, number, [*self.arms.controls, *course.finalists], course)
            number += 1
            course.finalists = [arm for arm in course.finalists if arm.name not in course.failures]
            again = one.disturbed and len(course.set_aside) < extra
            (course.set_aside if again else course.rounds).append(one)
            course.late = is_late() and len(course.rounds) < plan.rounds
            if course.late or len(course.rounds) == plan.rounds:
                _look_last(course, pairs_min(alpha))
                return
            if len(course.rounds) in looks and not again:
                course.looks.append(looks[len(course.rounds)])
                if decided():
                    return

    def _round(self, phase: str, number: int, arms: Sequence[Arm], course: Course) -> Round:
        conditions = conditions_draw(self.task, self.rng)
        order = self.rng.sample(list(arms), len(arms))
        runs: dict[str, Measured] = {}
        disturbed = False

        def run_well(arm: Arm, seat: Seat | None) -> Measured | ProcessFailedError:
            try:
                return self.task.run(arm, conditions, seat)
            except ProcessFailedError as error:
                return error

        for place, (arm, run) in enumerate(
            zip(order, runs_side_by_side(self.task, order, run_well), strict=True)
        ):
            if isinstance(run, ProcessFailedError):
                if arm in self.arms.controls:
                    raise LabError(f"{run}; it fails by itself, which tells nothing of allocators") from run
                course.failures[arm.name] = run.outcome
                continue
            runs[arm.name] = run
            disturbed |= bool(self._keep(phase, number, place, arm, conditions, run))
        baseline = runs[self.arms.baseline.name]
        for arm in arms:
            if arm.name in runs and self._other_work(baseline, runs[arm.name]):
                course.failures[arm.name] = "its output is another"
        return Round(runs, disturbed)

    def _keep(
        self, phase: str, number: int, order: int, arm: Arm, conditions: Conditions, run: Measured
    ) -> str:
        mark = disturbance(self.task, run, conditions.cpus)
        self.keep(Sample(phase, number, order, arm, conditions, run, mark))
        return mark

    @staticmethod
    def _other_work(one: Measured, two: Measured) -> bool:
        return one.checksum != two.checksum


def _look_last(course: Course, least: int) -> None:
    """With fewer rounds than the LEAST that bound an interval there was no look yet, and those that were set aside
    count, too: they were by what disturbed them, not by who was faster."""
    if len(course.rounds) < least:
        course.taken_back = len(course.set_aside)
        course.rounds = [*course.set_aside, *course.rounds]
    spent = sum(look.share for look in course.looks)
    course.looks.append(PlannedLook(len(course.rounds), 1 - spent))


def figure(run: Measured, task: Task) -> float:
    """What one operation took, in the task's own measure."""
    return (run.cpu_seconds if task.measure is Measure.CPU else run.seconds) / run.ops


def _nobody_left(course: Course) -> str:
    said = "; ".join(f"{name} {reason}" for name, reason in course.failures.items())
    return f"there is nothing to compare: {said or 'no other allocator was named'}"
