"""The deterministic second opinion on an A/B: instructions that the allocator takes for one operation.

The difference of a run and of one twice as long leaves the cost of the start out. The clock decides; if the counts
disagree, both are shown. Instructions are not time: caches and faults are not in them.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass

from hakmem_lab.errors import LabError
from hakmem_lab.measure.observe import can_observe
from hakmem_lab.measure.pairs import cpus_allowed
from hakmem_lab.measure.prepare import arm_prepared
from hakmem_lab.measure.runner import Arm
from hakmem_lab.measure.task import CellTask
from hakmem_lab.statistics.estimate import Estimate, Verdict
from hakmem_lab.studies.ab import WORDS, Answer
from hakmem_lab.studies.callgrind import allocator_instructions

COUNT_SHARE = 0.01
"""Share of the timed run's count, because callgrind takes fifty times as long."""
SECONDS = 5.0
"""About what it takes for two arms. It runs without being requested if the clock left this much of the budget."""
SEED = 1


@dataclass(frozen=True)
class Opinion:
    base: float
    """Instructions for one operation."""
    other: float

    @property
    def ratio(self) -> float:
        """Above one: the base takes more."""
        return self.base / self.other

    def word(self, margin: float) -> str:
        return WORDS[Estimate(self.ratio, self.ratio, self.ratio, 1).verdict(margin)]

    def line(self, answer: Answer, margin: float) -> str:
        word = self.word(margin)
        text = f"instructions of the allocator for one operation: {self.base:.1f} and {self.other:.1f}"
        if answer.verdict in (Verdict.UNCLEAR, Verdict.VOID):
            return f"{text}; by them {word} ({self.ratio:.2f})"
        if word == answer.word:
            return f"{text}; they agree ({self.ratio:.2f})"
        return f"{text}; they DISAGREE: by instructions {word} ({self.ratio:.2f}), by the clock {answer.word}"


def opinion_obstacle(task: CellTask) -> str:
    """Why its instructions cannot be counted; empty if they can."""
    cell = task.cell
    if shutil.which("valgrind") is None:
        return "valgrind is not installed"
    if cell.control:
        return "it allocates nothing"
    if not can_observe(cell):
        return "it starts other processes"
    return "its runs go by the clock, or cannot be short" if cell.by_clock or cell.count_min != 1 else ""


def opinion_ask(task: CellTask, base: Arm, other: Arm) -> Opinion:
    count = max(1, int(COUNT_SHARE * task.count))
    cpus = cpus_allowed()[: task.threads]

    def per_operation(asked: Arm) -> float:
        """A count may be a cycle of many operations: the program tells how many there were."""
        arm = arm_prepared(task.stage, task.cell, asked)

        def counted(times: int) -> tuple[int, int]:
            arguments = task.cell.command(times * count, SEED)
            return allocator_instructions(task.stage, task.cell.program, arguments, arm, cpus)

        (short, few), (long, many) = counted(1), counted(2)
        if many <= few:
            raise LabError(f"twice the work was no more work: {few} and {many} operations")
        return (long - short) / (many - few)

    return Opinion(per_operation(base), per_operation(other))
