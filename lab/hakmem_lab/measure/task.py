"""What can be measured: anything that runs once under an arm and reports how long it took.

A program of bench/ with a chosen count is one; a program file and a user's own command are others. The code that
schedules and judges knows only this interface.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol, TypeVar

from hakmem_lab.measure.backing import Backing
from hakmem_lab.measure.prepare import arm_prepared
from hakmem_lab.measure.runner import Arm, Conditions, Measured, workload_run
from hakmem_lab.measure.stage import Stage
from hakmem_lab.measure.turns import Seat, turn_seconds, turns_take
from hakmem_lab.workloads.cells import Cell, Measure


class Task(Protocol):
    """Something that can be run under any arm."""

    @property
    def name(self) -> str: ...

    @property
    def threads(self) -> int: ...

    @property
    def measure(self) -> Measure:
        """The primary figure."""
        ...

    @property
    def switches_are_noise(self) -> bool:
        """False where the program itself makes the scheduler switch."""
        ...

    @property
    def backing(self) -> Backing: ...

    @property
    def takes_turns(self) -> bool:
        """Whether it does the same work in the same time of its own if it is stopped now and then: it does not wait by a clock
        that goes on meanwhile."""
        ...

    def run(self, arm: Arm, conditions: Conditions, seat: Seat | None = None) -> Measured:
        """With a SEAT it takes turns with other runs."""
        ...


@dataclass(frozen=True)
class CellTask:
    """A cell of bench/ with a count that makes it long enough."""

    stage: Stage
    cell: Cell
    count: int
    backing: Backing = field(default_factory=Backing, compare=False)

    @property
    def name(self) -> str:
        return self.cell.name

    @property
    def threads(self) -> int:
        return self.cell.threads

    @property
    def measure(self) -> Measure:
        return self.cell.measure

    @property
    def switches_are_noise(self) -> bool:
        return self.cell.switches_are_noise

    @property
    def takes_turns(self) -> bool:
        return not (self.cell.memory or self.cell.measure is Measure.CPU)

    def run(self, arm: Arm, conditions: Conditions, seat: Seat | None = None) -> Measured:
        program = self.stage.program(self.cell.program)
        prepared = arm_prepared(self.stage, self.cell, arm)
        touch = self.backing.ready_at(seat)
        command = self.cell.command(self.count, conditions.seed)
        run = workload_run(program, command, prepared, conditions, seat)
        self.backing.learn(run.peak_rss_kib)
        return replace(run, touch_us=touch, in_turns=seat is not None)


R = TypeVar("R")


def runs_side_by_side(task: Task, arms: Sequence[Arm], run: Callable[[Arm, Seat | None], R]) -> list[R]:
    """RUN of each of ARMS: in turns where the task can and the machine is known to have memory for all of them, otherwise one after the
    other."""
    if len(arms) > 1 and task.takes_turns and task.backing.has_room(len(arms)):
        task.backing.ready(len(arms))
        return turns_take([partial(run, arm) for arm in arms], turn_seconds(task.backing.least_kib))
    return [run(arm, None) for arm in arms]
