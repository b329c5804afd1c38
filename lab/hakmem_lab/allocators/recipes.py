"""How sources become a library to preload: by the project's own build, or by compiling and linking the named files.

A recipe is data from peers.toml. Compilers are the system's cc and c++, the same for every peer, and the user's own
flags are not used.
"""

from __future__ import annotations

import os
import shlex
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hakmem_lab.allocators.tools import environment_plain, tool_run, tools_check
from hakmem_lab.errors import LabError

COMMAND_SECONDS = 900


@dataclass(frozen=True)
class Recipe:
    folder: str
    """Inside the sources; commands and paths start there."""
    library: str
    tools: tuple[str, ...]
    commands: tuple[str, ...] = ()
    """The project's own build; {jobs} stands for the number of processors."""
    compile: str = ""
    link: str = ""
    sources: tuple[str, ...] = ()
    """Patterns; all of these files become part of the library."""
    helpers: tuple[str, ...] = ()
    """Patterns; of these files, what the others need."""
    without: tuple[str, ...] = ()
    """Files with one of these words in their names are left out of the library."""

    @classmethod
    def of(cls, entry: dict[str, Any]) -> Recipe:
        return cls(
            **{key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
        )


def library_build(what: str, recipe: Recipe, sources: Path) -> Path:
    """The library that RECIPE makes from the SOURCES."""
    tools_check(what, recipe.tools)
    folder = sources / recipe.folder
    jobs = len(os.sched_getaffinity(0))
    for command in recipe.commands:
        words = [word.format(jobs=jobs) for word in shlex.split(command)]
        tool_run(what, words, folder, COMMAND_SECONDS, environment_plain())
    if recipe.compile:
        _compile_and_link(what, recipe, folder, jobs)
    library = folder / recipe.library
    if not library.is_file():
        raise LabError(f"{what}: its build made no {recipe.library}")
    return library


def _compile_and_link(what: str, recipe: Recipe, folder: Path, jobs: int) -> None:
    sources, helpers = (
        _files(what, recipe, folder, patterns) for patterns in (recipe.sources, recipe.helpers)
    )
    environment = environment_plain()

    def compile_one(source: Path) -> str:
        object_file = f"{source}.o"
        command = [*shlex.split(recipe.compile), "-c", str(source), "-o", object_file]
        tool_run(what, command, folder, COMMAND_SECONDS, environment)
        return object_file

    with ThreadPoolExecutor(jobs) as pool:
        try:
            objects = list(pool.map(compile_one, [*sources, *helpers]))
        except BaseException:  # the first error, or the user's interrupt: the rest need not be compiled
            pool.shutdown(cancel_futures=True)
            raise
    inputs = objects[: len(sources)]
    if helpers:
        # The linker takes from an archive only what is needed.
        tool_run(
            what, ["ar", "rcs", "helpers.a", *objects[len(sources) :]], folder, COMMAND_SECONDS, environment
        )
        inputs.append("helpers.a")
    words = shlex.split(recipe.link)
    command = [words[0], "-o", recipe.library, *inputs, *words[1:]]
    tool_run(what, command, folder, COMMAND_SECONDS, environment)


def _files(what: str, recipe: Recipe, folder: Path, patterns: tuple[str, ...]) -> list[Path]:
    """Relative to FOLDER, sorted. A pattern that matches nothing is an error."""
    found: set[Path] = set()
    for pattern in patterns:
        files = {path.relative_to(folder) for path in folder.glob(pattern)}
        if not files:
            raise LabError(f"{what}: no source is named like {pattern}")
        found |= files
    return sorted(path for path in found if not any(word in path.name for word in recipe.without))
