"""Interleaved rounds: one fresh process of every allocator, so that any two can be compared.

All processes of a round share one seed, one environment size and the same processors, and take turns, or run one after
the other, in random order. The
number of rounds is fixed before the first. If only the best of many peers matters, all take part in the first
round; those near the fastest there, or alone, take part in the other rounds that select; and only the best of these
takes part in those that compare. A dozen peers that are slower would otherwise take nine tenths of the time. A round
that was disturbed from outside, by a rule that does not look at times, is kept, marked, and measured again as a whole.
An arm that crashes, hangs or refuses is a result; the others go on.

All draws of a round follow from the run's seed and the round's place, so that an interrupted run continues as it
would have without the interruption.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from hakmem_lab.errors import RunFailedError
from hakmem_lab.measure.pairs import conditions_draw, disturbance
from hakmem_lab.measure.runner import Arm, Conditions, Measured
from hakmem_lab.measure.task import Task, runs_side_by_side
from hakmem_lab.measure.turns import Seat

DISTURBED_SHARE = 0.25
"""A round in which this share of the runs was disturbed is measured again. So is one whose subject was disturbed,
because that run is in every comparison."""
EXTRA_SHARE = 0.25
"""At most this share of the planned rounds of a stage is measured again; the budget reserves time for it."""
SELECTION_MIN = 2
"""One round would select by chance."""
NEAR = 1.5
"""An arm that takes more than this many times as long as its fastest rival is far behind. If that happens twice, it
is taken not to be the best."""
FAILURES_MAX = 2
"""An arm that failed this often in a task is not run again there."""

OTHER_WORK = "failed: did different work"
UNDECIDED = "failed: different work, and no majority says whose was right"
"""Nobody's loss."""


@dataclass(frozen=True)
class Failure:
    """The outcome of a run without figures."""

    outcome: str


Run = Measured | Failure


@dataclass(frozen=True)
class Round:
    slot: int
    """Its place in the plan; a round measured again has the same."""
    attempt: int
    conditions: Conditions
    runs: Mapping[str, Run]
    """By arm, in the order in which they were started."""
    marks: Mapping[str, str]
    """The disturbed runs, and what disturbed them."""
    again: bool
    """Whether the rule says to measure it again."""


@dataclass(frozen=True)
class RoundPlan:
    """What is fixed before the first round of a task."""

    rounds: int
    arms: tuple[str, ...]
    """The first is the subject."""
    selection: int = 0
    """This many rounds at the beginning select one arm; 0: every arm takes part in all rounds. Arms that are far
    behind in the first round leave after it."""
    always: tuple[str, ...] = ()
    """Arms that take part whichever is selected."""
    near: tuple[str, ...] = ()
    """Arms that were near the fastest before the first round: one round does not exclude them."""
    named: tuple[str, ...] = ()
    """Arms whose own figure is wanted: they may be selected, and take part in all rounds if they are not."""

    @property
    def subject(self) -> str:
        return self.arms[0]

    @property
    def selecting(self) -> range:
        """The places before an arm is selected."""
        return range(self.selection or self.rounds)

    def places_anyway(self, arm: str) -> range:
        """The places before an arm is selected in which this one takes part however it looks there."""
        certain = {*self.always, *self.near, *self.named}
        return self.selecting if not self.selection or arm in certain else self.stages[0]

    @property
    def stages(self) -> list[range]:
        bounds = sorted({0, *((1, self.selection) if self.selection else ()), self.rounds})
        return [range(low, high) for low, high in pairwise(bounds)]

    def arms_at(self, slot: int, left: Collection[str]) -> list[str]:
        """LEFT are the arms that earlier stages did not exclude."""
        if slot in self.stages[0]:
            return list(self.arms)
        stay = {*self.always, *self.named, *left, *(self.near if slot < self.selection else ())}
        return [arm for arm in self.arms if arm in stay]

    def share(self, slot: int) -> float:
        """The share of all runs, assuming that half of the others remain between the first stage and the last."""
        last = len(self.always) + 1 + len(self.named)
        runs = [
            len(self.arms) if at == 0 else last if place >= self.selection else (len(self.arms) + last) / 2
            for at, stage in enumerate(self.stages)
            for place in stage
        ]
        return runs[slot] / sum(runs)


Select = Callable[[int, Sequence["Round"]], Collection[str]]
"""The arms that remain after the given number of rounds, which follow."""


def run_once(task: Task, arm: Arm, conditions: Conditions, seat: Seat | None = None) -> Run:
    try:
        return task.run(arm, conditions, seat)
    except RunFailedError as error:
        return Failure(error.outcome)


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
    made = runs_side_by_side(
        task, [arms[name] for name in order], lambda arm, seat: run_once(task, arm, conditions, seat)
    )
    runs = work_compare(dict(zip(order, made, strict=True)), arms)
    marks = {
        name: mark
        for name, run in runs.items()
        if isinstance(run, Measured) and (mark := disturbance(task, run, conditions.cpus))
    }
    again = plan.subject in marks or len(marks) >= DISTURBED_SHARE * len(runs)
    return Round(slot, attempt, conditions, runs, marks, again)


def work_compare(runs: dict[str, Run], arms: Mapping[str, Arm]) -> dict[str, Run]:
    """A run that did other work than most is a failure, not a figure. Each library has one vote, however many arms are
    copies of it, because all of them do the same wrong work. Without a majority it is unknown which run was right:
    none of them is a figure. None: the checksum cannot tell, as for runs by the clock."""
    told = {
        (arms[name].peer.identity, run.checksum)
        for name, run in runs.items()
        if isinstance(run, Measured) and run.checksum is not None
    }
    sums = Counter(checksum for _, checksum in told)
    if len(sums) < 2:
        return runs
    (first, most), (_, next_most) = sums.most_common(2)
    usual, outcome = (first, OTHER_WORK) if most > next_most else (None, UNDECIDED)
    return {
        name: Failure(outcome) if isinstance(run, Measured) and run.checksum not in (None, usual) else run
        for name, run in runs.items()
    }


def slots_pending(plan: RoundPlan, done: Sequence[Round]) -> list[list[int]]:
    """For each stage: the places that have no round yet, and disturbed ones while more rounds are allowed. A stage
    of fewer than four rounds has no repeats: in a first round of a dozen arms a repeat costs most of all."""
    return [_stage_pending(stage, [one for one in done if one.slot in stage]) for stage in plan.stages]


def _stage_pending(stage: range, done: Sequence[Round]) -> list[int]:
    last = {one.slot: one for one in sorted(done, key=lambda one: one.attempt)}
    fresh = [slot for slot in stage if slot not in last]
    room = int(EXTRA_SHARE * len(stage)) - (len(done) - len(last))
    again = [slot for slot, one in last.items() if one.again]
    return fresh + again[: max(0, room)]


def rounds_run(
    task: Task,
    plan: RoundPlan,
    arms: Mapping[str, Arm],
    seed: str,
    keep: Callable[[Round], None],
    done: Sequence[Round] = (),
    select: Select = lambda _, __: (),
) -> list[Round]:
    """Runs what DONE leaves of the plan, stage by stage. KEEP gets each round as soon as it is there. If SELECT
    leaves no arm, the stages so far were all."""
    rounds = list(done)
    while pending := next((slots for slots in slots_pending(plan, rounds) if slots), []):
        before = next(stage.start for stage in plan.stages if pending[0] in stage)
        left = select(before, [one for one in rounds if one.slot < before]) if before else ()
        if before and not left:
            break
        slot = random.Random(f"{seed}/{task.name}/next/{len(rounds)}").choice(pending)
        attempt = sum(1 for one in rounds if one.slot == slot)
        failed = Counter(name for one in rounds for name, run in one.runs.items() if isinstance(run, Failure))
        names = [name for name in plan.arms_at(slot, left) if failed[name] < FAILURES_MAX]
        if not set(names) - set(plan.always):
            break  # nobody is left to compare with
        rounds.append(round_run(task, plan, arms, names, slot, attempt, seed))
        keep(rounds[-1])
    return rounds


@dataclass(frozen=True)
class Demand:
    """What the rounds of a task take, and the fewest that are useful."""

    seconds: float
    """Seconds of a round of all arms."""
    interval: int
    """The number of rounds that an interval needs."""
    selected_seconds: float | None = None
    """Seconds of a round of the arms that remain when one is selected; None: nothing is selected."""
    near_seconds: float = 0.0
    """Seconds of a round of the arms that remain when the others are far behind, if one is selected."""

    @property
    def least(self) -> int:
        return self.interval + (SELECTION_MIN if self.selected_seconds is not None else 0)

    @property
    def fewest(self) -> int:
        """Fewer than are useful, if time is short."""
        return min(2, self.interval) + (self.least - self.interval)

    def selection(self, rounds: int) -> int:
        """Divides this many rounds. What exceeds the minimum goes to the comparison until it has twice as many as
        an interval needs, because one of many comparisons must be clearer than a single one. The rest goes to the
        selection, until it has as many as an interval needs, and then to the comparison again."""
        if self.selected_seconds is None:
            return 0
        return max(SELECTION_MIN, min(self.interval, rounds - 2 * self.interval))

    def total(self, rounds: int) -> float:
        if self.selected_seconds is None:
            return rounds * self.seconds
        selection = self.selection(rounds)
        return (
            self.seconds + (selection - 1) * self.near_seconds + (rounds - selection) * self.selected_seconds
        )

    def fitting(self, seconds: float, most: int) -> int:
        """How many rounds, at most MOST, fit into the time."""
        return max((count for count in range(1, most + 1) if self.total(count) <= seconds), default=0)


def rounds_share(demands: Sequence[Demand], seconds: float, limit: float, most: int) -> list[int]:
    """Every task gets the same time, but no fewer rounds than are useful and no more than MOST; the time that tasks
    leave goes to the others. If even the fewest do not fit into LIMIT, the most expensive tasks get fewer than are
    useful."""
    least = [demand.least for demand in demands]
    if rounds_cost(demands, least) > limit:
        return _rounds_filled(demands, limit, [demand.fewest for demand in demands], least)
    return _rounds_filled(demands, seconds, least, [max(most, demand.least) for demand in demands])


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
