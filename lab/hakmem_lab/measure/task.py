"""What can be measured: anything that runs once under an arm and reports how long it took.

A program of bench/ with a chosen count is one; a program file and a user's own command are others. The code that
schedules and judges knows only this interface.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

from hakmem_lab.measure.backing import Backing
from hakmem_lab.measure.prepare import arm_prepared
from hakmem_lab.measure.runner import Arm, Conditions, Measured, workload_run
from hakmem_lab.measure.stage import Stage
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

    def run(self, arm: Arm, conditions: Conditions) -> Measured: ...


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

    def run(self, arm: Arm, conditions: Conditions) -> Measured:
        program = self.stage.program(self.cell.program)
        prepared = arm_prepared(self.stage, self.cell, arm)
        touch = self.backing.ready()
        run = workload_run(program, self.cell.command(self.count, conditions.seed), prepared, conditions)
        self.backing.learn(run)
        return replace(run, touch_us=touch)
