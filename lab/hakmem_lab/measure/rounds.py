"""Interleaved rounds: one fresh process of every allocator, so that any can be compared with any other.

All processes of a round share one seed, one environment size and the same processors, and come in random
order. How many rounds there are is fixed before the first. An arm that is far slower than the fastest takes part in
as few of them as an interval needs: a large difference needs no precision, and its runs would take the others'
time. A round that was disturbed from outside, by a rule that does not look at times, is kept, marked, and
measured again as a whole. An arm that crashes, hangs or refuses is a result; the others go on.

All draws of a round follow from the run's seed and the round's place, so that a run that was interrupted goes
on as it would have gone on.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hakmem_lab.errors import LabError, ProcessFailedError
from hakmem_lab.measure.pairs import conditions_draw, disturbance
from hakmem_lab.measure.runner import Arm, Conditions, Measured
from hakmem_lab.measure.task import Task

DISTURBED_SHARE = 0.25
"""A round with more disturbed runs than this is measured again; and one whose subject was disturbed, because that
run is in every comparison."""
EXTRA_SHARE = 0.25
"""At most this share of the planned rounds is measured again; the budget keeps the time for it."""
FAILURES_MAX = 2
"""An arm that failed this often in a task is not run again there."""


@dataclass(frozen=True)
class Failure:
    """What became of a run that has no figures."""

    outcome: str


Run = Measured | Failure


@dataclass(frozen=True)
class Round:
    slot: int
    """Its place in the plan; a round measured again has the same."""
    attempt: int
    conditions: Conditions
    runs: Mapping[str, Run]
    """By arm, in the order in which they ran."""
    marks: Mapping[str, str]
    """What disturbed a run, of those that were."""
    again: bool
    """By the rule it should be measured again."""


@dataclass(frozen=True)
class RoundPlan:
    """What is fixed before the first round of a task."""

    rounds: int
    arms: tuple[str, ...]
    """The first is the subject."""
    sparse: tuple[str, ...] = ()
    """Those that take part in few rounds."""
    sparse_rounds: int = 0

    @property
    def subject(self) -> str:
        return self.arms[0]

    @property
    def extra(self) -> int:
        return int(EXTRA_SHARE * self.rounds)

    def arms_at(self, slot: int) -> list[str]:
        """Rounds with the sparse arms are spread evenly."""
        few = min(self.sparse_rounds, self.rounds)
        full = (slot + 1) * few // self.rounds > slot * few // self.rounds
        return [arm for arm in self.arms if full or arm not in self.sparse]


def failure_of(error: LabError) -> Failure:
    if isinstance(error, ProcessFailedError):
        return Failure(error.outcome)
    return Failure(f"failed: {error}")


def run_once(task: Task, arm: Arm, conditions: Conditions) -> Run:
    try:
        return task.run(arm, conditions)
    except LabError as error:
        return failure_of(error)


def round_run(
    task: Task,
    plan: RoundPlan,
    arms: Mapping[str, Arm],
    names: Sequence[str],
    slot: int,
    attempt: int,
    seed: str,
) -> Round:
    rng = random.Random(f"{seed}/{task.name}/{slot}/{attempt}")
    conditions = conditions_draw(task, rng)
    order = rng.sample(list(names), len(names))
    runs = {name: run_once(task, arms[name], conditions) for name in order}
    runs = work_compare(runs)
    marks = {
        name: mark
        for name, run in runs.items()
        if isinstance(run, Measured) and (mark := disturbance(task, run, conditions.cpus))
    }
    again = plan.subject in marks or len(marks) > DISTURBED_SHARE * len(runs)
    return Round(slot, attempt, conditions, runs, marks, again)


def work_compare(runs: dict[str, Run]) -> dict[str, Run]:
    """Who did other work than most is a failure, not a figure. None: it cannot tell, as no run by the clock can."""
    told = [run.checksum for run in runs.values() if isinstance(run, Measured) and run.checksum is not None]
    sums = Counter(told)
    if len(sums) < 2:
        return runs
    usual = sums.most_common(1)[0][0]
    return {
        name: Failure("failed: did different work")
        if isinstance(run, Measured) and run.checksum not in (None, usual)
        else run
        for name, run in runs.items()
    }


def slots_pending(plan: RoundPlan, done: Sequence[Round]) -> list[int]:
    """Places that have no round yet, and disturbed ones while there is room for more."""
    last = {one.slot: one for one in sorted(done, key=lambda one: one.attempt)}
    fresh = [slot for slot in range(plan.rounds) if slot not in last]
    room = plan.extra - (len(done) - len(last))
    again = [slot for slot, one in last.items() if one.again]
    return fresh + again[: max(0, room)]


def rounds_run(
    task: Task,
    plan: RoundPlan,
    arms: Mapping[str, Arm],
    seed: str,
    keep: Callable[[Round], None],
    done: Sequence[Round] = (),
) -> list[Round]:
    """Runs what DONE leaves of the plan; KEEP gets each round as soon as it is there."""
    rounds = list(done)
    while pending := slots_pending(plan, rounds):
        slot = random.Random(f"{seed}/{task.name}/next/{len(rounds)}").choice(pending)
        attempt = sum(1 for one in rounds if one.slot == slot)
        failed = Counter(name for one in rounds for name, run in one.runs.items() if isinstance(run, Failure))
        names = [name for name in plan.arms_at(slot) if failed[name] < FAILURES_MAX]
        if not names:
            break
        rounds.append(round_run(task, plan, arms, names, slot, attempt, seed))
        keep(rounds[-1])
    return rounds


@dataclass(frozen=True)
class Demand:
    """What one round of a task takes, and the fewest that are of use."""

    seconds: float
    sparse_seconds: float
    """Of the sparse arms, in the rounds in which they take part."""
    least: int

    def total(self, rounds: int) -> float:
        return rounds * self.seconds + min(rounds, self.least) * self.sparse_seconds

    def fitting(self, seconds: float, most: int) -> int:
        """How many rounds, up to MOST, take no longer."""
        within = int(seconds / (self.seconds + self.sparse_seconds)) if self.total(1) else most
        if within > self.least:
            left = seconds - self.least * self.sparse_seconds
            within = int(left / self.seconds) if self.seconds else most
        return min(most, within)


def rounds_share(demands: Sequence[Demand], seconds: float, limit: float, most: int) -> list[int]:
    """Every task gets the same time, but no fewer rounds than are of use and no more than MOST; what tasks leave
    goes to the others. Where even the fewest do not fit into LIMIT, the most expensive tasks get fewer than are of
    use, two at least."""
    fewest = [demand.least for demand in demands]
    if rounds_cost(demands, fewest) > limit:
        return _rounds_filled(demands, limit, [min(2, demand.least) for demand in demands], fewest)
    return _rounds_filled(demands, seconds, fewest, [max(most, demand.least) for demand in demands])


def rounds_cost(demands: Sequence[Demand], rounds: Sequence[int]) -> float:
    return sum(demand.total(count) for demand, count in zip(demands, rounds, strict=True))


def _rounds_filled(
    demands: Sequence[Demand], seconds: float, fewest: Sequence[int], most: Sequence[int]
) -> list[int]:
    """The largest equal share of time whose rounds fit into SECONDS."""

    def rounds_at(share: float) -> list[int]:
        bounds = zip(demands, fewest, most, strict=True)
        return [max(low, min(high, demand.fitting(share, high))) for demand, low, high in bounds]

    low, high = 0.0, seconds
    while high - low > 0.001 * seconds / max(1, len(demands)):
        middle = (low + high) / 2
        low, high = (middle, high) if rounds_cost(demands, rounds_at(middle)) <= seconds else (low, middle)
    return rounds_at(low)
