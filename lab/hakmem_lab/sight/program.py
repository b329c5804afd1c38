"""A program's file, looked at before it is started: whether the dynamic linker would put hakmem into it.

What it would not is refused here, since the linker says nothing, and the program would run on the malloc that it
always had. A program that is linked with hakmem needs no help.
"""

from __future__ import annotations

import mmap
import os
import shutil
from pathlib import Path

from hakmem_lab.allocators import elf
from hakmem_lab.errors import LabError
from hakmem_lab.measure.service import is_privileged, preload_obstacle
from hakmem_lab.sight.page import ALIGNMENT, MAGIC

INTERPRETERS_MAX, LINE_BYTES = 5, 256
"""Of scripts whose interpreter is a script, and of a first line: as the kernel has them."""


class UnservableError(LabError):
    """It cannot be started, or the dynamic linker would start it without hakmem."""


def needs_preload(name: str, library: Path) -> bool:
    """Whether LIBRARY must be preloaded into the command NAME: no, where it is linked with hakmem. An error where
    that is not possible."""
    found = shutil.which(name)
    if found is None:
        raise LabError(f"{name}: there is no such command")
    program = executed_file(Path(found))
    if not (program.is_file() and os.access(program, os.X_OK)):
        raise UnservableError(f"{name}: its interpreter {program} cannot be executed")
    if is_linked(program) and not is_privileged(program):
        return False
    whose = name if program == Path(found) else f"{name}: its interpreter {program}"
    if elf.machine(program) not in (b"", elf.machine(library)):
        raise UnservableError(f"hakmem cannot serve {whose}: it is built for another machine than libhakmem")
    obstacle = preload_obstacle(program)
    if obstacle:
        raise UnservableError(f"hakmem cannot serve {whose}: it is {obstacle}; link it with libhakmem.a")
    if elf.defined(program, ("malloc",)):
        raise UnservableError(
            f"hakmem cannot serve {whose}: it defines malloc itself, and the dynamic linker looks there first;"
            " build it without, or with libhakmem.a in its place"
        )
    return True


def executed_file(program: Path) -> Path:
    """What the kernel executes for PROGRAM: of a script its interpreter."""
    for _ in range(INTERPRETERS_MAX):
        interpreter = _interpreter(program)
        if interpreter is None:
            break
        program = interpreter
    return program


def _interpreter(file: Path) -> Path | None:
    """That the first line of FILE names."""
    try:
        with file.open("rb") as opened:
            line = opened.read(LINE_BYTES).partition(b"\n")[0]
    except OSError:  # it may be executed all the same
        return None
    words = line[2:].split(maxsplit=1) if line.startswith(b"#!") else []
    return Path(os.fsdecode(words[0])) if words else None


def is_linked(program: Path) -> bool:
    """It holds hakmem's page: it was linked with the archive."""
    try:
        with program.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            place = data.find(MAGIC)
            while place >= 0 and place % ALIGNMENT:
                place = data.find(MAGIC, place + 1)
            return place >= 0
    except (OSError, ValueError):  # also an empty file
        return False
