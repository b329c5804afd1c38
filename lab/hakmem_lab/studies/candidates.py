"""Workloads before they are planned: cells of bench/ whose work is still to be found, and programs, whose work is
fixed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hakmem_lab.allocators import elf
from hakmem_lab.errors import LabError
from hakmem_lab.measure.backing import Backing
from hakmem_lab.measure.stage import Stage
from hakmem_lab.measure.task import CellTask, Task
from hakmem_lab.workloads.cells import CELLS, Cell, Suite, suite_cells
from hakmem_lab.workloads.find import is_meant
from hakmem_lab.workloads.programs.file import ProgramFile, program_named, program_names
from hakmem_lab.workloads.programs.task import ProgramTask, program_prepare

PROGRAMS_GROUP = "programs"
CELL_NAMES = tuple(cell.name for cell in CELLS)


@dataclass(frozen=True)
class Candidate:
    name: str
    group: str
    program: str
    arguments: str
    task_of: Callable[[int], Task]
    """The task with a given count; a program accepts any."""
    first_count: int
    """The count at which the search for the work of a run starts; 0 if there is nothing to find."""
    count_min: int = 1
    starts_count: bool = True
    """A run must be long compared with the start of its process."""
    control: bool = False
    memory: bool = False
    figure: str = ""
    identities: Mapping[str, str] = field(default_factory=dict)
    """Of the files that are measured with it, by name."""


def cell_candidate(stage: Stage, cell: Cell) -> Candidate:
    backing = Backing()
    return Candidate(
        name=cell.name,
        group=cell.group.value,
        program=cell.program,
        arguments=" ".join(cell.arguments),
        task_of=lambda count: CellTask(stage, cell, count, backing),
        first_count=cell.first_count,
        count_min=cell.count_min,
        starts_count=cell.switches_are_noise and not cell.ends_slowly,
        control=cell.control,
        memory=cell.memory,
        figure=cell.figure,
        identities={f"bench/{cell.program}": elf.identity(stage.program(cell.program))},
    )


def program_candidate(program: ProgramFile, task: ProgramTask) -> Candidate:
    return Candidate(
        name=program.name,
        group=PROGRAMS_GROUP,
        program=program.name,
        arguments=program.about,
        task_of=lambda _: task,
        first_count=0,
        identities=task.identities(),
    )


@dataclass(frozen=True)
class Chosen:
    cells: tuple[Cell, ...]
    programs: tuple[str, ...]
    named: bool
    """Named by the user; then each must be available."""

    @property
    def count(self) -> int:
        return len(self.cells) + len(self.programs)


def workload_names() -> list[str]:
    return [*CELL_NAMES, *program_names()]


def workloads_choose(suite: Suite, words: Sequence[str]) -> Chosen:
    """The workloads of the suite, with programs only in the full one. With WORDS, all workloads that they name."""
    if not words:
        return Chosen(suite_cells(suite), tuple(program_names()) if suite is Suite.FULL else (), False)
    for word in words:
        if not any(_is_named(cell, word) for cell in CELLS) and not _programs_named(word):
            raise LabError(f"no workload is named like '{word}'; there are: {'; '.join(workload_names())}")
    cells = tuple(cell for cell in CELLS if any(_is_named(cell, word) for word in words))
    programs = tuple(dict.fromkeys(name for word in words for name in _programs_named(word)))
    return Chosen(cells, programs, True)


def _is_named(cell: Cell, word: str) -> bool:
    return is_meant(cell.name, word, CELL_NAMES) or word in (cell.program, cell.group.value)


def _programs_named(word: str) -> list[str]:
    return [name for name in program_names() if word in (name, PROGRAMS_GROUP)]


def candidates_prepare(stage: Stage, chosen: Chosen, seed: int) -> tuple[list[Candidate], dict[str, str]]:
    """Ready to run; also the programs of the suite that cannot run, each with its reason."""
    candidates = [cell_candidate(stage, cell) for cell in chosen.cells]
    missing: dict[str, str] = {}
    for name in chosen.programs:
        program = program_named(name)
        try:
            candidates.append(
                program_candidate(program, program_prepare(stage.checkout, stage, program, seed))
            )
        except LabError as error:
            if chosen.named:
                raise
            missing[name] = str(error)
    return candidates, missing
