"""A workload by the name that a user gives: a cell of bench/, a program of the checkout, or the file of one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from difflib import get_close_matches
from pathlib import Path

from hakmem_lab.errors import LabError
from hakmem_lab.workloads.cells import Cell
from hakmem_lab.workloads.programs.file import ProgramFile, program_named, program_names, program_read


def program_find(text: str) -> ProgramFile:
    """A name, or the path of a file FILE.toml."""
    if text.endswith(".toml"):
        return program_read(Path(text))
    names = program_names()
    if text not in names:
        raise LabError(f"there is no program '{text}'{_hint(text, names)}")
    return program_named(text)


def words_named(text: str, names: Collection[str]) -> list[str]:
    """The value of --only: NAMES separated by semicolons; whatever is not one of them is words separated by commas."""
    words = []
    for part in text.split(";"):
        words += [part.strip()] if is_name(part.strip(), names) else part.split(",")
    return [word.strip() for word in words if word.strip()]


def is_name(word: str, names: Collection[str]) -> bool:
    """A whole name."""
    return word.lower() in (name.lower() for name in names)


def is_meant(name: str, word: str, names: Collection[str]) -> bool:
    """Whether WORD means the NAME, one of NAMES: as a part of it or, if WORD is one of NAMES itself, as the whole
    name."""
    if is_name(word, names):
        return word.lower() == name.lower()
    return word.lower() in name.lower()


def workload_find(text: str, cells: Sequence[Cell]) -> Cell | ProgramFile:
    """By its whole name or, if only one cell has it in its name or as its program, by a part of it."""
    if text.endswith(".toml") or text in program_names():
        return program_find(text)
    word = text.lower()
    exact = [cell for cell in cells if cell.name.lower() == word]
    found = exact or [cell for cell in cells if word in cell.name.lower() or word == cell.program]
    if len(found) == 1:
        return found[0]
    names = [cell.name for cell in cells] + program_names()
    if found:
        raise LabError(f"'{text}' names several: {'; '.join(cell.name for cell in found)}")
    raise LabError(f"there is no workload '{text}'{_hint(text, names)}")


def _hint(text: str, names: Sequence[str]) -> str:
    near = get_close_matches(text, names, 1, 0.5)
    return f", did you mean '{near[0]}'?" if near else f"; there are: {'; '.join(names)}"
