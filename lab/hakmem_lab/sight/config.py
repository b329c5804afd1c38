"""The options in force: of a process from its metadata, of a program from what the library prints before its main."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hakmem_lab.checkout import Checkout
from hakmem_lab.errors import LabError
from hakmem_lab.processes import program_run
from hakmem_lab.sight.books import Books
from hakmem_lab.sight.books_reader import books_read
from hakmem_lab.sight.launch import environment_on
from hakmem_lab.sight.memory import memory_open
from hakmem_lab.sight.options import (
    PREFIX,
    PROFILE,
    Mistake,
    Option,
    mistakes_find,
    mistakes_told,
    profiles_ignored,
)
from hakmem_lab.sight.page import pages_find
from hakmem_lab.sight.process import SELF, Process
from hakmem_lab.sight.program import needs_preload

ASK = "HAKMEM_SHOW_OPTIONS"
ANSWER_SECONDS = 30.0
ANSWER_BEGINS = '{"hakmem"'
NOT_SHOWN = ("?", "\N{REPLACEMENT CHARACTER}")
"""What stands for the letters of a path that are not ASCII, or no text."""
FILE_BYTES_MAX = 4095
"""Of a profile's file; the library reads no longer one."""


@dataclass(frozen=True)
class Config:
    of: str
    """The process or program whose options they are."""
    library: str
    """hakmem's version."""
    options: tuple[Option, ...]
    mistakes: tuple[Mistake, ...]

    def option(self, name: str) -> Option:
        return next(option for option in self.options if option.name == name)


def config_of_process(process: Process) -> list[Config]:
    """For each copy of hakmem in it."""
    with memory_open(process) as memory:
        copies = [books_read(page) for page in pages_find(memory, process.mappings())]
    return [
        Config(
            f"process {process.pid}, {process.name} ({books.page.owner.rpartition('/')[2]})",
            books.page.library,
            books.options,
            tuple(mistakes_of_process(process, books)),
        )
        for books in copies
    ]


def mistakes_of_process(process: Process, books: Books) -> list[Mistake]:
    """In its environment; and profiles' files that it could not use."""
    found = mistakes_find(process.environment(), books.options, books.other_variables)
    return [*found, *profile_mistakes(process, process.environment(), books.options)]


def profile_mistakes(
    process: Process, environment: Mapping[str, str], options: Iterable[Option]
) -> Iterator[Mistake]:
    """Profiles' files that ENVIRONMENT named as PROCESS began, and that it could not use; and why, if that still shows."""
    for option in options:
        for profile in profiles_ignored(environment, option) if option.name == PROFILE else ():
            complaint = file_complaint(process.file(profile)) if _can_be_found(process, profile) else ""
            setting = f"the profile {profile}"
            yield Mistake(setting, "", "", "", f"{setting} is ignored{complaint and f': {complaint}'}")


def _can_be_found(process: Process, profile: str) -> bool:
    """Whether PROFILE is where the process had it, as far as can be seen: a relative path is of the folder in which
    the program started."""
    if any(letter in profile for letter in NOT_SHOWN):
        return False
    if process.pid == SELF or profile.startswith("/"):
        return True
    started_in = process.environment().get("PWD", "")
    with suppress(OSError):
        return started_in.startswith("/") and process.file(started_in).samefile(process.place("cwd"))
    return False


def file_complaint(file: Path) -> str:
    """Why the library would not read a profile's FILE, in its words; empty where it would."""
    try:
        if not stat.S_ISREG(file.stat().st_mode) and not file.is_dir():
            return ""  # a device or a pipe gives what it has once
        with file.open("rb") as opened:
            content = opened.read(FILE_BYTES_MAX + 1)
    except OSError:
        return "it cannot be read"
    if len(content) > FILE_BYTES_MAX:
        return f"it is longer than {FILE_BYTES_MAX} bytes"
    return "it holds bytes that are no text" if b"\0" in content else ""


def config_of_command(checkout: Checkout, command: Sequence[str]) -> Config:
    """The library prints them as it starts in the program, and ends it before its main. Mistakes are found in the
    environment; those that it does not show, in the lines that the library also prints."""
    preload = needs_preload(command[0], checkout.library)
    environment = environment_on(checkout, preload, **{ASK: "1"})
    try:
        done = program_run(command, ANSWER_SECONDS, env=environment)
    except OSError as error:
        raise LabError(f"{command[0]} cannot be started: {error.strerror}") from error
    except subprocess.TimeoutExpired:
        raise LabError(f"{command[0]} went on to its main: hakmem was not loaded into it") from None
    if not done.output.startswith(ANSWER_BEGINS):
        raise LabError(f"{command[0]} went on to its main: hakmem was not loaded into it")
    answer = json.loads(done.output)
    options = tuple(Option(**{"decided": "", **one}) for one in answer["options"])
    settings = {name: value for name, value in os.environ.items() if name.startswith(PREFIX)}
    mistakes = mistakes_find(settings, options, answer["other_variables"])
    mistakes += mistakes_told(done.errors, mistakes)
    if not any(mistake.told for mistake in mistakes):  # the option quiet silences the library
        mistakes += profile_mistakes(Process(SELF), settings, options)
    owner = "this checkout's" if preload else "its own"
    return Config(f"{command[0]} on {owner} hakmem", answer["hakmem"], options, tuple(mistakes))
