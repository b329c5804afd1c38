"""Workloads before they are planned: cells of bench/ whose work is still to be found, and programs that are what they
are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hakmem_lab.errors import LabError
from hakmem_lab.measure.stage import Stage
from hakmem_lab.measure.task import CellTask, Task
from hakmem_lab.workloads.cells import FIRST_FIGURES, Cell, Target


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


def candidates_choose(stage: Stage, suite: str, words: Sequence[str]) -> list[Candidate]:
    """Those of the suite; with words, of all workloads those that they name."""
    every = [cell_candidate(stage, cell) for cell in FIRST_FIGURES]
    if not words:
        quick = {cell.name for cell in FIRST_FIGURES if cell.suite == "quick"}
        return [one for one in every if suite == "full" or one.name in quick]
    chosen = [one for one in every if any(_is_named(one, word.lower()) for word in words)]
    unknown = [word for word in words if not any(_is_named(one, word.lower()) for one in every)]
    if unknown:
        names = "; ".join(one.name for one in every)
        raise LabError(f"no workload is named like '{unknown[0]}'; there are: {names}")
    return chosen


def _is_named(candidate: Candidate, word: str) -> bool:
    return word in candidate.name.lower() or word in (candidate.program, candidate.group)
