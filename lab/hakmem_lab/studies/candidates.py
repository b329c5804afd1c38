"""Workloads before they are planned: cells of bench/ whose work is still to be found, and programs that are what they
are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hakmem_lab.measure.stage import Stage
from hakmem_lab.measure.task import CellTask, Task
from hakmem_lab.workloads.cells import Cell, Target


@dataclass(frozen=True)
class Candidate:
    name: str
    group: str
    program: str
    arguments: str
    task_of: Callable[[int], Task]
    """With a count; without one for a program."""
    first_count: int
    """Where the search for the work of a run begins; 0 where there is nothing to find."""
    count_min: int = 1
    starts_count: bool = True
    """A run must be long beside the start of its process."""
    control: bool = False
    memory: bool = False
    targets: Mapping[str, Target] = field(default_factory=dict)


def cell_candidate(stage: Stage, cell: Cell) -> Candidate:
    return Candidate(
        name=cell.name,
        group=cell.group,
        program=cell.program,
        arguments=" ".join(cell.arguments),
        task_of=lambda count: CellTask(stage, cell, count),
        first_count=cell.first_count,
        count_min=cell.count_min,
        starts_count=cell.switches_are_noise and not cell.ends_slowly,
        control=cell.control,
        memory=cell.memory,
        targets=cell.targets,
    )
